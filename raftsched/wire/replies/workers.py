"""What the API answers workers, and about them."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from raftsched.api.http.problems import Problem
from raftsched.wire.replies.common import Json, Reply, Time


class LeaseReply(Reply, frozen=True):
    """The right to run a job, and all that its handler needs."""

    job_id: str
    run_id: str
    fencing_token: int
    name: str
    queue: str
    tenant: str
    payload: Json
    attempt_number: int
    max_attempts: int
    lease_seconds: float
    """The lease ends this long after it was asked for, unless a heartbeat renews it."""
    timeout_seconds: float | None
    heartbeat_timeout_seconds: float | None
    """The handler itself must show a sign of life this often."""
    start: str
    """`at_most_once`: say that it starts (`POST /runs/{id}/start`) before the first effect."""
    expires_at: Time | None
    deadline: Time | None
    schedule_id: str | None
    instant: Time | None
    workflow_id: str | None
    task: str | None
    replay_of: str | None
    revision: int


class LeasesReply(Reply, frozen=True):
    """Leases, in the order in which to start them; none where nothing came due in time."""

    leases: list[LeaseReply]


class LeaseState(Reply, frozen=True):
    """Whether a lease still holds, and whether its job should stop."""

    run_id: str
    valid: bool
    cancel_requested: bool
    problem: Problem | UnsetType = UNSET
    """What in this part of the heartbeat could not be read. A lease without its progress goes on."""


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


class StartReply(Reply, frozen=True):
    """The run may begin: it is written down that it does."""

    run_id: str
    started: Literal[True]
    revision: int


class LoggedReply(Reply, frozen=True):
    """The lines are stored."""

    run_id: str
    byte_count: int
    """Of the attempt's log, in all."""
    repeated: bool
    """Whether this piece was stored before."""


class ProgressReply(Reply, frozen=True):
    """The progress is stored."""

    run_id: str
    accepted: Literal[True]


class WorkerReply(Reply, frozen=True):
    """A worker that was heard of lately; the time is written down coarsely, every few seconds."""

    name: str
    queues: tuple[str, ...]
    capacity: int
    region: str | None
    first_seen_at: Time | None
    seen_at: Time | None


class WorkersReply(Reply, frozen=True):
    """The workers, by name."""

    workers: list[WorkerReply]
