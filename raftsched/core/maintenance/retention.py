"""Handle retention (PurgeJobs, TrimAudit), marks of workers (MarkWorkers) and outages (RecordOutage).

All handlers check again what the leader saw. A purge removes only finished jobs that are not needed any more. A job is
needed while it holds a key, while its workflow is unfinished, or while a job that depends on it may read its result. If
retention proposed the purge, such a job gets a deadline, at which it is purged or kept again. So no scan of the finished
jobs sees it twice. A mark never sets a worker's time back, and a worker that is both marked and removed by one operation
stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec.structs import replace

from raftsched import limits
from raftsched.core.jobs.changes import find_job, invalid, job_audited, touch
from raftsched.core.jobs.dependency_resolution import may_have_dependants
from raftsched.core.jobs.unique_keys import holds_idempotency_key, holds_unique_key
from raftsched.core.operations.codec import MarkWorkers, PurgeJobs, RecordOutage, WorkerMark
from raftsched.core.operations.control import BackgroundKind
from raftsched.core.operations.queues import TrimAudit
from raftsched.core.records.bounds import (
    TIME_MS_MAX,
    actor_problem,
    is_name,
    name_problem,
    range_problem,
    text_problem,
)
from raftsched.core.records.ids import JobId, TimeMs, job_id_text
from raftsched.core.records.job import FINISHED, Job, Worker
from raftsched.core.records.workflow import WorkflowId
from raftsched.core.state.handlers import handles
from raftsched.core.state.results import Applied, Context, Counted, Marked, Purged
from raftsched.core.state.view import ForkableView, View
from raftsched.core.state.writes import (
    PutJob,
    PutOutage,
    PutWorker,
    RemoveAudit,
    RemoveBackgroundWork,
    RemoveJob,
    RemoveWorker,
    RemoveWorkflow,
    Write,
)
from raftsched.core.workflows.background_steps import is_resolving

_WORKFLOW_WORK: Final = (BackgroundKind.OPEN_WORKFLOW, BackgroundKind.CANCEL_WORKFLOW, BackgroundKind.DROP_WORKFLOW)
_INDEX_MAX: Final = (1 << 63) - 1
_DEPENDANTS_READ: Final = 100
KEPT_AGAIN_MS: Final = 600_000
"""Time until a needed job is examined again: each examination is a write, and thousands may be needed for days."""


@handles(PurgeJobs)
def purge_jobs(view: ForkableView, operation: PurgeJobs, context: Context) -> Applied:
    problem = range_problem("job_ids", len(operation.job_ids), 0, limits.PURGE_JOBS_MAX) or actor_problem(
        operation.actor
    )
    if problem:
        return invalid(problem)
    found = (find_job(view, job_id) for job_id in dict.fromkeys(operation.job_ids))
    over = [job for job in found if job is not None and _is_over(job, operation.finished_before_ms)]
    jobs = _within_bounds([job for job in over if not may_have_dependants(job) or not is_resolving(view, job)])
    removed, needed = _parted(view, jobs, context)
    writes = tuple(RemoveJob(job) for job in removed)
    actor = operation.actor
    put_off = () if actor else tuple(_put_off(job, context) for job in needed)
    audit = (
        [job_audited(job, context, "delete", actor=actor, detail=job.status.label) for job in removed] if actor else []
    )
    return Applied(Purged(len(removed)), (*writes, *_empty_workflows(view, removed, writes), *put_off, *audit))


def _is_over(job: Job, finished_before_ms: TimeMs) -> bool:
    return job.status in FINISHED and job.finished_at_ms < finished_before_ms


def why_kept(view: View, job: Job, now_ms: int) -> str:
    """Return why a finished job must be kept, as a sentence, or "" if nothing needs it any more.

    Costs nothing for most jobs, else one look-up for each dependant, up to the first unfinished one.
    """
    return _need_of(view, job, now_ms).why


class _Need(NamedTuple):
    why: str
    """The reason to keep the job, as a sentence; "" = none."""
    looked_count: int = 0
    """The number of dependants examined for that."""


def _parted(view: View, jobs: list[Job], context: Context) -> tuple[list[Job], list[Job]]:
    """Divide `jobs` into removable and needed ones; if that needs too many look-ups, the rest is left for later."""
    removed: list[Job] = []
    needed: list[Job] = []
    looked_count = 0
    for job in jobs:
        if looked_count > limits.DEPENDENCIES_MAX:
            break
        need = _need_of(view, job, context.now_ms)
        looked_count += need.looked_count
        (needed if need.why else removed).append(job)
    return removed, needed


def _need_of(view: View, job: Job, now_ms: int) -> _Need:
    if job.spec.options is not None and job.spec.options.idempotency_until_ms and holds_idempotency_key(job, now_ms):
        return _Need("its idempotency key still counts")
    if job.spec.options is not None and job.spec.options.unique_until_ms and holds_unique_key(job, now_ms):
        return _Need("its unique key still counts")
    if not may_have_dependants(job):
        return _Need("")
    workflow_id = WorkflowId(job.spec.options.workflow_id) if job.spec.options is not None else WorkflowId(b"")
    workflow = view.workflow(workflow_id) if workflow_id else None
    if workflow is not None and not workflow.finished_at_ms:
        return _Need("its workflow has not ended")
    if is_resolving(view, job):
        return _Need("it has yet to tell others how it ended")
    return _need_of_dependants(view, job)


def _need_of_dependants(view: View, job: Job) -> _Need:
    after: JobId | None = None
    looked_count = 0
    while dependants := view.dependants(job.id, after=after, limit=_DEPENDANTS_READ):
        for dependant in dependants:
            looked_count += 1
            child = view.job(dependant.child)
            if child is not None and child.status not in FINISHED:
                return _Need(f"job {job_id_text(child.id)}, which depends on it, has not ended", looked_count)
        after = dependants[-1].child
    return _Need("", looked_count)


def _put_off(job: Job, context: Context) -> PutJob:
    """Return the write that examines the job again when its keys have expired, or after a while."""
    again_at_ms = _keys_until_ms(job)
    if again_at_ms <= context.now_ms:
        again_at_ms = TimeMs(context.now_ms + KEPT_AGAIN_MS)
    return PutJob(job, touch(job, context, kept_until_ms=again_at_ms))


def _keys_until_ms(job: Job) -> TimeMs:
    """Return the time until which the job holds keys with a time; 0 if it has none."""
    options = job.spec.options
    if options is None:
        return TimeMs(0)
    idempotency_until_ms = options.idempotency_until_ms if job.idempotency_key else TimeMs(0)
    unique_until_ms = options.unique_until_ms if options.unique_key else TimeMs(0)
    return max(idempotency_until_ms, unique_until_ms)


def _within_bounds(jobs: list[Job]) -> list[Job]:
    """Return the first of `jobs`, at least one, so that the rows removed with them are bounded; the rest comes later."""
    dependency_count = 0
    for count, job in enumerate(jobs):
        dependency_count += job.dependency_count
        if count and dependency_count > limits.DEPENDENCIES_MAX:
            return jobs[:count]
    return jobs


def _empty_workflows(view: ForkableView, removed: list[Job], writes: tuple[RemoveJob, ...]) -> Iterator[Write]:
    """Yield the removal of workflows without jobs, and of their background work, unless more parts are to come."""
    ids = [
        job.spec.options.workflow_id for job in removed if job.spec.options is not None and job.spec.options.workflow_id
    ]
    if not ids:
        return
    fork = view.fork()
    fork.execute(writes)
    for workflow_id in map(WorkflowId, dict.fromkeys(ids)):
        workflow = fork.workflow(workflow_id)
        if workflow is not None and workflow.is_whole and not fork.workflow_jobs(workflow_id, after=None, limit=1):
            yield from (
                RemoveBackgroundWork(kind, workflow_id)
                for kind in _WORKFLOW_WORK
                if view.background_cursor(kind, workflow_id) is not None
            )
            yield RemoveWorkflow(workflow)


@handles(TrimAudit)
def trim_audit(_view: View, operation: TrimAudit, _context: Context) -> Applied:
    problem = range_problem("before_index", operation.before_index, 0, _INDEX_MAX)
    if problem:
        return invalid(problem)
    limit = limits.BACKGROUND_STEP_ITEMS_MAX
    return Applied(Counted(limit), (RemoveAudit(operation.before_index, limit),))


@handles(MarkWorkers)
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
    new = Worker(
        mark.name,
        mark.queues,
        mark.capacity,
        seen_at_ms,
        first_seen_at_ms,
        mark.region,
        mark.silent,
        mark.tenant,
        mark.version,
    )
    if known is None or not known.drained_at_ms:
        return new
    return replace(
        new,
        queues=mark.queues or known.queues,
        drained_at_ms=known.drained_at_ms,
        drained_by=known.drained_by,
        drain_reason=known.drain_reason,
    )


def _marks_problem(operation: MarkWorkers) -> str:
    problem = range_problem("marks", len(operation.marks), 0, limits.WAITING_WORKERS_MAX)
    for mark in operation.marks:
        problem = problem or _mark_problem(mark)
    return problem


def _mark_problem(mark: WorkerMark) -> str:
    problem = (
        name_problem("worker", mark.name)
        or range_problem("queues", len(mark.queues), 0, limits.QUEUES_PER_LEASE_MAX)
        or range_problem("silent", len(mark.silent), 0, limits.SILENT_LEASES_MAX)
        or range_problem("capacity", mark.capacity, 0, limits.LEASE_CAPACITY_MAX)
        or range_problem("seen_at_ms", mark.seen_at_ms, 0, TIME_MS_MAX)
        or (name_problem("region", mark.region) if mark.region else "")
        or (name_problem("tenant", mark.tenant) if mark.tenant else "")
        or text_problem("version", mark.version, limits.WORKER_VERSION_CHARS_MAX)
    )
    for queue in mark.queues:
        problem = problem or name_problem("queue", queue)
    for lease in mark.silent:
        problem = (
            problem
            or range_problem("silent.token", lease.token, 0, _INDEX_MAX)
            or range_problem("silent.heartbeat_at_ms", lease.heartbeat_at_ms, 0, TIME_MS_MAX)
            or range_problem("silent.handler_heartbeat_at_ms", lease.handler_heartbeat_at_ms, 0, TIME_MS_MAX)
        )
    return problem


@handles(RecordOutage)
def record_outage(_view: View, operation: RecordOutage, context: Context) -> Applied:
    problem = range_problem("since_ms", operation.since_ms, 0, TIME_MS_MAX) or range_problem(
        "longest_ms", operation.longest_ms, 1, limits.TIMEOUT_MS_MAX
    )
    if problem:
        return invalid(problem)
    if context.now_ms - operation.since_ms <= operation.longest_ms:
        return Applied(Counted(0))
    return Applied(Counted(1), (PutOutage(context.now_ms),))
