"""What an operator can set about the leader's duties."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderSettings:
    """All in milliseconds, all positive; the same on every node, since any of them may lead."""

    lease_ttl_ms: int = 10_000
    """A worker that is silent for this long has lost its jobs."""
    cancel_grace_ms: int = 30_000
    """How long a running job may go on after its cancellation was asked for; then its lease ends."""
    ageing_ms: int = 300_000
    """A waiting job gains one priority for each of these, where its queue does not say otherwise."""
    retention_ms: int = 7 * 86_400_000
    """Finished jobs are kept this long, where neither they nor their queue say otherwise."""
    retention_every_ms: int = 5_000
    """How often they are looked for; a look that finds none costs one read."""
    worker_forget_ms: int = 600_000
    """A worker not heard of for this long is no longer listed."""

    @property
    def worker_mark_ms(self) -> int:
        """How often the log hears of living workers: often enough that a new leader can tell who was alive."""
        return max(1, self.lease_ttl_ms // 3)

    @property
    def lease_silence_ms(self) -> int:
        """A lease not renewed for this long is listed with its worker's mark: longer than workers take between beats."""
        return max(1, self.lease_ttl_ms // 2)
