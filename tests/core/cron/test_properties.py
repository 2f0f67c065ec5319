"""Expressions nobody wrote, against the walk; and texts that are no expressions."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import croniter
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import raftsched
from raftsched import limits
from raftsched.core.cron.expression import YEAR_MAX
from raftsched.core.cron.parser import parse, parse_expression
from raftsched.core.cron.recurrence import Recurrence
from raftsched.errors import Invalid
from tests.core.cron.oracle import EPOCH, EXPRESSIONS, GAPS, OVERLAPS, Reading, packaged, ticks, walk, zone_names
from tests.steps import steps_of

DAY_MS = 86_400_000
FIRE_TIMES = st.integers(0, int(datetime(2100, 1, 1, tzinfo=UTC).timestamp()) // 60).map(lambda minute: minute * 60)
ZONES = st.sampled_from(zone_names())


def items(low: int, high: int, names: list[str] | None = None, *, wraps: bool = True) -> st.SearchStrategy[str]:
    """One item of a list: star, value, name, range, step, in any mixture that has a meaning."""
    value = st.integers(low, high)
    written = value.map(str) if names is None else st.one_of(value.map(str), st.sampled_from(names))
    size = 7 if high == 7 else high - low + 1
    step = st.integers(1, size).map(lambda each: f"/{each}")
    rising = st.tuples(value, value).map(lambda ends: f"{min(ends)}-{max(ends)}")
    wrapping = st.tuples(value, value).map(lambda ends: f"{max(ends)}-{min(ends)}")
    ranges = st.one_of(rising, wrapping) if wraps else rising
    stepped = st.tuples(st.one_of(st.just("*"), ranges, value.map(str)), step).map("".join)
    return st.one_of(st.just("*"), written, ranges, stepped)


def lists(item: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(item, min_size=1, max_size=4).map(",".join)


MINUTES = lists(items(0, 59))
HOURS = st.one_of(lists(items(0, 23)), st.sampled_from(["*", "2", "1-3", "0", "*/2"]))
DAYS = st.one_of(
    st.just("*"),
    lists(st.one_of(items(1, 31, wraps=False), st.sampled_from(["L", "LW", "1W", "15W", "31W", "28-3"]))),
)
MONTHS = st.one_of(st.just("*"), lists(items(1, 12, ["JAN", "FEB", "DEC"])))
WEEKDAYS = st.one_of(
    st.just("*"),
    lists(st.one_of(items(0, 7, ["SUN", "SAT"]), st.sampled_from(["L5", "L0", "5#5", "FRI#1", "7#2"]))),
)
CRONS = st.tuples(MINUTES, HOURS, DAYS, MONTHS, WEEKDAYS).map(" ".join)


def parsed(text: str, zone: str = "UTC", gap: str = "shift", overlap: str = "first") -> Recurrence | None:
    """Parse what has a meaning; None where it is refused because no day matches, which is held against all days."""
    try:
        return parse(text, zone=zone, dst_gap=gap, dst_overlap=overlap)
    except Invalid as error:
        problem = str(error)
    assert "would never run" in problem, (text, problem)
    reading = Reading(text)
    assert not any(reading.on(EPOCH + timedelta(days)) for days in range(366 * 40)), text
    return None


@given(CRONS, ZONES, FIRE_TIMES, st.sampled_from(GAPS), st.sampled_from(OVERLAPS))
def test_two_days_of_any_expression_in_any_zone_are_those_of_the_walk(
    text: str, zone: str, at: int, gap: str, overlap: str
) -> None:
    recurrence = parsed(text, zone, gap, overlap)
    if recurrence is None:
        return
    clock = ticks(packaged(zone), at, at + 2 * 86_400)
    before = ticks(packaged(zone), at - 86_400, at - 60)
    if at < 86_400 or any(tick.wall >= clock[0].wall for tick in before) or any(tick.wall % 60 for tick in clock):
        return  # begins within a repeated hour, or has seconds in its offset, as Liberia had until 1972
    expected = [each * 1_000 for each in walk(Reading(text), clock, gap, overlap)]
    assert recurrence.between(at * 1_000 - 1, clock[-1].at * 1_000, 10_000) == expected


@given(DAYS, MONTHS, WEEKDAYS, st.integers(0, 366 * 130))
def test_the_next_ten_dates_are_those_of_a_walk_over_the_days(day: str, month: str, weekday: str, start: int) -> None:
    text = f"0 0 {day} {month} {weekday}"
    recurrence = parsed(text)
    if recurrence is None:
        return
    expected: list[int] = []
    reading = Reading(text)
    number, end = start, start + 366 * 9
    while len(expected) < 10 and number < end:
        if reading.on(EPOCH + timedelta(days=number)):
            expected.append(number)
        number += 1
    found = [at // DAY_MS for at in recurrence.between(start * DAY_MS - 1, (end - 1) * DAY_MS, 10)]
    assert found == expected


@given(st.tuples(MINUTES, MINUTES, HOURS), ZONES, FIRE_TIMES)
def test_seconds_come_first(fields: tuple[str, str, str], zone: str, at: int) -> None:
    second, minute, hour = fields
    recurrence = parse(f"{second} {minute} {hour} * * *", zone=zone, dst_overlap="both")
    clock = ticks(packaged(zone), at, at + 1_800, step=1)
    expected = [
        each * 1_000 for each in walk(Reading(f"{second} {minute} {hour} * * *"), clock, "shift", "both", step=1)
    ]
    if clock[-1].wall - clock[0].wall != 1_800:
        return  # the clock changed; minutes are held against the walk above
    assert recurrence.between(at * 1_000 - 1, clock[-1].at * 1_000, 10_000) == expected


@given(CRONS, ZONES, FIRE_TIMES, st.integers(1, 10**10))
def test_windows_that_touch_share_nothing_and_lose_nothing(text: str, zone: str, at: int, width: int) -> None:
    recurrence = parsed(text, zone)
    if recurrence is None:
        return
    start, end = at * 1_000, at * 1_000 + width
    whole = recurrence.between(start, end, 20)
    middle = whole[len(whole) // 2] if whole else end
    assert whole[: len(whole) // 2 + 1] == recurrence.between(start, middle, 20)
    latest = recurrence.latest(start, end)
    assert (latest is None) == (not whole)
    if latest is not None:
        later = recurrence.next_after(latest)
        assert start < latest <= end
        assert recurrence.next_after(latest - 1) == latest
        assert later is None or later > end


# -- texts ------------------------------------------------------------------------------------------------------------

_SIGNS = "0123456789*,-/#@LWHR?() \t\n.:+~abcFRISUNMonévery\0\u0661"
MUTATED = st.tuples(st.sampled_from(EXPRESSIONS), st.integers(0, 20), st.text(_SIGNS, max_size=4)).map(
    lambda parts: parts[0][: parts[1]] + parts[2] + parts[0][parts[1] + len(parts[2]) :]
)
TEXTS = st.one_of(st.text(max_size=600), st.text(_SIGNS, max_size=80), MUTATED)


@settings(max_examples=1_000)
@example("@every")
@example("@every 1h 30m")
@example("0 0 * * 5#")
@example("* * * * *" + " *" * 300)
@example("0 0 L,L,LW,1W * L0,7#5")
@given(TEXTS)
def test_any_text_is_read_or_refused_with_its_field(text: str) -> None:
    try:
        recurrence = parse(text, zone="Europe/Berlin")
    except Invalid as error:
        field, problem = error.field, str(error)
    else:
        _agrees_with_the_walk(text, recurrence)
        field, problem = "cron", "cron: none"
    assert field == "cron"
    assert problem.startswith("cron: ")
    assert problem.isprintable()
    assert len(problem) < 2 * limits.CRON_CHARS_MAX


def _agrees_with_the_walk(text: str, recurrence: Recurrence) -> None:
    at = int(datetime(2027, 2, 27, tzinfo=UTC).timestamp())
    found = recurrence.between(at * 1_000 - 1, (at + 2 * 86_400) * 1_000, 3_000)
    assert found == sorted(set(found))
    if not text.strip().startswith("@") and len(text.split()) == 5:
        clock = ticks(packaged("Europe/Berlin"), at, at + 2 * 86_400)
        assert found == [each * 1_000 for each in walk(Reading(text), clock)]


@pytest.mark.parametrize(
    ("field", "low", "high"), [("second", 0, 59), ("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12)]
)
def test_values_beyond_a_field_are_refused(field: str, low: int, high: int) -> None:
    place = ["second", "minute", "hour", "day", "month"].index(field)
    for value in (low, high):
        parse(" ".join(["*"] * place + [str(value)] + ["*"] * (5 - place)), zone="UTC")
    for wrong in (str(low - 1), str(high + 1), f"{low}-{high + 1}", f"*/{high - low + 2}", "*/0", f"00{low}"):
        with pytest.raises(Invalid, match=r"^cron: "):
            parse(" ".join(["*"] * place + [wrong] + ["*"] * (5 - place)), zone="UTC")


# -- cost and ends ----------------------------------------------------------------------------------------------------


def test_a_weekday_on_29_february_is_found_decades_away() -> None:
    rare = parse("0 0 29 2 */7", zone="America/New_York")  # the leading star: both day fields must match
    dates = [datetime.fromtimestamp(at / 1_000, UTC).date() for at in rare.between(0, 10**13, 8)]
    leap = [year for year in range(1972, 2300, 4) if year % 100 and date(year, 2, 29).isoweekday() == 7]
    assert dates == [date(year, 2, 29) for year in leap[:8]]
    assert dates[5].year - dates[4].year == 40  # over 2100, which is no leap year


def test_a_date_decades_away_is_found_by_a_step_for_each_year() -> None:
    start = int(datetime(2088, 3, 1, tzinfo=UTC).timestamp()) * 1_000
    rare, yearly = (parse(text, zone="America/New_York") for text in ("0 0 29 2 */7", "0 0 1 1 *"))
    assert rare.next_after(start) == int(datetime(2128, 2, 29, 5, tzinfo=UTC).timestamp()) * 1_000
    near = steps_of(lambda: yearly.next_after(start), raftsched)
    far = steps_of(lambda: rare.next_after(start), raftsched)
    assert far - near < 40 * 30


@pytest.mark.parametrize("text", ["* * * * *", "30 2,20 * * *", "0 9 * * 1-5", "*/7 * * * *", "0 0 L * *"])
def test_a_next_fire_time_takes_a_few_steps(text: str) -> None:
    recurrence = parse(text, zone="Europe/Berlin")
    steps = steps_of(lambda: recurrence.between(1_800_000_000_000, 10**15, 1_000), raftsched)
    assert steps < 1_000 * 250


def test_a_huge_text_is_refused_unread() -> None:
    """Case C38: croniter would take 21 s for it."""
    huge = ",".join("0" * 200_000) + " * * * *"
    assert len(huge) > 400_000
    counts = [_steps_to_refusal(text) for text in ("?", "?" * (limits.CRON_CHARS_MAX + 1), huge)]
    assert counts[1] == counts[2] < counts[0]


def _steps_to_refusal(text: str) -> int:
    def refused() -> None:
        with pytest.raises(Invalid, match=r"^cron: "):
            parse(text, zone="UTC")

    refused()
    return steps_of(refused, raftsched, croniter)


def test_a_long_text_is_read_in_steps_for_each_item_and_each_item_once() -> None:
    def steps_for(minutes: list[str]) -> int:
        text = ",".join(minutes) + " 0-23/2,1-23/2 1-31/2,2-30/2 */2,*/3 1-5/2,L6,1#3"
        assert len(text) <= limits.CRON_CHARS_MAX
        return steps_of(lambda: parse_expression.__wrapped__(text.upper()), raftsched, croniter)

    ranges = [f"{first}-{first + 30}/2" for first in range(30)]
    steps_for(ranges)
    one, ten, thirty = (steps_for(ranges[:count]) for count in (1, 10, 30))
    assert (thirty - ten) / 20 < 1.2 * (ten - one) / 9
    assert steps_for(ranges[:1] * 50) == one


def test_nothing_fires_before_1970_or_after_the_last_year() -> None:
    daily = parse("0 12 * * *", zone="Pacific/Kiritimati")
    end = int(datetime(YEAR_MAX + 1, 1, 1, tzinfo=UTC).timestamp()) * 1_000
    assert daily.next_after(-(10**15)) == int(datetime(1970, 1, 1, 22, 40, tzinfo=UTC).timestamp()) * 1_000
    assert [daily.next_after(at) for at in (end, end + DAY_MS, 10**15, 10**20)] == [None] * 4
    last = int(datetime(YEAR_MAX, 12, 30, 22, tzinfo=UTC).timestamp()) * 1_000  # noon of the 31st there
    assert daily.between(end - 2 * DAY_MS, 10**20, 100) == [last]
    assert daily.latest(0, 10**17) == last
