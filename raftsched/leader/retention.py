"""Removes finished jobs whose retention is over, in small steps.

Theory of operation. Every few seconds the index of finished jobs is asked for those that ended before the retention
began; they are purged by one bounded operation after another, with a pause between, so that other work passes.

Left out: retention by count or bytes, and per queue.
"""

from __future__ import annotations

from typing import Final

from raftsched import limits
from raftsched.core.ids import TimeMs
from raftsched.core.operations import Operation, PurgeJobs
from raftsched.core.view import Result
from raftsched.leader.now import Now
from raftsched.leader.settings import LeaderSettings
from raftsched.leader.view import LeaderView

PAUSE_MS: Final = 50
"""Between two full purges: up to 10,000 jobs a second, far more than can be submitted."""


class Retention:
    """Purges what finished longer ago than `retention_ms`."""

    name: Final = "retention"

    def __init__(self, view: LeaderView, settings: LeaderSettings) -> None:
        self._view: Final = view
        self._settings: Final = settings
        self._look_at_ms = 0

    def step(self, now: Now) -> Operation | None:
        """The next purge; None where nothing is old enough."""
        self._look_at_ms = now.monotonic_ms + self._settings.retention_every_ms
        before_ms = TimeMs(now.cluster_ms - self._settings.retention_ms)
        job_ids = self._view.finished_before(before_ms, limit=limits.PURGE_JOBS_MAX) if before_ms > 0 else []
        return PurgeJobs(tuple(job_ids), before_ms) if job_ids else None

    def settled(self, operation: Operation, result: Result | None, now: Now) -> None:
        """The purge was applied, or nobody knows (None); a full one is followed by another soon."""
        assert isinstance(operation, PurgeJobs)
        if result is not None and len(operation.job_ids) == limits.PURGE_JOBS_MAX:
            self._look_at_ms = now.monotonic_ms + PAUSE_MS

    def next_call_ms(self) -> int:
        return self._look_at_ms
