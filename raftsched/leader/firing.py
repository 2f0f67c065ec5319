"""Decides the instants of schedules when they are due: looks at each, plans, and proposes what to decide.

Theory of operation. The index of alarms says when the next schedule needs to be looked at: at its first undecided
instant, or when its pause ends. All that are due are planned at once and proposed together, so that a thousand
schedules of the full hour share one entry of the log. What a plan says is checked again when it is applied; a plan
that came too late or twice changes nothing.

A schedule that can't be planned (its zone is not known to this node any more) must not stop the others: it is logged
once in a while and looked at again after a pause.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog

from raftsched.core.control_operations import AlarmKind
from raftsched.core.ids import TimeMs
from raftsched.core.operations import Operation
from raftsched.core.schedule import Schedule, ScheduleId
from raftsched.core.schedule_operations import ControlSchedule, FireSchedule, ScheduleAction
from raftsched.core.view import Refused, Result
from raftsched.errors import Invalid
from raftsched.leader.alarms import RETRY_MS, NextAlarm
from raftsched.leader.instants import instants_of
from raftsched.leader.now import Now
from raftsched.leader.planning import Draws, plan_firing
from raftsched.leader.view import LeaderView

log = structlog.get_logger()

SCHEDULES_PER_STEP: Final = 200
"""Planned at once: some milliseconds of work."""
BROKEN_PAUSE_MS: Final = 60_000


class Firing:
    """Proposes `FireSchedule`, and the end of schedules' pauses."""

    name: Final = "firing"

    def __init__(self, view: LeaderView, draws: Draws) -> None:
        self._view: Final = view
        self._draws: Final = draws
        self._next: Final = NextAlarm(view, (AlarmKind.SCHEDULE,))
        self._quiet_until_ms = 0
        self._broken_until_ms: dict[ScheduleId, int] = {}

    def heard(self, at_ms: int) -> None:
        """A schedule that must be looked at at `at_ms` was written; 0 = never."""
        self._next.heard(at_ms)

    def step(self, now: Now) -> Sequence[Operation]:
        due = self._view.alarms_due(
            AlarmKind.SCHEDULE, now.cluster_ms, limit=SCHEDULES_PER_STEP + len(self._broken_until_ms)
        )
        operations = [operation for entry in due if (operation := self._operation(ScheduleId(entry.subject), now))]
        if not operations:
            self._next.forget()
            self._quiet_until_ms = now.monotonic_ms + (RETRY_MS if due else 0)
        return operations

    def _operation(self, schedule_id: ScheduleId, now: Now) -> Operation | None:
        if self._broken_until_ms.get(schedule_id, 0) > now.monotonic_ms:
            return None
        schedule = self._view.schedule(schedule_id)
        if schedule is None:
            return None
        if schedule.paused:
            return ControlSchedule(schedule.id, schedule.tenant, ScheduleAction.END_PAUSE, actor="clock")
        return self._plan(schedule, now)

    def _plan(self, schedule: Schedule, now: Now) -> FireSchedule | None:
        try:
            instants = instants_of(schedule.timing, from_ms=schedule.created_at_ms)
        except Invalid as error:
            log.warning("schedule_cannot_be_planned", schedule=schedule.name, tenant=schedule.tenant, error=str(error))
            self._broken_until_ms[schedule.id] = now.monotonic_ms + BROKEN_PAUSE_MS
            return None
        self._broken_until_ms.pop(schedule.id, None)
        return plan_firing(schedule, instants, TimeMs(now.cluster_ms), self._draws)

    def settled(self, operation: Operation, result: Result | None, now: Now) -> None:  # noqa: ARG002
        """A decision was applied, or refused, or nobody knows: the index says what is left."""
        self._next.forget()
        if isinstance(result, Refused):
            log.info("firing_refused", code=result.code.label, reason=result.message)
            self._quiet_until_ms = now.monotonic_ms + RETRY_MS

    def next_call_ms(self, now: Now) -> int:
        return max(now.monotonic_at(self._next.at_ms()), self._quiet_until_ms)
