"""Define the documents of timings and calendars: when a schedule fires."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from raftsched import limits
from raftsched.wire.common import Moment, Request

WeekdayName = Literal["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
Dates = Annotated[
    list[Annotated[str, Meta(max_length=10, extra_json_schema={"format": "date"})]],
    Meta(max_length=limits.CALENDAR_DATES_MAX),
]
ClockTime = Annotated[str, Meta(max_length=8, description="HH:MM or HH:MM:SS; 24:00 is the end of a day.")]
ZoneName = Annotated[str, Meta(description="IANA name, such as Europe/Berlin.")]


class BlackoutRequest(Request, frozen=True):
    """A period without fire times: between two times, or by the wall clock each week. The end is exclusive."""

    from_: Moment | None = msgspec.field(name="from", default=None)
    to: Moment | None = None
    start: ClockTime | None = None
    end: ClockTime | None = None
    """If it is not later than `start`, it is on the next day."""
    weekdays: Annotated[list[WeekdayName], Meta(min_length=1, max_length=7)] | None = None
    """Days on which it begins; every day by default."""
    timezone: ZoneName | None = None
    """Zone of the wall clock; default: the calendar's."""
    reason: Annotated[str, Meta(max_length=limits.CALENDAR_REASON_CHARS_MAX)] | None = None


class BusinessDaysRequest(Request, frozen=True):
    """Working days of a country, by its public holidays and its weekend, or all days but a weekend."""

    country: Annotated[str, Meta(max_length=2, description="ISO 3166-1 code in capitals, such as DE.")] | None = None
    subdivision: Annotated[str, Meta(max_length=64, description="ISO 3166-2 code without the country.")] | None = None
    weekend: Annotated[list[WeekdayName], Meta(max_length=6)] | None = None
    """The weekend if no country is given; a country has its own. Default: Saturday and Sunday."""


class CalendarRequest(Request, frozen=True):
    """Rules that exclude fire times. An excluded one is skipped, and the ledger has the reason."""

    skip_dates: Dates | None = None
    only_dates: Dates | None = None
    """If given, all other dates are excluded."""
    blackouts: Annotated[list[BlackoutRequest], Meta(max_length=2 * limits.CALENDAR_WINDOWS_MAX)] | None = None
    business_days: bool | BusinessDaysRequest | None = None
    """`true`: Monday to Friday."""
    timezone: ZoneName | None = None
    """Zone for the dates and times of day of fire times; default: the schedule's."""


class TimingBody(Request, frozen=True):
    """A timing: exactly one of `cron`, `every` and `at`, with limits.

    A schedule has none of them if a required parameter has no default.
    """

    cron: str | None = None
    """Five fields, or six with the seconds first; `@daily` and similar; `@every 90s`."""
    every: str | None = None
    """A fixed interval, such as `90s` or `1h30m`, counted from `start_at`."""
    at: Moment | None = None
    """A single fire time."""
    timezone: ZoneName = "UTC"
    dst_gap: Literal["shift", "skip"] = "shift"
    """A wall time that a clock change skips fires right after the gap, or not at all."""
    dst_overlap: Literal["first", "both"] = "first"
    """A wall time that occurs twice fires at the first, or at both."""
    start_at: Moment | None = None
    """No fire time is earlier. A fixed interval starts here; default: the time of saving."""
    end_at: Moment | None = None
    """No fire time is later."""
    calendar: CalendarRequest | None = None
