"""SubmitJob: store a new job, once for each idempotency key.

A job whose time has come is stored `queued`, a later one `scheduled` with an entry in the timers. A time in the past
is kept as it was given: among equals, what was due first runs first.

An idempotency key is taken for as long as its job exists, so a repeat finds the job however it ended. An operation
that stands in the log twice, since its proposer could not know that it was there, is a repeat too: it finds its id.
"""

from __future__ import annotations

from raftsched import limits
from raftsched.core.bounds import (
    JOB_ID_BYTES,
    PRIORITY_MAX,
    TIME_MS_MAX,
    key_problem,
    name_problem,
    range_problem,
    utf8_bytes,
)
from raftsched.core.changes import invalid, refused
from raftsched.core.ids import TimeMs
from raftsched.core.invariants import assert_change
from raftsched.core.job import Job
from raftsched.core.operations import RejectCode, SubmitJob
from raftsched.core.retry import policy_problem
from raftsched.core.transitions import Event, next_status
from raftsched.core.view import Applied, Context, PutJob, Submitted, View
from raftsched.errors import InvariantBroken


def submit_job(view: View, operation: SubmitJob, context: Context) -> Applied:
    problem = _problem(operation)
    if problem:
        return invalid(problem)
    if operation.idempotency_key:
        known = _job_of_key(view, operation)
        if known is not None:
            return _repeat(known, operation, RejectCode.IDEMPOTENCY_MISMATCH)
    known = view.job(operation.id)
    if known is not None:
        return _repeat(known, operation, RejectCode.INVALID)
    job = _new_job(operation, context)
    return Applied(Submitted(job, duplicate=False), (PutJob(None, job, payload=operation.payload or None),))


def _job_of_key(view: View, operation: SubmitJob) -> Job | None:
    job_id = view.job_id_for_key(operation.tenant, operation.idempotency_key)
    if job_id is None:
        return None
    job = view.job(job_id)
    if job is None:
        raise InvariantBroken(
            f"an idempotency key of {operation.tenant!r} names job {job_id.hex()}, which is not there"
        )
    return job


def _repeat(known: Job, operation: SubmitJob, mismatch: RejectCode) -> Applied:
    """Answer with the job that is there, unless what was submitted under its key or id is something else."""
    same = (
        known.tenant == operation.tenant
        and known.idempotency_key == operation.idempotency_key
        and known.fingerprint == operation.fingerprint
    )
    if same:
        return Applied(Submitted(known, duplicate=True))
    if mismatch is RejectCode.IDEMPOTENCY_MISMATCH:
        return refused(mismatch, "idempotency_key: was used before with another body")
    return refused(mismatch, "id: belongs to another job")


def _new_job(operation: SubmitJob, context: Context) -> Job:
    now_ms = context.now_ms
    due_at_ms = operation.due_at_ms or now_ms
    later = due_at_ms > now_ms
    status = next_status(None, Event.SUBMIT_LATER if later else Event.SUBMIT)
    if status is None:
        raise InvariantBroken("the table of transitions has no way to submit a job")
    job = Job(
        id=operation.id,
        tenant=operation.tenant,
        name=operation.name,
        queue=operation.queue,
        status=status,
        priority=operation.priority,
        due_at_ms=TimeMs(due_at_ms),
        created_at_ms=now_ms,
        updated_at_ms=now_ms,
        max_attempts=operation.max_attempts,
        timeout_ms=operation.timeout_ms,
        retry=operation.retry,
        idempotency_key=operation.idempotency_key,
        fingerprint=operation.fingerprint,
        tags=operation.tags,
        region=operation.region,
        revision=context.index,
        timed=later,
    )
    assert_change(None, job)
    return job


def _problem(operation: SubmitJob) -> str:
    """Return why the state can't hold this job, or ""."""
    return (
        range_problem("id bytes", len(operation.id), JOB_ID_BYTES, JOB_ID_BYTES)
        or name_problem("tenant", operation.tenant)
        or name_problem("name", operation.name)
        or name_problem("queue", operation.queue)
        or key_problem(operation.idempotency_key)
        or range_problem("priority", operation.priority, 0, PRIORITY_MAX)
        or range_problem("due_at_ms", operation.due_at_ms, 0, TIME_MS_MAX)
        or range_problem("max_attempts", operation.max_attempts, 1, limits.ATTEMPTS_MAX)
        or range_problem("timeout_ms", operation.timeout_ms, 0, limits.TIMEOUT_MS_MAX)
        or range_problem("payload bytes", len(operation.payload), 0, limits.PAYLOAD_BYTES_MAX)
        or policy_problem(operation.retry)
        or _labels_problem(operation)
    )


def _labels_problem(operation: SubmitJob) -> str:
    if operation.region and name_problem("region", operation.region):
        return name_problem("region", operation.region)
    if not operation.tags:
        return ""
    longest = max(map(utf8_bytes, operation.tags))
    return range_problem("tags", len(operation.tags), 0, limits.TAGS_MAX) or range_problem(
        "tag bytes", longest, 1, limits.TAG_CHARS_MAX
    )
