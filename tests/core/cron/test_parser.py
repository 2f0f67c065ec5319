from __future__ import annotations

from datetime import UTC, datetime

import pytest
from croniter import croniter

from raftsched import limits
from raftsched.core.cron.interval import Every, parse_every
from raftsched.core.cron.parser import parse, parse_expression
from raftsched.core.cron.search import Cron
from raftsched.errors import Invalid
from tests.for_each import for_each

NEW_YEAR_MS = 1_798_761_600_000  # 2027-01-01T00:00Z, a Friday


def days(text: str, count: int = 4, months: int = 24) -> list[str]:
    """The next dates of an expression of days."""
    found = parse(f"0 0 {text}", zone="UTC").between(NEW_YEAR_MS - 1, NEW_YEAR_MS + months * 31 * 86_400_000, count)
    return [datetime.fromtimestamp(at / 1_000, UTC).strftime("%m-%d") for at in found]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@Daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        (" @HOURLY ", "0 * * * *"),
        ("  0\t0 1   jan  Mon ", "0 0 1 JAN MON"),
    ],
)
def test_the_stored_text_is_the_plain_expression(written: str, meant: str) -> None:
    recurrence = parse(written, zone="UTC")
    assert isinstance(recurrence, Cron)
    assert recurrence.text == meant
    assert recurrence == parse(meant, zone="UTC")


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("0 0 ? * MON", "0 0 * * MON"),
        ("0 0 1 * ?", "0 0 1 * *"),
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * 5-7", "0 0 * * 0,5,6"),
        ("0 0 * * 0-7", "0 0 * * 0-6"),
        ("0 0 * * 1-7/2", "0 0 * * 0,1,3,5"),
        ("0 0 * * 7-2", "0 0 * * 0,1,2"),
        ("0 0 * * 7-7", "0 0 * * 0"),
        ("0 0 * * FRI-MON", "0 0 * * 0,1,5,6"),
        ("0 0 * * SAT-TUE/2", "0 0 * * 6,1"),
        ("0 0 28-3 * *", "0 0 1-3,28-31 * *"),
        ("0 0 1 nov-feb *", "0 0 1 11,12,1,2 *"),
        ("05 07 * * *", "5 7 * * *"),
        ("50-10/20 0 * * *", "50,10 0 * * *"),
        ("59/15 0 * * *", "59 0 * * *"),
        ("5/20 0 * * *", "5,25,45 0 * * *"),
        ("0 0 5W,LW * FRI#1,L5", "0 0 LW,5W * 5#1,LFRI"),
        ("0,0,0 0 * * *", "0 0 * * *"),
        ("*/60 3 * * *", "0 3 * * *"),
    ],
)
def test_two_spellings_of_one_schedule_are_the_same(written: str, same: str) -> None:
    assert parse_expression(written.upper()) == parse_expression(same.upper())


def test_marks_mean_what_they_say() -> None:
    assert days("L * *") == ["01-31", "02-28", "03-31", "04-30"]
    assert days("LW * *") == ["01-29", "02-26", "03-31", "04-30"]
    assert days("1W * *") == ["01-01", "02-01", "03-01", "04-01"]
    assert days("1W 5 *", months=6) == ["05-03"]  # 1 May 2027 is a Saturday, and April is another month
    assert days("15W * *") == ["01-15", "02-15", "03-15", "04-15"]
    assert days("15W 8 *", months=9) == ["08-16"]  # a Sunday
    assert days("30W 2,4,5 *", months=6) == ["04-30", "05-31"]
    assert days("* * L5") == ["01-29", "02-26", "03-26", "04-30"]
    assert days("* * FRI#5") == ["01-29", "04-30", "07-30", "10-29"]
    assert days("* * MON#1,FRI#1,SUN") == ["01-01", "01-03", "01-04", "01-10"]


def test_a_day_field_that_begins_with_a_star_restricts_nothing_by_itself() -> None:
    assert days("13 * FRI") == ["01-01", "01-08", "01-13", "01-15"]  # either
    assert days("*/2 * MON") == ["01-11", "01-25", "02-01", "02-15"]  # both
    assert days("*,13 * MON") == ["01-04", "01-11", "01-18", "01-25"]
    assert days("13 * */5") == ["06-13", "08-13", "02-13", "08-13"]  # both: Sundays and Fridays
    assert days("1-31 * MON") == ["01-01", "01-02", "01-03", "01-04"]  # all days, but no star: either


@for_each(
    ("text", "advice"),
    [
        ("@reboot", "@daily"),
        ("@every90s x", "90s or 1h30m"),
        ("@every -5s", "90s or 1h30m"),
        ("@every 1.5h", "90s or 1h30m"),
        ("@every 90", "90s or 1h30m"),
        ("@every", "90s or 1h30m"),
        ("@every 10ms", "a period from 1s to"),
        ("@every 20000000000w", "a period from 1s to"),
        ("* * * *", "has 4 fields; write 5 .*or 6 with the second first"),
        ("0 0 1 1 * * 2027", "none for years"),
        ("0 0 1 1 * * * *", "has 8 fields"),
        ("*/90 * * * *", "minute '\\*/90': a step here is 1 to 60.*@every"),
        ("0 */36 * * *", "hour '\\*/36': a step here is 1 to 24.*@every"),
        ("H H(0-3) * * *", "minute 'H' is random"),
        ("0 R(1-3)/2 * * *", r"hour 'R\(1-3\)/2' is random"),
        ("0~30 * * * *", "minute '0~30' is random"),
        ("0 0 L-3 * *", "day of month 'L-3' is not known"),
        ("0 0 32W * *", "day of month '32W' is not known"),
        ("0 0 1-5W * *", "day of month '1-5W' is not known"),
        ("0 0 25-5/3 * *", "day of month '25-5/3': months differ in length"),
        ("0 0 * * L", "day of week 'L' is not known; .*L5 or LFRI"),
        ("0 0 * * 5L", "day of week '5L' is not known; .*L5 or LFRI"),
        ("0 0 * * 5#6", "write #1 to #5"),
        ("0 0 * * 5#0", "write #1 to #5"),
        ("0 0 * * 8", "day of week '8' is not known; write 0 to 6 or SUN"),
        ("0 0 * * MONDAY", "day of week 'MONDAY' is not known; write 0 to 6 or SUN"),
        ("0 0 * SEPT *", "month 'SEPT' is not known; write 1 to 12 or JAN"),
        ("0 0 0 * *", "day of month '0' is not known; write 1 to 31"),
        ("0 24 * * *", "hour '24' is not known; write 0 to 23"),
        ("? 0 * * *", r"minute '\?' is not known"),
        ("0 0 1,? * *", r"day of month '\?' is not known"),
        ("1,,2 0 * * *", "minute '' is not known"),
        ("*-5 0 * * *", r"minute '\*-5' is not known"),
        ("5-*/2 0 * * *", r"minute '5-\*/2' is not known"),
        ("*/5/5 0 * * *", r"minute '\*/5/5' is not known"),
        ("-5 0 * * *", "minute '-5' is not known"),
        ("0 0 31 4,6,9,11 *", "no year has a day 31 in month 4,6,9,11 on weekday \\*.*never run"),
        ("0 0 30W 2 *", "no year has a day 30W"),
        ("0 0 29 2 */5#5", "not known"),
        ("TZ=Europe/Rome 0 2 * * *", "write it in the field timezone"),
        ("0 0 * * 1\x7f", r"'0 0 \* \* 1\\x7f' holds characters"),
        ("0 0 * * *" + " " * 600, f"write at most {limits.CRON_CHARS_MAX}"),
    ],
)
def test_what_has_no_meaning_is_refused_with_what_to_write(text: str, advice: str) -> None:
    with pytest.raises(Invalid, match=f"^cron: .*{advice}") as refused:
        parse(text, zone="UTC")
    assert refused.value.field == "cron"


def test_each_field_of_a_schedule_names_itself() -> None:
    for field, zone, gap, overlap in (
        ("timezone", "Mars", "shift", "first"),
        ("dst_gap", "UTC", "maybe", "first"),
        ("dst_overlap", "UTC", "skip", "second\n"),
    ):
        with pytest.raises(Invalid, match=f"^{field}: ") as refused:
            parse("* * * * *", zone=zone, dst_gap=gap, dst_overlap=overlap)
        assert refused.value.field == field
        assert str(refused.value).isprintable()


def test_croniter_is_still_what_its_rewrites_are_for() -> None:
    """What never reaches it, it still misreads; where it reads rightly one day, the rewrite can go."""
    assert croniter.expand("0 5-5 * * *")[0][1] == ["*"]
    assert croniter.expand("0 21-3/2 * * *")[0][1] == [2, 21, 23]
    assert croniter.expand("*/90 * * * *")[0][0] == [0]
    assert croniter.is_valid("R R * * *")


# -- fixed grids ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "period_ms", "shown"),
    [
        ("90s", 90_000, "1m30s"),
        ("1h30m", 5_400_000, "1h30m"),
        (" 1d ", 86_400_000, "24h"),
        ("1w2d3h4m5s6ms", 788_645_006, "219h4m5s6ms"),
        ("1500ms", 1_500, "1s500ms"),
    ],
)
def test_a_period_is_the_sum_of_its_units(text: str, period_ms: int, shown: str) -> None:
    assert parse_every(text).period_ms == period_ms
    recurrence = parse(f"@every {text}", zone="UTC", start_ms=7)
    assert isinstance(recurrence, Every)
    assert recurrence == Every(period_ms, 7)
    assert recurrence.text == f"@every {shown}"
    assert parse(recurrence.text, zone="UTC", start_ms=7) == recurrence


def test_a_grid_begins_at_its_start_and_keeps_it() -> None:
    grid = Every(90_000, 1_000)
    assert grid.next_after(-5) == grid.next_after(999) == 1_000
    assert grid.next_after(1_000) == 91_000
    assert grid.next_after(90_999) == 91_000
    assert grid.between(0, 10**9, 3) == [1_000, 91_000, 181_000]
    assert grid.latest(0, 10**9) == 1_000 + 90_000 * ((10**9 - 1_000) // 90_000)
    assert grid.latest(1_000, 90_999) is None


@pytest.mark.parametrize("text", ["", "s", "1h1h", "30m1h", "5", "1 h", "1e3s", "\u0661s", "9" * 400 + "s", "999ms"])
def test_what_is_no_period_names_its_field(text: str) -> None:
    with pytest.raises(Invalid, match=r"^every: .*write") as refused:
        parse_every(text)
    assert refused.value.field == "every"
    assert len(str(refused.value)) < 300
