"""Handle HandleDeadlines: change jobs, queues, workflows and alarms of schedules by time, other than making jobs due.

The leader names passed deadlines. Each is checked again here by the cluster's time, so one that was moved, or is handled
twice, has no effect. Handling a deadline moves or ends it: it is not due again at the same time. A job is expired if its
deadline has passed, even if it is paused or running, or if it had not started by its expiry. If several deadlines of a job
are due at once, its end comes first and the others are void.
"""

from __future__ import annotations

from msgspec.structs import replace

from raftsched import limits
from raftsched.core.jobs.attempts import overrun
from raftsched.core.jobs.changes import change, find_job, invalid, noted
from raftsched.core.jobs.control import resumed
from raftsched.core.jobs.notices import without_success
from raftsched.core.maintenance.queues import unpaused
from raftsched.core.operations.control import BackgroundKind, DeadlineKind, HandleDeadlines
from raftsched.core.records.bounds import JOB_ID_BYTES, is_name, range_problem
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.job import FINISHED, LEASED, DeadLetterReason, Job
from raftsched.core.records.schedule import ScheduleId
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
    # The view does not show what this operation writes, so a deadline named twice must be handled once.
    for kind, subject in dict.fromkeys(operation.deadlines):
        handled = _deadline_passed(view, kind, subject, context)
        writes.extend(handled)
        count += bool(handled)
    return Applied(Counted(count), tuple(writes))


def _deadline_passed(view: View, kind: DeadlineKind, subject: bytes, context: Context) -> tuple[Write, ...]:
    """Return the writes for a passed deadline; () if it is not due."""
    match kind:
        case DeadlineKind.JOB:
            return _job_deadline_passed(view, subject, context)
        case DeadlineKind.QUEUE:
            return _queue_deadline_passed(view, subject, context)
        case DeadlineKind.WORKFLOW:
            return _workflow_deadline_passed(view, subject, context)
        case DeadlineKind.SCHEDULE:
            schedule = view.schedule(ScheduleId(subject)) if len(subject) == JOB_ID_BYTES else None
            return () if schedule is None else without_success(view, schedule, context)


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
    """Return the name of the job's time that has passed, or ""; for a leased job it can only be the deadline."""
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
    """Drop an unfinished submission by background steps; the next deadline is set for the time they may take."""
    workflow = view.workflow(WorkflowId(subject)) if len(subject) == JOB_ID_BYTES else None
    if workflow is None or not _is_due(workflow.next_deadline_ms, context):
        return ()
    moved = replace(workflow, updated_at_ms=TimeMs(context.now_ms), revision=context.index)
    put = PutWorkflow(workflow, moved)
    if view.background_cursor(BackgroundKind.DROP_WORKFLOW, subject) is not None:
        return (put,)
    return (put, PutBackgroundWork(BackgroundKind.DROP_WORKFLOW, subject))
