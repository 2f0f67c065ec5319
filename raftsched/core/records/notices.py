"""Define the notices of a schedule: the messages to its owner, the events that cause them, and its open alarms."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

from raftsched import limits
from raftsched.core.records.bounds import range_problem
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.spec import Hook, hook_problem
from raftsched.core.records.texts import list_text


class NoticeEvent(IntEnum):
    """Enumerate the events of a schedule. A stored number never changes its meaning."""

    FAILED = 1
    """An attempt of a run failed, and the run is tried again."""
    DEAD_LETTER = 2
    """A run ended in the dead-letter queue."""
    MISSED = 3
    """No run has succeeded for `Watch.success_within_ms`, or a fire time has no run although its policy wants one."""
    LATE = 4
    """A run started more than `Watch.late_after_ms` after its fire time."""
    RECOVERED = 5
    """The first run succeeded after a dead letter or a missed run."""
    SUCCESS = 6

    @property
    def label(self) -> str:
        return self.name.lower()


SERIOUS: Final = frozenset({NoticeEvent.DEAD_LETTER, NoticeEvent.MISSED})
"""The alarms whose end is the event `RECOVERED`."""


class NoticeForm(IntEnum):
    """Enumerate the forms of a notice. They differ in its payload."""

    WEBHOOK = 1
    """A request whose body is all facts."""
    SLACK = 2
    """A request whose body is `{"text": …}`, with the characters escaped that mean something to Slack."""
    EMAIL = 3
    """A job for a worker; its payload has the facts beside the recipients and the subject."""
    JOB = 4
    """Any job, as a hook has it."""

    @property
    def label(self) -> str:
        return self.name.lower()


class Notice(msgspec.Struct, frozen=True, array_like=True):
    """Define a job that is submitted at some events of a schedule."""

    events: tuple[NoticeEvent, ...]
    form: NoticeForm
    hook: Hook


class Watch(msgspec.Struct, frozen=True, array_like=True):
    """Define the expectations of a schedule's owner, and the notices of events."""

    success_within_ms: int = 0
    """It is `MISSED` if no run succeeds for this time; 0 = no such rule."""
    late_after_ms: int = 0
    """0 = no run is late."""
    notices: tuple[Notice, ...] = ()


class Alarm(msgspec.Struct, frozen=True, array_like=True):
    """Record that a problem was noticed; it is not noticed again until a run succeeds."""

    event: NoticeEvent
    since_ms: TimeMs


class Health(msgspec.Struct, frozen=True, array_like=True):
    """Record how the runs of a schedule fare; backfills do not count."""

    counted_from_ms: TimeMs = TimeMs(0)
    """The time without success is counted from here, or from the last success if that is later."""
    success_at_ms: TimeMs = TimeMs(0)
    """The time of the last success; 0 = none."""
    alarms: tuple[Alarm, ...] = ()
    """At most one of each event, the first one first."""

    @property
    def quiet_since_ms(self) -> TimeMs:
        """Return the time from which the time without success is counted."""
        return max(self.counted_from_ms, self.success_at_ms)

    def has_alarm(self, event: NoticeEvent) -> bool:
        return any(alarm.event is event for alarm in self.alarms)


def watch_problem(watch: Watch | None) -> str:
    """Return why the state can't store this, or ""."""
    if watch is None:
        return ""
    problem = (
        range_problem("success_within_ms", watch.success_within_ms, 0, limits.DELAY_MS_MAX)
        or range_problem("late_after_ms", watch.late_after_ms, 0, limits.DELAY_MS_MAX)
        or range_problem("notices", len(watch.notices), 0, limits.NOTICES_MAX)
        or range_problem("notices bytes", len(msgspec.msgpack.encode(watch.notices)), 0, limits.NOTICES_BYTES_MAX)
    )
    for notice in watch.notices:
        problem = (
            problem
            or range_problem("notice events", len(notice.events), 1, len(NoticeEvent))
            or hook_problem("notice", notice.hook)
        )
    return problem


def notices_text(notices: tuple[Notice, ...]) -> str:
    """Return the notices for the audit trail; addresses of webhooks are often secrets, so they are left out."""
    return list_text(
        tuple(f"{notice.form.label} on {' and '.join(event.label for event in notice.events)}" for notice in notices)
    )
