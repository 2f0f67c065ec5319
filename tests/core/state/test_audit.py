"""What the audit trail tells of a change."""

from __future__ import annotations

from msgspec.structs import replace

from raftsched.core.records.calendar import Calendar
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.queue import Queue
from raftsched.core.records.retry import Backoff, RetryPolicy
from raftsched.core.records.schedule import Overlap
from raftsched.core.records.spec import Options
from raftsched.core.records.texts import seconds_text, span_text, time_text
from raftsched.core.state.audit import job_changes, queue_changes, schedule_changes
from tests.core.control_scene import ControlScene
from tests.core.scene import START_MS, with_fields
from tests.core.schedule_scene import ScheduleScene


def test_times_and_spans_are_told_as_the_api_writes_them() -> None:
    assert time_text(1_795_857_922_106) == "2026-11-28T09:25:22.106Z"
    assert time_text(253_402_300_799_999) == "9999-12-31T23:59:59.999Z"
    assert (time_text(None), time_text(0)) == ("none", "1970-01-01T00:00:00.000Z")
    assert [seconds_text(ms) for ms in (0, 5, 250, 90_000, 90_010)] == ["0", "0.005", "0.25", "90", "90.01"]
    assert span_text(1_500) == "1.5 s"


def test_changes_of_a_job_have_the_names_of_the_api() -> None:
    job = ControlScene().submit(due_at_ms=TimeMs(START_MS + 1_000))
    assert job_changes(job, job) == ""
    later = with_fields(job, due_at_ms=TimeMs(START_MS + 61_000), timeout_ms=1_500, tags=("a", "b"))
    later = with_fields(later, options=Options(expires_at_ms=TimeMs(START_MS)))
    assert job_changes(job, later) == (
        f"run_at: {time_text(START_MS + 1_000)} -> {time_text(START_MS + 61_000)}; timeout_seconds: none -> 1.5; "
        f"tags: none -> a, b; expires_at: none -> {time_text(START_MS)}"
    )


def test_changes_of_a_queue_leave_out_what_only_the_books_know() -> None:
    queue = Queue("mail", key_concurrency_max=2)
    assert queue_changes(queue, replace(queue, bucket_milli=5, revision=7)) == ""
    assert queue_changes(queue, replace(queue, key_concurrency_max=0)) == "key_concurrency: 2 -> none"


def test_changes_of_a_schedule_name_those_of_its_job_too() -> None:
    schedule = ScheduleScene().save().schedule
    template = schedule.template
    retry = RetryPolicy(backoff=Backoff.LIST, delays_ms=(1_000, 2_500))
    new = replace(
        schedule,
        timing=replace(schedule.timing, timezone="Europe/Berlin", calendar=Calendar(skip_dates=("2027-12-31",))),
        overlap=Overlap.ALLOW,
        template=with_fields(template, priority=9, retry=retry, options=Options(at_most_once=True)),
    )
    told = schedule_changes(schedule, new, payload_changed=True)
    parts = dict(part.split(": ", 1) for part in told.split("; ") if ": " in part)
    assert list(parts) == ["timezone", "calendar", "overlap", "job.priority", "job.retry_policy", "job.start"]
    assert parts["timezone"] == f"{schedule.timing.timezone} -> Europe/Berlin"
    assert parts["overlap"] == "skip -> allow"
    assert parts["job.start"] == "at_least_once -> at_most_once"
    assert "list" in parts["job.retry_policy"]
    assert "2.5 s" in parts["job.retry_policy"]
    assert told.endswith("; job.payload")
    assert schedule_changes(schedule, schedule) == ""
