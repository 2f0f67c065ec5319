"""Count measured values in buckets."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

DISK_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""Bounds, in seconds, of what waits for a disk."""


class Histogram:
    """Count values by buckets, as Prometheus does: a bucket holds the values up to its bound, and above the one before.

    `bounds` rise. An observation takes half a microsecond. One thread observes.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds: Final = tuple(bounds)
        self.counts: Final = [0] * (len(bounds) + 1)
        """Values in each bucket; the last one is for values above all bounds."""
        self.total = 0.0
        """Sum of all values."""

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value
