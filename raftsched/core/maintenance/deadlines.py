"""HandleDeadlines: what time does to jobs, queues and workflows, other than making jobs due.

The leader names what its alarms say; each is looked at again here by the cluster's time, so an alarm that was moved or
is rung twice does nothing. Ringing one moves or ends it: none is due again by the same time. A job whose deadline has
passed is expired, also while it is paused or runs, and so is one that had not started by its expiry; where several
things are due at once, its end comes first, and the rest is void.
"""

from __future__ import annotations

from msgspec.structs import replace

from raftsched import limits
from raftsched.core.jobs.attempts import overrun
from raftsched.core.jobs.changes import change, find_job, invalid, noted
from raftsched.core.jobs.control import resumed
from raftsched.core.maintenance.queues import unpaused
from raftsched.core.operations.control import BackgroundKind, DeadlineKind, HandleDeadlines
from raftsched.core.records.bounds import JOB_ID_BYTES, is_name, range_problem
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.job import FINISHED, LEASED, DeadLetterReason, Job
from raftsched.core.records.transitions import Event
from raftsched.core.records.workflow import WorkflowId
from raftsched.core.state.audit import audited
from raftsched.core.state.handlers import handles
from raftsched.core.state.results import Applied, Context, Counted
from raftsched.core.state.view import View
from raftsched.core.state.writes import PutBackgroundWork, PutJob, PutQueue, PutWorkflow, Write


@handles(HandleDeadlines)
def handle_deadlines(view: View, operation: HandleDeadlines, context: Context) -> Applied:
    problem = range_problem("deadlines", len(operation.deadlines), 0, limits.HANDLE_DEADLINES_MAX)
    if problem:
        return invalid(problem)
    writes: list[Write] = []
    count = 0
    # The view doesn't show what this operation writes, so an alarm named twice must not ring twice.
    for kind, subject in dict.fromkeys(operation.deadlines):
        handled = _deadline_passed(view, kind, subject, context)
        writes.extend(handled)
        count += bool(handled)
    return Applied(Counted(count), tuple(writes))


def _deadline_passed(view: View, kind: DeadlineKind, subject: bytes, context: Context) -> tuple[Write, ...]:
    """What the alarm does now; () where it is not due, or not rung at all: schedules are fired."""
    match kind:
        case DeadlineKind.JOB:
            return _job_deadline_passed(view, subject, context)
        case DeadlineKind.QUEUE:
            return _queue_deadline_passed(view, subject, context)
        case DeadlineKind.WORKFLOW:
            return _workflow_deadline_passed(view, subject, context)
        case DeadlineKind.SCHEDULE:
            return ()


def _is_due(next_deadline_ms: int, context: Context) -> bool:
    return 0 < next_deadline_ms <= context.now_ms


def _job_deadline_passed(view: View, subject: bytes, context: Context) -> tuple[Write, ...]:
    job = find_job(view, JobId(subject))
    if job is None or job.status in FINISHED or not _is_due(job.next_deadline_ms, context):  # finished ones are purged
        return ()
    cause = _cause_of_end(job, context.now_ms)
    new = _expired(job, cause, context) if cause else resumed(job, context, detail="its pause is over")
    return (PutJob(job, new),)


def _cause_of_end(job: Job, now_ms: int) -> str:
    """Which of its times has passed, or "" where none has: of a leased job, whose alarm is due, its deadline."""
    if job.is_overdue(now_ms):
        return "deadline"
    return "expires_at" if job.is_too_late_to_start(now_ms) else ""


def _expired(job: Job, cause: str, context: Context) -> Job:
    notes = noted(job, context, "expired", detail=cause)
    if job.status in LEASED:
        return overrun(job, context, notes=notes)
    return change(
        job,
        Event.EXPIRE,
        context,
        finished_at_ms=context.now_ms,
        failure_reason=DeadLetterReason.EXPIRED,
        timed=False,
        blocked=False,
        pause=None,
        notes=notes,
    )


def _queue_deadline_passed(view: View, subject: bytes, context: Context) -> tuple[Write, ...]:
    try:
        name = subject.decode()
    except UnicodeDecodeError:
        return ()
    queue = view.queue(name) if is_name(name) else None
    if queue is None or not _is_due(queue.next_deadline_ms, context):
        return ()
    audit = audited(context, "queue.resume", f"queue:{name}", detail="its pause is over")
    return (PutQueue(queue, unpaused(queue, context)), audit)


def _workflow_deadline_passed(view: View, subject: bytes, context: Context) -> tuple[Write, ...]:
    """Throw away what a client left half-submitted; the alarm moves on, for as long as the chore may take."""
    workflow = view.workflow(WorkflowId(subject)) if len(subject) == JOB_ID_BYTES else None
    if workflow is None or not _is_due(workflow.next_deadline_ms, context):
        return ()
    moved = replace(workflow, updated_at_ms=TimeMs(context.now_ms), revision=context.index)
    put = PutWorkflow(workflow, moved)
    if view.background_cursor(BackgroundKind.DROP_WORKFLOW, subject) is not None:
        return (put,)
    return (put, PutBackgroundWork(BackgroundKind.DROP_WORKFLOW, subject))
