"""The outside world as objects handed in: clock, disk and randomness, each with a real and a simulated version.

The network's port is pysyncobj's `Transport`; see `raftsched.consensus.net.transport`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Two clocks: one that only runs forward, for durations, and the wall clock, which people can set."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never runs backward, and counts the time for which the machine is suspended."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC by this machine; may jump."""


class Randomness(Protocol):
    """Where jitter, ids and election timeouts come from; `random.Random` and `random.SystemRandom` fit."""

    def random(self) -> float: ...
    def randint(self, a: int, b: int) -> int: ...
    def randbytes(self, n: int) -> bytes: ...


class AppendFile(Protocol):
    """An append-only file; what is written is durable only after `datasync` returned."""

    @property
    def size(self) -> int:
        """Bytes in the file, written ones included."""

    def write(self, data: bytes) -> None:
        """Append all of `data`; raises OSError, after which the file may hold a part of it."""

    def datasync(self) -> None:
        """Make all written bytes durable; may be called from another thread. An OSError is final: never retry."""

    def close(self) -> None:
        """Let go of the file; makes nothing durable. Closing twice is allowed, any other use after it is an OSError."""


class Disk(Protocol):
    """One directory of append-only files: names are plain file names in it. Every method may raise OSError.

    There is no truncation and no writing in place: who wants to change a file writes another and renames it.
    """

    def names(self) -> list[str]:
        """The files' names, sorted."""

    def create(self, name: str) -> AppendFile:
        """Create a new, empty file; its name is durable only after `sync_directory`. FileExistsError if it exists."""

    def read(self, name: str, offset: int = 0, length: int = -1) -> bytes:
        """`length` bytes from `offset` on (-1: to the end), fewer where the file ends before."""

    def remove(self, name: str) -> None:
        """Remove the file; a crash before `sync_directory` may bring it back."""

    def replace(self, source: str, target: str) -> None:
        """Rename over `target`, all or nothing; durable only after `sync_directory`. Open files follow their file."""

    def sync_directory(self) -> None:
        """Make every name that was created, removed or replaced durable."""


Wake = Callable[[], None]
"""Tells a shell that there is something to step."""
