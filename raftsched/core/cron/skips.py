"""Find the reason for which a calendar skips a fire time.

The leader asks before each firing and records the answer, so a node with other zone or holiday data decides nothing.
The `holidays` package knows each country's public holidays for the years that its authors could look up or compute;
in other years a country has its weekends only. Public holidays count, those of banks, schools and offices do not.
"""

from __future__ import annotations

import warnings
from datetime import date, timedelta
from functools import lru_cache
from typing import Final

import holidays

from raftsched import limits
from raftsched.core.cron import zones
from raftsched.core.cron.expression import DAY_SECONDS
from raftsched.core.records.calendar import BusinessDays, Calendar, Window
from raftsched.errors import Invalid

_EPOCH: Final = date(1970, 1, 1)
_THURSDAY: Final = 4
"""The weekday of 1970-01-01; day numbers count from it."""


def skip_reason(calendar: Calendar, fire_time_ms: int, zone: str) -> str:
    """Return why a schedule in `zone` must not fire at this instant, or "" where the calendar lets it.

    Pure and the same for the same data; takes tens of µs, more the longer its lists are. Total: a zone or
    country that this node's data lacks, after a change of versions, skips and says so, for a firing on a closed day
    can't be taken back.
    """
    try:
        return _reason(calendar, fire_time_ms, calendar.zone or zone)
    except (Invalid, NotImplementedError) as error:
        return f"the calendar can't be read: {error}"


def _reason(calendar: Calendar, fire_time_ms: int, zone: str) -> str:
    at = fire_time_ms // 1_000
    for period in calendar.periods:
        if period.from_ms <= fire_time_ms < period.to_ms:
            return _labelled("blackout period", period.reason)
    for window in calendar.windows:
        if _is_within(window, zones.zone(window.zone or zone).wall(at)):
            return _labelled(
                f"blackout window {_clock(window.start_second)}-{_clock(window.end_second)}", window.reason
            )
    if not (calendar.skip_dates or calendar.only_dates or calendar.business_days):
        return ""
    day = zones.zone(zone).wall(at) // DAY_SECONDS
    return _day_reason(calendar, _EPOCH + timedelta(days=day))


def _day_reason(calendar: Calendar, day: date) -> str:
    text = day.isoformat()
    if text in calendar.skip_dates:
        return f"skip date {text}"
    if calendar.only_dates and text not in calendar.only_dates:
        return f"{text} is none of the calendar's only dates"
    return _day_off(calendar.business_days, day) if calendar.business_days else ""


def _is_within(window: Window, wall: int) -> bool:
    """Whether a window is open when the clock shows `wall`; one that runs past midnight may have begun the day before."""
    day, second = divmod(wall, DAY_SECONDS)
    past_midnight = window.end_second <= window.start_second
    if second >= window.start_second and (past_midnight or second < window.end_second):
        return _begins_on(window, day)
    return past_midnight and second < window.end_second and _begins_on(window, day - 1)


def _begins_on(window: Window, day: int) -> bool:
    return not window.weekdays or (day + _THURSDAY) % 7 in window.weekdays


def _day_off(rule: BusinessDays, day: date) -> str:
    if not rule.country:
        return "weekend" if day.isoweekday() % 7 in rule.weekend else ""
    # A holiday on a weekend may be observed across New Year, so the neighbouring years have a say.
    years = [country_year(rule.country, rule.subdivision, day.year + offset) for offset in (0, -1, 1)]
    name = next((year[day] for year in years if day in year), "")
    if years[0].is_weekend(day):
        if any(day in year.weekend_workdays for year in years):
            return ""
        return f"holiday in {_place(rule)}: {name}" if name else f"weekend in {_place(rule)}"
    return f"holiday in {_place(rule)}: {name}" if name else ""


@lru_cache(maxsize=limits.HOLIDAY_YEARS_KEPT_MAX)
def country_year(country: str, subdivision: str, year: int) -> holidays.HolidayBase:
    """Return the holidays that belong to a year of a country; raise `NotImplementedError` if it is not known, or its part.

    One year at a time, as each takes milliseconds and is kept. The language is given, for it would come from the
    environment of the process.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a country's years end somewhere; what follows from it is said above
        return holidays.country_holidays(
            country, subdiv=subdivision or None, years=year, expand=False, language="en_US"
        )


def _place(rule: BusinessDays) -> str:
    return f"{rule.country}-{rule.subdivision}" if rule.subdivision else rule.country


def _clock(second: int) -> str:
    return f"{second // 3_600:02}:{second // 60 % 60:02}" + (f":{second % 60:02}" if second % 60 else "")


def _labelled(label: str, reason: str) -> str:
    return f"{label}: {reason}" if reason else label
