"""What the API answers: a struct for each reply, encoded as it stands and published in the OpenAPI document.

Times are RFC 3339 in UTC with milliseconds. `null` stands where there is none.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from raftsched.api.backend import NodeStatus
from raftsched.api.problems import Problem

Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Json = Annotated[msgspec.Raw, Meta(description="JSON of any kind; null where there is none.")]


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A reply body, or a part of one."""


class ErrorReply(Reply, frozen=True):
    """What the latest attempt's handler reported."""

    type: str
    message: str
    trace: str


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
    run_at: Time
    """When it is due, or was due before its latest attempt."""
    next_run_at: Time | None
    """When it is due, while it waits."""
    timeout_seconds: float | None
    max_attempts: int
    attempt_number: int
    """Attempts begun so far in this run."""
    retry_policy: Annotated[msgspec.Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/RetryPolicyReply"})]
    depends_on: list[str]
    tags: tuple[str, ...]
    region: str | None
    revision: int
    """Log index of its latest change."""
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


class RetryPolicyReply(Reply, frozen=True):
    """How long a job waits before its next attempt."""

    backoff: str
    base_seconds: float
    factor: float
    cap_seconds: float
    jitter: float
    delays_seconds: list[float]


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


class BatchItem(Reply, frozen=True):
    """What became of one job of a batch: 201 stored, 200 known before, otherwise a problem."""

    status: int
    id: str | UnsetType = UNSET
    revision: int | UnsetType = UNSET
    problem: Problem | UnsetType = UNSET


class BatchReply(Reply, frozen=True):
    """What became of each job, in the order of the request."""

    results: list[BatchItem]


class LeaseReply(Reply, frozen=True):
    """The right to run a job, and all that its handler needs."""

    job_id: str
    run_id: str
    fencing_token: int
    name: str
    queue: str
    payload: Json
    attempt_number: int
    lease_seconds: float
    """The lease ends this long after it was asked for, unless a heartbeat renews it."""
    timeout_seconds: float | None
    revision: int


class LeasesReply(Reply, frozen=True):
    """Leases, in the order in which to start them; none where nothing came due in time."""

    leases: list[LeaseReply]


class LeaseState(Reply, frozen=True):
    """Whether a lease still holds, and whether its job should stop."""

    run_id: str
    valid: bool
    cancel_requested: bool


class HeartbeatReply(Reply, frozen=True):
    """The state of each lease, in the order of the request."""

    leases: list[LeaseState]


class OutcomeReply(Reply, frozen=True, omit_defaults=True):
    """Whether an outcome counts; where it does not, `code` says why and `retryable` whether to report it again."""

    run_id: str
    accepted: bool
    revision: int = 0
    code: str = ""
    detail: str = ""
    retryable: bool = False


class OutcomesReply(Reply, frozen=True):
    """What became of each outcome, in the order of the request."""

    outcomes: list[OutcomeReply]


class QueueReply(Reply, frozen=True):
    """How many jobs of each status a queue holds."""

    name: str
    tenant: str
    scheduled: int
    waiting_dependencies: int
    queued: int
    running: int
    cancelling: int
    paused: int
    retrying: int
    completed: int
    failed: int
    dead_letter: int
    cancelled: int
    skipped: int
    exact: bool
    """False: so many timed jobs came due that not all were looked at; some count as they were before."""
    oldest_wait_ms: int
    """How long the job that is due longest waits for a worker; 0 = none waits."""
    waiting_workers: int | None
    """Workers that wait for jobs of this queue; null where the answering node does not lead."""


class QueuesReply(Reply, frozen=True):
    """The queues that hold jobs, by name."""

    queues: list[QueueReply]


class WorkerReply(Reply, frozen=True):
    """A worker that was heard of lately; the time is written down coarsely, every few seconds."""

    name: str
    queues: tuple[str, ...]
    capacity: int
    first_seen_at: Time | None
    seen_at: Time | None


class WorkersReply(Reply, frozen=True):
    """The workers, by name."""

    workers: list[WorkerReply]


class MembersReply(Reply, frozen=True):
    """The nodes of the cluster after a change."""

    nodes: tuple[NodeStatus, ...]


class TransferReply(Reply, frozen=True):
    """The lead was handed over; the next replies name the new leader."""

    transferred: Literal[True]


class HealthReply(Reply, frozen=True):
    """The node's process answers."""

    status: str
    node: str
    warning: str | UnsetType = UNSET
    """What an operator should look at, though the node serves; absent where there is nothing."""
