"""Timings in words, clock changes, and the calendar of a month."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Final
from zoneinfo import ZoneInfo

from raftsched.client.records import Firing, Preview
from raftsched.dashboard.schedules.clock_changes import clock_changes
from raftsched.dashboard.schedules.month import Month, month_of
from raftsched.dashboard.schedules.timing_words import timing_words
from raftsched.wire.firings import SkippedDocument

WORDS: Final = {
    "0 2 * * *": "at 02:00, every day",
    "30 17 * * mon-fri": "at 17:30, Monday to Friday",
    "*/5 * * * *": "every 5 minutes",
    "* * * * *": "every minute",
    "0 */2 * * *": "at minute 0, every 2 hours",
    "0 9-17 * * 1-5": "at minute 0, from hour 9 to 17, Monday to Friday",
    "15 3 1 * *": "at 03:15, on day 1",
    "0 0 L * *": "at 00:00, on the last day of the month",
    "0 8 * * 1#2": "at 08:00, the second Monday of the month",
    "0 0 1,15 * sun": "at 00:00, on day 1 and 15 or Sunday",
    "*/10 * * * * *": "every 10 seconds",
    "0 30 9 * * *": "at 09:30, every day",
    "5,35 * * * *": "at minute 5 and 35 of every hour",
    "0 12 * jan,jul *": "at 12:00, in January and July",
    "0 0,12 * * 7": "at 00:00 and 12:00, Sunday",
    "@every 90s": "every 90s",
    "@daily": "at 00:00 every day",
    "0 0 H * *": "at 00:00, on day H",
    "nonsense": "nonsense",
}


def test_timings_are_said_in_words() -> None:
    assert {cron: timing_words(cron, None) for cron in WORDS} == WORDS
    assert timing_words(None, "15m") == "every 15m"
    assert timing_words(None, None, "2027-03-14 07:00:00 UTC") == "once, at 2027-03-14 07:00:00 UTC"
    assert timing_words(None, None) == "by hand only"


def test_clock_changes_are_found_to_the_minute() -> None:
    year = datetime(2027, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC)
    berlin = list(clock_changes(ZoneInfo("Europe/Berlin"), *year))
    assert [each.at.isoformat() for each in berlin] == ["2027-03-28T01:00:00+00:00", "2027-10-31T01:00:00+00:00"]
    assert [each.words for each in berlin] == [
        "forward from 02:00 to 03:00: times between don't exist",
        "back from 03:00 to 02:00: times between occur twice",
    ]
    lord_howe = [each.words for each in clock_changes(ZoneInfo("Australia/Lord_Howe"), *year)]
    assert lord_howe[0] == "back from 02:00 to 01:30: times between occur twice"
    assert list(clock_changes(ZoneInfo("UTC"), *year)) == []


def test_a_month_shows_what_was_decided_and_what_is_to_come_by_the_days_of_its_zone() -> None:
    zone = ZoneInfo("Europe/Berlin")
    month = month_of("2027-03", datetime(2020, 1, 1, tzinfo=UTC), zone)
    assert (month.title, month.previous.text, month.next.text) == ("March 2027", "2027-02", "2027-04")
    now = datetime(2027, 3, 10, 12, tzinfo=UTC)
    weeks = month.weeks(
        now,
        [
            Firing(instant=datetime(2027, 3, 1, 23, 30, tzinfo=UTC), fired=True),  # March 2 in Berlin
            Firing(
                instant=datetime(2027, 3, 4, 12, tzinfo=UTC),
                last_instant=datetime(2027, 3, 5, 12, tzinfo=UTC),
                count=2,
                reason="misfire",
            ),
            Firing(instant=datetime(2027, 2, 20, tzinfo=UTC), fired=True),
        ],
        Preview(
            firings=[datetime(2027, 3, 31, 21, tzinfo=UTC), datetime(2027, 3, 31, 22, tzinfo=UTC)],
            skipped=[SkippedDocument(instant=datetime(2027, 3, 26, 12, tzinfo=UTC), reason="Good Friday")],
        ),
    )
    days = {day.date: day for week in weeks for day in week if day.in_month}
    assert len(days) == 31
    shown = {
        day.date.day: (day.fired, dict(day.skipped), day.to_come, dict(day.excluded))
        for day in days.values()
        if day.fired or day.skipped or day.to_come or day.excluded
    }
    assert shown == {
        2: (1, {}, 0, {}),
        4: (0, {"misfire": 1}, 0, {}),
        5: (0, {"misfire": 1}, 0, {}),
        26: (0, {}, 0, {"Good Friday": 1}),
        31: (0, {}, 1, {}),
    }
    assert [day.date for day in days.values() if day.change] == [date(2027, 3, 28)]
    assert days[date(2027, 3, 10)].is_today


def test_a_month_that_is_not_one_is_the_current_one() -> None:
    zone = ZoneInfo("Pacific/Auckland")
    now = datetime(2026, 11, 30, 12, tzinfo=UTC)  # December 1 there
    for text in ("", "2027-13", "0000-01", "9999-12", "<script>", "2027-1"):
        assert month_of(text, now, zone) == Month(2026, 12, zone)
    assert month_of("2026-12", now, zone).next == Month(2027, 1, zone)
    assert month_of("2026-01", now, zone).previous == Month(2025, 12, zone)
