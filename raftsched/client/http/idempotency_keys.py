"""Create idempotency keys: short, unique, and rising with time.

A key is the factory's creation time in milliseconds, random bits, and a counter. So keys of one client are adjacent in
the cluster's index, which is far cheaper than random keys.
"""

from __future__ import annotations

from itertools import count

from raftsched.ports import Clock, Randomness


class KeyFactory:
    """Creates keys that no other factory creates; a forked process needs its own factory."""

    __slots__ = ("_next", "prefix")

    def __init__(self, clock: Clock, randomness: Randomness) -> None:
        self.prefix = f"{clock.wall_ms():012x}{randomness.randbytes(6).hex()}"
        self._next = count(1).__next__

    def next(self) -> str:
        return f"{self.prefix}{self._next():08x}"
