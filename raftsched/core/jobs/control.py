"""Handle PauseJob, ResumeJob, AmendJob and RequeueJob: changes by users of jobs that are not leased.

Each adds a note to the job and a line to the audit trail. A request that changes nothing succeeds and writes nothing. A
leased job can be cancelled, but not paused or changed, and the refusal says so.

A requeue begins a new run: numbers, counts and leases of the earlier run stay with its attempts. The verdicts on all
parents are computed again: the job waits for unfinished parents, and the requeue is rejected while a parent has not met
its condition, since the job would run without what it needs.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from raftsched import limits
from raftsched.core.jobs.changes import change, invalid, job_audited, noted, own_job, refused, released
from raftsched.core.jobs.dependency_resolution import DependencyEdge, current_edges
from raftsched.core.jobs.unique_keys import (
    holder_of_unique_key,
    holds_unique_key,
    take_overs,
    unique_conflict,
)
from raftsched.core.operations.codec import RejectCode
from raftsched.core.operations.control import AmendJob, BackgroundKind, PauseJob, RequeueJob, ResumeJob
from raftsched.core.records.bounds import (
    TIME_MS_MAX,
    actor_problem,
    range_problem,
    requested_time_problem,
    text_problem,
)
from raftsched.core.records.ids import TimeMs, job_id_text
from raftsched.core.records.job import LEASED, RESUMED, WAITING, Job, Pause, Status, Verdict
from raftsched.core.records.spec import JobSpec, SpecChanges, amended, of_new_run, spec_problem
from raftsched.core.records.transitions import Event, next_status, refusal
from raftsched.core.records.workflow import WorkflowId
from raftsched.core.state.audit import job_changes
from raftsched.core.state.handlers import handles
from raftsched.core.state.results import Applied, Changed, Context, Refused
from raftsched.core.state.view import View
from raftsched.core.state.writes import PutDependant, PutJob

# -- pause and resume -------------------------------------------------------------------------------------------------


@handles(PauseJob)
def pause_job(view: View, operation: PauseJob, context: Context) -> Applied:
    problem = (
        range_problem("until_ms", operation.until_ms, 0, TIME_MS_MAX)
        or text_problem("reason", operation.reason, limits.PAUSE_REASON_CHARS_MAX)
        or actor_problem(operation.actor)
    )
    if problem:
        return invalid(problem)
    job = own_job(view, operation.job_id, operation.tenant)
    if job is None:
        return _not_found()
    if next_status(job.status, Event.PAUSE) is None:
        return _refusal(job, Event.PAUSE)
    since_ms = job.pause.since_ms if job.pause is not None else context.now_ms
    pause = Pause(since_ms, operation.until_ms, operation.reason)
    if pause == job.pause:
        return Applied(Changed(job))
    notes = noted(job, context, "paused", actor=operation.actor, detail=operation.reason)
    new = change(job, Event.PAUSE, context, pause=pause, timed=False, blocked=False, notes=notes)
    return _changed(job, new, context, "pause", actor=operation.actor, detail=operation.reason)


@handles(ResumeJob)
def resume_job(view: View, operation: ResumeJob, context: Context) -> Applied:
    problem = actor_problem(operation.actor)
    if problem:
        return invalid(problem)
    job = own_job(view, operation.job_id, operation.tenant)
    if job is None:
        return _not_found()
    if job.status is Status.PAUSED:
        return _changed(job, resumed(job, context, actor=operation.actor), context, "resume", actor=operation.actor)
    if next_status(job.status, Event.PAUSE) is None and job.status not in LEASED:
        return _refusal(job, Event.RESUME)
    return Applied(Changed(job))


def resumed(job: Job, context: Context, *, actor: str = "", detail: str = "") -> Job:
    """Return a paused job after its pause: it waits for its parents, for its time, or for a lease."""
    event = Event.RESUME_LATER if job.due_at_ms > context.now_ms else Event.RESUME
    if job.pending_count:
        event = Event.RESUME_WAITING
    notes = noted(job, context, RESUMED, actor=actor, detail=detail)
    return change(job, event, context, pause=None, timed=event is Event.RESUME_LATER, notes=notes)


# -- amend ------------------------------------------------------------------------------------------------------------


@handles(AmendJob)
def amend_job(view: View, operation: AmendJob, context: Context) -> Applied:
    problem = _amendment_problem(operation)
    if problem:
        return invalid(problem)
    job = own_job(view, operation.job_id, operation.tenant)
    if job is None:
        return _not_found()
    if next_status(job.status, Event.AMEND) is None:
        return _refusal(job, Event.AMEND)
    if operation.if_revision not in (0, job.revision):
        return refused(RejectCode.STALE_REVISION, f"the job is at revision {job.revision}, not {operation.if_revision}")
    spec = amended(job.spec, operation.changes)
    if problem := _changes_problem(job, operation.changes, spec):
        return invalid(problem)
    fields: dict[str, Any] = {"due_at_ms": _requested_due_at_ms(job, operation.due_at_ms, context), "spec": spec}
    fields = {name: value for name, value in fields.items() if value != getattr(job, name)}
    told = [job_changes(job, replace(job, **fields))] if fields else []
    if operation.payload is not None and operation.payload != view.payload(job.id):
        told.append("payload")
    if not told:
        return Applied(Changed(job))
    detail = "; ".join(told)
    notes = noted(job, context, _amendment_name(job, fields), actor=operation.actor, detail=detail)
    if "due_at_ms" in fields:
        fields["requested_at_ms"] = TimeMs(0)
    new = _amended(job, context, fields | {"notes": notes})
    audit = job_audited(job, context, "amend", actor=operation.actor, detail=detail)
    return Applied(Changed(new), (PutJob(job, new, payload=operation.payload), audit))


def _requested_due_at_ms(job: Job, due_at_ms: int | None, context: Context) -> int:
    """Return the new due time; "now" leaves a due job's time unchanged, so that it keeps its place in the queue."""
    if due_at_ms is None or (due_at_ms == 0 and job.due_at_ms <= context.now_ms):
        return job.due_at_ms
    return due_at_ms or context.now_ms


def _amended(job: Job, context: Context, fields: dict[str, Any]) -> Job:
    if job.status not in WAITING:
        return change(job, Event.AMEND, context, **fields)
    if "due_at_ms" in fields:
        later = fields["due_at_ms"] > context.now_ms
        return change(
            job, Event.RESCHEDULE if later else Event.BRING_FORWARD, context, timed=later, blocked=False, **fields
        )
    # In another queue its key is counted separately; whether it is blocked there is decided when a lease is tried.
    if job.blocked and "spec" in fields and fields["spec"].queue != job.spec.queue:
        job = released(job, context)
    return change(job, Event.AMEND, context, **fields)


def _amendment_name(job: Job, fields: dict[str, Any]) -> str:
    if "due_at_ms" in fields:
        return "rescheduled"
    spec: JobSpec = fields.get("spec", job.spec)
    only_priority = spec != job.spec and spec == replace(job.spec, priority=spec.priority)
    return "reprioritised" if only_priority else "amended"


def _amendment_problem(operation: AmendJob) -> str:
    return (
        requested_time_problem("due_at_ms", operation.due_at_ms)
        or range_problem("payload bytes", len(operation.payload or b""), 0, limits.PAYLOAD_BYTES_MAX)
        or actor_problem(operation.actor)
    )


def _changes_problem(job: Job, changes: SpecChanges, spec: JobSpec) -> str:
    """Return why the job can't have `spec`, which includes the changes, or ""."""
    if changes.max_attempts is not None and changes.max_attempts <= job.failure_count:
        return f"max_attempts: must be more than the {job.failure_count} failures that the job has had"
    if changes.lost_workers_max and changes.lost_workers_max <= job.lost_count:
        return f"max_lost_workers: must be more than the {job.lost_count} workers that the job has lost"
    return spec_problem(spec)


# -- requeue ----------------------------------------------------------------------------------------------------------


@handles(RequeueJob)
def requeue_job(view: View, operation: RequeueJob, context: Context) -> Applied:
    problem = (
        range_problem("due_at_ms", operation.due_at_ms, 0, TIME_MS_MAX)
        or text_problem("reason", operation.reason, limits.PAUSE_REASON_CHARS_MAX)
        or actor_problem(operation.actor)
    )
    if problem:
        return invalid(problem)
    job = own_job(view, operation.job_id, operation.tenant)
    if job is None:
        return _not_found()
    if job.status is Status.COMPLETED:
        return refused(RejectCode.COMPLETED, refusal(job.status, Event.REQUEUE))
    if job.status in LEASED:
        return _refusal(job, Event.REQUEUE)
    if operation.reason and (job.status is not Status.DEAD_LETTER or job.reason != operation.reason):
        return refused(RejectCode.STALE_DECISION, f"the job is not in the dead letters for {operation.reason!r}")
    if _is_staged(view, job):
        return refused(RejectCode.NOT_STARTED, "the job's workflow is not whole: nothing of it runs yet")
    if next_status(job.status, Event.REQUEUE) is not None:
        return _requeued(view, job, operation, context)
    if job.status is Status.PAUSED:
        return refused(RejectCode.PAUSED, "the job is paused: it runs again once it is resumed")
    if job.status is Status.WAITING_DEPENDENCIES:
        waits_for = f"{job.pending_count} of {job.dependency_count} parents"
        return refused(RejectCode.WAITING_DEPENDENCIES, f"the job waits for {waits_for}, and runs once they have ended")
    return _brought_forward(job, operation, context)


def _requeued(view: View, job: Job, operation: RequeueJob, context: Context) -> Applied:
    """Return a new run of a finished job; rejected if another job has taken its unique key."""
    edges = list(current_edges(view, job)) if job.dependency_count else []
    unmet = next((edge for edge in edges if edge.verdict is Verdict.UNMET), None)
    if unmet is not None:
        return _unmet(view, unmet)
    spec = of_new_run(job.spec, context.now_ms)
    options = spec.options
    holder = holder_of_unique_key(view, job.tenant, options.unique_key) if options is not None else None
    if holder is not None and holder.id == job.id:
        holder = None
    if holder is not None and holds_unique_key(holder, context.now_ms):
        return unique_conflict(holder)
    pending_count = sum(edge.verdict is Verdict.PENDING for edge in edges)
    event = Event.REQUEUE_LATER if operation.due_at_ms > context.now_ms else Event.REQUEUE
    if pending_count:
        event = Event.REQUEUE_WAITING
    detail = f"{job.status.label}: {job.failure_reason}" if job.failure_reason else job.status.label
    new = change(
        job,
        event,
        context,
        run_number=job.run_number + 1,
        attempt_number=0,
        failure_count=0,
        lost_count=0,
        failure_reason="",
        started_at_ms=TimeMs(0),
        finished_at_ms=TimeMs(0),
        kept_until_ms=TimeMs(0),
        cancel_requested_at_ms=TimeMs(0),
        due_at_ms=TimeMs(operation.due_at_ms or context.now_ms),
        requested_at_ms=_still_asked(job, operation),
        timed=event is Event.REQUEUE_LATER,
        pending_count=pending_count,
        unmet_count=0,
        spec=spec,
        notes=noted(job, context, "requeued", actor=operation.actor, detail=detail),
    )
    audit = job_audited(job, context, "requeue", actor=operation.actor, detail=detail)
    lapsed = take_overs(context, idempotency=None, unique=holder)
    turned = (PutDependant(edge.parent, edge.dependant) for edge in edges if edge.verdict is not edge.was)
    return Applied(Changed(new), (*lapsed, *turned, PutJob(job, new), audit))


def _unmet(view: View, edge: DependencyEdge) -> Applied:
    """Return the refusal that names the unmet parent."""
    parent = view.job(edge.parent)
    status = "is no longer kept" if parent is None else f"is {parent.status.label}"
    message = f"the job needs the {edge.dependant.condition.label} of {job_id_text(edge.parent)}, which {status}"
    return Applied(Refused(RejectCode.DEPENDENCY_UNMET, message, edge.parent))


def _is_staged(view: View, job: Job) -> bool:
    """Return whether parts of the job's workflow are missing, or it is not opened for this job yet."""
    if not job.spec.workflow_id:
        return False
    workflow = view.workflow(WorkflowId(job.spec.workflow_id))
    opened = view.background_cursor(BackgroundKind.OPEN_WORKFLOW, job.spec.workflow_id)
    return (workflow is not None and not workflow.is_whole) or (opened is not None and job.id > opened)


def _brought_forward(job: Job, operation: RequeueJob, context: Context) -> Applied:
    """Return a waiting job with an earlier time."""
    due_at_ms = _requested_due_at_ms(job, operation.due_at_ms, context)
    if due_at_ms == job.due_at_ms:
        return Applied(Changed(job))
    detail = job_changes(job, replace(job, due_at_ms=TimeMs(due_at_ms)))
    notes = noted(job, context, "rescheduled", actor=operation.actor, detail=detail)
    fields = {"due_at_ms": TimeMs(due_at_ms), "requested_at_ms": _still_asked(job, operation), "notes": notes}
    new = _amended(job, context, fields)
    return _changed(job, new, context, "requeue", actor=operation.actor, detail=detail)


def _still_asked(job: Job, operation: RequeueJob) -> TimeMs:
    """Return the time requested before; 0 if the requeue requests another."""
    return TimeMs(0) if operation.due_at_ms else job.run_at_ms


# -- common parts -----------------------------------------------------------------------------------------------------


def _changed(job: Job, new: Job, context: Context, verb: str, *, actor: str, detail: str = "") -> Applied:
    audit = job_audited(job, context, verb, actor=actor, detail=detail)
    return Applied(Changed(new), (PutJob(job, new), audit))


def _not_found() -> Applied:
    return refused(RejectCode.NOT_FOUND, "there is no such job")


def _refusal(job: Job, event: Event) -> Applied:
    code = RejectCode.RUNNING if job.status in LEASED else RejectCode.ALREADY_FINISHED
    return refused(code, refusal(job.status, event))
