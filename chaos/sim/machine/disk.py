"""A disk that forgets: `raftsched.ports.Disk` in memory, with power losses, failing calls and rot, all by a seed.

Each file has what readers see (the page cache) and what is durable, and the ranges in which they differ. Each name has
the same: the directory as it is seen, the directory as it is durable, and the operations between. `datasync` and
`sync_directory` close the gap; `power_loss` closes it the other way round, after letting any part of it reach the disk:

- of what was written and not synced, any set of 512-byte sectors, in any order; a file may also have its new size with
  zeros, or old blocks of other files, in place of lost sectors;
- of the names that were changed and not synced, any subset of the changes; a rename is one change.

A sector is written whole or not at all, and never takes synced bytes with it. A sync that fails drops what it should
have written for good: readers still see it, and the next sync says that all is well ("fsyncgate").

Left out: time. Whoever simulates a slow disk calls `datasync` later.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from raftsched.ports import Randomness

SECTOR_BYTES = 512
T = TypeVar("T")


class PowerCut(BaseException):  # not an error: the machine is gone, and no handler may continue
    """The call was not done, because the machine stopped before it."""


@dataclass(slots=True, eq=False)
class _Content:
    """The bytes of one file, whatever its name."""

    seen: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, int]] = field(default_factory=list)

    def append(self, data: bytes) -> None:
        self.unsynced.append((len(self.seen), len(self.seen) + len(data)))
        self.seen += data

    def sync(self) -> None:
        for start, stop in self.unsynced:
            self._make_durable(start, stop)
        self.unsynced.clear()

    def lose(self, randomness: Randomness) -> None:
        """Power loss: some of the unsynced sectors got to the disk, and only what is there is seen afterwards."""
        synced_bytes = len(self.durable)
        kept = _survivors(list(self._unsynced_sectors()), randomness)
        size = len(self.seen) if randomness.random() < 0.3 else max((stop for _, stop in kept), default=0)
        if size > synced_bytes:
            missing = size - synced_bytes
            self.durable += randomness.randbytes(missing) if randomness.random() < 0.3 else bytes(missing)
        for start, stop in kept:
            self._make_durable(start, stop)
        self.seen[:] = self.durable
        self.unsynced.clear()

    def _make_durable(self, start: int, stop: int) -> None:
        if len(self.durable) < stop:
            self.durable += bytes(stop - len(self.durable))
        self.durable[start:stop] = self.seen[start:stop]

    def _unsynced_sectors(self) -> Iterator[tuple[int, int]]:
        for start, stop in self.unsynced:
            at = start
            while at < stop:
                sector_stop = min(stop, at - at % SECTOR_BYTES + SECTOR_BYTES)
                yield at, sector_stop
                at = sector_stop


@dataclass(slots=True, eq=False)
class _Failure:
    call: str
    error: int
    skip: int


class SimulatedFile:
    """An append-only file of a `SimulatedDisk`; every use after a crash is an error, as of another process."""

    def __init__(self, disk: SimulatedDisk, content: _Content) -> None:
        self._disk = disk
        self._content = content
        self._epoch = disk.epoch

    @property
    def size(self) -> int:
        return len(self._content.seen)

    def write(self, data: bytes) -> None:
        self._check_open()
        self._disk.write(self._content, data)

    def datasync(self) -> None:
        self._check_open()
        self._disk.datasync(self._content)

    def close(self) -> None:
        self._epoch = -1

    def _check_open(self) -> None:
        if self._epoch != self._disk.epoch:
            raise _error(errno.EBADF)


class SimulatedDisk:
    """One directory. `capacity_bytes` bounds what its files hold; a write that passes it is done in part, then fails.

    `call_count` counts the calls that change something, `sync_count` the syncs of files and of the directory.
    """

    def __init__(self, randomness: Randomness, *, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.call_count = 0
        self.sync_count = 0
        self.epoch = 0
        self._randomness = randomness
        self._seen: dict[str, _Content] = {}
        self._durable: dict[str, _Content] = {}
        self._changes: list[dict[str, _Content | None]] = []
        self._failures: list[_Failure] = []
        self._calls_left: int | None = None

    # -- the port ------------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        return sorted(self._seen)

    def create(self, name: str) -> SimulatedFile:
        self._call("create")
        if name in self._seen:
            raise _error(errno.EEXIST)
        content = _Content()
        self._change({name: content})
        return SimulatedFile(self, content)

    def read(self, name: str, offset: int = 0, length: int = -1) -> bytes:
        self._fail_if_due("read")
        stop = None if length < 0 else offset + length
        return bytes(self._content(name).seen[offset:stop])

    def remove(self, name: str) -> None:
        self._call("remove")
        self._content(name)
        self._change({name: None})

    def replace(self, source: str, target: str) -> None:
        self._call("replace")
        self._change({source: None, target: self._content(source)})

    def sync_directory(self) -> None:
        self._call("sync_directory")
        self.sync_count += 1
        self._durable = dict(self._seen)
        self._changes.clear()

    # -- the files' part -----------------------------------------------------------------------------------------------

    def write(self, content: _Content, data: bytes) -> None:
        try:
            self._call("write")
        except OSError:
            content.append(data[: self._randomness.randint(0, len(data))])
            raise
        room = len(data) if self.capacity_bytes is None else max(0, self.capacity_bytes - self._used_bytes())
        content.append(data[:room])
        if room < len(data):
            raise _error(errno.ENOSPC)

    def datasync(self, content: _Content) -> None:
        try:
            self._call("datasync")
        except OSError:
            content.unsynced.clear()
            raise
        self.sync_count += 1
        content.sync()

    # -- what befalls it -----------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """The process dies: its files are closed, and all that it wrote is there."""
        self.epoch += 1
        self._calls_left = None
        self._failures.clear()

    def power_loss(self) -> None:
        """The machine dies: an arbitrary part of what was not synced is lost."""
        self.kill()
        for changes in _survivors(self._changes, self._randomness):
            _apply(self._durable, changes)
        self._changes.clear()
        for content in dict.fromkeys([*self._seen.values(), *self._durable.values()]):
            content.lose(self._randomness)
        self._seen = dict(self._durable)

    def cut_power_after(self, call_count: int | None) -> None:
        """Let this many changing calls pass (None: all); then none is done and each raises PowerCut, until a crash."""
        self._calls_left = call_count

    def fail(self, call: str, error: int = errno.EIO, *, skip: int = 0) -> None:
        """Let the next call of this name, after `skip` others, raise OSError, once.

        A failing write is done in part, a failing sync is as in the module's header.
        """
        self._failures.append(_Failure(call, error, skip))

    def flip(self, name: str, offset: int, bit: int) -> None:
        """Rot: one bit changes, on the disk and for readers."""
        content = self._content(name)
        content.seen[offset] ^= 1 << bit
        if offset < len(content.durable):
            content.durable[offset] ^= 1 << bit

    def lose(self, name: str) -> None:
        """Someone removes this file, durably."""
        del self._seen[name]
        self._durable.pop(name, None)

    def plant(self, name: str, data: bytes) -> None:
        """Someone puts this file there, durably: an older copy, a shorter one, another node's."""
        content = _Content(bytearray(data), bytearray(data))
        self._seen[name] = self._durable[name] = content

    # -- within --------------------------------------------------------------------------------------------------------

    def _content(self, name: str) -> _Content:
        if name not in self._seen:
            raise _error(errno.ENOENT)
        return self._seen[name]

    def _change(self, changes: dict[str, _Content | None]) -> None:
        self._changes.append(changes)
        _apply(self._seen, changes)

    def _used_bytes(self) -> int:
        return sum(len(content.seen) for content in self._seen.values())

    def _call(self, name: str) -> None:
        if self._calls_left is not None:
            if self._calls_left == 0:
                raise PowerCut
            self._calls_left -= 1
        self.call_count += 1
        self._fail_if_due(name)

    def _fail_if_due(self, name: str) -> None:
        failure = next((failure for failure in self._failures if failure.call == name), None)
        if failure is None:
            return
        failure.skip -= 1
        if failure.skip < 0:
            self._failures.remove(failure)
            raise _error(failure.error)


def _survivors(items: list[T], randomness: Randomness) -> list[T]:
    """None, all, a prefix, or any subset, in their order."""
    kind = randomness.randint(0, 3)
    if kind == 0:
        return []
    if kind == 1:
        return items
    if kind == 2:
        return items[: randomness.randint(0, len(items))]
    chance = randomness.random()
    return [item for item in items if randomness.random() < chance]


def _apply(directory: dict[str, _Content], changes: dict[str, _Content | None]) -> None:
    for name, content in changes.items():
        if content is None:
            directory.pop(name, None)
        else:
            directory[name] = content


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
