"""Define stored calendars: the days and hours on which schedules do not fire. They have no zone rules.

Dates are ISO texts (`2027-12-24`), times of day are seconds since midnight by the wall clock, weekdays begin with
0 = Sunday. `cron.skips` interprets a record and `cron.calendar_rules` validates it. Both need zone and holiday data, which
`apply` never reads: the leader decides, and the log has its decision. Fields are stored by position: new ones go at the
end, with a default.
"""

from __future__ import annotations

import msgspec

SATURDAY_AND_SUNDAY = (6, 0)


class BusinessDays(msgspec.Struct, frozen=True, array_like=True):
    """Fire on working days only: those of a country by its public holidays and weekend, or all days except a weekend."""

    country: str = ""
    """ISO 3166-1 code in capitals, such as `DE`; "" = there are no holidays, only the weekend."""
    subdivision: str = ""
    """ISO 3166-2 code without the country, such as `BY`; "" = the holidays of the whole country."""
    weekend: tuple[int, ...] = SATURDAY_AND_SUNDAY
    """Days off if no country is given; a country has its own weekend, with its changes over the years."""


class Window(msgspec.Struct, frozen=True, array_like=True):
    """Define a blackout by the wall clock, repeated every week: from `start` up to, not including, `end`.

    An `end` not later than `start` is on the next day; the window belongs to the weekday on which it begins.
    """

    start_second: int
    """0 to 86399."""
    end_second: int
    """0 to 86400."""
    weekdays: tuple[int, ...] = ()
    """The weekdays on which it begins; () = every day."""
    zone: str = ""
    """The zone of its wall clock; "" = the calendar's."""
    reason: str = ""


class Period(msgspec.Struct, frozen=True, array_like=True):
    """Define a blackout from `from_ms` up to, not including, `to_ms`."""

    from_ms: int
    to_ms: int
    reason: str = ""


class Calendar(msgspec.Struct, frozen=True, array_like=True):
    """Define which fire times of a schedule are skipped; one fires only if no rule here excludes it."""

    zone: str = ""
    """The zone that gives fire times their dates and times of day; "" = the schedule's."""
    skip_dates: tuple[str, ...] = ()
    only_dates: tuple[str, ...] = ()
    """If there are any, no other date fires."""
    windows: tuple[Window, ...] = ()
    periods: tuple[Period, ...] = ()
    business_days: BusinessDays | None = None
