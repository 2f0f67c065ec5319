"""Short ways to make the records that tests of the storage need."""

from __future__ import annotations

from typing import Any

import msgspec

from raftsched.core.ids import FencingToken, JobId, TimeMs
from raftsched.core.job import Job, Lease, RetryPolicy, Status

NOW_MS = TimeMs(1_700_000_000_000)


def job_id(number: int) -> JobId:
    """An id like a UUIDv7's: time first, here the number."""
    return JobId(number.to_bytes(8, "big") + bytes(8))


def make_job(number: int, **fields: Any) -> Job:
    """A queued job, due now; `fields` are taken as they are."""
    job = Job(
        id=job_id(number),
        tenant="default",
        name="send_email",
        queue="mail",
        status=Status.QUEUED,
        priority=5,
        due_at_ms=NOW_MS,
        created_at_ms=NOW_MS,
        updated_at_ms=NOW_MS,
        max_attempts=3,
        timeout_ms=0,
        retry=RetryPolicy(),
    )
    return msgspec.structs.replace(job, **fields)


def scheduled(number: int, due_at_ms: int, **fields: Any) -> Job:
    return make_job(number, status=Status.SCHEDULED, due_at_ms=TimeMs(due_at_ms), timed=True, **fields)


def running(job: Job, token: int = 1) -> Job:
    lease = Lease("worker-1", FencingToken(token), NOW_MS, 10_000)
    return msgspec.structs.replace(job, status=Status.RUNNING, lease=lease, timed=False)


def finished(job: Job, status: Status = Status.COMPLETED, at_ms: int = NOW_MS) -> Job:
    return msgspec.structs.replace(job, status=status, lease=None, timed=False, finished_at_ms=TimeMs(at_ms))
