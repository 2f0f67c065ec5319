"""Times as clients give them, in milliseconds of cluster time.

The node's time enters here, where the request is read, and nowhere later: a delay counts from its arrival at the
leader. Times are rounded up, so that nothing happens before its time. A past one is kept as it is: a request that is
repeated later must still be the same request.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from raftsched import limits
from raftsched.core.bounds import TIME_MS_MAX
from raftsched.core.ids import TimeMs
from raftsched.errors import Invalid, Malformed

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_DAY_MS: Final = 86_400_000


def milliseconds(seconds: float) -> int:
    """Return a duration in whole milliseconds, to the nearest."""
    return round(seconds * 1000)


def span_ms(seconds: float | None) -> int:
    """Return a duration of at least a millisecond; 0 for None."""
    return 0 if seconds is None else max(1, milliseconds(seconds))


def moment_ms(moment: datetime, field: str, now_ms: int) -> TimeMs:
    """Return a moment; raises `Malformed` naming `field` for one that nobody can mean."""
    at_ms = -((_EPOCH - moment) // _MILLISECOND)
    if at_ms < limits.RUN_AT_MS_MIN:
        raise Malformed(f"{field}: must not be before 1970-01-01T00:00:00Z", field=field)
    if at_ms - now_ms > limits.DELAY_MS_MAX:
        raise Malformed(f"{field}: must be at most {limits.DELAY_MS_MAX // _DAY_MS} days ahead", field=field)
    return TimeMs(at_ms)


def any_moment_ms(moment: datetime, field: str) -> TimeMs:
    """Return a moment, however far ahead: one that limits, and at which nothing needs to happen."""
    return moment_ms(moment, field, TIME_MS_MAX)


def due_at_ms(run_at: datetime | None, delay_seconds: float | None, now_ms: int, prefix: str) -> TimeMs:
    """Return when something is due, 0 = as soon as it is applied; raises `Invalid` where both are given."""
    if run_at is None:
        return TimeMs(now_ms + milliseconds(delay_seconds) if delay_seconds else 0)
    field = f"{prefix}run_at"
    if delay_seconds is not None:
        raise Invalid(f"{field}: give either run_at or delay_seconds, not both", field=field)
    return moment_ms(run_at, field, now_ms)


def end_ms(
    moment: datetime | None, seconds: float | None, *, name: str, span_name: str, from_ms: int, now_ms: int, prefix: str
) -> TimeMs:
    """Return a time given as a moment, or as a span from `from_ms`, 0 = none; raises `Invalid` where both are given."""
    if moment is None:
        return TimeMs(from_ms + span_ms(seconds) if seconds is not None else 0)
    field = f"{prefix}{name}"
    if seconds is not None:
        raise Invalid(f"{field}: give either {name} or {span_name}, not both", field=field)
    return moment_ms(moment, field, now_ms)
