"""What an operation of the log did to jobs, in the words of the history (`chaos.checkers.history.Change`).

It is derived from the operation, its result and the jobs that it wrote, so that a checker knows the log without believing
the code that applies it.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from chaos.checkers.history import FinalJob
from raftsched.core.ids import JobId
from raftsched.core.job import Job
from raftsched.core.operations import (
    CancelJob,
    ExpireLeases,
    LeaseJobs,
    Operation,
    PurgeJobs,
    RecordOutcome,
    SubmitJob,
)
from raftsched.core.view import Cancelled, Expired, Leased, OutcomeRecorded, Refused, Result, Submitted

OP_TAG = "op:"
"""A submit's tag that carries the number of its operation."""
ChangeOfJob = tuple[Job | None, Job | None]


def job_name(job_id: JobId) -> str:
    return job_id.hex()


def changes_by(operation: Operation, result: Result, waiting: deque[ChangeOfJob]) -> list[dict[str, Any]]:
    """The fields of each change that an operation made, taken from the front of `waiting`."""
    match operation, result:
        case SubmitJob(), Submitted(duplicate=False):
            _, new = waiting.popleft()
            return [_submitted(operation, new)] if new is not None else []
        case LeaseJobs(), Leased():
            return [_leased(waiting.popleft()[1]) for _ in result.grants]
        case RecordOutcome(), OutcomeRecorded(repeated=False):
            return [_reported(operation, waiting.popleft()[1])]
        case RecordOutcome(), Refused() if _closes(operation, waiting):
            return [_reported(operation, waiting.popleft()[1])]
        case ExpireLeases(), Expired():
            causes = {suspect.job_id: suspect.cause.label for suspect in operation.leases}
            return [_expired(waiting.popleft()[1], causes) for _ in result.jobs]
        case CancelJob(), Cancelled() if waiting and waiting[0][1] is result.job:
            return [_base("cancel", waiting.popleft()[1])]
        case PurgeJobs(), _:
            purged = []
            while waiting and waiting[0][1] is None:
                old = waiting.popleft()[0]
                assert old is not None
                purged.append({"f": "purge", "job": job_name(old.id), "status": "purged"})
            return purged
        case _:
            return []


def _closes(operation: RecordOutcome, waiting: deque[ChangeOfJob]) -> bool:
    """Whether a refused report is the one that ended a cancelled job's lease."""
    if not waiting:
        return False
    old, new = waiting[0]
    if old is None or new is None or old.lease is None:
        return False
    return new.id == operation.job_id and old.lease.token == operation.token and new.lease is None


def _base(f: str, job: Job | None, **fields: Any) -> dict[str, Any]:
    assert job is not None
    return {"f": f, "job": job_name(job.id), "status": job.status.label, "attempt": job.attempt_number, **fields}


def _submitted(operation: SubmitJob, job: Job) -> dict[str, Any]:
    return _base(
        "submit",
        job,
        due_ms=job.due_at_ms,
        tenant=job.tenant,
        key=job.idempotency_key,
        body=job.fingerprint.hex(),
        max_attempts=operation.max_attempts,
        timeout_ms=operation.timeout_ms,
        op=_op(job),
    )


def _leased(job: Job | None) -> dict[str, Any]:
    assert job is not None
    assert job.lease is not None
    return _base("lease", job, token=job.lease.token, worker=job.lease.worker, ttl_ms=job.lease.ttl_ms)


def _reported(operation: RecordOutcome, job: Job | None) -> dict[str, Any]:
    assert job is not None
    return _base(
        "outcome",
        job,
        token=operation.token,
        worker=job.attempts[-1].worker if job.attempts else "",
        outcome=operation.end.label,
        completion_id=operation.completion_id,
        retryable=operation.retryable,
        due_ms=job.due_at_ms,
    )


def _expired(job: Job | None, causes: dict[JobId, str]) -> dict[str, Any]:
    assert job is not None
    token = job.attempts[-1].token if job.attempts else 0
    return _base("expire", job, token=token, outcome=causes[job.id], due_ms=job.due_at_ms)


def final_job(job: Job) -> FinalJob:
    """A job as a node holds it at the end."""
    return FinalJob(
        status=job.status.label,
        attempt=job.attempt_number,
        token=job.lease.token if job.lease is not None else 0,
        revision=job.revision,
        tenant=job.tenant,
        key=job.idempotency_key,
        body=job.fingerprint.hex(),
        op=_op(job),
    )


def _op(job: Job) -> int:
    return next((int(tag[len(OP_TAG) :]) for tag in job.tags if tag.startswith(OP_TAG)), 0)
