"""Compute the delay before a job's next attempt, in integers, so that it is the same on every node.

The nominal delay depends on the policy and the count of failures. The leader draws a jitter that spreads it over
± `jitter_thousandths`, so that jobs that failed together are not retried together. A delay is never negative, is zero only
if the policy says so, and grows up to its cap.

`cap_ms` bounds `EXPONENTIAL` and `LINEAR` delays, jitter included. `FIXED` and `LIST` delays are as the user wrote them;
only `limits.BACKOFF_MS_MAX` bounds them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

from raftsched import limits


class Backoff(IntEnum):
    EXPONENTIAL = 1
    LINEAR = 2
    FIXED = 3
    LIST = 4


class RetryPolicy(msgspec.Struct, frozen=True, array_like=True):
    """Define the delays before next attempts; see `backoff_ms`."""

    backoff: Backoff = Backoff.EXPONENTIAL
    base_ms: int = 1_000
    factor_thousandths: int = 2_000
    cap_ms: int = 3_600_000
    jitter_thousandths: int = 200
    """The delay is spread over ± this share."""
    delays_ms: tuple[int, ...] = ()
    """For `LIST`: the delay after each failure; the last one repeats."""


JITTER_MAX: Final = 1_000
"""The leader draws from -JITTER_MAX to JITTER_MAX."""
FACTOR_THOUSANDTHS_MIN: Final = 1_000
"""A factor below 1 would shrink the delay with every failure."""
FACTOR_THOUSANDTHS_MAX: Final = 1_000_000
LOST_BASE_MS: Final = 1_000
LOST_CAP_MS: Final = 60_000

_MILLION = 1_000_000


def backoff_ms(policy: RetryPolicy, failure_count: int, jitter: int = 0) -> int:
    """Return the delay in milliseconds after the `failure_count`-th failure (1 = the first one).

    `jitter` is the leader's draw, -1000 to 1000. Cost: a step per failure until the cap is reached.
    """
    nominal = _nominal_ms(policy, max(failure_count, 1))
    if nominal <= 0:
        return 0
    spread = nominal * (_MILLION + policy.jitter_thousandths * jitter) // _MILLION
    return min(max(spread, 1), _cap_ms(policy))


def lost_delay_ms(lost_count: int) -> int:
    """Return the delay in milliseconds after the `lost_count`-th lost worker: none after the first, then doubling.

    The first loss is most likely the machine's fault; from the second on the job may be the cause.
    """
    if lost_count <= 1:
        return 0
    doublings = min(lost_count - 1, LOST_CAP_MS.bit_length())
    return min(LOST_BASE_MS << doublings, LOST_CAP_MS)


def policy_problem(policy: RetryPolicy) -> str:
    """Return the fault of the policy's numbers, beginning with the field's name, or ""."""
    longest = limits.BACKOFF_MS_MAX
    if not 0 <= policy.base_ms <= longest:
        return f"base_ms: must be 0 to {longest}"
    if not FACTOR_THOUSANDTHS_MIN <= policy.factor_thousandths <= FACTOR_THOUSANDTHS_MAX:
        return f"factor_thousandths: must be {FACTOR_THOUSANDTHS_MIN} to {FACTOR_THOUSANDTHS_MAX}"
    if not 1 <= policy.cap_ms <= longest:
        return f"cap_ms: must be 1 to {longest}"
    if not 0 <= policy.jitter_thousandths <= 1_000:
        return "jitter_thousandths: must be 0 to 1000"
    if policy.delays_ms or policy.backoff is Backoff.LIST:
        return _delays_problem(policy.delays_ms)
    return ""


def _delays_problem(delays_ms: tuple[int, ...]) -> str:
    if not 1 <= len(delays_ms) <= limits.RETRY_DELAYS_MAX:
        return f"delays_ms: must hold 1 to {limits.RETRY_DELAYS_MAX} delays"
    if min(delays_ms) < 0 or max(delays_ms) > limits.BACKOFF_MS_MAX:
        return f"delays_ms: each must be 0 to {limits.BACKOFF_MS_MAX}"
    return ""


def _nominal_ms(policy: RetryPolicy, failure_count: int) -> int:
    match policy.backoff:
        case Backoff.EXPONENTIAL:
            return _exponential_ms(policy, failure_count)
        case Backoff.LINEAR:
            return min(policy.base_ms * failure_count, policy.cap_ms)
        case Backoff.FIXED:
            return policy.base_ms
        case Backoff.LIST:
            return policy.delays_ms[min(failure_count, len(policy.delays_ms)) - 1]


def _exponential_ms(policy: RetryPolicy, failure_count: int) -> int:
    """Return base · factor^(failures - 1), multiplied step by step so that it stops at the cap and can't overflow."""
    factor = policy.factor_thousandths
    if factor == FACTOR_THOUSANDTHS_MIN or policy.base_ms == 0:
        return min(policy.base_ms, policy.cap_ms)
    # In millionths of a millisecond, so that a factor close to 1 isn't lost to rounding.
    delay = policy.base_ms * _MILLION
    cap = policy.cap_ms * _MILLION
    for _ in range(failure_count - 1):
        if delay >= cap:
            break
        delay = delay * factor // 1_000
    return min(delay, cap) // _MILLION


def _cap_ms(policy: RetryPolicy) -> int:
    if policy.backoff in (Backoff.EXPONENTIAL, Backoff.LINEAR):
        return policy.cap_ms
    return limits.BACKOFF_MS_MAX
