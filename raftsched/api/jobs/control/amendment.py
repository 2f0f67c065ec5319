"""Convert the amendment of a job to its operation."""

from __future__ import annotations

from msgspec import UNSET

from raftsched import limits
from raftsched.api.jobs.calls import json_bytes
from raftsched.api.jobs.convert import priority_number, tags_of
from raftsched.api.json.times import due_at_ms, due_or_now_ms, end_ms, span_ms
from raftsched.core.operations.control import AmendJob
from raftsched.core.records.job import Job
from raftsched.core.records.spec import NEVER, SpecChanges
from raftsched.errors import Invalid
from raftsched.wire.control import AmendRequest


def amendment(wanted: AmendRequest, job: Job, *, now_ms: int, if_revision: int, actor: str) -> AmendJob:
    """Return the operation; raises `Malformed`, `TooLarge` or `Invalid` naming the field."""
    due_ms = wanted_due_at_ms(wanted, now_ms)
    from_ms = job.due_at_ms if due_ms is None else due_ms or now_ms
    return AmendJob(
        job.id,
        job.tenant,
        changes=SpecChanges(
            queue=None if wanted.queue is UNSET else wanted.queue,
            priority=None if wanted.priority is UNSET else priority_number(wanted.priority),
            max_attempts=_max_attempts(wanted),
            timeout_ms=None if wanted.timeout_seconds is UNSET else span_ms(wanted.timeout_seconds),
            tags=None if wanted.tags is UNSET else tags_of(wanted.tags or [], ""),
            expires_at_ms=_end_ms(wanted, "expires", from_ms),
            deadline_ms=_end_ms(wanted, "deadline", from_ms),
            lost_workers_max=None if wanted.max_lost_workers is UNSET else wanted.max_lost_workers or 0,
        ),
        due_at_ms=due_ms,
        payload=None if wanted.payload is UNSET else json_bytes(wanted.payload, limits.PAYLOAD_BYTES_MAX, "payload"),
        if_revision=if_revision,
        actor=actor,
    )


def wanted_due_at_ms(wanted: AmendRequest, now_ms: int) -> int | None:
    """Return when the job is due; 0 = now, None = unchanged. Raises as `amendment` does."""
    run_at = None if wanted.run_at is UNSET else wanted.run_at
    delay_seconds = None if wanted.delay_seconds is UNSET else wanted.delay_seconds
    if run_at is None and delay_seconds is None:
        return None
    return due_or_now_ms(due_at_ms(run_at, delay_seconds, now_ms, ""))


def _max_attempts(wanted: AmendRequest) -> int | None:
    if wanted.max_retries is UNSET:
        return None if wanted.max_attempts is UNSET else wanted.max_attempts
    if wanted.max_attempts is not UNSET:
        raise Invalid("max_retries: give either max_attempts or max_retries, not both", field="max_retries")
    return wanted.max_retries + 1


def _end_ms(wanted: AmendRequest, what: str, from_ms: int) -> int | None:
    """Return the new time; `NEVER` removes it, None = unchanged."""
    name, span_name = ("expires_at", "expires_in_seconds") if what == "expires" else ("deadline", "deadline_in_seconds")
    moment, seconds = getattr(wanted, name), getattr(wanted, span_name)
    if moment is UNSET and seconds is UNSET:
        return None
    new_ms = end_ms(
        None if moment is UNSET else moment,
        None if seconds is UNSET else seconds,
        name=name,
        span_name=span_name,
        from_ms=from_ms,
        prefix="",
    )
    return NEVER if new_ms is None else new_ms
