"""Convert calendars between their document, with one list of blackouts, and their stored windows and periods."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, get_args

import msgspec

from raftsched import limits
from raftsched.api.http.json_reply import time_text
from raftsched.api.json.times import moment_ms
from raftsched.core.cron.calendar_rules import calendar_problem
from raftsched.core.records.calendar import SATURDAY_AND_SUNDAY, BusinessDays, Calendar, Period, Window
from raftsched.errors import Invalid
from raftsched.wire.timings import BlackoutRequest, BusinessDaysRequest, CalendarRequest, WeekdayName

_CLOCK: Final = re.compile(r"(\d\d):(\d\d)(?::(\d\d))?", re.ASCII)
_WEEKDAYS: Final = get_args(WeekdayName)
_DAY_SECONDS: Final = 86_400
_NUMBERED: Final = re.compile(r"(windows|periods)\[(\d+)\]")
_ALL: Final = re.compile(r"^(windows|periods):")
_ZONE: Final = re.compile(r"^(blackouts\[\d+\]\.)?zone:")


def calendar_of(wanted: CalendarRequest | None, *, at: str = "calendar") -> Calendar | None:
    """Return the calendar to store, None for an empty one; raises `Invalid` naming the field."""
    if wanted is None:
        return None
    blackouts = list(enumerate(wanted.blackouts or ()))
    windows = [(number, each) for number, each in blackouts if each.start is not None or each.end is not None]
    periods = [(number, each) for number, each in blackouts if each.start is None and each.end is None]
    calendar = Calendar(
        zone=wanted.timezone or "",
        skip_dates=tuple(sorted(set(wanted.skip_dates or ()))),
        only_dates=tuple(sorted(set(wanted.only_dates or ()))),
        windows=tuple(_window(each, f"{at}.blackouts[{number}]") for number, each in windows),
        periods=tuple(_period(each, f"{at}.blackouts[{number}]") for number, each in periods),
        business_days=_business_days(wanted.business_days, f"{at}.business_days"),
    )
    if problem := calendar_problem(calendar):
        places = {"windows": [number for number, _ in windows], "periods": [number for number, _ in periods]}
        field, _, fault = _as_written(problem, places).partition(": ")
        raise Invalid(f"{at}.{field}: {fault}", field=f"{at}.{field}")
    if len(msgspec.msgpack.encode(calendar)) > limits.CALENDAR_BYTES_MAX:
        raise Invalid(f"{at}: must have at most {limits.CALENDAR_BYTES_MAX} bytes", field=at)
    return None if calendar == Calendar() else calendar


def calendar_document(calendar: Calendar | None) -> dict[str, Any] | None:
    """Return the calendar's document; saving it again stores the same calendar."""
    if calendar is None:
        return None
    document = {
        "skip_dates": list(calendar.skip_dates),
        "only_dates": list(calendar.only_dates),
        "blackouts": [*map(_window_document, calendar.windows), *map(_period_document, calendar.periods)],
        "business_days": _business_document(calendar.business_days),
        "timezone": calendar.zone,
    }
    return {name: value for name, value in document.items() if value}


def _as_written(problem: str, places: dict[str, list[int]]) -> str:
    """Return a problem of the stored form with the fields of the document."""
    problem = _NUMBERED.sub(lambda found: f"blackouts[{places[found[1]][int(found[2])]}]", problem)
    return _ZONE.sub(r"\1timezone:", _ALL.sub("blackouts:", problem))


# -- blackouts --------------------------------------------------------------------------------------------------------


def _window(wanted: BlackoutRequest, at: str) -> Window:
    if wanted.from_ is not None or wanted.to is not None:
        raise Invalid(f"{at}: give either from and to, or start and end", field=at)
    if wanted.start is None or wanted.end is None:
        missing = "start" if wanted.start is None else "end"
        raise Invalid(f"{at}.{missing}: is required beside the other end of the window", field=f"{at}.{missing}")
    return Window(
        start_second=_second(wanted.start, f"{at}.start", _DAY_SECONDS - 1),
        end_second=_second(wanted.end, f"{at}.end", _DAY_SECONDS),
        weekdays=_numbers(wanted.weekdays or ()),
        zone=wanted.timezone or "",
        reason=wanted.reason or "",
    )


def _period(wanted: BlackoutRequest, at: str) -> Period:
    for name, moment in (("from", wanted.from_), ("to", wanted.to)):
        if moment is None:
            fault = "is required: a blackout has from and to, or start and end"
            raise Invalid(f"{at}.{name}: {fault}", field=f"{at}.{name}")
    if wanted.weekdays or wanted.timezone:
        name = "weekdays" if wanted.weekdays else "timezone"
        raise Invalid(f"{at}.{name}: belongs to start and end", field=f"{at}.{name}")
    assert wanted.from_ is not None
    assert wanted.to is not None
    from_ms, to_ms = moment_ms(wanted.from_, f"{at}.from"), moment_ms(wanted.to, f"{at}.to")
    if to_ms <= from_ms:
        raise Invalid(f"{at}.to: must be later than from", field=f"{at}.to")
    return Period(from_ms, to_ms, wanted.reason or "")


def _second(text: str, field: str, most: int) -> int:
    found = _CLOCK.fullmatch(text)
    hour, minute, second = (int(part or 0) for part in found.groups()) if found else (99, 0, 0)
    total = hour * 3_600 + minute * 60 + second
    if minute > 59 or second > 59 or total > most:
        raise Invalid(f"{field}: {text!a} is not a time of day; write one like 08:30", field=field)
    return total


def _numbers(weekdays: Sequence[str]) -> tuple[int, ...]:
    return tuple(sorted({_WEEKDAYS.index(day) for day in weekdays}))


def _names(weekdays: Sequence[int]) -> list[str]:
    return [_WEEKDAYS[day] for day in weekdays]


def _clock_text(second: int) -> str:
    rest = second % 60
    return f"{second // 3_600:02}:{second // 60 % 60:02}" + (f":{rest:02}" if rest else "")


def _window_document(window: Window) -> dict[str, Any]:
    document = {
        "start": _clock_text(window.start_second),
        "end": _clock_text(window.end_second),
        "weekdays": _names(window.weekdays),
        "timezone": window.zone,
        "reason": window.reason,
    }
    return {name: value for name, value in document.items() if value}


def _period_document(period: Period) -> dict[str, Any]:
    document = {"from": time_text(period.from_ms), "to": time_text(period.to_ms)}
    return document | ({"reason": period.reason} if period.reason else {})


# -- business days ----------------------------------------------------------------------------------------------------


def _business_days(wanted: bool | BusinessDaysRequest | None, at: str) -> BusinessDays | None:
    if isinstance(wanted, BusinessDaysRequest):
        if wanted.country and wanted.weekend is not None:
            raise Invalid(f"{at}.weekend: a country brings its own; give one of the two", field=f"{at}.weekend")
        return BusinessDays(
            wanted.country or "",
            wanted.subdivision or "",
            SATURDAY_AND_SUNDAY if wanted.weekend is None else _numbers(wanted.weekend),
        )
    return BusinessDays() if wanted else None


def _business_document(rule: BusinessDays | None) -> bool | dict[str, Any]:
    if rule is None or rule == BusinessDays():
        return rule is not None
    weekend = [] if rule.weekend == SATURDAY_AND_SUNDAY else _names(rule.weekend)
    document = {"country": rule.country, "subdivision": rule.subdivision, "weekend": weekend}
    return {name: value for name, value in document.items() if value}
