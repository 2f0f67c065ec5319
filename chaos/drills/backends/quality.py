"""Bad links: delay, jitter, loss, repetition, reordering, a limited bandwidth.

`Link` is pure: given a packet's size and the time, it says when the packet arrives. Backends carry packets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

BACKLOG_SECONDS_MAX: Final = 0.5
"""A narrow link keeps back that much; a router drops the rest, as here."""
_NEVER: Final = 0.0


@dataclass(frozen=True, slots=True)
class Quality:
    """The faults of one direction of a link; without arguments it is perfect. Parts are from 0 to 1."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    """Each packet takes up to this much longer, drawn evenly; it does not overtake the one before."""
    lost: float = 0.0
    """Part of the packets."""
    repeated: float = 0.0
    """Part of the packets that arrive twice."""
    overtaking: float = 0.0
    """Part of the packets that do not wait for those before; it needs a jitter."""
    bytes_per_second: float = 0.0
    """0 = no limit."""

    @property
    def drops_packets(self) -> bool:
        """Return whether it needs packets: a stream loses, repeats and reorders nothing."""
        return bool(self.lost or self.repeated or self.overtaking)


class Link:
    """One direction of a link; times are seconds of whichever clock the caller has."""

    def __init__(self, quality: Quality, random: Random) -> None:
        self.quality: Final = quality
        self._random = random
        self._free_at = _NEVER
        self._last_at = _NEVER

    def backlog_seconds(self, now: float) -> float:
        """Return how long a packet waits before it is sent: nothing on a link without a limit."""
        return max(0.0, self._free_at - now)

    def arrivals(self, size: int, now: float) -> Sequence[float]:
        """Return when a packet of `size` bytes arrives: never if it is lost, twice if it is repeated."""
        quality, random = self.quality, self._random
        if quality.bytes_per_second:
            self._free_at = max(now, self._free_at) + size / quality.bytes_per_second
        if quality.lost and random.random() < quality.lost:
            return ()
        first = self._arrival(now)
        return (first, self._arrival(now)) if quality.repeated and random.random() < quality.repeated else (first,)

    def _arrival(self, now: float) -> float:
        quality, random = self.quality, self._random
        at = max(now, self._free_at) + (quality.delay_ms + quality.jitter_ms * random.random()) / 1000
        if quality.overtaking and random.random() < quality.overtaking:
            return at
        self._last_at = max(at, self._last_at)
        return self._last_at
