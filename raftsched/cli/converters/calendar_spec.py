"""Read calendar events of systemd (`OnCalendar=`), see systemd.time(7).

They say more than our expressions. Weekdays and days must both match, which takes a calendar of ours. Years become the start
and the end of the schedule. Fractions of seconds are rejected, and so are most days that are counted from the end of months
of different length.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from raftsched.cli.converters.wall_times import WallTimes, all_of, timing_fields
from raftsched.core.cron.fields import DAY, HOUR, MINUTE, MONTH, SECOND, WEEKDAY, Field
from raftsched.core.cron.zones import zone as zone_named
from raftsched.errors import Invalid

_SHORTHANDS: Final = {
    "minutely": "*-*-* *:*:00",
    "hourly": "*-*-* *:00:00",
    "daily": "*-*-* 00:00:00",
    "monthly": "*-*-01 00:00:00",
    "weekly": "Mon *-*-* 00:00:00",
    "yearly": "*-01-01 00:00:00",
    "annually": "*-01-01 00:00:00",
    "anually": "*-01-01 00:00:00",
    "quarterly": "*-01,04,07,10-01 00:00:00",
    **dict.fromkeys(
        ("semiannually", "semi-annually", "biannually", "bi-annually", "semianually", "bianually"),
        "*-01,07-01 00:00:00",
    ),
}
_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WEEKDAY_OF: Final = {name: number for number, day in enumerate(_WEEKDAYS) for name in (day, day[:3])}
_YEAR: Final = Field("year", 1970, 2199, {})
"""The years that systemd knows."""
_FROM_END_MAX: Final = 28
_ITEM: Final = re.compile(r"(?P<low>\d+)(?:\.\.(?P<high>\d+))?(?:/(?P<step>\d+))?", re.ASCII)
_DATE: Final = re.compile(r"(?:(?P<year>[\d.,/*]+)-)?(?P<month>[\d.,/*]+)(?P<mark>[-~])(?P<day>[\d.,/*]+)", re.ASCII)
_TIME: Final = re.compile(r"(?P<hour>[\d.,/*]+):(?P<minute>[\d.,/*]+)(?::(?P<second>[\d.,/*]+))?", re.ASCII)
_EPOCH: Final = re.compile(r"@(\d+)", re.ASCII)


class _Words(NamedTuple):
    """The parts of a calendar event; "" for those that are absent."""

    weekdays: str
    date: str
    time: str
    zone: str


def calendar_timing(text: str, *, local_zone: Callable[[], str]) -> dict[str, Any]:
    """Return the fields of a schedule for a calendar event; `local_zone` is called if it names no zone.

    Raises `Invalid` if systemd rejects it, or if no timing of ours says the same.
    """
    if match := _EPOCH.fullmatch(text.strip()):
        return {"at": datetime.fromtimestamp(int(match[1]), UTC).isoformat().replace("+00:00", "Z")}
    words = _split(text)
    zone = words.zone or local_zone()
    years, dates = _date(words.date, text)
    weekdays = _weekdays(words.weekdays, text)
    times = WallTimes(**_time(words.time, text), **dates, weekdays=weekdays)
    return timing_fields(times, zone=zone, clock="once") | _limits(years, zone, text)


def _split(text: str) -> _Words:
    parts = text.split()
    zone = ""
    if len(parts) > 1 and (zone := _zone(parts[-1])):
        parts.pop()
    if len(parts) == 1 and parts[0].lower() in _SHORTHANDS:
        parts = _SHORTHANDS[parts[0].lower()].split()
    weekdays = parts.pop(0) if parts and parts[0][0].isalpha() else ""
    date = parts.pop(0) if parts and ":" not in parts[0] else ""
    time = parts.pop(0) if parts else ""
    if parts or not (weekdays or date or time):
        raise _refused(text)
    return _Words(weekdays, date, time, zone)


def _zone(text: str) -> str:
    """Return the name of the zone that a word is, "" if it is none."""
    if text.lower() == "utc":
        return "UTC"
    try:
        return zone_named(text).name
    except Invalid:
        return ""


def _refused(text: str, why: str = "") -> Invalid:
    return Invalid(f"{text!a} is not a calendar event of systemd{f': {why}' if why else ''}")


# -- parts ------------------------------------------------------------------------------------------------------------


def _weekdays(text: str, whole: str) -> frozenset[int]:
    """Return weekdays, from Sunday = 0, of a text such as `Mon..Fri,Sun`."""
    if not text:
        return all_of(WEEKDAY)
    found: set[int] = set()
    for item in text.removesuffix(",").split(","):
        ends = [_WEEKDAY_OF.get(name.lower(), -1) for name in re.split(r"\.\.|-", item)]
        if -1 in ends or len(ends) > 2 or ends != sorted(ends):
            raise _refused(whole, f"weekday {item!a}")
        found.update(range(ends[0], ends[-1] + 1))
    return frozenset((number + 1) % 7 for number in found)


def _date(text: str, whole: str) -> tuple[frozenset[int] | None, dict[str, Any]]:
    """Return the years, None for all, and the sets of months and days."""
    if not text:
        return None, {}
    match = _DATE.fullmatch(text)
    if match is None:
        raise _refused(whole, f"date {text!a}")
    years = None if match["year"] in (None, "*") else _values(_YEAR, match["year"], whole)
    found = {"months": _values(MONTH, match["month"], whole)}
    if match["mark"] == "-":
        found["days"] = _values(DAY, match["day"], whole)
    elif match["day"] != "*":
        found["days_from_end"] = _from_end(match["day"], whole)
    return years, found


def _from_end(text: str, whole: str) -> frozenset[int]:
    """Return days that are counted from the end: `3`, or `7/2` for the seventh, fifth, third and last."""
    found: set[int] = set()
    for item in text.split(","):
        match = _ITEM.fullmatch(item)
        if match is None or match["high"] is not None:
            raise _refused(whole, f"day {item!a} from the end")
        low, step = int(match["low"]), match["step"]
        if not 1 <= low <= _FROM_END_MAX or step == "0" or low - int(step or 0) < 1:
            raise _refused(whole, f"day {item!a} from the end is out of range")
        found.update([low] if step is None else range(low, 0, -int(step)))
    return frozenset(found)


def _time(text: str, whole: str) -> dict[str, Any]:
    zero = frozenset({0})
    if not text:
        return {"hours": zero, "minutes": zero}
    match = _TIME.fullmatch(text)
    if match is None:
        raise _refused(whole, f"time {text!a}")
    second = match["second"]
    if second is not None and re.search(r"(?<!\.)\.(?!\.)", second):
        raise Invalid(f"{whole!a} has a fraction of a second, and schedules are in whole seconds")
    return {
        "hours": _values(HOUR, match["hour"], whole),
        "minutes": _values(MINUTE, match["minute"], whole),
        "seconds": zero if second is None else _values(SECOND, second, whole),
    }


def _values(field: Field, text: str, whole: str) -> frozenset[int]:
    if text == "*":
        return all_of(field)
    found: set[int] = set()
    for item in text.split(","):
        match = _ITEM.fullmatch(item)
        if match is None or match["step"] == "0":
            raise _refused(whole, f"{field.name} {item!a}")
        low = _number(field, match["low"])
        high, step = match["high"], int(match["step"] or 1)
        last = (field.high if match["step"] else low) if high is None else _number(field, high)
        if not field.low <= low <= last <= field.high:
            raise _refused(whole, f"{field.name} {item!a} is out of range")
        if match["step"] and high is None and low + step > last:
            raise _refused(whole, f"{field.name} {item!a} repeats nothing")
        found.update(range(low, last + 1, step))
    return frozenset(found)


def _number(field: Field, text: str) -> int:
    """Return a number; a year of two digits is one from 1970 to 2069."""
    number = int(text)
    if field is not _YEAR or len(text) > 2:
        return number
    return number + (1900 if number >= 70 else 2000)


# -- years ------------------------------------------------------------------------------------------------------------


def _limits(years: frozenset[int] | None, zone: str, whole: str) -> dict[str, str]:
    """Return the start and the end of a schedule that fires in these years only."""
    if years is None:
        return {}
    first, last = min(years), max(years)
    if len(years) != last - first + 1:
        raise Invalid(f"{whole!a}: its years have gaps; make a schedule for each row of years")
    limits = {"start_at": _instant(first, zone)}
    return limits if first < last == _YEAR.high else limits | {"end_at": _instant(last + 1, zone, before=True)}


def _instant(year: int, zone: str, *, before: bool = False) -> str:
    """Return the begin of a year by the clock of a zone, or the second before it."""
    clock = zone_named(zone).info
    at = datetime(year, 1, 1, tzinfo=clock).timestamp() - before
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
