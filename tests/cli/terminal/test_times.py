from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import click
import pytest

from raftsched.cli.terminal.times import (
    MOMENT,
    SPAN,
    TimeParameter,
    at_wall_time,
    read_time,
    relative,
    rfc3339,
    rounded,
    span_seconds,
    when,
)
from raftsched.errors import Invalid

NOW = datetime(2027, 3, 14, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("away", "text"),
    [
        ({"seconds": 0}, "now"),
        ({"milliseconds": -999}, "now"),
        ({"seconds": -1}, "1 s ago"),
        ({"seconds": 59.9}, "in 59 s"),
        ({"minutes": -3, "seconds": -20}, "3 min ago"),
        ({"hours": 5}, "in 5 h"),
        ({"hours": 5, "minutes": 7}, "in 5 h 7 min"),
        ({"days": -60}, "60 d ago"),
        ({"days": -61}, "2027-01-12"),
    ],
)
def test_relative_says_how_far_away_a_time_is(away: dict[str, float], text: str) -> None:
    assert relative(NOW + timedelta(**away), NOW) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 ms"), (0.25, "250 ms"), (61, "1 min"), (90_000, "1 d 1 h"), (7_500, "2 h 5 min")]
)
def test_rounded_names_the_largest_unit(seconds: float, text: str) -> None:
    assert rounded(seconds) == text


def test_when_of_no_time_is_empty() -> None:
    assert when(None) == ""
    assert read_time("2027-03-14T12:00:00") is None  # whose wall clock?
    assert read_time("2027-03-14T12:00:00.000Z") == NOW


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("1.5", 1.5),
        ("30s", 30),
        ("5m", 300),
        ("1h30m", 5_400),
        ("7d", 604_800),
        ("250ms", 0.25),
        ("1w", 604_800),
    ],
)
def test_span_reads_what_people_write(text: str, seconds: float) -> None:
    assert span_seconds(text) == seconds
    assert SPAN.convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "soon", "1 h", "-5", "1y", "5m30", "\u0661s", "1e3"])
def test_span_refuses_what_is_no_duration(text: str) -> None:
    assert span_seconds(text) is None
    with pytest.raises(click.BadParameter, match="1h30m"):
        SPAN.convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", NOW),
        ("+2h", NOW + timedelta(hours=2)),
        ("-1d", NOW - timedelta(days=1)),
        ("2027-03-14", NOW.replace(hour=0)),
        ("2027-03-14T13:00:00+01:00", NOW),
        ("2027-03-14T12:00:00Z", NOW),
    ],
)
def test_moment_reads_what_people_write(text: str, moment: datetime) -> None:
    assert TimeParameter(lambda: NOW).convert(text, None, None) == rfc3339(moment)


@pytest.mark.parametrize("text", ["", "tomorrow", "2027-03-14T12:00:00", "2027-02-30", "+soon", "+99999999999999d"])
def test_moment_refuses_what_is_no_time(text: str) -> None:
    with pytest.raises(click.BadParameter, match="2027-03-14T07:00:00Z"):
        MOMENT.convert(text, None, None)


@pytest.mark.parametrize(
    ("wall", "timezone", "moment"),
    [
        ("2027-01-01", "Europe/Berlin", "2026-12-31T23:00:00.000Z"),
        ("2027-07-01T09:00:00", "Europe/Berlin", "2027-07-01T07:00:00.000Z"),
        ("2027-03-28T03:00:00", "Europe/Berlin", "2027-03-28T01:00:00.000Z"),
        ("2027-10-31T03:00:00", "Europe/Berlin", "2027-10-31T02:00:00.000Z"),
        ("2027-01-01T09:00:00.250", "Asia/Kolkata", "2027-01-01T03:30:00.250Z"),
    ],
)
def test_a_wall_time_is_the_instant_at_which_the_clock_shows_it(wall: str, timezone: str, moment: str) -> None:
    assert rfc3339(at_wall_time(datetime.fromisoformat(wall), timezone)) == moment


@pytest.mark.parametrize(
    ("wall", "timezone", "told"),
    [
        ("2027-03-28T02:30:00", "Europe/Berlin", "leapt over.*write 2027-03-28T01:30:00.01:00 or 2027-03-28T03:30:00.02:00"),
        ("2027-10-31T02:30:00", "Europe/Berlin", "shown twice.*write 2027-10-31T02:30:00.02:00 or 2027-10-31T02:30:00.01:00"),
        ("2027-01-01T00:00:00", "Europe/Atlantis", "timezone"),
        ("9999-12-31T23:59:59", "America/New_York", "too far away"),
    ],
)  # fmt: skip
def test_a_wall_time_that_is_no_one_instant_is_refused_with_what_to_write(wall: str, timezone: str, told: str) -> None:
    with pytest.raises(Invalid, match=told):
        at_wall_time(datetime.fromisoformat(wall), timezone)


def test_times_are_written_in_utc_with_milliseconds() -> None:
    moment = NOW.astimezone(timezone(timedelta(hours=-7)))
    assert rfc3339(moment) == "2027-03-14T12:00:00.000Z"
