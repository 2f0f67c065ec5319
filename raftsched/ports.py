"""Ports to the outside world: clock, disk and randomness, each with a real and a simulated version.

The network's port is pysyncobj's `Transport`; see `raftsched.consensus.net.transport`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Two clocks: one that only runs forward, for durations, and the wall clock, which people can set."""

    def monotonic(self) -> float:
        """Return seconds since some fixed moment; never runs backward; counts time of suspension, too."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC by this machine; may jump."""


class Randomness(Protocol):
    """Source of jitter, ids and election timeouts; `random.Random` and `random.SystemRandom` fit."""

    def random(self) -> float: ...
    def randint(self, a: int, b: int) -> int: ...
    def randbytes(self, n: int) -> bytes: ...


class AppendFile(Protocol):
    """An append-only file; written bytes are durable only after `datasync` returned."""

    @property
    def size(self) -> int:
        """Bytes in the file, written ones included."""

    def write(self, data: bytes) -> None:
        """Append all of `data`; raises OSError, after which the file may hold a part of it."""

    def datasync(self) -> None:
        """Make all written bytes durable; may be called from another thread. An OSError is final: never retry."""

    def close(self) -> None:
        """Close the file; makes nothing durable. Closing twice is allowed, any other use after it is an OSError."""


class Disk(Protocol):
    """One directory of append-only files: names are plain file names in it. Every method may raise OSError.

    There is no truncation and no writing in place: to change a file, write another and rename it.
    """

    def names(self) -> list[str]:
        """The files' names, sorted."""

    def create(self, name: str) -> AppendFile:
        """Create a new, empty file; its name is durable only after `sync_directory`. FileExistsError if it exists."""

    def read(self, name: str, offset: int = 0, length: int = -1) -> bytes:
        """Return `length` bytes from `offset` on (-1: to the end), fewer if the file ends before."""

    def remove(self, name: str) -> None:
        """Remove the file; a crash before `sync_directory` may bring it back."""

    def replace(self, source: str, target: str) -> None:
        """Rename over `target`, all or nothing; durable only after `sync_directory`. Open files follow their file."""

    def sync_directory(self) -> None:
        """Make every name that was created, removed or replaced durable."""


Wake = Callable[[], None]
"""Notify a shell that there is something to step."""
