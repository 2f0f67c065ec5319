"""From a timing as users write it to the one that is stored, and to its instants.

A grid without a start of its own begins when it is first saved: its anchor is the leader's time then, and stays where
it is when the schedule is saved again.
"""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from raftsched import limits
from raftsched.api.requests.schedules import ScheduleRequest, TimingBody
from raftsched.api.schedule_calendars import calendar_of
from raftsched.api.times import any_moment_ms, milliseconds
from raftsched.core.cron.every import parse_every
from raftsched.core.cron.zones import zone
from raftsched.core.ids import TimeMs
from raftsched.core.schedule import Schedule, Timing
from raftsched.errors import Invalid
from raftsched.leader.instants import TimingInstants, instants_of


def timing_of(wanted: TimingBody, *, prefix: str = "") -> Timing:
    """Return the timing that is stored, without an anchor; raises `Invalid` naming the field behind `prefix`."""
    kinds = [name for name in ("cron", "every", "at") if getattr(wanted, name) is not None]
    if len(kinds) != 1:
        field = f"{prefix}{kinds[1] if kinds else 'cron'}"
        raise Invalid(f"{field}: give exactly one of cron, every and at", field=field)
    timing = Timing(
        cron=wanted.cron or "",
        every=wanted.every or "",
        at_ms=_moment(wanted.at, f"{prefix}at"),
        timezone=wanted.timezone,
        start_at_ms=_moment(wanted.start_at, f"{prefix}start_at"),
        end_at_ms=_moment(wanted.end_at, f"{prefix}end_at"),
        dst_gap=wanted.dst_gap,
        dst_overlap=wanted.dst_overlap,
    )
    if 0 < timing.end_at_ms < timing.start_at_ms:
        raise Invalid(f"{prefix}end_at: must not be before start_at", field=f"{prefix}end_at")
    _check(wanted, timing, prefix)
    timing = replace(timing, calendar=calendar_of(wanted.calendar, at=f"{prefix}calendar"))
    if not isinstance(wanted, ScheduleRequest):
        return timing
    return replace(timing, jitter_ms=milliseconds(wanted.jitter_seconds or 0.0), max_firings=wanted.max_firings or 0)


def _moment(moment: datetime | None, field: str) -> TimeMs:
    return TimeMs(0) if moment is None else any_moment_ms(moment, field)


def _check(wanted: TimingBody, timing: Timing, prefix: str) -> None:
    """Raise `Invalid` unless text and zone can be read."""
    try:
        zone(timing.timezone)
        if wanted.every is not None:
            parse_every(wanted.every)
        else:
            instants_of(timing, from_ms=0)
    except Invalid as error:
        raise Invalid(f"{prefix}{error}", field=f"{prefix}{error.field}") from None


def anchored(timing: Timing, known: Schedule | None, now_ms: int) -> Timing:
    """Return the timing with the anchor of its grid: that of `known` where nothing else differs, else `now_ms`."""
    if known is not None and replace(timing, anchor_ms=known.timing.anchor_ms) == known.timing:
        return known.timing
    has_grid = timing.every or timing.cron.lstrip().lower().startswith("@every")
    return replace(timing, anchor_ms=TimeMs(now_ms)) if has_grid and not timing.start_at_ms else timing


def first_instant(timing: Timing, known: Schedule | None, *, now_ms: int, prefix: str = "") -> TimeMs:
    """Return the first instant after now, 0 = there is none any more.

    Raises `Invalid` for a timing that is new and has none: nothing would ever run.
    """
    found = instants_of(timing, from_ms=now_ms).next_after(now_ms)
    if found is None and (known is None or known.timing != timing):
        field = "at" if timing.at_ms else "end_at" if timing.end_at_ms else "cron"
        told = "has passed" if timing.at_ms else "is before the next instant"
        raise Invalid(f"{prefix}{field}: {told}, so nothing would ever run", field=f"{prefix}{field}")
    return TimeMs(found or 0)


def passed_count(known: Schedule | None, now_ms: int) -> int:
    """Return how many instants are undecided up to now, at least 1; 0 = too many to be counted, or nobody can."""
    if known is None or not 0 < known.next_at_ms <= now_ms:
        return 1
    try:
        instants = instants_of(known.timing, from_ms=known.created_at_ms)
    except Invalid:
        return 0
    count = 0
    at_ms: int | None = known.next_at_ms
    while at_ms is not None and at_ms <= now_ms:
        count += 1
        if count > limits.PASSED_INSTANTS_COUNTED_MAX:
            return 0
        at_ms = instants.next_after(at_ms)
    return count


class Outlook:
    """Instants to come: which fire, and which the calendar skips and why; at most so many are looked at."""

    def __init__(self, instants: TimingInstants, *, first_ms: int | None, count: int) -> None:
        self.fires_ms: list[int] = []
        self.skipped: list[tuple[int, str]] = []
        self.is_whole = True
        """False: so many were skipped that not all were looked at."""
        at_ms = first_ms
        for _ in range(limits.INSTANTS_EXAMINED_MAX):
            if at_ms is None or len(self.fires_ms) == count:
                return
            reason = instants.skipped_by_calendar(at_ms)
            if not reason:
                self.fires_ms.append(at_ms)
            elif len(self.skipped) < limits.PREVIEW_INSTANTS_MAX:
                self.skipped.append((at_ms, reason))
            at_ms = instants.next_after(at_ms)
        self.is_whole = at_ms is None or len(self.fires_ms) == count
