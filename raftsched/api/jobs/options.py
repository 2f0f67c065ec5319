"""What few jobs ask for (`core.job.Options`), from a request: words become numbers, texts are measured in bytes."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from raftsched import limits
from raftsched.api.jobs.unique_key import unique_key
from raftsched.api.json.decode import job_id_at
from raftsched.api.json.times import end_ms, span_ms
from raftsched.core.records.bounds import utf8_bytes
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.job import Condition, Dependency
from raftsched.core.records.spec import OnDependencyFailure, Options, tidy
from raftsched.errors import Invalid, Malformed
from raftsched.wire.jobs import DependencyRequest, JobBody, JobRequest, TimedJobBody

_AT_MOST_ONCE: Final = "at_most_once"


def options_of_body(wanted: JobBody, prefix: str) -> Options:
    """Return what the job asks for whenever it runs; raises `Malformed` naming a text that is too long."""
    return Options(
        heartbeat_timeout_ms=span_ms(wanted.heartbeat_timeout_seconds),
        at_most_once=wanted.start == _AT_MOST_ONCE,
        concurrency_key=_text(wanted.concurrency_key or "", f"{prefix}concurrency_key"),
        retry_on=_error_types(wanted.retry_on, f"{prefix}retry_on"),
        no_retry=_error_types(wanted.no_retry, f"{prefix}no_retry"),
        on_dependency_failure=OnDependencyFailure[wanted.on_dependency_failure.upper()],
        retention_ms=span_ms(wanted.retention_seconds),
        lost_workers_max=wanted.max_lost_workers or 0,
    )


def options_of(
    wanted: TimedJobBody, *, due_at_ms: int | None, now_ms: int, prefix: str, **fields: Any
) -> Options | None:
    """Return the options of a job with times of its own, with `fields` replaced; None where it asks for nothing.

    Raises `Malformed` or `Invalid` naming the field.
    """
    if not fields and _asks_for_nothing(wanted):
        return None
    expires_at_ms, deadline_ms = _ends(wanted, now_ms if due_at_ms is None else due_at_ms, prefix)
    options = options_of_body(wanted, prefix)
    if expires_at_ms is not None or deadline_ms is not None or fields:
        options = replace(options, expires_at_ms=expires_at_ms, deadline_ms=deadline_ms, **fields)
    return tidy(options)


def _asks_for_nothing(wanted: TimedJobBody) -> bool:
    """Whether the job is like most: each field that `options_of` reads is as it is where nobody gives it."""
    return (
        wanted.expires_at is None
        and wanted.expires_in_seconds is None
        and wanted.deadline is None
        and wanted.deadline_in_seconds is None
        and wanted.heartbeat_timeout_seconds is None
        and wanted.start != _AT_MOST_ONCE
        and not wanted.concurrency_key
        and not wanted.retry_on
        and not wanted.no_retry
        and wanted.on_dependency_failure == "skip"
        and wanted.retention_seconds is None
        and wanted.max_lost_workers is None
    )


def claims_of(wanted: JobRequest, *, has_key: bool, now_ms: int, prefix: str) -> dict[str, Any]:
    """Return the options by which a job claims its idempotency key for a time, and to be unique."""
    claims: dict[str, Any] = {}
    if wanted.idempotency_ttl_seconds is not None:
        if not has_key:
            field = f"{prefix}idempotency_ttl_seconds"
            raise Invalid(f"{field}: says nothing without an idempotency key", field=field)
        claims["idempotency_until_ms"] = TimeMs(now_ms + span_ms(wanted.idempotency_ttl_seconds))
    if wanted.unique is not None:
        claims["unique_key"] = unique_key(wanted.unique, wanted.name, wanted.payload, prefix)
        if wanted.unique.for_seconds is not None:
            claims["unique_until_ms"] = TimeMs(now_ms + span_ms(wanted.unique.for_seconds))
    return claims


def dependencies_of(wanted: list[str | DependencyRequest], prefix: str) -> tuple[Dependency, ...]:
    """Return what a job depends on; raises `Malformed` or `Invalid` naming the one at fault."""
    parents: dict[bytes, Dependency] = {}
    for position, each in enumerate(wanted):
        field = f"{prefix}depends_on[{position}]"
        text, condition = (each, "success") if isinstance(each, str) else (each.job, each.condition)
        parent = job_id_at(text, field if isinstance(each, str) else f"{field}.job")
        if parent in parents:
            raise Invalid(f"{field}: names a job twice", field=field)
        parents[parent] = Dependency(parent, Condition[condition.upper()])
    return tuple(parents.values())


def _ends(wanted: TimedJobBody, from_ms: int, prefix: str) -> tuple[TimeMs | None, TimeMs | None]:
    expires_at_ms = end_ms(
        wanted.expires_at,
        wanted.expires_in_seconds,
        name="expires_at",
        span_name="expires_in_seconds",
        from_ms=from_ms,
        prefix=prefix,
    )
    deadline_ms = end_ms(
        wanted.deadline,
        wanted.deadline_in_seconds,
        name="deadline",
        span_name="deadline_in_seconds",
        from_ms=from_ms,
        prefix=prefix,
    )
    for name, moment in (("expires_at", wanted.expires_at), ("deadline", wanted.deadline)):
        if moment is not None and wanted.run_at is not None and moment <= wanted.run_at:
            field = f"{prefix}{name}"
            raise Invalid(f"{field}: must be after run_at, or the job never runs", field=field)
    return expires_at_ms, deadline_ms


def _error_types(types: list[str] | None, field: str) -> tuple[str, ...]:
    return tuple(_text(each, f"{field}[{position}]") for position, each in enumerate(types or ()))


def _text(text: str, field: str) -> str:
    if utf8_bytes(text) > limits.NAME_CHARS_MAX:
        raise Malformed(f"{field}: must be at most {limits.NAME_CHARS_MAX} bytes of UTF-8", field=field)
    return text
