"""When to try again: capped exponential backoff with jitter, the server's own wish, and an end.

The rule for what may be said at the end: once one attempt may have reached the cluster, no later refusal makes the
outcome known again, so the call ends in `OutcomeUnknown`; only where every attempt was refused, in `Unavailable`.
"""

from __future__ import annotations

from typing import NamedTuple

from raftsched.client.http.settings import ClientSettings
from raftsched.errors import OutcomeUnknown, RaftschedError, Rejected, Unavailable
from raftsched.ports import Randomness

FOREVER = float("inf")


class Failure(NamedTuple):
    """A request that did not succeed, and the seconds after which the server wants to see it again (0 = unsaid)."""

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
        """Return the seconds to wait: between half and all of the step, and at least what the server asked for."""
        step = min(self._cap, self._base * 2.0 ** min(self._attempt_count, 30))
        self._attempt_count += 1
        return max(step * (0.5 + 0.5 * self._randomness.random()), retry_after_seconds)


def definite(error: RaftschedError, *, maybe_applied: bool) -> RaftschedError:
    """Return the error to raise for a refusal; `maybe_applied` if an earlier attempt may have taken effect.

    A request that is malformed was so each time. What is not legal now may be so because of the earlier attempt: what
    was deleted is not found. Or that attempt arrives yet, when it is legal.
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
