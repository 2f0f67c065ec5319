"""Check the data directory: its owner, its file system, its space, and the speed of its syncs."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from raftsched.config import NodeConfig
from raftsched.node.doctor.finding import Finding, fail, ok, skip, warn

_NETWORK: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre", "afs", "beegfs", "virtiofs"}
)
_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
_LAYERS: Final = frozenset({"overlay", "aufs"})
_SYNCS: Final = 100
_SYNC_BYTES: Final = 4_096
_SECONDS_MAX: Final = 3.0
_GOOD_MS: Final = 20.0
_UNBELIEVABLE_MS: Final = 0.01
_MOUNTS: Final = Path("/proc/self/mounts")


class SyncTimes(NamedTuple):
    """Times of writes that were synced, one after the other, in milliseconds."""

    p50_ms: float
    p99_ms: float
    sync_count: int


def disk_findings(config: NodeConfig, *, mounts: Path = _MOUNTS) -> Iterator[Finding]:
    """Check the data directory, or the one in which it will be made."""
    directory = config.directory.absolute()
    existing = next(each for each in (directory, *directory.parents) if each.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        yield skip("disk speed", f"{existing} can't be written by this user")
        return
    if existing == directory:
        yield _owner(directory)
    yield file_system_finding(existing, mounts)
    yield _space(existing, config.disk_reserve_mib << 20)
    try:
        times = sync_times(existing)
    except OSError as error:
        yield fail(
            "disk speed", f"a write to {existing} failed: {error.strerror}", "Repair the disk, or choose another."
        )
    else:
        yield judged_speed(times, existing, config.election_seconds_min * 1000)


def _owner(directory: Path) -> Finding:
    status = directory.stat()
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid != os.geteuid():
        found = f"{directory} belongs to user {status.st_uid}, and this process runs as {os.geteuid()}"
        return warn("data directory", found, "Run this command, and the node, as the owner of the directory.")
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        return warn("data directory", f"{directory} has mode {mode:04o}", f"Run `chmod 0700 {directory}`.")
    return ok("data directory", f"{directory}, owner {status.st_uid}, mode {mode:04o}")


def file_system_finding(directory: Path, mounts: Path) -> Finding:
    """Check the file system that holds a directory; `mounts` lists them as /proc/self/mounts does."""
    kind = _file_system_of(directory.resolve(), mounts)
    if not kind:
        return skip("file system", "this system does not tell")
    found = f"{directory} is on {kind}"
    if kind in _NETWORK or kind.startswith("fuse."):
        cure = "Use a local disk: syncs and locks of a network file system may lie, and each commit waits for one."
        return warn("file system", found, cure)
    if kind in _MEMORY:
        return warn("file system", f"{found}: it is gone after a restart of the machine", "Use a disk.")
    if kind in _LAYERS:
        return warn("file system", f"{found}: it is gone with its container", "Mount a volume there.")
    return ok("file system", found)


def _file_system_of(directory: Path, mounts: Path) -> str:
    """Return the kind of the last mount that holds the directory; "" if it is not known."""
    try:
        lines = [line.split() for line in mounts.read_text(encoding="utf-8").splitlines()]
    except OSError:
        return ""
    found, kind = -1, ""
    for _, point, name, *_ in lines:
        path = Path(point.replace("\\040", " "))
        if directory.is_relative_to(path) and len(path.parts) >= found:
            found, kind = len(path.parts), name
    return kind


def _space(directory: Path, reserve_bytes: int) -> Finding:
    disk = shutil.disk_usage(directory)
    found = f"{disk.free >> 20:,} MiB of {disk.total >> 20:,} MiB free, reserve {reserve_bytes >> 20:,} MiB"
    if disk.free < reserve_bytes:
        return fail("disk space", found, "Free space: the cluster refuses new work while a majority is so low.")
    if disk.free < 4 * reserve_bytes or disk.free * 100 < disk.total * 15:
        return warn("disk space", found, "Free space, or shorten retention.")
    return ok("disk space", found)


def sync_times(directory: Path, *, count: int = _SYNCS) -> SyncTimes:
    """Measure writes of 4 KiB with a sync after each, in a file without a name; at most three seconds."""
    times: list[float] = []
    end = time.perf_counter() + _SECONDS_MAX
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        block = os.urandom(_SYNC_BYTES)
        while len(times) < count and (not times or time.perf_counter() < end):
            began = time.perf_counter()
            file.write(block)
            os.fdatasync(file.fileno())
            times.append(1000 * (time.perf_counter() - began))
    times.sort()
    return SyncTimes(times[len(times) // 2], times[min(len(times) - 1, len(times) * 99 // 100)], len(times))


def judged_speed(times: SyncTimes, directory: Path, election_ms: float) -> Finding:
    """Judge the time of syncs: each commit waits for one on a majority, and elections wait for them."""
    found = f"{times.sync_count} synced writes in {directory}: p50 {times.p50_ms:.2f} ms, p99 {times.p99_ms:.2f} ms"
    if times.p99_ms >= election_ms:
        cure = "Use a faster disk: a node whose sync takes longer than an election loses its lead."
        return fail("disk speed", found, cure)
    if times.p99_ms > _GOOD_MS:
        cure = (
            f"Each commit waits for it. Use a disk with a p99 below {_GOOD_MS:g} ms, and let nothing else write to it."
        )
        return warn("disk speed", found, cure)
    if times.p50_ms < _UNBELIEVABLE_MS:
        cure = "Find out whether it acknowledges syncs that it did not do; data is lost at a power failure then."
        return warn("disk speed", f"{found}: faster than disks are", cure)
    return ok("disk speed", found)
