"""Remove finished jobs whose retention is over, in small steps.

Theory of operation. A job's retention is its own, or its queue's, or the cluster's. Jobs with one of their own have a
deadline and are not handled here. The others have few different retentions. For each, a *frontier* walks along the
finished jobs, by the time they ended, never nearer to the present than its retention. It removes the jobs of its
retention, passes the others for good, and continues from there. So each finished job is read once for each retention
that is shorter than its own, jobs that stay are not read again, and no index is needed beside that by time. When a
queue's retention changes, all walks begin again, and so does a new leader's: that costs one read of every job that
stays, in steps of `limits.PURGE_JOBS_MAX`.

A job that could not be removed, since its dependants have yet to be resolved, is tried again in the next round. A job
that is needed longer than its retention has got a deadline by the purge that was refused
(`core.maintenance.retention`), and is passed, too.

Left out: retention by count or bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from raftsched import limits
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import PurgeJobs
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.job import FINISHED, Job
from raftsched.core.state.results import Purged, Result
from raftsched.leader.now import Now
from raftsched.leader.settings import LeaderSettings
from raftsched.leader.view import FinishedPlace, LeaderView

PAUSE_MS: Final = 50
"""Between two steps of a round: up to 10,000 jobs a second, far more than can be submitted."""
LATE_MS: Final = 10_000
"""A job's end can't be applied later than this after its stamp while the same node leads: no walk passes that time."""
_VISIT_ROWS: Final = 25
"""Cost of a visit that finds nothing, in rows, so that many retentions don't make a step long."""


class _Frontier:
    """Progress of the walk for one retention."""

    __slots__ = ("kept_ms", "place")

    def __init__(self, kept_ms: int) -> None:
        self.kept_ms: Final = kept_ms
        self.place: FinishedPlace | None = None


class Retention:
    """Purge jobs that finished longer ago than their retention."""

    name: Final = "retention"

    def __init__(self, view: LeaderView, settings: LeaderSettings) -> None:
        self._view: Final = view
        self._settings: Final = settings
        self._frontiers: list[_Frontier] | None = None
        """By rising retention; None = the queues' retentions must be read."""
        self._round: deque[_Frontier] = deque()
        """Frontiers that are not done in this round."""
        self._left: list[JobId] = []
        """Jobs whose purge was refused or is unknown. With `limits.PURGE_JOBS_MAX` of them nothing else is read."""
        self._look_at_ms = 0

    def restart(self) -> None:
        """Start all walks again: a queue's retention changed, so a passed job may be over now."""
        self._frontiers = None
        self._round.clear()
        self._look_at_ms = 0

    def step(self, now: Now) -> Sequence[Operation]:
        """Return the next purge; () if no job that was read is old enough."""
        job_ids: list[JobId] = []
        is_stuck = len(self._left) >= limits.PURGE_JOBS_MAX
        if is_stuck or not self._round:
            left, self._left = self._left[: limits.PURGE_JOBS_MAX], self._left[limits.PURGE_JOBS_MAX :]
            job_ids = [job.id for job in map(self._view.job, left) if job is not None and self._is_over(job, now)]
        if not self._round:
            self._round.extend(self._all())
        self._look(job_ids, now)
        goes_on = self._round and not is_stuck
        self._look_at_ms = now.monotonic_ms + (PAUSE_MS if goes_on else self._settings.retention_every_ms)
        before_ms = TimeMs(now.cluster_ms - self._all()[0].kept_ms)
        return (PurgeJobs(tuple(job_ids), before_ms),) if job_ids else ()

    def on_result(self, operation: Operation, result: Result | None, now: Now) -> None:  # noqa: ARG002
        """Note the result, None if unknown; jobs that remain are purged again."""
        assert isinstance(operation, PurgeJobs)
        if not isinstance(result, Purged) or result.count < len(operation.job_ids):
            jobs = map(self._view.job, operation.job_ids)
            self._left += [job.id for job in jobs if job is not None and not job.kept_until_ms]

    def next_call_ms(self, now: Now) -> int:  # noqa: ARG002
        return self._look_at_ms

    def _all(self) -> list[_Frontier]:
        if self._frontiers is None:
            kept = {queue.retention_ms for queue in self._view.queues()} - {0}
            self._frontiers = [_Frontier(kept_ms) for kept_ms in sorted(kept | {self._settings.retention_ms})]
        return self._frontiers

    def _look(self, job_ids: list[JobId], now: Now) -> None:
        """Advance frontiers and add expired jobs to `job_ids`, within the bounds of a step."""
        row_count = len(job_ids)
        while self._round and row_count < limits.PURGE_JOBS_MAX:
            frontier = self._round.popleft()
            limit = limits.PURGE_JOBS_MAX - row_count
            # Before the cluster's time is known, a new leader's may be less than the retention.
            before_ms = max(0, now.cluster_ms - frontier.kept_ms)
            places = self._view.finished_between(frontier.place, before_ms, limit=limit)
            row_count += max(_VISIT_ROWS, len(places))
            jobs = map(self._view.job, (job_id for _, job_id in places))
            job_ids += [job.id for job in jobs if job is not None and 0 < self._kept_ms(job) <= frontier.kept_ms]
            passed = [place for place in places if place[0] < now.cluster_ms - LATE_MS]
            frontier.place = passed[-1] if passed else frontier.place
            if len(places) == limit:
                self._round.append(frontier)

    def _is_over(self, job: Job, now: Now) -> bool:
        kept_ms = self._kept_ms(job)
        return job.status in FINISHED and kept_ms > 0 and job.finished_at_ms < now.cluster_ms - kept_ms

    def _kept_ms(self, job: Job) -> int:
        """Return the job's retention by its queue or the cluster; 0 = it has a deadline of its own."""
        if job.kept_until_ms or (job.spec.options is not None and job.spec.options.retention_ms):
            return 0
        queue = self._view.queue(job.spec.queue)
        return (queue.retention_ms if queue is not None else 0) or self._settings.retention_ms
