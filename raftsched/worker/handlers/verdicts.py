"""Verdicts of a handler about its attempt, raised as exceptions; any other exception is a failure that is retried."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar


class Verdict(Exception):
    """A handler's own decision about the job."""

    error_type: ClassVar[str]
    """Type of the error that is recorded."""


class Retry(Verdict):
    """The attempt failed; try again `after` seconds (None: as the job's retry policy says).

    It uses an attempt, as every failure does. Raises `TypeError` for a delay in place of the message.
    """

    error_type = "Retry"

    def __init__(self, message: str = "", *, after: float | timedelta | None = None) -> None:
        _refuse_delay(message, f"Retry takes a message; the delay is named: Retry(after={message!r})")
        super().__init__(message or "the handler asked for another attempt")
        self.after_seconds = None if after is None else _seconds(after)


class GiveUp(Verdict):
    """No attempt will succeed: the job moves to the dead-letter queue at once, with `reason`.

    Raises `TypeError` for a delay in place of the reason.
    """

    error_type = "GiveUp"

    def __init__(self, reason: str = "") -> None:
        _refuse_delay(reason, f"GiveUp takes a reason and is final; to try again later: Retry(after={reason!r})")
        super().__init__(reason or "the handler gave up")


class Snooze(Verdict):
    """Run it again after `seconds`, without using an attempt.

    As with `Retry`, a delay of more than ten years is a failure that no other attempt follows.
    """

    error_type = "Snooze"

    def __init__(self, seconds: float | timedelta) -> None:
        self.seconds = _seconds(seconds)
        super().__init__(f"snoozed for {self.seconds} s")


class Accepted(Verdict):
    """The target of the request has accepted it, and reports the outcome itself; for attempts with a callback token."""

    error_type = "Accepted"

    def __init__(self) -> None:
        super().__init__("the target has accepted the request, and reports its outcome")


def _refuse_delay(message: object, advice: str) -> None:
    """Refuse a delay in place of a message, which would silently be no delay: `Snooze` takes its delay first."""
    if isinstance(message, int | float | timedelta):
        raise TypeError(advice)


def _seconds(span: float | timedelta) -> float:
    seconds = span.total_seconds() if isinstance(span, timedelta) else float(span)
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"a delay is a number of seconds, 0 or more, not {span}")
    return seconds
