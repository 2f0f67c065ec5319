"""What a handler can say about its attempt, by raising it; any other exception is a failure that is retried."""

from __future__ import annotations

from datetime import timedelta


class Verdict(Exception):
    """A handler's own decision about the job."""


class Retry(Verdict):
    """The attempt failed; try again `after` seconds (None: as the job's retry policy says).

    It uses an attempt, as every failure does.
    """

    def __init__(self, message: str = "", *, after: float | timedelta | None = None) -> None:
        super().__init__(message or "the handler asked for another attempt")
        self.after_seconds = None if after is None else _seconds(after)


class GiveUp(Verdict):
    """No attempt will succeed: the job goes to the dead letters at once, with `reason`."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "the handler gave up")


class Snooze(Verdict):
    """Not now: run it again after `seconds`, without using an attempt."""

    def __init__(self, seconds: float | timedelta) -> None:
        self.seconds = _seconds(seconds)
        super().__init__(f"snoozed for {self.seconds} s")


def _seconds(span: float | timedelta) -> float:
    seconds = span.total_seconds() if isinstance(span, timedelta) else float(span)
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"a delay is a number of seconds, 0 or more, not {span}")
    return seconds
