"""Planted into the notices of schedules: an event has no notice, or a second one, or there is a notice without any event."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from raftsched.core.jobs import notices as notices_module
from raftsched.core.jobs.notices import Happening, counted_from_now
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import SubmitJob
from raftsched.core.operations.control import HandleDeadlines
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.notices import SERIOUS, Health, NoticeEvent
from raftsched.core.records.schedule import Schedule
from raftsched.core.schedules import save as save_module
from raftsched.core.state.results import Context, Result
from raftsched.core.state.writes import PutJob
from raftsched.leader.duties import Duties, Post
from raftsched.leader.now import NEVER_MS, Now
from raftsched.leader.schedules.firer import Firing


def notifies_of_every_problem(patch: Any) -> None:
    """No schedule remembers that its owner was notified."""
    patch.setattr(Health, "has_alarm", lambda _health, _event: False)


class _Reminder:
    """A duty that notifies owners of the alarms that were open when its leader began."""

    name = "planted_reminder"

    def __init__(self, duties: Any) -> None:
        self._duties = duties
        self._is_done = False

    def step(self, now: Now) -> Sequence[Operation]:
        self._is_done = True
        context = Context(TimeMs(now.cluster_ms), 0)
        schedules = self._duties._view.all_schedules()  # noqa: SLF001  # what every duty reads
        return [order for schedule in schedules for order in _reminders(schedule, context)]

    def on_result(self, operation: Operation, result: Result | None, now: Now) -> None:
        pass

    def next_call_ms(self, now: Now) -> int:
        return NEVER_MS if self._is_done else now.monotonic_ms


def _reminders(schedule: Schedule, context: Context) -> Iterator[SubmitJob]:
    for alarm in schedule.health.alarms:
        record = notices_module._Record(_Nothing(), schedule, context)  # type: ignore[arg-type]  # noqa: SLF001
        record._notify(Happening(alarm.event, alarm.since_ms))  # noqa: SLF001
        for write in record.writes:
            if isinstance(write, PutJob):
                new = write.new
                yield SubmitJob(new.id, new.tenant, new.spec, new.due_at_ms, write.payload or b"")


class _Nothing:
    """A state without jobs."""

    def job(self, _job_id: Any) -> None:
        return None


def notifies_again_after_an_election(patch: Any) -> None:
    """A new leader does not know which alarms were notified, and notifies of all that are open."""
    start = Duties.__init__

    def init(self: Any, *args: Any, **fields: Any) -> None:
        start(self, *args, **fields)
        self._posts = (*self._posts, Post(_Reminder(self)))

    patch.setattr(Duties, "__init__", init)


def never_closes_alarms(patch: Any) -> None:
    """A success is notified, and the problems before it stay open."""
    original = notices_module._Record.succeeded  # noqa: SLF001  # what is patched

    def succeeded(self: Any, success: Happening) -> None:
        alarms = self.schedule.health.alarms
        original(self, success)
        health = replace(self.schedule.health, alarms=alarms)
        self.schedule = replace(self.schedule, health=health)

    patch.setattr(notices_module._Record, "succeeded", succeeded)  # noqa: SLF001


def never_notices_missing_successes(patch: Any) -> None:
    """No deadline is stored for the time without success."""
    patch.setattr(Schedule, "success_by_ms", property(lambda _schedule: 0))


def counts_missing_successes_from_an_election(patch: Any) -> None:
    """A leader waits for as long as the owner allows from its own start on: each one counts from zero."""
    start, original = Firing.__init__, Firing._of_schedule  # noqa: SLF001  # what is patched

    def init(self: Any, *args: Any) -> None:
        start(self, *args)
        self.planted_since_ms = None

    def of_schedule(self: Any, schedule: Schedule, now: Now) -> Iterator[Any]:
        if self.planted_since_ms is None:
            self.planted_since_ms = now.monotonic_ms
        led_ms = now.monotonic_ms - self.planted_since_ms
        for operation in original(self, schedule, now):
            is_soon = schedule.watch is not None and led_ms < schedule.watch.success_within_ms
            if not (is_soon and isinstance(operation, HandleDeadlines)):
                yield operation

    patch.setattr(Firing, "__init__", init)
    patch.setattr(Firing, "_of_schedule", of_schedule)


def recovers_from_failed_attempts(patch: Any) -> None:
    """A run that succeeds in its second attempt counts as a recovery."""
    patch.setattr(notices_module, "SERIOUS", SERIOUS | {NoticeEvent.FAILED})


def counts_pauses_as_missing_successes(patch: Any) -> None:
    """The time without success is counted from the schedule's start, whatever pauses and changes it had."""

    def counted(schedule: Schedule, context: Context) -> Schedule:
        return schedule if schedule.health.counted_from_ms else counted_from_now(schedule, context)

    patch.setattr(save_module, "counted_from_now", counted)


def calls_late_runs_punctual(patch: Any) -> None:
    """The success of a late run closes the alarm about lateness, too."""
    patch.setattr(notices_module._Record, "_was_late", lambda _self, _job: False)  # noqa: SLF001
