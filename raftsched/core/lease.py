"""LeaseJobs: give waiting, due jobs to a worker.

The leader picks the jobs from its memory, which may be behind; so each is looked at again here, and whatever is no
longer waiting, not due, or not there is left as it is. Fencing tokens rise by one with every grant in the whole
cluster, so a later lease always has the greater token, whichever job, node or term it came from.
"""

from __future__ import annotations

from raftsched import limits
from raftsched.core.bounds import name_problem, range_problem
from raftsched.core.changes import change, find_job, invalid
from raftsched.core.ids import FencingToken, JobId, TimeMs
from raftsched.core.job import Job, Lease
from raftsched.core.operations import LeaseJobs
from raftsched.core.transitions import Event, next_status
from raftsched.core.view import Applied, Context, Grant, Leased, PutFence, PutJob, View, Write


def lease_jobs(view: View, operation: LeaseJobs, context: Context) -> Applied:
    problem = _problem(operation)
    if problem:
        return invalid(problem)
    token = view.fence
    grants: list[Grant] = []
    missed: list[JobId] = []
    writes: list[Write] = []
    payload_bytes = 0
    # The view doesn't show what this operation writes, so an id given twice must not be granted twice.
    for job_id in dict.fromkeys(operation.job_ids):
        job = find_job(view, job_id)
        if job is None or not _is_ready(job, context.now_ms) or payload_bytes >= limits.LEASE_BYTES_MAX:
            missed.append(job_id)
            continue
        payload = view.payload(job_id)
        payload_bytes += len(payload)
        token = FencingToken(token + 1)
        lease = Lease(operation.worker, token, context.now_ms, operation.ttl_ms, operation.request_id)
        leased = _granted(job, lease, context)
        grants.append(Grant(leased, payload))
        writes.append(PutJob(job, leased))
    if grants:
        writes.append(PutFence(token))
    return Applied(Leased(tuple(grants), tuple(missed)), tuple(writes))


def _is_ready(job: Job, now_ms: TimeMs) -> bool:
    return job.due_at_ms <= now_ms and next_status(job.status, Event.LEASE) is not None


def _granted(job: Job, lease: Lease, context: Context) -> Job:
    return change(
        job,
        Event.LEASE,
        context,
        lease=lease,
        attempt_number=job.attempt_number + 1,
        started_at_ms=context.now_ms,
        timed=False,
    )


def _problem(operation: LeaseJobs) -> str:
    return (
        name_problem("worker", operation.worker)
        or range_problem("ttl_ms", operation.ttl_ms, 1, limits.TIMEOUT_MS_MAX)
        or range_problem("request_id length", len(operation.request_id), 0, limits.REQUEST_ID_CHARS_MAX)
        or range_problem("job_ids", len(operation.job_ids), 0, limits.LEASE_CAPACITY_MAX)
    )
