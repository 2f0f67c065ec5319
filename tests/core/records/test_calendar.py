from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftsched import limits
from raftsched.core.cron.calendar_rules import calendar_problem
from raftsched.core.cron.skips import skip_reason
from raftsched.core.records.calendar import BusinessDays, Calendar, Period, Window
from tests.core.cron.oracle import packaged
from tests.for_each import for_each

BERLIN = "Europe/Berlin"
HOUR = 3_600


def at(text: str, zone: str = BERLIN) -> int:
    """The instant at which the clock of `zone` shows this."""
    return int(datetime.fromisoformat(text).replace(tzinfo=packaged(zone)).timestamp() * 1_000)


def reason(calendar: Calendar, text: str, zone: str = BERLIN) -> str:
    assert calendar_problem(calendar) == ""
    return skip_reason(calendar, at(text, zone), zone)


def test_an_empty_calendar_skips_nothing() -> None:
    assert reason(Calendar(), "2027-12-24T12:00") == ""


def test_dates_are_those_of_the_wall_clock() -> None:
    calendar = Calendar(skip_dates=("2027-12-24",))
    assert reason(calendar, "2027-12-24T00:00") == reason(calendar, "2027-12-24T23:59:59") == "skip date 2027-12-24"
    assert reason(calendar, "2027-12-23T23:59:59") == reason(calendar, "2027-12-25T00:00") == ""
    assert skip_reason(calendar, at("2027-12-24T00:00"), "UTC") == ""  # the 23rd there


def test_the_zone_of_a_calendar_goes_before_the_one_of_the_schedule() -> None:
    calendar = Calendar(zone="Asia/Tokyo", skip_dates=("2027-12-24",))
    assert reason(calendar, "2027-12-23T16:00") == "skip date 2027-12-24"
    assert reason(calendar, "2027-12-24T16:00") == ""


def test_only_dates_let_no_other_date_pass() -> None:
    calendar = Calendar(only_dates=("2027-12-24", "2027-12-31"), skip_dates=("2027-12-31",))
    assert reason(calendar, "2027-12-24T10:00") == ""
    assert reason(calendar, "2027-12-25T10:00") == "2027-12-25 is none of the calendar's only dates"
    assert reason(calendar, "2027-12-31T10:00") == "skip date 2027-12-31"


def test_a_window_covers_its_start_and_not_its_end() -> None:
    calendar = Calendar(windows=(Window(9 * HOUR, 17 * HOUR, weekdays=(1, 5), reason="trading"),))
    assert reason(calendar, "2027-01-04T09:00") == "blackout window 09:00-17:00: trading"  # a Monday
    assert reason(calendar, "2027-01-08T16:59:59") == "blackout window 09:00-17:00: trading"
    assert reason(calendar, "2027-01-04T08:59:59") == reason(calendar, "2027-01-04T17:00") == ""
    assert reason(calendar, "2027-01-05T12:00") == ""


def test_a_window_over_midnight_belongs_to_the_day_it_begins_on() -> None:
    calendar = Calendar(windows=(Window(22 * HOUR, 6 * HOUR, weekdays=(5,)),))  # Friday night
    assert reason(calendar, "2027-01-01T22:00") == "blackout window 22:00-06:00"
    assert reason(calendar, "2027-01-02T05:59:59") == "blackout window 22:00-06:00"
    for free in ("2027-01-01T05:00", "2027-01-01T21:59:59", "2027-01-02T06:00", "2027-01-02T22:00"):
        assert reason(calendar, free) == ""


def test_a_window_without_length_is_a_whole_day() -> None:
    for window in (Window(0, 0, weekdays=(0,)), Window(0, 24 * HOUR, weekdays=(0,))):
        calendar = Calendar(windows=(window,))
        assert reason(calendar, "2027-01-03T00:00") == reason(calendar, "2027-01-03T23:59:59") != ""
        assert reason(calendar, "2027-01-02T23:59:59") == reason(calendar, "2027-01-04T00:00") == ""


def test_a_window_goes_by_the_clock_on_days_of_23_and_25_hours() -> None:
    calendar = Calendar(windows=(Window(2 * HOUR, 3 * HOUR),))
    autumn = at("2027-10-31T01:59:59") + 1_000  # 02:00 the first time
    assert [bool(skip_reason(calendar, autumn + hours * 3_600_000, BERLIN)) for hours in range(-1, 3)] == [
        False,
        True,
        True,
        False,
    ]
    spring = at("2027-03-28T01:59:59") + 1_000  # 03:00 at once
    assert not skip_reason(calendar, spring, BERLIN)


def test_a_window_may_have_a_zone_of_its_own() -> None:
    calendar = Calendar(windows=(Window(9 * HOUR, 17 * HOUR, zone="America/New_York"),))
    assert reason(calendar, "2027-01-04T15:00") != ""
    assert reason(calendar, "2027-01-04T14:59:59") == ""


def test_the_longest_reason_is_stored_whole() -> None:
    longest = "r" * limits.CALENDAR_REASON_CHARS_MAX
    calendar = Calendar(windows=(Window(1, 86_399, reason=longest),))
    told = reason(calendar, "2027-01-04T15:00")
    assert told.endswith(longest)
    assert len(told) <= limits.SKIP_REASON_CHARS_MAX


def test_a_period_covers_its_start_and_not_its_end() -> None:
    start, end = at("2027-06-01T22:00"), at("2027-06-03T02:00")
    calendar = Calendar(periods=(Period(start, end, "migration"),))
    assert calendar_problem(calendar) == ""
    told = [skip_reason(calendar, each, "UTC") for each in (start - 1, start, end - 1, end)]
    assert told == ["", "blackout period: migration", "blackout period: migration", ""]


def test_business_days_know_holidays_and_weekends() -> None:
    bavaria, berlin = (Calendar(business_days=BusinessDays("DE", part)) for part in ("BY", "BE"))
    assert reason(bavaria, "2027-01-06T10:00") == "holiday in DE-BY: Epiphany"
    assert reason(berlin, "2027-01-06T10:00") == ""
    assert reason(berlin, "2027-01-09T10:00") == "weekend in DE-BE"
    assert reason(Calendar(business_days=BusinessDays("SA")), "2027-01-08T10:00") == "weekend in SA"  # Friday
    assert reason(Calendar(business_days=BusinessDays("SA")), "2027-01-10T10:00") == ""  # Sunday
    assert reason(Calendar(business_days=BusinessDays("US")), "2027-12-31T10:00") == (
        "holiday in US: New Year's Day (observed)"
    )


def test_a_weekend_alone_needs_no_country() -> None:
    assert reason(Calendar(business_days=BusinessDays()), "2027-01-09T10:00") == "weekend"
    assert reason(Calendar(business_days=BusinessDays()), "2027-01-06T10:00") == ""
    friday = Calendar(business_days=BusinessDays(weekend=(5,)))
    assert (reason(friday, "2027-01-08T10:00"), reason(friday, "2027-01-09T10:00")) == ("weekend", "")


def test_what_this_nodes_data_lacks_skips_and_says_so() -> None:
    """A calendar that was sound under other versions of the data."""
    noon = at("2027-01-04T12:00")
    for calendar, said in (
        (Calendar(business_days=BusinessDays("ZZ")), "the calendar can't be read: Country ZZ not available"),
        (Calendar(zone="Europe/Atlantis", skip_dates=("2027-01-01",)), "the calendar can't be read: timezone: "),
    ):
        assert skip_reason(calendar, noon, BERLIN).startswith(said)


def test_reasons_do_not_depend_on_the_language_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGUAGE", "de")
    calendar = Calendar(business_days=BusinessDays("DE", "SN"))
    assert reason(calendar, "2027-12-25T10:00") == "holiday in DE-SN: Christmas Day"


@given(
    st.integers(0, 86_399),
    st.integers(0, 86_400),
    st.sets(st.integers(0, 6)),
    st.integers(0, 4_000_000_000),
    st.sampled_from([BERLIN, "UTC", "Australia/Lord_Howe", "Pacific/Chatham"]),
)
def test_a_window_is_open_as_a_walk_back_to_its_start_says(
    start: int, end: int, weekdays: set[int], second: int, zone: str
) -> None:
    """An instant is within iff, going back from it by the clock, the last start is nearer than the last end."""
    calendar = Calendar(windows=(Window(start, end, tuple(sorted(weekdays))),))
    shown = datetime.fromtimestamp(second, packaged(zone)).replace(tzinfo=None)
    midnight = shown.replace(hour=0, minute=0, second=0)
    length = (end - start) % 86_400 or 86_400
    begun = [midnight + timedelta(days=day, seconds=start) for day in (-1, 0)]
    expected = any(
        begin <= shown < begin + timedelta(seconds=length) and (not weekdays or begin.isoweekday() % 7 in weekdays)
        for begin in begun
    )
    assert bool(skip_reason(calendar, second * 1_000, zone)) == expected


def test_a_calendar_is_stored_as_it_is() -> None:
    calendar = Calendar(
        zone=BERLIN,
        skip_dates=("2027-12-24",),
        windows=(Window(0, HOUR, (0, 6), "UTC", "r"),),
        periods=(Period(1, 2, "p"),),
        business_days=BusinessDays("DE", "BY"),
    )
    stored = msgspec.msgpack.encode(calendar)
    assert msgspec.msgpack.decode(stored, type=Calendar) == calendar
    assert msgspec.msgpack.decode(msgspec.msgpack.encode([]), type=Calendar) == Calendar()


@for_each(
    ("calendar", "problem"),
    [
        (Calendar(zone="Mars"), "zone: 'Mars' is not a time zone"),
        (Calendar(skip_dates=("2027-02-29",)), "skip_dates: '2027-02-29' is not a date; write one like 2027-12-24"),
        (Calendar(skip_dates=("20271224",)), "skip_dates: '20271224' is not a date"),
        (Calendar(only_dates=("2027-01-02",), skip_dates=("2027-01-01", "2027-01-02")), "only_dates: leave no day"),
        (Calendar(windows=(Window(0, 86_400),)), "windows: leave no time"),
        (Calendar(windows=(Window(0, 0),)), "windows: leave no time"),
        (Calendar(windows=(Window(0, 43_200), Window(43_200, 0))), "windows: leave no time"),
        (
            Calendar(windows=(Window(7_200, 3_600), Window(3_600, 7_200, (0, 1, 2, 3, 4, 5, 6)))),
            "windows: leave no time",
        ),
        (Calendar(only_dates=("2027-W01-1",)), "only_dates: '2027-W01-1' is not a date"),
        (Calendar(only_dates=("2027-01-01\n",)), r"only_dates: '2027-01-01\n' is not a date"),
        (Calendar(skip_dates=("2027-01-01",) * (limits.CALENDAR_DATES_MAX + 1)), "skip_dates: must hold at most"),
        (Calendar(windows=(Window(0, 1),) * (limits.CALENDAR_WINDOWS_MAX + 1)), "windows: must be 0 to"),
        (Calendar(windows=(Window(0, 1), Window(-1, 5))), "windows[1].start_second: must be 0 to 86399"),
        (Calendar(windows=(Window(86_400, 5),)), "windows[0].start_second: must be 0 to 86399"),
        (Calendar(windows=(Window(0, 86_401),)), "windows[0].end_second: must be 0 to 86400"),
        (Calendar(windows=(Window(0, 5, (7,)),)), "windows[0].weekdays: must be rising numbers"),
        (Calendar(windows=(Window(0, 5, (1, 1)),)), "windows[0].weekdays: must be rising numbers"),
        (Calendar(windows=(Window(0, 5, zone="X"),)), "windows[0].zone: 'X' is not a time zone"),
        (Calendar(windows=(Window(0, 5, reason="a\nb"),)), "windows[0].reason: must be at most 100 printable"),
        (Calendar(periods=(Period(5, 5),)), "periods[0].to_ms: must be 6 to"),
        (Calendar(periods=(Period(-1, 5),)), "periods[0].from_ms: must be 0 to"),
        (Calendar(business_days=BusinessDays("ZZ")), "business_days.country: 'ZZ' is not known; write a code like DE"),
        (Calendar(business_days=BusinessDays("de")), "business_days.country: 'de' is not known"),
        (Calendar(business_days=BusinessDays("HolidayBase")), "business_days.country: 'HolidayBase' is not known"),
        (Calendar(business_days=BusinessDays("DE", "XX")), "business_days.subdivision: 'XX' is not known in DE; there"),
        (Calendar(business_days=BusinessDays("", "BY")), "business_days.subdivision: needs a country"),
        (Calendar(business_days=BusinessDays(weekend=tuple(range(7)))), "business_days.weekend: leaves no day"),
        (Calendar(business_days=BusinessDays(weekend=(7,))), "business_days.weekend: must be numbers from 0"),
    ],
)
def test_a_calendar_that_is_not_sound_names_its_field(calendar: Calendar, problem: str) -> None:
    assert calendar_problem(calendar).startswith(problem)


def test_every_country_of_the_package_is_known_in_every_year() -> None:
    for country in ("AR", "BR", "CN", "GB", "IL", "IN", "JP", "SA", "US", "ZA"):
        calendar = Calendar(business_days=BusinessDays(country))
        assert calendar_problem(calendar) == ""
        for year in (1970, 2027, 2150):
            noon = int(datetime(year, 5, 1, 12, tzinfo=UTC).timestamp()) * 1_000
            told = [bool(skip_reason(calendar, noon + day * 86_400_000, "UTC")) for day in range(31)]
            assert 8 <= sum(told) <= 16
