"""The moment at which a service is stepped, on the three clocks that matter."""

from __future__ import annotations

from typing import Final, NamedTuple

from raftsched.core.records.ids import TimeMs
from raftsched.ports import Clock

NEVER_MS: Final = 1 << 62
"""Later than any other time: never."""


class Now(NamedTuple):
    """One moment, in whole milliseconds.

    Durations (leases, waits, pauses) are measured on the monotonic clock: nobody can set it. Due times are cluster
    time, which each node estimates (`consensus.cluster_clock`) independently of jumps of its wall clock.
    """

    monotonic_ms: int
    cluster_ms: int
    """The leader's estimate of cluster time: never behind what was applied. It can go back when clocks are
    corrected."""
    wall_ms: int
    """The time that the node's wall clock shows."""

    @classmethod
    def of(cls, clock: Clock, applied_ms: int) -> Now:
        """Return the present moment; `applied_ms` is the cluster time of the last applied entry."""
        wall_ms = clock.wall_ms()
        return cls(round(clock.monotonic() * 1000), max(applied_ms, wall_ms), wall_ms)

    def monotonic_before(self, cluster_ms: int) -> int:
        """Convert `cluster_ms` of the past to monotonic milliseconds; never later than now."""
        return self.monotonic_ms - max(0, self.cluster_ms - cluster_ms)

    def cluster_before(self, monotonic_ms: int) -> TimeMs:
        """Convert `monotonic_ms` of the past to cluster time; never later than now, never negative."""
        return TimeMs(max(0, self.cluster_ms - max(0, self.monotonic_ms - monotonic_ms)))

    def monotonic_at(self, cluster_ms: int) -> int:
        """Return when `cluster_ms` is reached, in monotonic milliseconds; never before now.

        Counted from the clock: if cluster time is ahead of it, cluster time stays still until the clock catches up.
        """
        left_ms = cluster_ms - self.wall_ms
        return self.monotonic_ms + left_ms if left_ms > 0 else self.monotonic_ms
