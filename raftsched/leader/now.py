"""The moment at which a service is stepped, on the three clocks that matter."""

from __future__ import annotations

from typing import Final, NamedTuple

from raftsched.core.records.ids import TimeMs
from raftsched.ports import Clock

NEVER_MS: Final = 1 << 62
"""A time that does not come."""


class Now(NamedTuple):
    """One moment, in whole milliseconds.

    Durations (leases, waits, pauses) are measured on the monotonic clock: nobody can set it. Due times are cluster
    time, of which a node's clock (`consensus.cluster_clock`) has an estimate that no jump of its wall clock enters.
    """

    monotonic_ms: int
    cluster_ms: int
    """The leader's estimate of cluster time: never behind what was applied. It goes back if clocks are corrected."""
    wall_ms: int
    """What its clock shows."""

    @classmethod
    def of(cls, clock: Clock, applied_ms: int) -> Now:
        """The present moment; `applied_ms` is the cluster time of the last applied entry."""
        wall_ms = clock.wall_ms()
        return cls(round(clock.monotonic() * 1000), max(applied_ms, wall_ms), wall_ms)

    def monotonic_before(self, cluster_ms: int) -> int:
        """When it was `cluster_ms`, in monotonic milliseconds; never after now."""
        return self.monotonic_ms - max(0, self.cluster_ms - cluster_ms)

    def cluster_before(self, monotonic_ms: int) -> TimeMs:
        """When it was `monotonic_ms`, in cluster time; never after now, and not before time began."""
        return TimeMs(max(0, self.cluster_ms - max(0, self.monotonic_ms - monotonic_ms)))

    def monotonic_at(self, cluster_ms: int) -> int:
        """When `cluster_ms` is reached, in monotonic milliseconds; never before now.

        Counted from the clock: where cluster time is ahead of it, cluster time stands still until it is caught up.
        """
        left_ms = cluster_ms - self.wall_ms
        return self.monotonic_ms + left_ms if left_ms > 0 else self.monotonic_ms
