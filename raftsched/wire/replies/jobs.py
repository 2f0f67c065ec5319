"""What the API answers about jobs."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from raftsched.api.http.problems import Problem
from raftsched.wire.replies.common import Json, Reply, Time


class ErrorReply(Reply, frozen=True):
    """What an attempt's handler reported."""

    type: str
    message: str
    trace: str


class RetryPolicyReply(Reply, frozen=True):
    """How long a job waits before its next attempt."""

    backoff: str
    base_seconds: float
    factor: float
    cap_seconds: float
    jitter: float
    delays_seconds: list[float]


class DependencyReply(Reply, frozen=True):
    """A job that must end first, and how."""

    job: str
    condition: str


class PauseReply(Reply, frozen=True):
    """Since when a job is paused, until when, and why."""

    since: Time
    until: Time | None
    """null: until somebody resumes it."""
    reason: str | None


class JobReply(Reply, frozen=True):
    """A job as it stands."""

    id: str
    name: str
    queue: str
    tenant: str
    status: str
    """A waiting job whose time has come is `queued`."""
    priority: int
    payload: Json
    schedule_id: str | None
    """The schedule that it is a run of."""
    instant: Time | None
    """The nominal instant of the schedule that it is for."""
    workflow_id: str | None
    task: str | None
    """Its name within its workflow."""
    run_at: Time
    """The time that was asked for; retries and snoozes leave it as it is."""
    next_run_at: Time | None
    """When it runs next, while it waits."""
    expires_at: Time | None
    deadline: Time | None
    timeout_seconds: float | None
    heartbeat_timeout_seconds: float | None
    max_attempts: int
    max_lost_workers: int
    """Lost workers that end in the dead letters; its queue's setting where it has none of its own."""
    attempt_number: int
    """Attempts begun so far in this run."""
    retry_policy: Annotated[msgspec.Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/RetryPolicyReply"})]
    retry_on: tuple[str, ...]
    no_retry: tuple[str, ...]
    start: str
    concurrency_key: str | None
    unique_until: Time | None
    """How long its claim to be unique counts where that has a time."""
    depends_on: list[DependencyReply]
    """What it depends on; in lists the first 100 of it."""
    dependency_count: int
    pending_dependencies: int
    """Jobs that it still waits for, and 1 more while its workflow is not whole."""
    on_dependency_failure: str
    pause: PauseReply | None
    tags: tuple[str, ...]
    region: str | None
    retention_seconds: float | None
    revision: int
    """Log index of its latest change; also its ETag, for `If-Match`."""
    created_at: Time
    updated_at: Time
    queued_at: Time | None
    """When its time came."""
    started_at: Time | None
    """When its latest attempt began."""
    completed_at: Time | None
    """When it finished, however it ended."""
    execution_time_ms: int | None
    """How long the last attempt of a finished job took."""
    failure_reason: str | None
    """Why it is in the dead letters, or the type of the latest failure."""
    result: Json
    progress: Json
    run_id: str
    """The run's idempotency key for receivers; the same for all its attempts."""
    failure_count: int
    lost_count: int
    worker: str | None
    """Who holds its lease."""
    error: ErrorReply | None
    """Of the latest attempt, where it failed."""
    idempotency_key: str | None
    replay_of: str | None
    """The job that it is a clone of."""
    duplicate: Literal[True] | UnsetType = UNSET
    """Present where a submission found this job instead of storing a new one."""


class JobsPage(Reply, frozen=True):
    """Jobs in a stable order; a page may hold few jobs, or none, although `next_cursor` leads to more."""

    jobs: list[JobReply]
    next_cursor: str | None
    """null at the end of the list."""


class ResultReply(Reply, frozen=True):
    """A job's result, and whether there can be one yet."""

    id: str
    status: str
    result: Json
    error: ErrorReply | None
    revision: int


class SeedReply(Reply, frozen=True):
    """A job as older clients know it."""

    id: str
    job_id: str
    """The same as `id`."""
    task: str
    status: str
    duplicate: Literal[True] | UnsetType = UNSET


class BatchItem(Reply, frozen=True):
    """What became of one job of a batch: 201 stored, 200 known before, otherwise a problem."""

    status: int
    id: str | UnsetType = UNSET
    revision: int | UnsetType = UNSET
    duplicate: Literal[True] | UnsetType = UNSET
    problem: Problem | UnsetType = UNSET


class BatchReply(Reply, frozen=True):
    """What became of each job, in the order of the request."""

    results: list[BatchItem]


class BulkFailure(Reply, frozen=True):
    """A job that stayed as it was, and why."""

    id: str
    code: str
    detail: str
    retryable: bool


class BulkReply(Reply, frozen=True):
    """What a request did to many jobs; `matched` = `done` + `failed_count`, or `done` = 0 for a dry run."""

    action: str
    dry_run: bool
    matched: int
    """Jobs that this request found."""
    done: int
    """Of these, jobs that are now as was asked."""
    failed_count: int
    failed: list[BulkFailure]
    """The first 100 of those that failed."""
    sample: list[str]
    """Ids of the first 100 jobs that were found."""
    next_cursor: str | None
    """Where to go on, with the same request; null: every job was looked at."""
