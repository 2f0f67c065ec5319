"""From records to replies and their JSON bytes, fast: stored JSON texts are inserted as they are.

Measured: about 6 µs for a job, 1.5 µs for a lease. Texts that repeat (the second of a time, a retry policy) are remembered.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import msgspec
from aiohttp import web

from raftsched.api.replies import ErrorReply, JobReply, LeaseReply, ResultReply, RetryPolicyReply, WorkerReply
from raftsched.core.ids import job_id_text, run_id_text
from raftsched.core.job import WAITING, Job, RetryPolicy, Worker
from raftsched.core.view import Grant
from raftsched.errors import InvariantBroken

encode: Final = msgspec.json.Encoder().encode
_NULL: Final = msgspec.Raw(b"null")
_NONE: Final[list[str]] = []


def json_response(reply: msgspec.Struct | dict[str, Any], *, status: int = 200) -> web.Response:
    """Return the HTTP reply with `reply` as its JSON body."""
    return web.Response(body=encode(reply), status=status, content_type="application/json")


def job_reply(job: Job, payload: bytes, result: bytes, now_ms: int) -> JobReply:
    """Return the job as users see it at `now_ms`."""
    waiting = job.status in WAITING
    due = time_text(job.due_at_ms)
    lease = job.lease
    return JobReply(
        id=job_id_text(job.id),
        name=job.name,
        queue=job.queue,
        tenant=job.tenant,
        status=job.status_at(now_ms).label,
        priority=job.priority,
        payload=json_text(payload),
        schedule_id=None,
        run_at=due,
        next_run_at=due if waiting else None,
        timeout_seconds=job.timeout_ms / 1000 if job.timeout_ms else None,
        max_attempts=job.max_attempts,
        attempt_number=job.attempt_number,
        retry_policy=_policy_json(job.retry),
        depends_on=_NONE,
        tags=job.tags,
        region=job.region or None,
        revision=job.revision,
        created_at=time_text(job.created_at_ms),
        updated_at=time_text(job.updated_at_ms),
        queued_at=_queued_at(job, now_ms),
        started_at=_time_or_none(job.started_at_ms),
        completed_at=_time_or_none(job.finished_at_ms),
        execution_time_ms=_execution_time_ms(job),
        failure_reason=job.failure_reason or None,
        result=json_text(result),
        progress=_NULL,
        run_id=run_id_text(job.id, job.run_number),
        failure_count=job.failure_count,
        lost_count=job.lost_count,
        worker=lease.worker if lease is not None else None,
        error=_latest_error(job),
        idempotency_key=job.idempotency_key or None,
    )


def result_reply(job: Job, result: bytes, now_ms: int) -> ResultReply:
    """Return what a caller that waits for a result wants to know."""
    return ResultReply(
        id=job_id_text(job.id),
        status=job.status_at(now_ms).label,
        result=json_text(result),
        error=_latest_error(job),
        revision=job.revision,
    )


def lease_reply(grant: Grant) -> LeaseReply:
    """Return a granted lease as its worker hears of it."""
    job = grant.job
    lease = job.lease
    if lease is None:
        raise InvariantBroken(f"job {job_id_text(job.id)} was granted without a lease")
    return LeaseReply(
        job_id=job_id_text(job.id),
        run_id=run_id_text(job.id, job.run_number),
        fencing_token=lease.token,
        name=job.name,
        queue=job.queue,
        payload=json_text(grant.payload),
        attempt_number=job.attempt_number,
        lease_seconds=lease.ttl_ms / 1000,
        timeout_seconds=job.timeout_ms / 1000 if job.timeout_ms else None,
        revision=job.revision,
    )


def worker_reply(worker: Worker) -> WorkerReply:
    return WorkerReply(
        name=worker.name,
        queues=worker.queues,
        capacity=worker.capacity,
        first_seen_at=_time_or_none(worker.first_seen_at_ms),
        seen_at=_time_or_none(worker.seen_at_ms),
    )


def json_text(stored: bytes) -> msgspec.Raw:
    """Return stored JSON text for a reply, null where there is none."""
    return msgspec.Raw(stored) if stored else _NULL


def time_text(ms: int) -> str:
    """Return RFC 3339 in UTC with milliseconds."""
    return f"{_second_text(ms // 1000)}.{ms % 1000:03d}Z"


@lru_cache(maxsize=4096)
def _second_text(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _time_or_none(ms: int) -> str | None:
    return time_text(ms) if ms else None


@lru_cache(maxsize=1024)
def _policy_json(policy: RetryPolicy) -> msgspec.Raw:
    reply = RetryPolicyReply(
        backoff=policy.backoff.name.lower(),
        base_seconds=policy.base_ms / 1000,
        factor=policy.factor_thousandths / 1000,
        cap_seconds=policy.cap_ms / 1000,
        jitter=policy.jitter_thousandths / 1000,
        delays_seconds=[delay_ms / 1000 for delay_ms in policy.delays_ms],
    )
    return msgspec.Raw(encode(reply))


def _queued_at(job: Job, now_ms: int) -> str | None:
    """When its time came; None where it never did, as for a job that was cancelled before."""
    queued_at_ms = max(job.due_at_ms, job.created_at_ms)
    return time_text(queued_at_ms) if queued_at_ms <= (job.finished_at_ms or now_ms) else None


def _execution_time_ms(job: Job) -> int | None:
    if not job.finished_at_ms or not job.started_at_ms:
        return None
    return job.finished_at_ms - job.started_at_ms


def _latest_error(job: Job) -> ErrorReply | None:
    error = job.attempts[-1].error if job.attempts else None
    return None if error is None else ErrorReply(type=error.type, message=error.message, trace=error.trace)
