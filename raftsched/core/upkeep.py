"""What the leader does for the cluster's own sake: retention (PurgeJobs) and the marks of workers (MarkWorkers).

Both check again what the leader saw. A purge removes finished jobs only, whatever it was asked for. A mark never takes
a worker back in time, and a worker that is marked and forgotten by the same operation stays.
"""

from __future__ import annotations

from raftsched import limits
from raftsched.core.bounds import TIME_MS_MAX, is_name, name_problem, range_problem
from raftsched.core.changes import find_job, invalid
from raftsched.core.ids import TimeMs
from raftsched.core.job import FINISHED, Job, Worker
from raftsched.core.operations import MarkWorkers, PurgeJobs, WorkerMark
from raftsched.core.view import Applied, Context, Marked, Purged, PutWorker, RemoveJob, RemoveWorker, View, Write


def purge_jobs(view: View, operation: PurgeJobs, _context: Context) -> Applied:
    problem = range_problem("job_ids", len(operation.job_ids), 0, limits.PURGE_JOBS_MAX)
    if problem:
        return invalid(problem)
    jobs = (find_job(view, job_id) for job_id in dict.fromkeys(operation.job_ids))
    writes = tuple(RemoveJob(job) for job in jobs if job is not None and _is_over(job, operation.finished_before_ms))
    return Applied(Purged(len(writes)), writes)


def _is_over(job: Job, finished_before_ms: TimeMs) -> bool:
    return job.status in FINISHED and job.finished_at_ms < finished_before_ms


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
