"""Handle LeaseJobs and BlockJobs: lease due jobs to a worker, and block jobs whose concurrency key is at its limit.

The leader picks the jobs from its memory, which may be outdated. So each is checked again here. Jobs that are missing, no
longer waiting, not due, expired, over a limit of their queue, or of another region or tenant than the worker are not
changed.
Fencing tokens rise by one with every grant in the whole cluster. So a later lease always has the greater token, whatever
its job, node or term.

A job whose concurrency key is at its limit would be offered again and again while other jobs of the key run. It is
blocked: removed from the ready index until one of them ends (`workflows.cascade`) or the limit changes (a background
step).
"""

from __future__ import annotations

from typing import Final

from raftsched import limits
from raftsched.core.jobs.admission import (
    Gate,
    gate_of,
    is_being_cancelled,
    key_concurrency_max,
)
from raftsched.core.jobs.changes import change, find_job, invalid, touch
from raftsched.core.operations.codec import LeaseJobs
from raftsched.core.operations.control import BlockJobs
from raftsched.core.records.bounds import name_problem, range_problem
from raftsched.core.records.ids import FencingToken, JobId, TimeMs
from raftsched.core.records.job import WAITING, Job, Lease
from raftsched.core.records.transitions import Event, next_status
from raftsched.core.state.handlers import handles
from raftsched.core.state.results import Applied, Context, Counted, Grant, Leased
from raftsched.core.state.view import View
from raftsched.core.state.writes import PutFence, PutJob, Write

_LEASE: Final = Event.LEASE  # a member of an enumeration costs a look-up, and each job leased asks twice


@handles(LeaseJobs)
def lease_jobs(view: View, operation: LeaseJobs, context: Context) -> Applied:
    problem = _problem(operation)
    if problem:
        return invalid(problem)
    token = view.fence
    grants: list[Grant] = []
    missed: list[JobId] = []
    writes: list[Write] = []
    gates: dict[str, Gate | None] = {}
    payload_bytes = 0
    # The view doesn't show what this operation writes, so an id given twice must not be granted twice.
    for job_id in dict.fromkeys(operation.job_ids):
        job = find_job(view, job_id)
        is_full = payload_bytes >= limits.LEASE_BYTES_MAX
        if job is None or is_full or not _may_have(view, job, operation, gates, context.now_ms):
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
        if any(gates.values()):  # few queues have limits
            drawn = (gate.write() for gate in gates.values() if gate is not None)
            writes.extend(write for write in drawn if write is not None)
    return Applied(Leased(tuple(grants), tuple(missed)), tuple(writes))


def _may_have(view: View, job: Job, operation: LeaseJobs, gates: dict[str, Gate | None], now_ms: TimeMs) -> bool:
    """Return whether the worker can lease `job`; if so, it takes a place within the queue's limits."""
    if job.due_at_ms > now_ms or next_status(job.status, _LEASE) is None:
        return False
    if job.spec.region and job.spec.region != operation.region:
        return False
    if operation.tenant and job.tenant != operation.tenant:
        return False
    options = job.spec.options
    if options is not None and (job.blocked or is_expired(job, now_ms) or is_being_cancelled(view, options)):
        return False
    if job.spec.queue not in gates:
        gates[job.spec.queue] = gate_of(view, job.spec.queue, now_ms)
    gate = gates[job.spec.queue]
    if gate is None:  # the queue has no limits, and only options could ask for one
        if options is None:
            return True
        gate = gates[job.spec.queue] = Gate(view, job.spec.queue, None, now_ms)
    return gate.admit(job)


def is_expired(job: Job, now_ms: int) -> bool:
    """Return whether it is too late to start: after `expires_at_ms` for a first attempt, after the deadline for any."""
    return job.spec.options is not None and (job.is_overdue(now_ms) or job.is_too_late_to_start(now_ms))


def _granted(job: Job, lease: Lease, context: Context) -> Job:
    return change(
        job,
        _LEASE,
        context,
        lease=lease,
        attempt_number=job.attempt_number + 1,
        started_at_ms=context.now_ms,
        timed=False,
        progress=b"",
    )


def _problem(operation: LeaseJobs) -> str:
    return (
        name_problem("worker", operation.worker)
        or range_problem("ttl_ms", operation.ttl_ms, 1, limits.TIMEOUT_MS_MAX)
        or range_problem("request_id length", len(operation.request_id), 0, limits.REQUEST_ID_CHARS_MAX)
        or (name_problem("region", operation.region) if operation.region else "")
        or (name_problem("tenant", operation.tenant) if operation.tenant else "")
        or range_problem("job_ids", len(operation.job_ids), 0, limits.LEASE_CAPACITY_MAX)
    )


# -- blocked jobs -----------------------------------------------------------------------------------------------------


@handles(BlockJobs)
def block_jobs(view: View, operation: BlockJobs, context: Context) -> Applied:
    problem = range_problem("job_ids", len(operation.job_ids), 0, limits.BLOCK_JOBS_MAX)
    if problem:
        return invalid(problem)
    jobs = (find_job(view, job_id) for job_id in dict.fromkeys(operation.job_ids))
    writes = tuple(
        PutJob(job, touch(job, context, blocked=True, timed=False))
        for job in jobs
        if job is not None and should_block(view, job, context.now_ms)
    )
    return Applied(Counted(len(writes)), writes)


def should_block(view: View, job: Job, now_ms: int) -> bool:
    """Return whether `job` is due and in the ready index, and its concurrency key is at its limit."""
    key = job.key_group
    if not key or job.blocked or job.status not in WAITING or job.due_at_ms > now_ms:
        return False
    return view.key_running_count(job.spec.queue, key) >= key_concurrency_max(view.queue(job.spec.queue))
