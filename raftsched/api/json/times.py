"""Convert the times of requests to milliseconds of cluster time.

The node's clock is read here only, when the request is read: a delay counts from its arrival at the leader. Times are
rounded up, so that nothing happens too early. A past time is kept, so that a request repeated later is still the same.
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
    """Return a time in milliseconds; raises `Malformed` naming `field` if it is before 1970 or after the year 9999."""
    at_ms = -((_EPOCH - moment) // _MILLISECOND)
    if at_ms < limits.MOMENT_MS_MIN:
        raise Malformed(f"{field}: must not be before 1970-01-01T00:00:00Z", field=field)
    if at_ms > limits.MOMENT_MS_MAX:
        raise Malformed(f"{field}: must not be after 9999-12-31T23:59:59.999Z", field=field)
    return TimeMs(at_ms)


def moment_ms_or_none(moment: datetime | None, field: str) -> TimeMs | None:
    """Return a time in milliseconds, None for None; raises as `moment_ms` does."""
    return None if moment is None else moment_ms(moment, field)


def due_at_ms(run_at: datetime | None, delay_seconds: float | None, now_ms: int, prefix: str) -> TimeMs | None:
    """Return the due time, None = as soon as it is applied; raises `Invalid` if both are given."""
    if run_at is None:
        return TimeMs(now_ms + milliseconds(delay_seconds)) if delay_seconds else None
    field = f"{prefix}run_at"
    if delay_seconds is not None:
        raise Invalid(f"{field}: give either run_at or delay_seconds, not both", field=field)
    return moment_ms(run_at, field)


def end_ms(
    moment: datetime | None, seconds: float | None, *, name: str, span_name: str, from_ms: int, prefix: str
) -> TimeMs | None:
    """Return a time given as such, or as a duration from `from_ms`; None if neither is given.

    Raises `Invalid` if both are given, or if the duration ends after the year 9999.
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
    """Return the end of a pause of a job, a queue or a schedule; 0 = it lasts until it is resumed.

    Raises `Invalid` if both are given, or if the time has passed: nothing would be paused.
    """
    until_ms = end_ms(until, for_seconds, name="until", span_name="for_seconds", from_ms=now_ms, prefix="")
    if until_ms is None:
        return TimeMs(0)
    if until_ms <= now_ms:
        raise Invalid("until: this time has passed; it must be in the future", field="until")
    return until_ms


def due_or_now_ms(due_ms: TimeMs | None) -> TimeMs:
    """Return the due time for an operation; 0 for None: it has passed, so it means as soon as it is applied."""
    return TimeMs(0) if due_ms is None else due_ms
