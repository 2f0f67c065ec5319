"""Fire times of a schedule: its cron expression, fixed interval or one-off time, within its limits and its calendar.

Computed by the leader, and by the API for previews; never while the log is applied.
"""

from __future__ import annotations

from functools import lru_cache

from raftsched import limits
from raftsched.core.cron.interval import Every, parse_every
from raftsched.core.cron.parser import parse
from raftsched.core.cron.recurrence import Recurrence
from raftsched.core.cron.skips import skip_reason
from raftsched.core.records.schedule import Timing

_KEPT = 10_000
"""Parsed expressions kept, since schedules are read repeatedly."""


class Once(Recurrence):
    """A single fire time."""

    __slots__ = ("_at_ms",)

    def __init__(self, at_ms: int) -> None:
        self._at_ms = at_ms

    def next_after(self, after_ms: int) -> int | None:
        return self._at_ms if after_ms < self._at_ms else None


class Never(Recurrence):
    """No fire time: a schedule that runs by hand only."""

    __slots__ = ()

    def next_after(self, after_ms: int) -> int | None:  # noqa: ARG002  # there is none after any time
        return None


class TimingFireTimes:
    """Implement `raftsched.leader.schedules.plan.Instants` for a timing."""

    def __init__(self, timing: Timing, recurrence: Recurrence) -> None:
        self._timing = timing
        self._recurrence = recurrence

    def next_after(self, after_ms: int) -> int | None:
        """Return the first fire time after `after_ms` that lies between the timing's start and end, both included."""
        timing = self._timing
        if timing.start_at_ms is not None:
            after_ms = max(after_ms, timing.start_at_ms - 1)
        found = self._recurrence.next_after(after_ms)
        return None if found is None or (timing.end_at_ms is not None and timing.end_at_ms < found) else found

    def skipped_by_calendar(self, fire_time_ms: int) -> str:
        """Return the reason for which the calendar skips this fire time, or ""."""
        calendar = self._timing.calendar
        if calendar is None:
            return ""
        return skip_reason(calendar, fire_time_ms, self._timing.timezone)[: limits.SKIP_REASON_CHARS_MAX]


def fire_times_of(timing: Timing, *, from_ms: int) -> TimingFireTimes:
    """Return the fire times of `timing`; a fixed interval without a start or an anchor begins at `from_ms`.

    Raises `Invalid` naming `cron`, `every` or `timezone`.
    """
    return TimingFireTimes(timing, _recurrence(timing, timing.begins_ms(from_ms)))


def grid_period_ms(timing: Timing) -> int:
    """Return the period of a fixed interval, 0 for a timing of another kind; raises as `fire_times_of` does."""
    recurrence = _recurrence(timing, timing.begins_ms(0))
    return recurrence.period_ms if isinstance(recurrence, Every) else 0


@lru_cache(_KEPT)
def _recurrence(timing: Timing, start_ms: int) -> Recurrence:
    if timing.every:
        return parse_every(timing.every, start_ms=start_ms)
    if timing.at_ms is not None:
        return Once(timing.at_ms)
    if timing.is_by_hand:
        return Never()
    return parse(
        timing.cron,
        zone=timing.timezone,
        dst_gap=timing.dst_gap,
        dst_overlap=timing.dst_overlap,
        start_ms=start_ms,
    )
