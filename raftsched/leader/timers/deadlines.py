"""Fire the deadlines of jobs, queues and workflows: expiries, ends of pauses, abandoned submissions. The deadline of a
finished job is the end of its own retention, or of the time by which it had to be kept longer: it is purged.

Theory of operation. The state keeps every deadline in an index by kind and time, so this service needs to know only
when the next one is. It takes note of every record that is written and reads the index no earlier than that. What a
deadline means is decided when it is applied; firing one too early or twice does nothing.

Schedules have deadlines, too; `schedules.firer` handles them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from raftsched import limits
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import PurgeJobs
from raftsched.core.operations.control import DeadlineKind, HandleDeadlines
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.job import FINISHED, Job
from raftsched.core.state.entries import DeadlineEntry
from raftsched.core.state.results import Counted, Purged, Result
from raftsched.leader.now import NEVER_MS, Now
from raftsched.leader.view import LeaderView

KINDS: Final = (DeadlineKind.JOB, DeadlineKind.QUEUE, DeadlineKind.WORKFLOW)
RETRY_MS: Final = 100
"""A deadline that remains after it was fired is fired again after this: the clocks disagreed by some milliseconds."""


class NextDeadline:
    """The next deadline of some kinds, in cluster milliseconds: read from the index only after it has passed."""

    def __init__(self, view: LeaderView, kinds: Sequence[DeadlineKind]) -> None:
        self._view: Final = view
        self._kinds: Final = kinds
        self._next_ms: int | None = None
        """None = not known: read it from the index."""

    def notify(self, at_ms: int) -> None:
        """Note that a record with a deadline at `at_ms` was written; 0 = none."""
        if at_ms and self._next_ms is not None:
            self._next_ms = min(self._next_ms, at_ms)

    def forget(self) -> None:
        """Read the next deadline from the index: those that were due are done."""
        self._next_ms = None

    def at_ms(self) -> int:
        """Return when the next deadline is; `NEVER_MS` if there is none."""
        if self._next_ms is None:
            found = (self._view.next_deadline(kind) for kind in self._kinds)
            self._next_ms = min((at_ms for at_ms in found if at_ms is not None), default=NEVER_MS)
        return self._next_ms


class Deadlines:
    """Propose `HandleDeadlines` when deadlines are due."""

    name: Final = "deadlines"

    def __init__(self, view: LeaderView) -> None:
        self._view: Final = view
        self._next: Final = NextDeadline(view, KINDS)
        self._quiet_until_ms = 0

    def notify(self, at_ms: int) -> None:
        """Note that a job, queue or workflow with a deadline at `at_ms` was written; 0 = none."""
        self._next.notify(at_ms)

    def step(self, now: Now) -> Sequence[Operation]:
        due = [entry for kind in KINDS for entry in self._due(kind, now)]
        if not due:
            self._next.forget()
            return ()
        over = self._finished(due)
        kept_ms = min((job.spec.options.retention_ms for job in over if job.spec.options is not None), default=0)
        purged = {job.id for job in over}
        passed = [entry for entry in due if entry.subject not in purged][: limits.HANDLE_DEADLINES_MAX]
        operations: list[Operation] = []
        if passed:
            operations.append(HandleDeadlines(tuple((entry.kind, entry.subject) for entry in passed)))
        if over:
            operations.append(PurgeJobs(tuple(job.id for job in over), TimeMs(now.cluster_ms - kept_ms + 1)))
        return operations

    def _finished(self, due: Sequence[DeadlineEntry]) -> list[Job]:
        jobs = (self._view.job(JobId(entry.subject)) for entry in due if entry.kind is DeadlineKind.JOB)
        return [job for job in jobs if job is not None and job.status in FINISHED]

    def _due(self, kind: DeadlineKind, now: Now) -> Sequence[DeadlineEntry]:
        return self._view.deadlines_due(kind, now.cluster_ms, limit=limits.HANDLE_DEADLINES_MAX)

    def on_result(self, operation: Operation, result: Result | None, now: Now) -> None:  # noqa: ARG002
        self._next.forget()
        had_effect = isinstance(result, (Counted, Purged)) and result.count
        self._quiet_until_ms = now.monotonic_ms + (0 if had_effect else RETRY_MS)

    def next_call_ms(self, now: Now) -> int:
        return max(now.monotonic_at(self._next.at_ms()), self._quiet_until_ms)
