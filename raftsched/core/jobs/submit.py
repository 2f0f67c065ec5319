"""Handle SubmitJob: store a new job, once for each idempotency key.

A due job is stored `queued`, a later one `scheduled` with an entry in the timers. A time in the past is kept as given:
of equal jobs, the one that was due first runs first.

An idempotency key is held while its job is stored, or until a time that the job requested. So a repeat finds the job,
whatever its outcome. An operation can be in the log twice if its proposer did not learn that it was committed. The second
is a repeat, too: it finds the id. A repeat is never a conflict of unique keys.
"""

from __future__ import annotations

from msgspec.structs import replace

from raftsched import limits
from raftsched.core.checks.invariants import assert_change
from raftsched.core.jobs.changes import invalid, refused
from raftsched.core.jobs.dependencies import with_dependencies
from raftsched.core.jobs.quotas import jobs_refusal
from raftsched.core.jobs.unique_keys import (
    holder_of_idempotency_key,
    holder_of_unique_key,
    holds_idempotency_key,
    holds_unique_key,
    take_overs,
    unique_conflict,
)
from raftsched.core.operations.codec import RejectCode, SubmitJob
from raftsched.core.records.bounds import (
    ANONYMOUS,
    JOB_ID_BYTES,
    TIME_MS_MAX,
    actor_problem,
    key_problem,
    name_problem,
    range_problem,
)
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.job import CREATED, Job, Note, Pause
from raftsched.core.records.spec import JobSpec, normalized, spec_problem
from raftsched.core.records.transitions import Event, next_status
from raftsched.core.state.handlers import handles
from raftsched.core.state.results import Applied, Context, Submitted
from raftsched.core.state.view import ForkableView
from raftsched.core.state.writes import PutJob
from raftsched.errors import InvariantBroken


@handles(SubmitJob)
def submit_job(view: ForkableView, operation: SubmitJob, context: Context) -> Applied:
    options = operation.spec.options
    problem = submit_problem(operation)
    if not problem and options is not None and options.workflow_id:
        problem = "options.workflow_id: a job is stored with its workflow, or belongs to none"
    if problem:
        return invalid(problem)
    key_holder = unique_holder = None
    if operation.idempotency_key:
        key_holder = holder_of_idempotency_key(view, operation.tenant, operation.idempotency_key)
        if key_holder is not None and holds_idempotency_key(key_holder, context.now_ms):
            return _repeat(key_holder, operation, RejectCode.IDEMPOTENCY_MISMATCH)
    known = view.job(operation.id)
    if known is not None:
        return _repeat(known, operation, RejectCode.INVALID)
    if options is not None and options.unique_key:
        unique_holder = holder_of_unique_key(view, operation.tenant, options.unique_key)
        if unique_holder is not None and holds_unique_key(unique_holder, context.now_ms):
            return unique_conflict(unique_holder)
    if refusal := jobs_refusal(view, operation.tenant):
        return Applied(refusal)
    job = new_job(operation, context, actor=operation.actor)
    applied = Applied(Submitted(job, duplicate=False), (PutJob(None, job, payload=operation.payload or None),))
    if key_holder is not None or unique_holder is not None:
        lapsed = take_overs(context, idempotency=key_holder, unique=unique_holder)
        applied = applied._replace(writes=(*lapsed, *applied.writes))
    return with_dependencies(view, applied, operation, context) if operation.depends_on else applied


def _repeat(known: Job, operation: SubmitJob, mismatch: RejectCode) -> Applied:
    """Answer with the existing job; reject if the key or id was used for another request."""
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


def new_job(operation: SubmitJob, context: Context, *, actor: str) -> Job:
    """Return the record of a new job without dependencies; it is paused if the operation says so.

    It has a note of the submitter `actor`, if known.
    """
    now_ms = context.now_ms
    due_at_ms = operation.due_at_ms or now_ms
    later = due_at_ms > now_ms and not operation.paused
    event = Event.SUBMIT_LATER if later else Event.SUBMIT
    if operation.paused:
        event = Event.SUBMIT_PAUSED
    status = next_status(None, event)
    if status is None:
        raise InvariantBroken("the table of transitions has no way to submit a job")
    job = Job(
        id=operation.id,
        tenant=operation.tenant,
        spec=_stored(operation.spec),
        status=status,
        due_at_ms=TimeMs(due_at_ms),
        created_at_ms=now_ms,
        updated_at_ms=now_ms,
        idempotency_key=operation.idempotency_key,
        fingerprint=operation.fingerprint,
        revision=context.index,
        timed=later,
        pause=Pause(now_ms) if operation.paused else None,
        notes=() if actor in ("", ANONYMOUS) else (Note(now_ms, CREATED, actor, revision=context.index),),
    )
    assert_change(None, job)
    return job


def _stored(spec: JobSpec) -> JobSpec:
    return spec if spec.options is None else replace(spec, options=normalized(spec.options))


def submit_problem(operation: SubmitJob) -> str:
    """Return why the state can't store this job, or ""."""
    return (
        range_problem("id bytes", len(operation.id), JOB_ID_BYTES, JOB_ID_BYTES)
        or name_problem("tenant", operation.tenant)
        or key_problem(operation.idempotency_key)
        or range_problem("due_at_ms", operation.due_at_ms, 0, TIME_MS_MAX)
        or range_problem("payload bytes", len(operation.payload), 0, limits.PAYLOAD_BYTES_MAX)
        or spec_problem(operation.spec)
        or actor_problem(operation.actor)
    )
