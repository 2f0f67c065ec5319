from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from raftsched import limits
from raftsched.core.jobs.rate_limit import (
    LEASE_MILLI,
    burst,
    drawn,
    filled,
    leases_left,
    next_lease_at_ms,
    relimited,
)
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.queue import Queue

START_MS = 1_700_000_000_000

counts = st.one_of(st.integers(1, 20), st.integers(1, limits.QUEUE_LIMIT_MAX))
periods_ms = st.one_of(st.integers(1, 5_000), st.integers(1, limits.RATE_PERIOD_MS_MAX))
waits_ms = st.lists(st.one_of(st.integers(0, 20), st.integers(0, 20_000)), min_size=1, max_size=60)


def full(count: int, period_ms: int, burst: int | None = None) -> Queue:
    """A full bucket, of as many leases as its rate unless `burst` says how many."""
    limited = Queue("q", rate_count=count, rate_period_ms=period_ms, rate_burst=count if burst is None else burst)
    return relimited(Queue("q"), limited, TimeMs(START_MS))


def greedy(queue: Queue, waits: list[int], wish: int) -> list[int]:
    """Take up to `wish` leases after each wait, as `admission` does; return the time of each lease."""
    now_ms = START_MS
    taken_at_ms: list[int] = []
    for wait_ms in waits:
        now_ms += wait_ms
        full_now = filled(queue, now_ms)
        count = min(leases_left(full_now), wish)
        if count:
            queue = drawn(full_now, count)
        taken_at_ms.extend([now_ms] * count)
    return taken_at_ms


def test_full_bucket_holds_as_many_leases_as_its_rate_and_no_more() -> None:
    queue = full(5, 1_000)
    assert leases_left(queue) == 5
    assert leases_left(filled(queue, START_MS + 10**9)) == 5


def test_bucket_fills_up_evenly() -> None:
    empty = drawn(full(5, 1_000), 5)
    assert [leases_left(filled(empty, START_MS + ms)) for ms in (0, 199, 200, 399, 400, 1_000)] == [0, 0, 1, 1, 2, 5]


@given(counts, periods_ms, waits_ms, st.integers(1, 50))
def test_no_span_gives_more_than_a_full_bucket_and_what_it_fills_in(
    count: int, period_ms: int, waits: list[int], wish: int
) -> None:
    taken = Counter(greedy(full(count, period_ms), waits, wish))
    for first_ms in taken:
        given = 0
        for last_ms in (at_ms for at_ms in taken if at_ms >= first_ms):
            given += taken[last_ms]
            assert given <= count + (last_ms - first_ms) * count // period_ms


@given(counts, periods_ms, st.one_of(st.integers(0, 2), counts), waits_ms)
def test_window_of_one_period_gives_at_most_its_count_and_the_burst_less_one(
    count: int, period_ms: int, at_once: int, waits: list[int]
) -> None:
    """Case N06: with a burst of 1 never more than the count."""
    queue = full(count, period_ms, at_once)
    taken = Counter(greedy(queue, waits, 10))
    for begin_ms in taken:
        within = sum(given for at_ms, given in taken.items() if begin_ms <= at_ms < begin_ms + period_ms)
        assert within <= count + burst(queue) - 1


@pytest.mark.parametrize(("count", "period_ms", "at_once"), [(10, 1_000, 1), (1_000, 1_000, 100), (100, 60_000, 1)])
def test_bucket_holds_by_default_what_flows_in_within_a_tenth_of_a_second(
    count: int, period_ms: int, at_once: int
) -> None:
    queue = full(count, period_ms, 0)
    assert (burst(queue), leases_left(queue)) == (at_once, at_once)
    empty = drawn(queue, at_once)
    assert next_lease_at_ms(empty, START_MS) == START_MS + -(-period_ms // count), "it fills up by the rate"


@pytest.mark.parametrize(
    ("count", "period_ms"), [(1, 3_000), (2, 3_000), (7, 10_000), (3, 1_000), (700, 60_000), (1_000, 1_000)]
)
def test_little_is_lost_to_rounding_however_often_it_is_asked(count: int, period_ms: int) -> None:
    """A rate that is used to the full gives what it promises, within a hundredth."""
    draw = random.Random(f"{count}/{period_ms}")
    waits = [draw.randint(1, 3) for _ in range(50 * period_ms // min(count, 50) // 2)]
    taken = greedy(drawn(full(count, period_ms), count), waits, count)
    promised = sum(waits) * count // period_ms
    assert promised - promised // 100 - 1 <= len(taken) <= promised + 1


@given(counts, periods_ms, st.integers(0, 50), st.integers(0, 10_000))
def test_next_lease_is_there_at_the_time_that_was_named_and_not_before(
    count: int, period_ms: int, taken: int, wait_ms: int
) -> None:
    queue = filled(drawn(full(count, period_ms), min(taken, count)), START_MS + wait_ms)
    now_ms = START_MS + wait_ms
    at_ms = next_lease_at_ms(queue, now_ms)
    assert at_ms >= now_ms
    assert leases_left(filled(queue, at_ms)) >= 1
    if at_ms > now_ms:
        assert leases_left(filled(queue, at_ms - 1)) == 0


@given(counts, periods_ms, counts, periods_ms, st.integers(0, 10_000))
def test_changed_rate_keeps_what_was_left_as_far_as_it_fits(
    count: int, period_ms: int, new_count: int, new_period_ms: int, wait_ms: int
) -> None:
    old = drawn(full(count, period_ms), count)
    now_ms = TimeMs(START_MS + wait_ms)
    new = relimited(old, replace(old, rate_count=new_count, rate_period_ms=new_period_ms, rate_burst=new_count), now_ms)
    left = filled(old, now_ms).bucket_milli
    assert new.bucket_milli == min(left, new_count * LEASE_MILLI)
    assert new.bucket_at_ms == now_ms


def test_time_that_runs_backward_fills_nothing_in() -> None:
    queue = drawn(full(5, 1_000), 5)
    assert filled(queue, START_MS - 10_000) == queue


def test_queue_without_a_rate_is_left_as_it_is() -> None:
    queue = Queue("q")
    assert filled(queue, START_MS) is queue
    assert next_lease_at_ms(queue, START_MS) == START_MS
    assert relimited(full(5, 10), queue, TimeMs(START_MS)) == queue
