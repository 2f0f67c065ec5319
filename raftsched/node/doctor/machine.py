"""Check the machine: versions, limits of the process and the container, memory, and the synchronisation of its clock."""

from __future__ import annotations

import ctypes
import platform
import resource
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Final

from raftsched.node.doctor.finding import Finding, fail, ok, skip, warn

_FILES_MIN: Final = 1_024
_FILES_GOOD: Final = 16_384
"""A worker that waits for jobs holds a connection, and so does each request that a follower forwards."""
_MIB: Final = 1 << 20
_MEMORY_MIN_MIB: Final = 256
_MEMORY_GOOD_MIB: Final = 512
_CPUS_GOOD: Final = 1.0
_CLOCK_STATUS: Final = 0x40
"""STA_UNSYNC of adjtimex(2)."""
_TIMEX_BYTES: Final = 256
"""At least the size of `struct timex`."""
_CGROUP: Final = Path("/sys/fs/cgroup")
_MEMORY: Final = Path("/proc/meminfo")


def machine_findings(map_bytes: int, *, cgroup: Path = _CGROUP, memory: Path = _MEMORY) -> Iterator[Finding]:
    """Check the machine for a node that reserves `map_bytes` of address space."""
    yield ok(
        "versions",
        f"raftsched {version('raftsched')}, Python {platform.python_version()}, lmdb {version('lmdb')}, "
        f"{platform.system()} {platform.release()}",
    )
    yield _open_files(resource.getrlimit(resource.RLIMIT_NOFILE))
    yield _address_space(resource.getrlimit(resource.RLIMIT_AS)[0], map_bytes)
    yield _memory(memory)
    yield from container_findings(cgroup)
    yield _time_sync()


def _open_files(limits: tuple[int, int]) -> Finding:
    soft, hard = limits
    if soft == resource.RLIM_INFINITY or soft >= _FILES_GOOD:
        return ok("open files", f"limit {'none' if soft == resource.RLIM_INFINITY else f'{soft:,}'}")
    more = "LimitNOFILE= of the unit" if hard >= _FILES_GOOD else "the hard limit of its user or container"
    cure = f"Raise it to {_FILES_GOOD:,}: {more}, or `ulimit -n`."
    found = f"limit {soft:,}; each waiting worker and each connection needs one"
    return (fail if soft < _FILES_MIN else warn)("open files", found, cure)


def _address_space(soft: int, map_bytes: int) -> Finding:
    if soft == resource.RLIM_INFINITY:
        return ok("address space", "limit none")
    found = f"limit {soft // _MIB:,} MiB, and the state reserves {map_bytes // _MIB:,} MiB at first"
    if soft < 2 * map_bytes:
        return fail(
            "address space", found, "Remove the limit (`ulimit -v unlimited`), or set a smaller state_map_bytes."
        )
    return ok("address space", found)


def _memory(path: Path) -> Finding:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
        kib = {name: int(text.split()[0]) for name, _, text in (line.partition(":") for line in lines)}
        total, available = kib["MemTotal"] // 1024, kib["MemAvailable"] // 1024
    except (OSError, ValueError, LookupError):
        return skip("memory", "this system does not tell")
    found = f"{total:,} MiB, {available:,} MiB of them available"
    return _judged_memory("memory", available, found)


def _judged_memory(check: str, mib: int, found: str) -> Finding:
    if mib >= _MEMORY_GOOD_MIB:
        return ok(check, found)
    cure = f"Give a node {_MEMORY_GOOD_MIB} MiB or more; one without memory is killed by the kernel."
    return (fail if mib < _MEMORY_MIN_MIB else warn)(check, found, cure)


def container_findings(cgroup: Path) -> Iterator[Finding]:
    """Check the limits of this process's container or unit, of version 2 or 1 of control groups."""
    memory = _limit(cgroup / "memory.max") or _limit(cgroup / "memory" / "memory.limit_in_bytes")
    if memory is None:
        yield ok("container memory", "no limit")
    else:
        yield _judged_memory("container memory", memory // _MIB, f"limit {memory // _MIB:,} MiB")
    cpus = _cpus(cgroup)
    if cpus is None:
        yield ok("container CPU", "no limit")
    elif cpus < _CPUS_GOOD:
        cure = "Give a node one CPU or more: one that is throttled misses heartbeats, and loses its lead."
        yield warn("container CPU", f"limit {cpus:g} CPUs", cure)
    else:
        yield ok("container CPU", f"limit {cpus:g} CPUs")


def _limit(path: Path) -> int | None:
    """Return the number in a file; None without one, or if it is larger than any memory."""
    try:
        number = int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # `max` is no limit
        return None
    return number if number < 1 << 60 else None


def _cpus(cgroup: Path) -> float | None:
    try:
        quota, period = (cgroup / "cpu.max").read_text(encoding="ascii").split()
        return int(quota) / int(period)
    except (OSError, ValueError):
        quota_us, period_us = (_limit(cgroup / "cpu" / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        return quota_us / period_us if quota_us and period_us and quota_us > 0 else None


def _time_sync() -> Finding:
    """Ask the kernel whether a daemon keeps its clock; this reads only."""
    if sys.platform != "linux":
        return skip("time sync", "known on Linux only")
    buffer = ctypes.create_string_buffer(_TIMEX_BYTES)  # modes 0: nothing is set
    library = ctypes.CDLL(None, use_errno=True)
    state = library.adjtimex(buffer)
    if state < 0:
        return skip("time sync", "the kernel does not tell it to this process")
    status_offset = 4 * ctypes.sizeof(ctypes.c_long) + (ctypes.sizeof(ctypes.c_long))
    status = ctypes.c_int.from_buffer(buffer, status_offset).value
    if status & _CLOCK_STATUS:
        cure = (
            "Run chrony, systemd-timesyncd or ntpd. Safety does not need it; start times and leases that are fair do."
        )
        return warn("time sync", "the kernel says that nothing synchronises its clock", cure)
    return ok("time sync", "the kernel's clock is synchronised")
