from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib.resources import files
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftsched import limits
from raftsched.core.cron.expression import DAY_SECONDS
from raftsched.core.cron.zones import _SAMPLE_SECONDS, zone
from raftsched.errors import Invalid
from tests.core.cron.oracle import changes_of, packaged, sampled_changes, zone_names

ALL_NAMES = sorted({*files("tzdata").joinpath("zones").read_text(encoding="ascii").split()} - {"Factory"})


def test_every_zone_of_the_package_is_known_and_shows_its_own_time() -> None:
    assert len(ALL_NAMES) > 590
    for name in ALL_NAMES:
        for year in (1970, 2027, 2099):
            moment = datetime(year, 7, 1, 12, 34, tzinfo=UTC)
            shown = moment.astimezone(packaged(name)).replace(tzinfo=UTC)
            assert zone(name).wall(int(moment.timestamp())) == shown.timestamp()


def test_changes_are_further_apart_than_the_samples_that_find_them() -> None:
    """A sample now and then finds every change only as long as no two lie between two samples."""
    count = 0
    for name in zone_names():
        changes = [change.at for change in changes_of(name, 1970, 2100)]
        assert all(later - earlier > 2 * _SAMPLE_SECONDS for earlier, later in pairwise(changes)), name
        count += len(changes)
    assert count > 30_000


def test_the_changes_that_the_tests_look_at_are_those_that_the_clock_shows() -> None:
    for name in zone_names():
        assert sampled_changes(name, 2030) == changes_of(name, 2030, 2030)


def test_a_stretch_begins_and_ends_where_the_clock_changes() -> None:
    apia = zone("Pacific/Apia")  # 30 December 2011 was left out
    change = int(datetime(2011, 12, 30, 10, tzinfo=UTC).timestamp())
    before, after = apia.stretch(change - 1), apia.stretch(change)
    assert (before.end, before.offset, after.start, after.offset) == (change, -10 * 3_600, change, 14 * 3_600)
    assert after.high == change - 10 * 3_600
    assert timedelta(seconds=after.start + after.offset - after.high) == timedelta(days=1)


@given(st.sampled_from(ALL_NAMES), st.integers(0, 4_100_000_000))
def test_stretches_follow_each_other_without_a_gap(name: str, at: int) -> None:
    where = zone(name)
    stretch = where.stretch(at)
    assert stretch.start <= at < stretch.end
    assert where.stretch(stretch.end).start == stretch.end
    assert {where.offset(each) for each in (stretch.start, at, stretch.end - 1)} == {stretch.offset}
    assert stretch.high <= max(stretch.start + stretch.offset, stretch.start + DAY_SECONDS)


def test_what_is_kept_of_a_zone_is_bounded() -> None:
    where = zone("Europe/Berlin")
    for year in range(1970, 2970, 5):
        where.stretch(int(datetime(year, 1, 1, tzinfo=UTC).timestamp()))
    assert len(where._chunks) <= limits.ZONE_CHUNKS_MAX


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("europe/berlin", "did you mean Europe/Berlin?"),
        ("Europe/Brelin", "did you mean Europe/Berlin?"),
        ("UTC+2", "write Etc/GMT-2"),
        ("+02:00", "write Etc/GMT-2"),
        ("CEST", "write an IANA name|did you mean"),
        ("", "is empty"),
        ("localtime", "is not a time zone"),
        ("Factory", "is not a time zone"),
        ("../../../etc/passwd", "is not a time zone"),
        ("/etc/localtime", "is not a time zone"),
        ("Europe", "is not a time zone"),
        ("Europe/Berlin\0", r"'Europe/Berlin\\x00' is not a time zone"),
        ("Europe/Berlin\n", r"'Europe/Berlin\\n' is not a time zone"),
        ("\ud800", "is not a time zone"),
        ("x" * 100_000, "at most 64 characters"),
    ],
)
def test_what_is_no_zone_is_refused_with_what_to_write(name: str, advice: str) -> None:
    with pytest.raises(Invalid, match=f"^timezone: .*(?:{advice})") as refused:
        zone(name)
    assert refused.value.field == "timezone"
    assert len(str(refused.value)) < 300
    assert str(refused.value).isprintable()
