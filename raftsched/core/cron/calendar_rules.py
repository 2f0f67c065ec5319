"""Validate a calendar once, when it is received, so that later uses of it can't fail."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Final

from raftsched import limits
from raftsched.core.cron import zones
from raftsched.core.cron.expression import DAY_SECONDS
from raftsched.core.cron.skips import country_year
from raftsched.core.records.bounds import TIME_MS_MAX, range_problem
from raftsched.core.records.calendar import BusinessDays, Calendar, Period, Window
from raftsched.errors import Invalid

_COUNTRY: Final = re.compile(r"[A-Z]{2}", re.ASCII)
_SUBDIVISION: Final = re.compile(r"[\w -]{1,64}")
_SHOWN_CHARS: Final = 60
_WEEK_SECONDS: Final = 7 * DAY_SECONDS
_SOME_YEAR: Final = 2027
"""Any year: which countries and subdivisions are known does not depend on it."""


def calendar_problem(calendar: Calendar) -> str:
    """Return the fault of a calendar, beginning with the field's name, or ""."""
    return (
        _zone_problem("zone", calendar.zone)
        or _dates_problem("skip_dates", calendar.skip_dates)
        or _dates_problem("only_dates", calendar.only_dates)
        or range_problem("windows", len(calendar.windows), 0, limits.CALENDAR_WINDOWS_MAX)
        or range_problem("periods", len(calendar.periods), 0, limits.CALENDAR_WINDOWS_MAX)
        or next(filter(None, (_window_problem(n, window) for n, window in enumerate(calendar.windows))), "")
        or next(filter(None, (_period_problem(n, period) for n, period in enumerate(calendar.periods))), "")
        or (_business_days_problem(calendar.business_days) if calendar.business_days else "")
        or _emptiness_problem(calendar)
    )


def _zone_problem(field: str, name: str) -> str:
    try:
        if name:
            zones.zone(name, field=field)
    except Invalid as error:
        return str(error)
    return ""


def _dates_problem(field: str, dates: tuple[str, ...]) -> str:
    if len(dates) > limits.CALENDAR_DATES_MAX:
        return f"{field}: must hold at most {limits.CALENDAR_DATES_MAX} dates"
    wrong = next((text for text in dates if not _is_date(text)), None)
    return "" if wrong is None else f"{field}: {wrong[:_SHOWN_CHARS]!a} is not a date; write one like 2027-12-24"


def _is_date(text: str) -> bool:
    """Return whether the text is a date in the only accepted format; stored dates are compared as texts."""
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _window_problem(number: int, window: Window) -> str:
    field = f"windows[{number}]"
    if window.weekdays != tuple(sorted(set(window.weekdays))) or not set(window.weekdays) <= set(range(7)):
        return f"{field}.weekdays: must be rising numbers from 0 (Sunday) to 6, each once"
    return (
        range_problem(f"{field}.start_second", window.start_second, 0, DAY_SECONDS - 1)
        or range_problem(f"{field}.end_second", window.end_second, 0, DAY_SECONDS)
        or _zone_problem(f"{field}.zone", window.zone)
        or _reason_problem(field, window.reason)
    )


def _period_problem(number: int, period: Period) -> str:
    field = f"periods[{number}]"
    return (
        range_problem(f"{field}.from_ms", period.from_ms, 0, TIME_MS_MAX)
        or range_problem(f"{field}.to_ms", period.to_ms, period.from_ms + 1, TIME_MS_MAX)
        or _reason_problem(field, period.reason)
    )


def _reason_problem(field: str, reason: str) -> str:
    if len(reason) <= limits.CALENDAR_REASON_CHARS_MAX and reason.isprintable():
        return ""
    return f"{field}.reason: must be at most {limits.CALENDAR_REASON_CHARS_MAX} printable characters"


def _business_days_problem(rule: BusinessDays) -> str:
    if not set(rule.weekend) <= set(range(7)) or len(set(rule.weekend)) != len(rule.weekend):
        return "business_days.weekend: must be numbers from 0 (Sunday) to 6, each once"
    if not rule.country:
        if rule.subdivision:
            return "business_days.subdivision: needs a country"
        if not rule.weekend:
            return "business_days.weekend: keeps nothing from firing; leave business_days out, or name days off"
        return "business_days.weekend: leaves no day" if len(rule.weekend) == 7 else ""
    if not _COUNTRY.fullmatch(rule.country) or not _is_known(rule.country, ""):
        return f"business_days.country: {rule.country[:_SHOWN_CHARS]!a} is not known; write a code like DE or US"
    if rule.subdivision and not (
        _SUBDIVISION.fullmatch(rule.subdivision) and _is_known(rule.country, rule.subdivision)
    ):
        some = ", ".join(country_year(rule.country, "", _SOME_YEAR).subdivisions) or "none are known"
        shown = rule.subdivision[:_SHOWN_CHARS]
        return f"business_days.subdivision: {shown!a} is not known in {rule.country}; there are: {some}"
    return ""


def _emptiness_problem(calendar: Calendar) -> str:
    """Return the rule that excludes all times, or ""; with it no schedule would ever run, without any notice."""
    if calendar.only_dates and set(calendar.only_dates) <= set(calendar.skip_dates):
        return "only_dates: leave no day, for each of them is a skip date"
    for zone in {window.zone for window in calendar.windows}:
        if _cover_the_week([window for window in calendar.windows if window.zone == zone]):
            return "windows: leave no time of the week"
    return ""


def _cover_the_week(windows: Sequence[Window]) -> bool:
    reach = 0
    for begin, end in sorted(span for window in windows for span in _spans(window)):
        if begin > reach:
            return False
        reach = max(reach, end)
    return reach >= _WEEK_SECONDS


def _spans(window: Window) -> Iterator[tuple[int, int]]:
    """Yield the spans of the week in which the window is open; one over the end of the week is also at its beginning."""
    length = (window.end_second - window.start_second) % DAY_SECONDS or DAY_SECONDS
    for weekday in window.weekdays or range(7):
        begin = weekday * DAY_SECONDS + window.start_second
        yield begin, begin + length
        yield max(0, begin - _WEEK_SECONDS), begin + length - _WEEK_SECONDS


def _is_known(country: str, subdivision: str) -> bool:
    try:
        country_year(country, subdivision, _SOME_YEAR)
    except NotImplementedError:
        return False
    return True
