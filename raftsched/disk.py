"""Implement `raftsched.ports.Disk` over one directory of this machine.

Files are written with `write`, never through a memory map: a full disk is then an error that can be reported, while a
map kills the process with SIGBUS. Nothing is buffered in this process, nothing is retried, and nothing is durable
before `datasync` (a file's bytes) or `sync_directory` (names) has returned.

Left out: preallocation (it would spare `fdatasync` a metadata update, and cost twice the writes), direct I/O, and any
protection against a disk that acknowledges a sync that it did not do.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from pathlib import Path

from raftsched.errors import InvariantBroken


class DiskFailed(InvariantBroken):
    """The disk refused a write or a sync: its content is unknown, so the process must stop.

    Never retried: after a failed sync the kernel may drop the very pages that it could not write, and the next sync
    would report success without them (the "fsyncgate" fault of PostgreSQL, 2018).
    """

    code = "disk_failed"


class SystemDisk:
    """One directory; made, durably, if it does not exist and `create` is set."""

    def __init__(self, directory: Path, *, create: bool = True) -> None:
        self._directory = directory
        self._lock_descriptor = -1
        if create:
            make_directory(directory)

    def names(self) -> list[str]:
        with os.scandir(self._directory) as entries:
            return sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))

    def create(self, name: str) -> SystemFile:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        return SystemFile(os.open(self._directory / name, flags, 0o600))

    def read(self, name: str, offset: int = 0, length: int = -1) -> bytes:
        with (self._directory / name).open("rb", buffering=0) as file:
            wanted = length if length >= 0 else max(0, os.fstat(file.fileno()).st_size - offset)
            return _read_exactly(file.fileno(), offset, wanted)

    def remove(self, name: str) -> None:
        (self._directory / name).unlink()

    def replace(self, source: str, target: str) -> None:
        (self._directory / source).replace(self._directory / target)

    def sync_directory(self) -> None:
        sync_directory(self._directory)

    def lock(self, name: str = "LOCK") -> None:
        """Keep every other process that calls this away from the directory, until this one ends.

        Raises BlockingIOError, at once, while another process holds it.
        """
        descriptor = os.open(self._directory / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        self._lock_descriptor = descriptor

    def unlock(self) -> None:
        """Release the lock before this process ends."""
        if self._lock_descriptor >= 0:
            descriptor, self._lock_descriptor = self._lock_descriptor, -1
            os.close(descriptor)


class SystemFile:
    """An append-only file of a `SystemDisk`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size

    @property
    def size(self) -> int:
        return self._size

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            written = os.write(self._open_descriptor(), rest)
            self._size += written
            rest = rest[written:]

    def datasync(self) -> None:
        descriptor = self._open_descriptor()
        if sys.platform == "darwin":
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # fsync there stops at the drive's own cache
        else:
            os.fdatasync(descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def _open_descriptor(self) -> int:
        if self._descriptor < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._descriptor


def _read_exactly(descriptor: int, offset: int, length: int) -> bytes:
    """Read with one `pread` nearly always; the kernel may return less than requested, and at most 2 GiB at once."""
    data = os.pread(descriptor, length, offset)
    if len(data) == length or not data:
        return data
    parts = [data]
    length -= len(data)
    while length and (data := os.pread(descriptor, length, offset := offset + len(parts[-1]))):
        parts.append(data)
        length -= len(data)
    return b"".join(parts)


def make_directory(directory: Path) -> list[Path]:
    """Make it and its missing parents, each one's name durable in the one above; return those made, the deepest last."""
    if directory.is_dir():
        return []
    made = make_directory(directory.parent)
    directory.mkdir(mode=0o700, exist_ok=True)
    sync_directory(directory.parent)
    return [*made, directory]


def sync_directory(directory: Path) -> None:
    """Make the names in it durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
