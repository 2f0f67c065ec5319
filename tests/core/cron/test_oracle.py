"""Clock changes of every zone from 1990 to 2037, and a year of each rule beyond, against a walk over the minutes.

Each change meets a few of the expressions, in turn, and some made for it; `python -m tests.core.cron.oracle --all`
compares all with all; here it is every second group of changes that are alike.
"""

from __future__ import annotations

from itertools import islice, product

import pytest

from raftsched.core.cron.parser import parse
from tests.core.cron.oracle import (
    EXPRESSIONS,
    GAPS,
    OVERLAPS,
    Change,
    _compare,
    alike,
    changes,
    changes_of,
    check,
    clock_round,
    reading,
    tailored,
    walk,
)

SHARDS = 2


def _few(change: Change, number: int) -> list[str]:
    """One expression of the list and two made for the change, others each time."""
    return [EXPRESSIONS[number % len(EXPRESSIONS)], *islice(tailored(change), number % 5, None, 5)]


def _check(groups: list[list[Change]]) -> int:
    count = 0
    for number, group in enumerate(groups):
        option = (GAPS[number // 2 % 2], OVERLAPS[number // 4 % 2])
        count += check(group, _few(group[0], number), [option], hours=2)
    return count


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_change_of_any_zone_fires_as_a_walk_over_the_minutes_does(shard: int) -> None:
    groups = alike(changes())[shard :: 2 * SHARDS]
    assert len(groups) > 500
    assert _check(groups) == 3 * sum(map(len, groups))


def test_changes_after_the_listed_ones_follow_the_rule_of_the_zone() -> None:
    assert len(changes(2041, 2041)) > 200
    assert _check(alike(changes(2041, 2041))) == 3 * len(changes(2041, 2041))


def test_the_answer_does_not_depend_on_where_the_question_starts() -> None:
    """Also from within gaps, repeated hours and stretches that have long begun."""
    for number, change in enumerate(changes()[::400]):
        clock = clock_round(change, 3)
        for text, gap, overlap in product(_few(change, number), GAPS, OVERLAPS):
            recurrence = parse(text, zone=change.zone, dst_gap=gap, dst_overlap=overlap)
            fired = walk(reading(text), clock, gap, overlap)
            for at in range(clock[0].at, clock[-1].at, 7 * 60):
                expected = next((each * 1_000 for each in fired if each > at), None)
                found = recurrence.next_after(at * 1_000)
                assert found is not None
                assert found == expected or (expected is None and found > clock[-1].at * 1_000)
                if found == expected:
                    assert recurrence.next_after(found - 1) == found


def test_a_wrong_option_is_seen() -> None:
    """The comparison can fail: a schedule that repeats an hour is not one that does not."""
    gap, back = changes_of("America/New_York", 2027, 2027)
    once, twice = (walk(reading("30 1 * * *"), clock_round(back, 3), "shift", overlap) for overlap in OVERLAPS)
    assert (len(once), len(twice)) == (1, 2)
    shifted, dropped = (walk(reading("30 2 * * *"), clock_round(gap, 3), each) for each in GAPS)
    assert (shifted, dropped) == ([gap.at], [])
    with pytest.raises(AssertionError, match=r"30 1 .* in America/New_York .*missing \[\], extra \['2027-11-07T06:30"):
        _compare("30 1 * * *", back, clock_round(back, 3), ("shift", "both"), expected=[at * 1_000 for at in once])
