"""Handle CancelJob: a waiting job is cancelled at once; a running one is asked to stop, and its outcome is rejected.

Of a cancel and a completion the first one applied wins: after a cancel no result is accepted, after a completion the
cancel is rejected. By force, the operation itself ends the attempt, and its token is no longer valid, whatever its worker
does. A job of another tenant is not found.
"""

from __future__ import annotations

from raftsched.core.jobs.attempts import aborted
from raftsched.core.jobs.changes import change, invalid, job_audited, noted, own_job, refused
from raftsched.core.operations.codec import CancelJob, RejectCode
from raftsched.core.records.bounds import actor_problem
from raftsched.core.records.job import FINISHED, LEASED, Job, Status
from raftsched.core.records.transitions import Event, next_status, refusal
from raftsched.core.state.handlers import handles
from raftsched.core.state.results import Applied, Cancelled, Context
from raftsched.core.state.view import View
from raftsched.core.state.writes import PutJob


@handles(CancelJob)
def cancel_job(view: View, operation: CancelJob, context: Context) -> Applied:
    problem = actor_problem(operation.actor)
    if problem:
        return invalid(problem)
    job = own_job(view, operation.job_id, operation.tenant)
    if job is None:
        return refused(RejectCode.NOT_FOUND, "there is no such job")
    if next_status(job.status, Event.CANCEL) is None:
        return refused(RejectCode.ALREADY_FINISHED, refusal(job.status, Event.CANCEL))
    new = cancelled(job, context, force=operation.force, actor=operation.actor)
    if new is job:
        return Applied(Cancelled(job))
    detail = "by force" if operation.force and job.status in LEASED else ""
    audit = job_audited(job, context, "cancel", actor=operation.actor, detail=detail)
    return Applied(Cancelled(new), (PutJob(job, new), audit))


def cancelled(job: Job, context: Context, *, force: bool = False, actor: str = "", detail: str = "") -> Job:
    """Return `job` after a cancel, which must be legal; a job cancelled before is returned unchanged.

    By force a leased job is `cancelled` at once, else it is `cancelling` until its attempt has ended. One that awaits a
    callback has no worker that could stop: it is cancelled at once, too.
    """
    now_ms = context.now_ms
    awaits_callback = job.lease is not None and job.lease.awaits_callback
    if job.status in LEASED and (force or awaits_callback):
        notes = noted(job, context, "cancelled", actor=actor, detail=detail or ("by force" if force else ""))
        return aborted(job, context, cancel_requested_at_ms=job.cancel_requested_at_ms or now_ms, notes=notes)
    status = next_status(job.status, Event.CANCEL)
    if status is job.status:
        return job
    if status in FINISHED:
        return change(
            job,
            Event.CANCEL,
            context,
            cancel_requested_at_ms=now_ms,
            finished_at_ms=now_ms,
            timed=False,
            blocked=False,
            pause=None,
            notes=noted(job, context, Status.CANCELLED.label, actor=actor, detail=detail),
        )
    notes = noted(job, context, "cancel_requested", actor=actor, detail=detail)
    return change(job, Event.CANCEL, context, cancel_requested_at_ms=now_ms, notes=notes)


def cancelled_with_workflow(job: Job, context: Context, *, force: bool = False) -> Job:
    """Return the unfinished `job` after a cancel of its workflow; see `cancelled`."""
    return cancelled(job, context, force=force, detail="with its workflow")
