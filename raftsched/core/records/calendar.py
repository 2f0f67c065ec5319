"""Calendars as they are stored: days and hours on which schedules do not fire. Plain records, no zone rules.

Dates are ISO texts (`2027-12-24`), times of day seconds since midnight by the wall clock, weekdays 0 = Sunday. What a
record means is in `cron.skips`, what makes one sound in `cron.calendar_rules`; both need zone and holiday data, and apply
reads neither: the leader decides, and the log carries its decision. Fields are stored by position: new ones go at the end,
with a default.
"""

from __future__ import annotations

import msgspec

SATURDAY_AND_SUNDAY = (6, 0)


class BusinessDays(msgspec.Struct, frozen=True, array_like=True):
    """Fire on working days only: those of a country, by its public holidays and its weekend, or all but a weekend."""

    country: str = ""
    """ISO 3166-1 code in capitals, such as `DE`; "" = there are no holidays, only the weekend."""
    subdivision: str = ""
    """ISO 3166-2 code without the country, such as `BY`; "" = the holidays of the whole country."""
    weekend: tuple[int, ...] = SATURDAY_AND_SUNDAY
    """Weekdays off where no country is given; a country brings its own, also as it was in earlier years."""


class Window(msgspec.Struct, frozen=True, array_like=True):
    """Blackout by the wall clock, week after week: from `start` up to, not including, `end`.

    An `end` that is not later than `start` lies on the next day; a window then belongs to the weekday it begins on.
    """

    start_second: int
    """0 to 86399."""
    end_second: int
    """0 to 86400."""
    weekdays: tuple[int, ...] = ()
    """On which it begins; () = every day."""
    zone: str = ""
    """Whose wall clock; "" = the calendar's."""
    reason: str = ""


class Period(msgspec.Struct, frozen=True, array_like=True):
    """Blackout between two instants: from `from_ms` up to, not including, `to_ms`."""

    from_ms: int
    to_ms: int
    reason: str = ""


class Calendar(msgspec.Struct, frozen=True, array_like=True):
    """What keeps a schedule from firing; an instant fires only if nothing here speaks against it."""

    zone: str = ""
    """In which instants have dates and times of day; "" = the schedule's."""
    skip_dates: tuple[str, ...] = ()
    only_dates: tuple[str, ...] = ()
    """If there are any, no other date fires."""
    windows: tuple[Window, ...] = ()
    periods: tuple[Period, ...] = ()
    business_days: BusinessDays | None = None
