"""Removes finished jobs whose retention is over, in small steps.

Theory of operation. A job's retention is its own, or its queue's, or the cluster's. Those with one of their own have an
alarm, and are no business of this service. Of the others there are few different retentions, and for each a *frontier*
walks along the finished jobs, by the time they ended, never nearer to the present than its retention. It removes those
that it is for, passes over the others for good, and goes on from where it stood. So each finished job is looked at once
for each retention that is shorter than its own, whatever stays is not looked at again, and no index is needed beside
that by time. When a queue's retention changes, all walks begin anew, and so does a new leader's: that costs one look at
everything that stays, in steps of `limits.PURGE_JOBS_MAX`.

What could not be removed, since its dependants are yet to be told how it ended, is tried again in the next round. What
is needed longer than its retention has got an alarm by the purge that was refused (`upkeep`), and is passed over, too.

Left out: retention by count or bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from raftsched import limits
from raftsched.core.operations.codec import Operation, PurgeJobs
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.job import FINISHED, Job
from raftsched.core.state.results import Purged, Result
from raftsched.leader.now import Now
from raftsched.leader.settings import LeaderSettings
from raftsched.leader.view import FinishedPlace, LeaderView

PAUSE_MS: Final = 50
"""Between two steps of a round: up to 10,000 jobs a second, far more than can be submitted."""
LATE_MS: Final = 10_000
"""A job's end can't be applied later than this after its stamp while the same node leads: no walk passes that place."""
_VISIT_ROWS: Final = 25
"""What a visit that finds nothing costs, in rows: so many retentions don't make a step long."""


class _Frontier:
    """How far the finished jobs were looked at for one retention."""

    __slots__ = ("kept_ms", "place")

    def __init__(self, kept_ms: int) -> None:
        self.kept_ms: Final = kept_ms
        self.place: FinishedPlace | None = None


class Retention:
    """Purges what finished longer ago than it is kept."""

    name: Final = "retention"

    def __init__(self, view: LeaderView, settings: LeaderSettings) -> None:
        self._view: Final = view
        self._settings: Final = settings
        self._frontiers: list[_Frontier] | None = None
        """By rising retention; None = the queues must be asked for theirs."""
        self._round: deque[_Frontier] = deque()
        """Those that have not looked at all they may in this round."""
        self._left: list[JobId] = []
        """Purged in vain, or nobody knows. With `limits.PURGE_JOBS_MAX` of them nothing else is looked at."""
        self._look_at_ms = 0

    def restart(self) -> None:
        """A queue's retention changed: what was passed over may be over now."""
        self._frontiers = None
        self._round.clear()
        self._look_at_ms = 0

    def step(self, now: Now) -> Sequence[Operation]:
        """The next purge; () where nothing that was looked at is old enough."""
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

    def settled(self, operation: Operation, result: Result | None, now: Now) -> None:  # noqa: ARG002
        """The purge was applied, or nobody knows (None); what is still there is purged again."""
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
        """Let frontiers advance, and add what is over to `job_ids`, within the bounds of a step."""
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
        """How long the job is kept as its queue or the cluster says; 0 = it has an alarm of its own."""
        if job.kept_until_ms or (job.options is not None and job.options.retention_ms):
            return 0
        queue = self._view.queue(job.queue)
        return (queue.retention_ms if queue is not None else 0) or self._settings.retention_ms
