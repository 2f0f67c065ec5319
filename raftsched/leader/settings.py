"""Settings of the leader's duties for operators."""

from __future__ import annotations

from dataclasses import dataclass

from raftsched.encryption.keys import KeyCheck


@dataclass(slots=True, kw_only=True)
class LeaderSettings:
    """Times in milliseconds, all positive; the same on every node, since any of them may lead.

    `cancel_grace_ms`, `retention_ms` and `key` may change while a leader uses them; the others don't.
    """

    lease_ttl_ms: int = 10_000
    """A worker that is silent for this long loses its jobs."""
    cancel_grace_ms: int = 30_000
    """Time for a running job to stop after its cancellation was requested; then its lease ends."""
    ageing_ms: int = 300_000
    """A waiting job gains one priority for each of these, unless its queue sets another period."""
    retention_ms: int = 7 * 86_400_000
    """Retention of finished jobs, unless the job or its queue sets another."""
    retention_every_ms: int = 5_000
    """Interval between searches for jobs to purge; a search that finds none costs one read."""
    key: KeyCheck | None = None
    """The key with which this node encrypts its files; None if it has none."""
    worker_forget_ms: int = 600_000
    """A worker that is silent for this long is no longer listed."""

    @property
    def worker_mark_ms(self) -> int:
        """Return the interval of workers' marks in the log: short enough that a new leader can tell who was alive."""
        return max(1, self.lease_ttl_ms // 3)

    @property
    def lease_silence_ms(self) -> int:
        """Return the age from which an unrenewed lease is listed in its worker's mark: longer than between two
        heartbeats.
        """
        return max(1, self.lease_ttl_ms // 2)
