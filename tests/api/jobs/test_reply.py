from __future__ import annotations

from datetime import datetime

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftsched.api.http.json_reply import time_text
from raftsched.api.jobs.reply import job_reply
from raftsched.core.records.ids import FencingToken, JobId, TimeMs, job_id_text
from raftsched.core.records.job import Attempt, AttemptEnd, Job, JobError, Status
from raftsched.core.records.retry import RetryPolicy
from raftsched.core.records.spec import JobSpec

NOW_MS = 1_900_000_000_000
_JOB = Job(
    id=JobId(bytes(range(16))),
    tenant="default",
    spec=JobSpec(name="x", queue="x", priority=5, max_attempts=3, timeout_ms=1_500, retry=RetryPolicy()),
    status=Status.SCHEDULED,
    due_at_ms=TimeMs(NOW_MS + 60_000),
    created_at_ms=TimeMs(NOW_MS),
    updated_at_ms=TimeMs(NOW_MS),
)
_replace = msgspec.structs.replace


@settings(derandomize=True)
@given(st.integers(min_value=0, max_value=253_402_300_799_999))
def test_times_are_rfc_3339_to_the_millisecond(ms: int) -> None:
    read = datetime.fromisoformat(time_text(ms))
    assert len(time_text(ms)) == len("2030-01-01T00:00:00.000Z")
    assert round(read.timestamp() * 1000) == ms


def test_job_that_never_came_to_its_time_was_never_queued() -> None:
    cancelled = _replace(_JOB, status=Status.CANCELLED, finished_at_ms=TimeMs(NOW_MS + 1))
    assert job_reply(cancelled, b"", b"", NOW_MS + 90_000).queued_at is None
    assert job_reply(_JOB, b"", b"", NOW_MS + 60_000).queued_at == time_text(NOW_MS + 60_000)


def test_job_that_is_late_was_queued_when_it_was_made() -> None:
    late = _replace(_JOB, due_at_ms=TimeMs(NOW_MS - 5_000), status=Status.QUEUED)
    assert job_reply(late, b"", b"", NOW_MS).queued_at == time_text(NOW_MS)


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.DEAD_LETTER, Status.CANCELLED])
def test_finished_job_has_no_next_time(status: Status) -> None:
    reply = job_reply(_replace(_JOB, status=status, finished_at_ms=TimeMs(NOW_MS)), b"1", b"2", NOW_MS)
    assert (reply.next_run_at, reply.completed_at) == (None, time_text(NOW_MS))
    assert (bytes(reply.payload), bytes(reply.result)) == (b"1", b"2")


def test_job_shows_the_error_of_its_latest_attempt_only() -> None:
    failed = Attempt(1, 1, FencingToken(1), "w", TimeMs(1), TimeMs(2), AttemptEnd.FAILED, error=JobError("E", "m", "t"))
    done = _replace(failed, end=AttemptEnd.COMPLETED, error=None)
    error = job_reply(_replace(_JOB, attempts=(failed,)), b"", b"", NOW_MS).error
    assert error is not None
    assert (error.type, error.message, error.trace) == ("E", "m", "t")
    assert job_reply(_replace(_JOB, attempts=(failed, done)), b"", b"", NOW_MS).error is None


def test_job_reply_names_job_and_run() -> None:
    reply = job_reply(_JOB, b"", b"", NOW_MS)
    assert (reply.id, reply.run_id) == (job_id_text(_JOB.id), f"{job_id_text(_JOB.id)}.1")
    assert reply.timeout_seconds == 1.5
