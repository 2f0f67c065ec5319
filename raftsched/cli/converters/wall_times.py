"""Hold the wall times at which a foreign schedule fires, and write them as a timing of ours.

Schedulers differ in three ways. They read texts differently, so that a converter reads them into sets of values. They
combine the two day fields differently: either one matches, or both. And they treat clock changes differently; `Clock` names
the ways.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, Literal

from raftsched.core.cron.expression import DayRule, month_length
from raftsched.core.cron.fields import DAY, HOUR, MINUTE, MONTH, SECOND, WEEKDAY, Field
from raftsched.core.cron.parser import parse_expression
from raftsched.errors import Invalid

Clock = Literal["shift", "follow", "once"]
"""The effect of a clock change.

`shift`: a wall time that the clock skips fires right after the gap, one that it shows twice fires at the first; hours that
begin with `*` follow the clock. `follow`: each time the clock shows a wall time, it fires. `once`: a skipped wall time does
not fire, one that is shown twice fires at the first, whatever the hours are.
"""

_COMMON_YEAR: Final = 2027
_WEEKDAY_NAMES: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_WEEK: Final = 7
_MONTH_KINDS: Final = tuple((first, length) for first in range(_WEEK) for length in range(28, 32))


def all_of(field: Field) -> frozenset[int]:
    """Return all values of a field."""
    return frozenset(range(field.low, field.high + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class WallTimes:
    """The wall times that match all sets; none of the sets is empty. Weekdays count from Sunday = 0."""

    seconds: frozenset[int] = frozenset({0})
    minutes: frozenset[int] = field(default_factory=lambda: all_of(MINUTE))
    hours: frozenset[int] = field(default_factory=lambda: all_of(HOUR))
    days: frozenset[int] = field(default_factory=lambda: all_of(DAY))
    months: frozenset[int] = field(default_factory=lambda: all_of(MONTH))
    weekdays: frozenset[int] = field(default_factory=lambda: all_of(WEEKDAY))
    days_from_end: frozenset[int] = frozenset()
    """In place of `days`: days that are counted from the end of the month; 1 is the last one."""
    either: bool = False
    """A day matches if its day of month or its weekday does."""


def timing_fields(times: WallTimes, *, zone: str, clock: Clock, text: str = "") -> dict[str, Any]:
    """Return the fields of a schedule that fires at these wall times of `zone`.

    `text` is used as it is if our expressions read it in the same way. Raises `Invalid` if no timing of ours has these
    wall times.
    """
    changes = has_changes(zone)
    calendar = None
    if not text or not _is_read_equally(text, times):
        day, weekday, calendar = _day_fields(times)
        hours = _written(times.hours, HOUR, star=clock != "once" or not changes)
        parts = [_written(times.minutes, MINUTE), hours, day, _written(times.months, MONTH), weekday]
        if times.seconds != frozenset({0}):
            parts.insert(0, _written(times.seconds, SECOND))
        text = " ".join(parts)
    fields: dict[str, Any] = {"cron": text, "timezone": zone}
    if changes and (clock == "once" or (clock == "follow" and not _hour_field(text).startswith("*"))):
        fields["dst_gap"] = "skip"
        if clock == "follow":
            fields["dst_overlap"] = "both"
    parse_expression(text.upper())
    return fields | ({"calendar": calendar} if calendar else {})


def has_changes(zone: str) -> bool:
    """Return whether clocks may change in this zone."""
    return zone != "UTC" and not zone.startswith("Etc/")


def _hour_field(text: str) -> str:
    return text.split(" ")[-4]


def _is_read_equally(text: str, times: WallTimes) -> bool:
    """Return whether an expression of ours with this text means `times`."""
    try:
        ours = parse_expression(text.upper())
    except Invalid:
        return False
    days = DayRule(days=times.days, weekdays=times.weekdays, either=times.either)
    return (
        not times.days_from_end
        and ours.seconds == tuple(sorted(times.seconds))
        and ours.minutes == tuple(sorted(times.minutes))
        and ours.hours == tuple(sorted(times.hours))
        and ours.months == tuple(sorted(times.months))
        and all(ours.masks[kind] == days.mask(*kind) for kind in _MONTH_KINDS)
    )


# -- days -------------------------------------------------------------------------------------------------------------


def _day_fields(times: WallTimes) -> tuple[str, str, dict[str, Any] | None]:
    """Return the field of the day of month, that of the weekday, and a calendar if the two fields alone can't say it."""
    every_weekday = times.weekdays == all_of(WEEKDAY)
    if times.days_from_end:
        return _from_end_fields(times, every_weekday=every_weekday)
    every_day = times.days == all_of(DAY)
    if times.either and (every_day or every_weekday):
        return "*", "*", None
    day, weekday = _written(times.days, DAY), _written(times.weekdays, WEEKDAY)
    if times.either:
        return _written(times.days, DAY, star=False), _written(times.weekdays, WEEKDAY, star=False), None
    if every_day or every_weekday or day.startswith("*") or weekday.startswith("*"):
        return day, weekday, None
    weeks = _weeks(times.days)
    if weeks is not None:
        marks = [f"{weekday}#{week}" for weekday in sorted(times.weekdays) for week in weeks]
        return "*", ",".join(marks), None
    return day, "*", _only_on(times.weekdays)


def _from_end_fields(times: WallTimes, *, every_weekday: bool) -> tuple[str, str, dict[str, Any] | None]:
    calendar = None if every_weekday else _only_on(times.weekdays)
    if times.days_from_end == frozenset({1}):
        return "L", "*", calendar
    if times.days_from_end == frozenset(range(1, _WEEK + 1)) and not every_weekday:
        return "*", ",".join(f"L{weekday}" for weekday in sorted(times.weekdays)), None
    lengths = {month_length(_COMMON_YEAR, month) for month in times.months}
    if 2 in times.months or len(lengths) > 1:
        shown = ",".join(str(day) for day in sorted(times.days_from_end))
        raise Invalid(f"day {shown} from the end of months of different length; only the last day can be written")
    (length,) = lengths
    return _written(frozenset(length + 1 - day for day in times.days_from_end), DAY, star=False), "*", calendar


def _weeks(days: frozenset[int]) -> list[int] | None:
    """Return the weeks 1 to 4 of which these are all days; None if they are something else."""
    weeks = sorted({(day + _WEEK - 1) // _WEEK for day in days})
    whole = frozenset(day for week in weeks for day in range(_WEEK * week - 6, _WEEK * week + 1))
    return weeks if whole == days else None


def _only_on(weekdays: frozenset[int]) -> dict[str, Any]:
    """Return a calendar that allows these weekdays only."""
    others = [name for number, name in enumerate(_WEEKDAY_NAMES) if number not in weekdays]
    return {"blackouts": [{"start": "00:00", "end": "24:00", "weekdays": others}]}


# -- fields -----------------------------------------------------------------------------------------------------------


def _written(values: frozenset[int], field: Field, *, star: bool = True) -> str:
    """Return a field's values as people write them; without `star` it does not begin with `*`."""
    ordered = sorted(values)
    low, high = ordered[0], ordered[-1]
    if len(ordered) == field.size:
        return "*" if star else f"{field.low}-{field.high}"
    steps = {later - earlier for earlier, later in pairwise(ordered)}
    if len(ordered) > 2 and len(steps) == 1 and (step := steps.pop()) > 1:
        is_whole = low == field.low and high + step > field.high
        return f"*/{step}" if star and is_whole else f"{low}-{high}/{step}"
    return ",".join(_runs(ordered))


def _runs(ordered: list[int]) -> Iterator[str]:
    """Yield values, those that follow each other as ranges."""
    first = last = ordered[0]
    for value in [*ordered[1:], -1]:
        if value == last + 1:
            last = value
            continue
        if last - first > 1:
            yield f"{first}-{last}"
        else:
            yield from (str(each) for each in range(first, last + 1))
        first = last = value
