"""Compute the pauses between retries, and the final error: capped exponential backoff with jitter, and Retry-After.

Once one attempt may have reached the cluster, no later refusal makes the outcome known again. Then the call ends in
`OutcomeUnknown`; it ends in `Unavailable` only if every attempt was refused.
"""

from __future__ import annotations

from typing import NamedTuple

from raftsched.client.http.settings import ClientSettings
from raftsched.errors import OutcomeUnknown, RaftschedError, Rejected, Unavailable
from raftsched.ports import Randomness

FOREVER = float("inf")


class Failure(NamedTuple):
    """The error of a request, and the seconds after which the server asks for a retry (0 = not given)."""

    error: RaftschedError
    retry_after_seconds: float = 0.0


class Retries:
    """The pauses of one call; `next_pause` after each failed attempt."""

    __slots__ = ("_attempt_count", "_base", "_cap", "_randomness")

    def __init__(self, settings: ClientSettings, randomness: Randomness) -> None:
        self._base = settings.backoff_base_seconds
        self._cap = settings.backoff_cap_seconds
        self._randomness = randomness
        self._attempt_count = 0

    def next_pause(self, retry_after_seconds: float) -> float:
        """Return the seconds to wait: between half and all of the step, and at least the server's Retry-After."""
        step = min(self._cap, self._base * 2.0 ** min(self._attempt_count, 30))
        self._attempt_count += 1
        return max(step * (0.5 + 0.5 * self._randomness.random()), retry_after_seconds)


def definite(error: RaftschedError, *, maybe_applied: bool) -> RaftschedError:
    """Return the error to raise for a refusal; `maybe_applied` if an earlier attempt may have taken effect.

    A malformed request was malformed each time. A request may be illegal now because the earlier attempt succeeded: a
    deleted job is not found. Or the earlier attempt may still arrive at a time when it is legal.
    """
    if maybe_applied and isinstance(error, Rejected):
        return OutcomeUnknown(f"an earlier attempt may have taken effect; repeated, it was refused: {error}")
    return error


def given_up(error: RaftschedError, *, maybe_applied: bool) -> RaftschedError:
    """Return the error to raise when retries are used up; `maybe_applied` if any attempt may have taken effect."""
    is_unknown = isinstance(error, OutcomeUnknown)
    if maybe_applied == is_unknown:
        return error
    if is_unknown:  # of a read, which has no effect
        return Unavailable(str(error))
    return OutcomeUnknown(f"an earlier attempt may have taken effect, and the latest one failed: {error}")
