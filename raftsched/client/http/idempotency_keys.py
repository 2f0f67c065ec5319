"""Names for requests, so that a repeated one is recognised: short, unique, and rising with time.

A key is the factory's birth in milliseconds and random bits, then a counter: keys of one client stand side by side
in the cluster's index, which is far cheaper there than random ones.
"""

from __future__ import annotations

from itertools import count

from raftsched.ports import Clock, Randomness


class KeyFactory:
    """Makes keys that no other factory makes; a forked process needs one of its own."""

    __slots__ = ("_next", "prefix")

    def __init__(self, clock: Clock, randomness: Randomness) -> None:
        self.prefix = f"{clock.wall_ms():012x}{randomness.randbytes(6).hex()}"
        self._next = count(1).__next__

    def next(self) -> str:
        return f"{self.prefix}{self._next():08x}"
