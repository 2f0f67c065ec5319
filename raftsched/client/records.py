"""What a client reads about jobs. Fields that this version doesn't know are ignored; times are aware, in UTC."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from raftsched.client.specs import Dependency

FINISHED = frozenset({"completed", "failed", "dead_letter", "cancelled", "skipped"})
"""Statuses that nothing but a hand changes; see `raftsched.core.records.job.FINISHED`."""


class JobFault(msgspec.Struct, frozen=True):
    """What the handler of an attempt reported."""

    type: str = ""
    message: str = ""
    trace: str = ""


class PauseInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Since when something is paused, until when, and why."""

    since: datetime
    until: datetime | None = None
    """None: until somebody resumes it."""
    reason: str | None = None


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it stood when it was read."""

    id: str
    name: str = ""
    queue: str = ""
    tenant: str = ""
    status: str = ""
    priority: int = 0
    payload: Any = None
    schedule_id: str | None = None
    instant: datetime | None = None
    """The nominal instant of the schedule that it is for."""
    workflow_id: str | None = None
    task: str | None = None
    """Its name within its workflow."""
    run_at: datetime | None = None
    next_run_at: datetime | None = None
    expires_at: datetime | None = None
    deadline: datetime | None = None
    timeout_seconds: float | None = None
    heartbeat_timeout_seconds: float | None = None
    max_attempts: int = 0
    max_lost_workers: int = 0
    attempt_number: int = 0
    retry_policy: dict[str, Any] | None = None
    retry_on: list[str] = []
    no_retry: list[str] = []
    start: str = ""
    concurrency_key: str | None = None
    unique_until: datetime | None = None
    depends_on: list[Dependency] = []
    """In lists the first 100 of them."""
    dependency_count: int = 0
    pending_dependencies: int = 0
    on_dependency_failure: str = ""
    pause: PauseInfo | None = None
    tags: list[str] = []
    region: str | None = None
    retention_seconds: float | None = None
    revision: int = 0
    """Log index of its latest change; `Job.update` takes it to be sure that nothing changed in between."""
    created_at: datetime | None = None
    updated_at: datetime | None = None
    queued_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    execution_time_ms: int | None = None
    failure_reason: str | None = None
    error: JobFault | None = None
    """Of the latest attempt, where it failed."""
    result: Any = None
    progress: Any = None
    run_id: str = ""
    failure_count: int = 0
    lost_count: int = 0
    worker: str | None = None
    """Who holds its lease."""
    idempotency_key: str | None = None
    replay_of: str | None = None
    """The job that it is a clone of."""

    @property
    def is_finished(self) -> bool:
        return self.status in FINISHED


class AttemptInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One try of a run."""

    attempt_number: int
    worker: str = ""
    fencing_token: int = 0
    started_at: datetime | None = None
    ended_at: datetime | None = None
    execution_time_ms: int | None = None
    end: str | None = None
    """`completed`, `failed`, `snoozed`, `timeout`, `worker_lost`, `outage` or `cancelled`; None while it runs."""
    error: JobFault | None = None
    log_bytes: int = 0


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of a job up to an outcome, with its attempts, oldest first."""

    run_id: str
    run_number: int = 0
    attempts: list[AttemptInfo] = []


class Runs(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of a job, oldest first."""

    status: str = ""
    runs: list[RunInfo] = []
    truncated: bool = False
    """Older attempts are no longer kept."""


class HistoryEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to a job."""

    at: datetime
    event: str
    """`created`, `attempt_started`, `attempt_ended`, `finished`, or what was noted: `paused`, `requeued`, …"""
    actor: str | None = None
    detail: str | None = None
    run_number: int | None = None
    attempt_number: int | None = None
    worker: str | None = None


class History(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to a job, in order."""

    status: str = ""
    events: list[HistoryEvent] = []
    truncated: bool = False
    """Older attempts or notes are no longer kept."""


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that stands in a job's way."""

    code: str
    text: str = ""
    details: dict[str, Any] = {}


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job isn't running, what must happen first in front."""

    status: str = ""
    reasons: list[Reason] = []


class LogLine(NamedTuple):
    """A line of an attempt's log, without its line feed."""

    text: str
    run_number: int
    attempt_number: int


class LogPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an attempt's log, as it comes."""

    run_number: int = 0
    attempt_number: int = 0
    text: str = ""
    attempt_ended: bool = False
    next_cursor: str | None = None

    def lines(self) -> Sequence[LogLine]:
        """The lines of this part."""
        texts = self.text.split("\n")[:-1] if self.text.endswith("\n") else self.text.split("\n") if self.text else []
        return [LogLine(text, self.run_number, self.attempt_number) for text in texts]


class BulkFailure(msgspec.Struct, frozen=True):
    """A job that stayed as it was, and why."""

    id: str
    code: str = ""
    detail: str = ""
    retryable: bool = False


class BulkResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a request did to many jobs."""

    action: str = ""
    dry_run: bool = False
    matched: int = 0
    """Jobs that were found. Where a request had to be repeated, those that it had changed before may not count."""
    done: int = 0
    """Of these, jobs that are now as was asked."""
    failed_count: int = 0
    failed: list[BulkFailure] = []
    """The first 100 of those that failed."""
    sample: list[str] = []
    """Ids of the first 100 jobs that were found."""
    next_cursor: str | None = None
    """Where to go on; None: every job was looked at."""
