from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from raftsched import limits
from raftsched.core.records.retry import (
    FACTOR_THOUSANDTHS_MAX,
    FACTOR_THOUSANDTHS_MIN,
    LOST_CAP_MS,
    Backoff,
    RetryPolicy,
    backoff_ms,
    lost_delay_ms,
    policy_problem,
)

EXPONENTIAL = RetryPolicy(base_ms=1_000, factor_thousandths=2_000, cap_ms=3_600_000, jitter_thousandths=0)
HUGE = 10**12

policies = st.builds(
    RetryPolicy,
    backoff=st.sampled_from(Backoff),
    base_ms=st.integers(0, limits.BACKOFF_MS_MAX),
    factor_thousandths=st.integers(FACTOR_THOUSANDTHS_MIN, FACTOR_THOUSANDTHS_MAX),
    cap_ms=st.integers(1, limits.BACKOFF_MS_MAX),
    jitter_thousandths=st.integers(0, 1_000),
    delays_ms=st.lists(st.integers(0, limits.BACKOFF_MS_MAX), min_size=1, max_size=5).map(tuple),
)
draws = st.integers(-1_000, 1_000)
counts = st.one_of(st.integers(1, 50), st.sampled_from([1_100, HUGE]))


@pytest.mark.parametrize(
    ("failure_count", "seconds"), [(1, 1), (2, 2), (3, 4), (12, 2_048), (13, 3_600), (63, 3_600), (1_100, 3_600)]
)
def test_exponential_backoff_doubles_up_to_the_cap_and_stays_there(failure_count: int, seconds: int) -> None:
    """Case D34."""
    assert backoff_ms(EXPONENTIAL, failure_count) == seconds * 1_000


def test_backoff_with_a_large_factor_and_many_attempts_is_the_cap() -> None:
    """Case D34."""
    assert backoff_ms(replace(EXPONENTIAL, factor_thousandths=100_000), 200) == 3_600_000
    assert backoff_ms(replace(EXPONENTIAL, factor_thousandths=FACTOR_THOUSANDTHS_MAX), HUGE) == 3_600_000


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"factor_thousandths": 0}, "factor_thousandths"),
        ({"factor_thousandths": 999}, "factor_thousandths"),
        ({"factor_thousandths": -2_000}, "factor_thousandths"),
        ({"factor_thousandths": FACTOR_THOUSANDTHS_MAX + 1}, "factor_thousandths"),
        ({"base_ms": -1}, "base_ms"),
        ({"base_ms": limits.BACKOFF_MS_MAX + 1}, "base_ms"),
        ({"cap_ms": 0}, "cap_ms"),
        ({"cap_ms": limits.BACKOFF_MS_MAX + 1}, "cap_ms"),
        ({"jitter_thousandths": -1}, "jitter_thousandths"),
        ({"jitter_thousandths": 1_001}, "jitter_thousandths"),
        ({"backoff": Backoff.LIST}, "delays_ms"),
        ({"backoff": Backoff.LIST, "delays_ms": (1_000, -1)}, "delays_ms"),
        ({"backoff": Backoff.LIST, "delays_ms": (1_000, limits.BACKOFF_MS_MAX + 1)}, "delays_ms"),
        ({"delays_ms": (1,) * (limits.RETRY_DELAYS_MAX + 1)}, "delays_ms"),
    ],
)
def test_policy_problem_names_the_number_that_is_out_of_range(fields: dict[str, object], field: str) -> None:
    """Case D34: factor 0, negative, huge."""
    assert policy_problem(replace(EXPONENTIAL, **fields)).startswith(f"{field}:")


@given(policies)
def test_policy_problem_finds_none_in_a_sound_policy(policy: RetryPolicy) -> None:
    assert policy_problem(policy) == ""


@pytest.mark.parametrize(("draw", "delay_ms"), [(-1_000, 800), (-500, 900), (0, 1_000), (500, 1_100), (1_000, 1_200)])
def test_jitter_spreads_the_delay_over_its_share(draw: int, delay_ms: int) -> None:
    """Case D34: jitter of 20 % is between 0.8 and 1.2 times."""
    assert backoff_ms(replace(EXPONENTIAL, jitter_thousandths=200), 1, draw) == delay_ms


def test_jitter_never_passes_the_cap() -> None:
    """Case D34."""
    policy = replace(EXPONENTIAL, jitter_thousandths=200)
    assert backoff_ms(policy, 1_100, 1_000) == policy.cap_ms
    assert backoff_ms(policy, 1_100, -1_000) == policy.cap_ms * 8 // 10


def test_full_jitter_keeps_a_delay_that_the_policy_wants() -> None:
    assert backoff_ms(replace(EXPONENTIAL, jitter_thousandths=1_000), 1, -1_000) == 1


def test_linear_backoff_grows_by_its_base_up_to_the_cap() -> None:
    policy = replace(EXPONENTIAL, backoff=Backoff.LINEAR, cap_ms=3_500)
    assert [backoff_ms(policy, count) for count in (1, 2, 3, 4, HUGE)] == [1_000, 2_000, 3_000, 3_500, 3_500]


def test_fixed_backoff_stays_as_written_whatever_the_cap() -> None:
    policy = replace(EXPONENTIAL, backoff=Backoff.FIXED, base_ms=5_000, cap_ms=1_000)
    assert [backoff_ms(policy, count) for count in (1, 2, HUGE)] == [5_000, 5_000, 5_000]


def test_list_backoff_follows_the_list_and_repeats_its_last_delay() -> None:
    policy = RetryPolicy(backoff=Backoff.LIST, delays_ms=(100, 50, 7_200_000), jitter_thousandths=0, cap_ms=60_000)
    assert [backoff_ms(policy, count) for count in (1, 2, 3, 4, HUGE)] == [100, 50, 7_200_000, 7_200_000, 7_200_000]


def test_backoff_of_zero_stays_zero() -> None:
    assert backoff_ms(replace(EXPONENTIAL, base_ms=0, jitter_thousandths=1_000), 5, 1_000) == 0


def test_backoff_with_a_factor_close_to_one_still_grows() -> None:
    policy = replace(EXPONENTIAL, base_ms=1, factor_thousandths=1_001)
    assert backoff_ms(policy, 1) == 1
    assert backoff_ms(policy, 2_000) == 7
    assert backoff_ms(policy, HUGE) == policy.cap_ms


@given(policies, counts, draws)
def test_backoff_is_a_whole_number_of_milliseconds_within_the_limit(policy: RetryPolicy, count: int, draw: int) -> None:
    delay_ms = backoff_ms(policy, count, draw)
    assert type(delay_ms) is int
    assert 0 <= delay_ms <= limits.BACKOFF_MS_MAX
    if policy.backoff in {Backoff.EXPONENTIAL, Backoff.LINEAR}:
        assert delay_ms <= policy.cap_ms


@given(policies.filter(lambda policy: policy.backoff is not Backoff.LIST), st.integers(1, 1_200), draws)
def test_backoff_never_falls_with_one_more_failure(policy: RetryPolicy, count: int, draw: int) -> None:
    assert backoff_ms(policy, count, draw) <= backoff_ms(policy, count + 1, draw)


@given(policies, st.integers(1, 40))
def test_exponential_backoff_agrees_with_exact_fractions(policy: RetryPolicy, count: int) -> None:
    factor = Fraction(policy.factor_thousandths, 1_000)
    exact = Fraction(policy.base_ms)
    for _ in range(count - 1):
        exact *= factor
    exact = min(exact, Fraction(policy.cap_ms))
    delay_ms = backoff_ms(replace(policy, backoff=Backoff.EXPONENTIAL), count)
    assert abs(exact - delay_ms) <= 1 + exact / 10**6


@given(policies, draws)
def test_backoff_before_any_failure_is_that_of_the_first(policy: RetryPolicy, draw: int) -> None:
    assert backoff_ms(policy, 0, draw) == backoff_ms(policy, -5, draw) == backoff_ms(policy, 1, draw)


def test_a_first_lost_worker_costs_no_delay_and_further_ones_double_up_to_a_cap() -> None:
    assert [lost_delay_ms(count) for count in (0, 1, 2, 3, 6, 7, HUGE)] == [
        0, 0, 2_000, 4_000, 32_000, LOST_CAP_MS, LOST_CAP_MS,
    ]  # fmt: skip
