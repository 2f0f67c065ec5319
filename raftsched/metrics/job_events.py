"""Count jobs, attempts and fire times from the writes of applied log entries, on the leader.

A write costs a few additions. Queues beyond `limits.METRIC_QUEUES_MAX` share one label, so neither memory nor output
grows with the names that clients make up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from raftsched import limits
from raftsched.consensus.machine import Change
from raftsched.core.operations.codec import RejectCode
from raftsched.core.records.job import FINISHED, LEASED, AttemptEnd, Job, Status
from raftsched.core.records.schedule import Firing, FiringKind
from raftsched.core.state.writes import PutFiring, Write
from raftsched.histogram import Histogram
from raftsched.leader.view import LeaderView
from raftsched.metrics import catalog
from raftsched.metrics.reading import Reading

OTHER: Final = "other"
"""The label of all queues without one of their own."""
EXPIRED: Final = (AttemptEnd.WORKER_LOST, AttemptEnd.OUTAGE)
"""Ends of leases whose worker sent no heartbeat."""
SKIPS: Final = ("misfire", "catchup_expired", "overlap", "overlap_limit", "paused", "max_firings", "quota", "changed")
"""Reasons of skipped fire times that are outcomes of their own. Else the job was rejected, or a calendar gives a text."""
REJECTED: Final = frozenset(code.label for code in RejectCode)
OUTCOMES: Final = ("fired", "late", *(f"skipped_{reason}" for reason in (*SKIPS, "rejected", "calendar")))


class _QueueEvents:
    """The counts of one label."""

    __slots__ = ("attempts", "finished", "lags", "runs", "submitted_count")

    def __init__(self) -> None:
        self.submitted_count = 0
        self.finished: Final = dict.fromkeys(sorted(FINISHED), 0)
        self.attempts: Final = dict.fromkeys(AttemptEnd, 0)
        self.lags: Final = Histogram(catalog.START_LAG.buckets)
        self.runs: Final = Histogram(catalog.RUN_SECONDS.buckets)


class JobEvents:
    """Count since the start of the process, while this node leads."""

    def __init__(self) -> None:
        self._queues: Final[dict[str, _QueueEvents]] = {}
        """By label. A queue that is called `OTHER` counts among the others."""
        self._expired_count = 0
        self._firings: Final = dict.fromkeys(OUTCOMES, 0)
        self._delays: Final = Histogram(catalog.SCHEDULE_DELAY.buckets)

    # -- labels -------------------------------------------------------------------------------------------------------

    def named_queues(self, view: LeaderView) -> list[str]:
        """Return the queues with a label of their own, after queues of `view` got the labels that are left.

        Those with settings are first, and then those with jobs. Called when a term begins, it gives labels to the same
        queues on all nodes, but for those that are newer than the term.
        """
        for name in chain((queue.name for queue in view.queues()), view.used_queues()):
            if len(self._queues) >= limits.METRIC_QUEUES_MAX:
                break
            self._of(name)
        return [name for name in self._queues if name != OTHER]

    def _of(self, queue: str) -> _QueueEvents:
        """Return the counts of a queue; gives it a label if there is one left."""
        label = queue if queue in self._queues or len(self._queues) < limits.METRIC_QUEUES_MAX else OTHER
        if label not in self._queues:
            self._queues[label] = _QueueEvents()
        return self._queues[label]

    # -- events -------------------------------------------------------------------------------------------------------

    def on_changes(self, changes: Sequence[Change]) -> None:
        """Count the changes of jobs of an applied entry."""
        for old, new in changes:
            if new is not None:
                self._on_change(old, new)

    def _on_change(self, old: Job | None, new: Job) -> None:
        events = self._queues.get(new.spec.queue) or self._of(new.spec.queue)
        status = new.status
        if old is None:
            events.submitted_count += 1
        elif old.status is status:
            return
        elif status is Status.RUNNING:
            assert new.lease is not None
            events.lags.observe((new.lease.granted_at_ms - old.ready_since_ms) / 1000)
            return
        elif old.status in LEASED and status not in LEASED:
            attempt = new.attempts[-1]
            events.attempts[attempt.end] += 1
            events.runs.observe((attempt.ended_at_ms - attempt.started_at_ms) / 1000)
            if attempt.end in EXPIRED:
                self._expired_count += 1
        if status in FINISHED and (old is None or old.status not in FINISHED):
            events.finished[status] += 1

    def on_records(self, writes: Sequence[Write]) -> None:
        """Count the decisions about fire times of an applied entry."""
        for write in writes:
            if isinstance(write, PutFiring):
                self._on_firing(write.firing)

    def _on_firing(self, firing: Firing) -> None:
        if not firing.job_id:
            self._firings[f"skipped_{_skip(firing.reason)}"] += max(firing.count, 1)
            return
        is_late = False
        if firing.kind is FiringKind.PLANNED:
            delay_ms = firing.decided_at_ms - firing.fire_time_ms
            self._delays.observe(delay_ms / 1000)
            is_late = delay_ms >= limits.LATE_FIRING_MS
        self._firings["late" if is_late else "fired"] += 1

    # -- readings -----------------------------------------------------------------------------------------------------

    def readings(self) -> Iterator[Reading]:
        for queue, events in self._queues.items():
            yield Reading(catalog.JOBS_SUBMITTED, (queue,), events.submitted_count)
            for status, count in events.finished.items():
                yield Reading(catalog.JOBS_FINISHED, (queue, status.label), count)
            for end, count in events.attempts.items():
                yield Reading(catalog.ATTEMPTS, (queue, end.label), count)
            yield Reading(catalog.START_LAG, (queue,), events.lags)
            yield Reading(catalog.RUN_SECONDS, (queue,), events.runs)
        yield Reading(catalog.LEASES_EXPIRED, (), self._expired_count)
        for outcome, count in self._firings.items():
            yield Reading(catalog.FIRINGS, (outcome,), count)
        yield Reading(catalog.SCHEDULE_DELAY, (), self._delays)


def _skip(reason: str) -> str:
    if reason in SKIPS:
        return reason
    return "rejected" if reason in REJECTED else "calendar"
