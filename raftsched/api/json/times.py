"""Times as clients give them, in milliseconds of cluster time.

The node's time enters here, where the request is read, and nowhere later: a delay counts from its arrival at the
leader. Times are rounded up, so that nothing happens before its time. A past one is kept as it is: a request that is
repeated later must still be the same request.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from raftsched import limits
from raftsched.core.records.ids import TimeMs
from raftsched.errors import Invalid, Malformed

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def milliseconds(seconds: float) -> int:
    """Return a duration in whole milliseconds, to the nearest."""
    return round(seconds * 1000)


def span_ms(seconds: float | None) -> int:
    """Return a duration of at least a millisecond; 0 for None."""
    return 0 if seconds is None else max(1, milliseconds(seconds))


def moment_ms(moment: datetime, field: str) -> TimeMs:
    """Return a moment; raises `Malformed` naming `field` for one before 1970 or after the year 9999."""
    at_ms = -((_EPOCH - moment) // _MILLISECOND)
    if at_ms < limits.MOMENT_MS_MIN:
        raise Malformed(f"{field}: must not be before 1970-01-01T00:00:00Z", field=field)
    if at_ms > limits.MOMENT_MS_MAX:
        raise Malformed(f"{field}: must not be after 9999-12-31T23:59:59.999Z", field=field)
    return TimeMs(at_ms)


def moment_ms_or_none(moment: datetime | None, field: str) -> TimeMs | None:
    """Return a moment, None for None; raises as `moment_ms` does."""
    return None if moment is None else moment_ms(moment, field)


def due_at_ms(run_at: datetime | None, delay_seconds: float | None, now_ms: int, prefix: str) -> TimeMs | None:
    """Return when something is due, None = as soon as it is applied; raises `Invalid` where both are given."""
    if run_at is None:
        return TimeMs(now_ms + milliseconds(delay_seconds)) if delay_seconds else None
    field = f"{prefix}run_at"
    if delay_seconds is not None:
        raise Invalid(f"{field}: give either run_at or delay_seconds, not both", field=field)
    return moment_ms(run_at, field)


def end_ms(
    moment: datetime | None, seconds: float | None, *, name: str, span_name: str, from_ms: int, prefix: str
) -> TimeMs | None:
    """Return a time given as a moment, or as a span from `from_ms`; None where neither is given.

    Raises `Invalid` where both are given, and where the span ends after the year 9999.
    """
    field = f"{prefix}{name}"
    if moment is not None and seconds is not None:
        raise Invalid(f"{field}: give either {name} or {span_name}, not both", field=field)
    if seconds is None:
        return moment_ms_or_none(moment, field)
    at_ms = from_ms + span_ms(seconds)
    if at_ms > limits.MOMENT_MS_MAX:
        field = f"{prefix}{span_name}"
        raise Invalid(f"{field}: ends after 9999-12-31T23:59:59.999Z", field=field)
    return TimeMs(at_ms)


def pause_end_ms(until: datetime | None, for_seconds: float | None, now_ms: int) -> TimeMs:
    """Return when a pause of a job, a queue or a schedule ends by itself; 0 = only by hand, for no end is so early.

    Raises `Invalid` where both are given, or where that time has passed: nothing would be paused.
    """
    until_ms = end_ms(until, for_seconds, name="until", span_name="for_seconds", from_ms=now_ms, prefix="")
    if until_ms is None:
        return TimeMs(0)
    if until_ms <= now_ms:
        raise Invalid("until: this time has passed; it must be yet to come", field="until")
    return until_ms


def due_or_now_ms(due_ms: TimeMs | None) -> TimeMs:
    """Return when an operation makes something due: 0, which is past like any early time, = as soon as it is applied."""
    return TimeMs(0) if due_ms is None else due_ms
