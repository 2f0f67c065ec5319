"""Convert a timing's document to the stored timing, and compute its fire times.

A fixed interval without `start_at` starts when it is first saved: its anchor is the leader's time then, and stays when
the schedule is saved again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from raftsched import limits
from raftsched.api.json.times import milliseconds, moment_ms_or_none
from raftsched.api.schedules.calendars import calendar_of
from raftsched.api.schedules.parameters import must_be_given
from raftsched.core.cron.interval import parse_every
from raftsched.core.cron.zones import zone
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.schedule import Schedule, Timing
from raftsched.errors import Invalid
from raftsched.leader.schedules.fire_times import TimingFireTimes, fire_times_of, grid_period_ms
from raftsched.wire.schedules import ScheduleRequest
from raftsched.wire.timings import TimingBody

_TURN_FIRE_TIMES: Final = 4
"""Fire times examined in one turn of the event loop; each may need up to three years of holidays, some ms each."""


def timing_of(wanted: TimingBody, *, prefix: str = "") -> Timing:
    """Return the timing to store, without an anchor; raises `Invalid` naming the field below `prefix`."""
    kinds = [name for name in ("cron", "every", "at") if getattr(wanted, name) is not None]
    may_be_by_hand = isinstance(wanted, ScheduleRequest) and any(map(must_be_given, wanted.parameters))
    if len(kinds) != 1 and not (may_be_by_hand and not kinds):
        path = f"{prefix}{kinds[1] if kinds else 'cron'}"
        raise Invalid(f"{path}: give exactly one of cron, every and at", field=path)
    timing = Timing(
        cron=wanted.cron or "",
        every=wanted.every or "",
        at_ms=moment_ms_or_none(wanted.at, f"{prefix}at"),
        timezone=wanted.timezone,
        start_at_ms=moment_ms_or_none(wanted.start_at, f"{prefix}start_at"),
        end_at_ms=moment_ms_or_none(wanted.end_at, f"{prefix}end_at"),
        dst_gap=wanted.dst_gap,
        dst_overlap=wanted.dst_overlap,
    )
    if kinds and timing.is_by_hand:
        raise Invalid(f"{prefix}{kinds[0]}: is empty", field=f"{prefix}{kinds[0]}")
    if timing.end_at_ms is not None and timing.start_at_ms is not None and timing.end_at_ms < timing.start_at_ms:
        raise Invalid(f"{prefix}end_at: must not be before start_at", field=f"{prefix}end_at")
    _check(wanted, timing, prefix)
    timing = replace(timing, calendar=calendar_of(wanted.calendar, at=f"{prefix}calendar"))
    if not isinstance(wanted, ScheduleRequest):
        return timing
    return replace(timing, jitter_ms=milliseconds(wanted.jitter_seconds or 0.0), max_firings=wanted.max_firings or 0)


def _check(wanted: TimingBody, timing: Timing, prefix: str) -> None:
    """Raise `Invalid` for an invalid text or time zone."""
    try:
        zone(timing.timezone)
        if wanted.every is not None:
            parse_every(wanted.every)
        else:
            fire_times_of(timing, from_ms=0)
    except Invalid as error:
        raise Invalid(f"{prefix}{error}", field=f"{prefix}{error.field}") from None


def anchored(timing: Timing, known: Schedule | None, now_ms: int) -> Timing:
    """Return the timing with the anchor of its fixed interval: that of `known` if the period is equal, else `now_ms`.

    So another change of the schedule does not delay its next fire time.
    """
    period_ms = grid_period_ms(timing)
    if not period_ms or timing.start_at_ms is not None:
        return timing
    if known is not None and known.timing.anchor_ms is not None and grid_period_ms(known.timing) == period_ms:
        return replace(timing, anchor_ms=known.timing.anchor_ms)
    return replace(timing, anchor_ms=TimeMs(now_ms))


def first_fire_time(timing: Timing, known: Schedule | None, *, now_ms: int, prefix: str = "") -> TimeMs:
    """Return the first instant after now, 0 = there is none any more.

    Raises `Invalid` for a timing that is new and has none: nothing would ever run.
    """
    found = fire_times_of(timing, from_ms=now_ms).next_after(now_ms)
    if found is None and not timing.is_by_hand and (known is None or known.timing != timing):
        path, told = _at_fault(timing, now_ms)
        raise Invalid(f"{prefix}{path}: {told}, so nothing would ever run", field=f"{prefix}{path}")
    return TimeMs(found or 0)


def _at_fault(timing: Timing, now_ms: int) -> tuple[str, str]:
    """Return the field that allows no fire time after now, and its fault."""
    if timing.at_ms is not None and timing.at_ms > now_ms:
        late = timing.end_at_ms is not None and timing.end_at_ms < timing.at_ms
        return ("end_at", "is before `at`") if late else ("start_at", "is later than `at`")
    if timing.at_ms is not None:
        return "at", "has passed"
    if timing.end_at_ms is not None:
        return "end_at", "is before the next fire time"
    if timing.start_at_ms is not None:
        return "start_at", "no fire time follows it up to the year 9999"
    return ("every" if timing.every else "cron"), "has no further fire time"


def passed_count(known: Schedule | None, now_ms: int) -> int:
    """Return the number of undecided fire times up to now, at least 1; 0 = too many, or impossible to count."""
    if known is None or not 0 < known.next_at_ms <= now_ms:
        return 1
    try:
        fire_times = fire_times_of(known.timing, from_ms=known.created_at_ms)
    except Invalid:
        return 0
    count = 0
    at_ms: int | None = known.next_at_ms
    while at_ms is not None and at_ms <= now_ms:
        count += 1
        if count > limits.PASSED_FIRE_TIMES_COUNTED_MAX:
            return 0
        at_ms = fire_times.next_after(at_ms)
    return count


@dataclass(slots=True)
class Preview:
    """The next fire times: those that run, and those that the calendar excludes, with reasons."""

    fires_ms: list[int] = field(default_factory=list)
    skipped: list[tuple[int, str]] = field(default_factory=list)
    is_complete: bool = True
    """False: the calendar excludes too many to examine them all."""
    examined_count: int = 0
    last_ms: int = 0
    """The last fire time that was examined."""

    @classmethod
    async def of(
        cls, fire_times: TimingFireTimes, *, first_ms: int | None, count: int, most: int | None = None
    ) -> Preview:
        """Examine the fire times from `first_ms` until `count` run; other tasks run in between.

        It examines at most `most`, by default `limits.FIRE_TIMES_EXAMINED_MAX`. A thousand fire times may spread over
        thousands of years with their holidays: seconds of work, in which a leader that does not yield loses leadership.
        """
        preview = cls()
        at_ms = first_ms
        for number in range(limits.FIRE_TIMES_EXAMINED_MAX if most is None else most):
            if at_ms is None or len(preview.fires_ms) == count:
                return preview
            preview.examined_count, preview.last_ms = number + 1, at_ms
            reason = fire_times.skipped_by_calendar(at_ms)
            if not reason:
                preview.fires_ms.append(at_ms)
            elif len(preview.skipped) < limits.PREVIEW_FIRE_TIMES_MAX:
                preview.skipped.append((at_ms, reason))
            at_ms = fire_times.next_after(at_ms)
            if number % _TURN_FIRE_TIMES == 0:
                await asyncio.sleep(0)
        preview.is_complete = at_ms is None or len(preview.fires_ms) == count
        return preview
