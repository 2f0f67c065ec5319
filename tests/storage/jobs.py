"""Short ways to make the records that tests of the storage need."""

from __future__ import annotations

from typing import Any

import msgspec

from raftsched.core.records.ids import FencingToken, JobId, TimeMs
from raftsched.core.records.job import Job, Lease, Pause, Status
from raftsched.core.records.retry import RetryPolicy
from raftsched.core.records.schedule import Schedule, ScheduleId, Template, Timing
from raftsched.core.records.spec import JobSpec, Options
from raftsched.core.state.writes import PutJob
from raftsched.storage.state import State
from tests.core.scene import with_fields

NOW_MS = TimeMs(1_700_000_000_000)


def job_id(number: int) -> JobId:
    """An id like a UUIDv7's: time first, here the number."""
    return JobId(number.to_bytes(8, "big") + bytes(8))


def make_job(number: int, **fields: Any) -> Job:
    """A queued job, due now; `fields` are taken as they are."""
    job = Job(
        id=job_id(number),
        tenant="default",
        spec=JobSpec(name="send_email", queue="mail", priority=5, max_attempts=3, timeout_ms=0, retry=RetryPolicy()),
        status=Status.QUEUED,
        due_at_ms=NOW_MS,
        created_at_ms=NOW_MS,
        updated_at_ms=NOW_MS,
    )
    return with_fields(job, **fields)


def submit(state: State, *jobs: Job) -> None:
    state.execute([PutJob(None, job) for job in jobs])


def scheduled(number: int, due_at_ms: int, **fields: Any) -> Job:
    return make_job(number, status=Status.SCHEDULED, due_at_ms=TimeMs(due_at_ms), timed=True, **fields)


def running(job: Job, token: int = 1) -> Job:
    lease = Lease("worker-1", FencingToken(token), NOW_MS, 10_000)
    return msgspec.structs.replace(job, status=Status.RUNNING, lease=lease, timed=False)


def finished(job: Job, status: Status = Status.COMPLETED, at_ms: int = NOW_MS) -> Job:
    return msgspec.structs.replace(job, status=status, lease=None, timed=False, finished_at_ms=TimeMs(at_ms))


def paused(job: Job, until_ms: int = 0) -> Job:
    return msgspec.structs.replace(job, status=Status.PAUSED, pause=Pause(NOW_MS, TimeMs(until_ms)), timed=False)


def blocked(job: Job, concurrency_key: str = "k") -> Job:
    return with_fields(job, blocked=True, options=Options(concurrency_key=concurrency_key))


def make_schedule(number: int, **fields: Any) -> Schedule:
    """An hourly schedule; `fields` are taken as they are."""
    template = Template(JobSpec("send_email", "mail", 5, 3, 0, RetryPolicy()))
    schedule = Schedule(ScheduleId(job_id(number)), "default", f"report-{number}", Timing(every="1h"), template)
    return msgspec.structs.replace(schedule, **fields)
