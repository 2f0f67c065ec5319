"""CancelJob: what waits is cancelled at once; what runs is told to stop, and its outcome no longer counts.

Whichever of a cancel and a completion is applied first wins, and both callers hear the truth: after a cancel no result
is accepted, after a completion the cancel is refused. A job of another tenant is not there.
"""

from __future__ import annotations

from raftsched.core.changes import change, find_job, refused
from raftsched.core.job import FINISHED, Job, Status
from raftsched.core.operations import CancelJob, RejectCode
from raftsched.core.transitions import Event, next_status, refusal
from raftsched.core.view import Applied, Cancelled, Context, PutJob, View


def cancel_job(view: View, operation: CancelJob, context: Context) -> Applied:
    job = find_job(view, operation.job_id)
    if job is None or job.tenant != operation.tenant:
        return refused(RejectCode.NOT_FOUND, "there is no such job")
    status = next_status(job.status, Event.CANCEL)
    if status is None:
        return refused(RejectCode.ALREADY_FINISHED, refusal(job.status, Event.CANCEL))
    if status is job.status:
        return Applied(Cancelled(job))
    new = _cancelled(job, status, context)
    return Applied(Cancelled(new), (PutJob(job, new),))


def _cancelled(job: Job, status: Status, context: Context) -> Job:
    now_ms = context.now_ms
    if status in FINISHED:
        return change(job, Event.CANCEL, context, cancel_requested_at_ms=now_ms, finished_at_ms=now_ms, timed=False)
    return change(job, Event.CANCEL, context, cancel_requested_at_ms=now_ms)
