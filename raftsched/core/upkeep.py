"""What the leader does for the cluster's own sake: retention (PurgeJobs, TrimAudit) and marks of workers (MarkWorkers).

All check again what the leader saw. A purge removes finished jobs only, whatever it was asked for, and none that has
yet to tell a dependant how it ended. A mark never takes a worker back in time, and a worker that is marked and forgotten
by the same operation stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from raftsched import limits
from raftsched.core.bounds import TIME_MS_MAX, actor_problem, is_name, name_problem, range_problem
from raftsched.core.changes import find_job, invalid, job_audited
from raftsched.core.chores import is_telling
from raftsched.core.control_operations import ChoreKind
from raftsched.core.ids import TimeMs
from raftsched.core.job import FINISHED, Job, Worker
from raftsched.core.operations import MarkWorkers, PurgeJobs, WorkerMark
from raftsched.core.overlay import Overlay
from raftsched.core.queue_operations import TrimAudit
from raftsched.core.settling import may_have_dependants
from raftsched.core.view import (
    Applied,
    Context,
    Counted,
    Marked,
    Purged,
    PutWorker,
    RemoveAudit,
    RemoveChore,
    RemoveJob,
    RemoveWorker,
    RemoveWorkflow,
    View,
    Write,
)
from raftsched.core.workflow import WorkflowId

_WORKFLOW_CHORES: Final = (ChoreKind.OPEN_WORKFLOW, ChoreKind.CANCEL_WORKFLOW, ChoreKind.DROP_WORKFLOW)
_INDEX_MAX: Final = (1 << 63) - 1


def purge_jobs(view: View, operation: PurgeJobs, context: Context) -> Applied:
    problem = range_problem("job_ids", len(operation.job_ids), 0, limits.PURGE_JOBS_MAX) or actor_problem(
        operation.actor
    )
    if problem:
        return invalid(problem)
    jobs = (find_job(view, job_id) for job_id in dict.fromkeys(operation.job_ids))
    over = [job for job in jobs if job is not None and _is_over(view, job, operation.finished_before_ms)]
    removed = _within_bounds(over)
    writes = tuple(RemoveJob(job) for job in removed)
    actor = operation.actor
    audit = (
        [job_audited(job, context, "delete", actor=actor, detail=job.status.label) for job in removed] if actor else []
    )
    return Applied(Purged(len(removed)), (*writes, *_empty_workflows(view, removed, writes), *audit))


def _is_over(view: View, job: Job, finished_before_ms: TimeMs) -> bool:
    """Whether the job can go: it has long been finished, and everybody who depends on it knows how it ended."""
    if job.status not in FINISHED or job.finished_at_ms >= finished_before_ms:
        return False
    return not may_have_dependants(job) or not is_telling(view, job)


def _within_bounds(jobs: list[Job]) -> list[Job]:
    """The first of `jobs`, at least one, so that what goes with them stays bounded; the others are purged later."""
    dependency_count = 0
    for count, job in enumerate(jobs):
        dependency_count += job.dependency_count
        if count and dependency_count > limits.DEPENDENCIES_MAX:
            return jobs[:count]
    return jobs


def _empty_workflows(view: View, removed: list[Job], writes: tuple[RemoveJob, ...]) -> Iterator[Write]:
    """A workflow goes with its last job, unless more of them are to come; so does what was still to be done with it."""
    ids = [job.options.workflow_id for job in removed if job.options is not None and job.options.workflow_id]
    if not ids:
        return
    overlay = Overlay(view)
    overlay.put(*writes)
    for workflow_id in map(WorkflowId, dict.fromkeys(ids)):
        workflow = overlay.workflow(workflow_id)
        if workflow is not None and workflow.is_whole and not overlay.workflow_jobs(workflow_id, after=None, limit=1):
            yield from (
                RemoveChore(kind, workflow_id) for kind in _WORKFLOW_CHORES if view.chore(kind, workflow_id) is not None
            )
            yield RemoveWorkflow(workflow)


def trim_audit(_view: View, operation: TrimAudit, _context: Context) -> Applied:
    problem = range_problem("before_index", operation.before_index, 0, _INDEX_MAX)
    if problem:
        return invalid(problem)
    limit = limits.CHORE_STEPS_MAX
    return Applied(Counted(limit), (RemoveAudit(operation.before_index, limit),))


def mark_workers(view: View, operation: MarkWorkers, context: Context) -> Applied:
    problem = _marks_problem(operation)
    if problem:
        return invalid(problem)
    marks = {mark.name: mark for mark in operation.marks}
    writes: list[Write] = [PutWorker(_marked(view.worker(mark.name), mark, context)) for mark in marks.values()]
    forgotten = (name for name in dict.fromkeys(operation.forget) if name not in marks and is_name(name))
    writes.extend(RemoveWorker(name) for name in forgotten if view.worker(name) is not None)
    return Applied(Marked(len(writes)), tuple(writes))


def _marked(known: Worker | None, mark: WorkerMark, context: Context) -> Worker:
    seen_at_ms = TimeMs(min(mark.seen_at_ms, context.now_ms))
    first_seen_at_ms = seen_at_ms
    if known is not None:
        seen_at_ms = max(seen_at_ms, known.seen_at_ms)
        first_seen_at_ms = known.first_seen_at_ms
    return Worker(mark.name, mark.queues, mark.capacity, seen_at_ms, first_seen_at_ms)


def _marks_problem(operation: MarkWorkers) -> str:
    problem = range_problem("marks", len(operation.marks), 0, limits.WAITING_WORKERS_MAX)
    for mark in operation.marks:
        problem = problem or _mark_problem(mark)
    return problem


def _mark_problem(mark: WorkerMark) -> str:
    problem = (
        name_problem("worker", mark.name)
        or range_problem("queues", len(mark.queues), 0, limits.QUEUES_PER_LEASE_MAX)
        or range_problem("capacity", mark.capacity, 0, limits.LEASE_CAPACITY_MAX)
        or range_problem("seen_at_ms", mark.seen_at_ms, 0, TIME_MS_MAX)
    )
    for queue in mark.queues:
        problem = problem or name_problem("queue", queue)
    return problem
