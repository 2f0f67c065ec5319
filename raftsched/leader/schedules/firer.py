"""Decide the fire times of schedules when they are due: read each schedule, plan, and propose the decisions.

Theory of operation. The index of deadlines says when the next schedule needs a decision: at its first undecided fire
time, when its pause ends, or when no run has succeeded for the time that its owner allows. Schedules that are due are
planned at once and proposed together, so that the schedules of the full hour share few entries of the log. A plan is
checked again when it is applied; a plan that is late or repeated changes nothing.

After an outage there is far more to plan and to apply than fits between two heartbeats. A leader that tried would lose
its lead and its plans, and so would the next. So a step ends when the cost of its proposals reaches `COST_PER_STEP`,
and the next step continues once that is applied. Schedules that are on time have a share of their own: however much is
to be made up for by others, they miss nothing that comes meanwhile. After a step that made up for something there is a
rest as long as the step took, so that half of the time is left for requests, however slow the disk.

A schedule that can't be planned (this node no longer knows its zone) must not stop the others: it is logged once in a
while and planned again after a pause.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import structlog

from raftsched import limits
from raftsched.core.operations.base import Operation
from raftsched.core.operations.control import DeadlineKind, HandleDeadlines
from raftsched.core.operations.schedules import ControlSchedule, FireSchedule, ScheduleAction
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.schedule import Schedule, ScheduleId
from raftsched.core.state.entries import DeadlineEntry
from raftsched.core.state.results import Refused, Result
from raftsched.errors import Invalid
from raftsched.leader.now import Now
from raftsched.leader.schedules.fire_times import fire_times_of
from raftsched.leader.schedules.plan import RandomSource, plan_firing
from raftsched.leader.timers.deadlines import RETRY_MS, NextDeadline
from raftsched.leader.view import LeaderView

log = structlog.get_logger()

COST_PER_STEP: Final = 100
"""For schedules that are on time, and again for those that are late. 1 is a fire time, or as many unfinished runs of
its schedule as are read in the same time if a new run ends them: some 0.1 ms to plan here and to apply on each node."""
_ACTIVE_PER_COST: Final = 10
REST_MS_MAX: Final = 1_000
"""An upper bound, since a slow step may have been an election."""
BROKEN_PAUSE_MS: Final = 60_000
_Operation = FireSchedule | ControlSchedule | HandleDeadlines


class Firing:
    """Propose `FireSchedule`, the end of schedules' pauses, and the alarm of those without a success."""

    name: Final = "firing"

    def __init__(self, view: LeaderView, random_source: RandomSource) -> None:
        self._view: Final = view
        self._random_source: Final = random_source
        self._next: Final = NextDeadline(view, (DeadlineKind.SCHEDULE,))
        self._quiet_until_ms = 0
        self._late_since_ms: int | None = None
        """Time of the latest step that proposed anything for late schedules."""
        self._broken_until_ms: dict[ScheduleId, int] = {}

    def notify(self, at_ms: int) -> None:
        """Note that a schedule with a deadline at `at_ms` was written; 0 = none."""
        self._next.notify(at_ms)

    def step(self, now: Now) -> Sequence[Operation]:
        missed_ms = max(now.cluster_ms - limits.MISFIRE_GRACE_MS - 1, 0)
        on_time = self._due(now.cluster_ms, after_ms=missed_ms)
        late = self._due(missed_ms)
        late_operations = list(self._operations(late, now))
        operations = [*self._operations(on_time, now), *late_operations]
        self._late_since_ms = now.monotonic_ms if late_operations else None
        if not operations:
            self._next.forget()
            self._quiet_until_ms = now.monotonic_ms + (RETRY_MS if on_time or late else 0)
        return operations

    def _due(self, until_ms: int, *, after_ms: int = 0) -> Sequence[DeadlineEntry]:
        limit = COST_PER_STEP + len(self._broken_until_ms)
        return self._view.deadlines_due(DeadlineKind.SCHEDULE, until_ms, limit=limit, after_ms=after_ms)

    def _operations(self, due: Sequence[DeadlineEntry], now: Now) -> Iterator[Operation]:
        """Yield operations for the first of `due`: for at least one, until their cost reaches that of a step."""
        cost = 0
        for entry in due:
            if cost >= COST_PER_STEP:
                return
            schedule = self._view.schedule(ScheduleId(entry.subject))
            if schedule is None:
                continue
            for operation in self._of_schedule(schedule, now):
                cost += _cost(schedule, operation)
                yield operation

    def _of_schedule(self, schedule: Schedule, now: Now) -> Iterator[_Operation]:
        if schedule.paused:
            yield ControlSchedule(schedule.id, schedule.tenant, ScheduleAction.END_PAUSE, actor="clock")
            return
        if 0 < schedule.success_by_ms <= now.cluster_ms:
            yield HandleDeadlines(((DeadlineKind.SCHEDULE, schedule.id),))
        if (firing := self._plan(schedule, now)) is not None:
            yield firing

    def _plan(self, schedule: Schedule, now: Now) -> FireSchedule | None:
        if self._broken_until_ms.get(schedule.id, 0) > now.monotonic_ms:
            return None
        try:
            fire_times = fire_times_of(schedule.timing, from_ms=schedule.created_at_ms)
        except Invalid as error:
            log.warning("schedule_cannot_be_planned", schedule=schedule.name, tenant=schedule.tenant, error=str(error))
            self._broken_until_ms[schedule.id] = now.monotonic_ms + BROKEN_PAUSE_MS
            return None
        self._broken_until_ms.pop(schedule.id, None)
        return plan_firing(schedule, fire_times, TimeMs(now.cluster_ms), self._random_source)

    def on_result(self, operation: Operation, result: Result | None, now: Now) -> None:  # noqa: ARG002
        """Read the index again: a decision was applied, was rejected, or has an unknown outcome."""
        self._next.forget()
        if self._late_since_ms is not None:
            self._quiet_until_ms = now.monotonic_ms + min(now.monotonic_ms - self._late_since_ms, REST_MS_MAX)
        if isinstance(result, Refused):
            log.info("firing_refused", code=result.code.label, reason=result.message)
            self._quiet_until_ms = now.monotonic_ms + RETRY_MS

    def next_call_ms(self, now: Now) -> int:
        return max(now.monotonic_at(self._next.at_ms()), self._quiet_until_ms)


def _cost(schedule: Schedule, operation: _Operation) -> int:
    """Return the operation's part of a step's cost; see `COST_PER_STEP`."""
    if not isinstance(operation, FireSchedule):
        return 1
    fire_time_count = sum(decision.count for decision in operation.decisions)
    return max(1, fire_time_count) + len(schedule.active) // _ACTIVE_PER_COST
