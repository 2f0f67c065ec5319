"""Leases: what workers ask for and report, and what the API answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Generic, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from raftsched import limits
from raftsched.wire.common import (
    ABSENT,
    CompletionId,
    DelaySeconds,
    J,
    Json,
    Name,
    Problem,
    QueuePattern,
    Reply,
    Request,
    T,
    Time,
    Token,
)


class LeaseRequest(Request, frozen=True):
    """A worker asks for jobs, and waits for them if there are none."""

    worker: Name
    queues: Annotated[Sequence[QueuePattern], Meta(min_length=1, max_length=limits.QUEUES_PER_LEASE_MAX)]
    """Names of queues, and patterns: `mail*` = all whose names begin so, `*` = all."""
    capacity: Annotated[int, Meta(ge=1, le=limits.LEASE_CAPACITY_MAX)] = 1
    wait_seconds: Annotated[float, Meta(ge=0, le=limits.LEASE_WAIT_SECONDS_MAX)] = 0.0
    request_id: Annotated[str, Meta(max_length=limits.REQUEST_ID_CHARS_MAX)] = ""
    """The worker's own name for this request: repeated because the reply was lost, it gets the same leases."""
    region: Name | None = None
    """Where the worker is: it takes jobs of this region and those of none; without one, only those of none."""
    names: Annotated[Sequence[Name], Meta(max_length=limits.NAMES_PER_LEASE_MAX)] | None = None
    """Names of the jobs that the worker has handlers for: it gets no others. Left out: it takes any."""


class HeldLease(Request, frozen=True):
    """A lease that its worker still works on."""

    run_id: str
    fencing_token: Token
    progress: msgspec.Raw | UnsetType = UNSET
    """JSON of any kind: what the handler says of itself; it shows that the handler is alive, too."""
    alive: bool = False
    """The handler itself, and not only its worker, gave a sign of life since the last heartbeat."""


class HeartbeatRequest(Request, frozen=True):
    """A worker lives, and so do these leases of it."""

    worker: Name
    leases: Annotated[
        list[Annotated[msgspec.Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/HeldLease"})]],
        Meta(max_length=limits.HEARTBEAT_LEASES_MAX),
    ]
    """Each is kept, or refused, on its own."""


class ErrorReport(Request, frozen=True):
    """What went wrong in a handler. Over-long texts are cut: the head of the message, the tail of the trace is kept."""

    type: str = ""
    message: str = ""
    trace: str = ""


class Ending(Request, frozen=True):
    """How an attempt ended."""

    status: Literal["completed", "failed", "snoozed"]
    result: msgspec.Raw | UnsetType = UNSET
    """JSON of any kind; of completed runs only."""
    error: ErrorReport | None = None
    """Of failed runs only."""
    retryable: bool = True
    """False: no further attempt, whatever `max_attempts` says. Of failed runs only."""
    retry_after_seconds: DelaySeconds | None = None
    """The handler's own wish for the next attempt; null: by the job's policy. Of failed runs only."""
    snooze_seconds: DelaySeconds | None = None
    """When to run again, without using an attempt. Of snoozed runs, and required there."""


class OutcomeReport(Ending, frozen=True, kw_only=True):
    """How one attempt ended."""

    run_id: str
    fencing_token: Token
    completion_id: CompletionId | None = None
    """The worker's own name for this report: the same one again gets the recorded answer."""


class OutcomesRequest(Request, frozen=True):
    """Reports of one worker, each recorded or refused on its own."""

    worker: Name
    outcomes: Annotated[
        list[Annotated[msgspec.Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/OutcomeReport"})]],
        Meta(max_length=limits.OUTCOMES_MAX),
    ]


class StartRequest(Request, frozen=True):
    """The worker is about to begin a run that begins at most once."""

    fencing_token: Token


class LogRequest(Request, frozen=True):
    """Lines of a running attempt's log."""

    fencing_token: Token
    lines: Annotated[list[str], Meta(min_length=1, max_length=limits.LOG_PIECES_MAX)]
    """Without their line feeds."""
    sequence: Annotated[int, Meta(ge=1, le=(1 << 53) - 1)] | None = None
    """The worker's number of this piece in its attempt, rising from 1: a repeat is stored once."""


class ProgressRequest(Request, frozen=True):
    """What a running handler says of itself."""

    fencing_token: Token
    progress: msgspec.Raw
    """JSON of any kind."""


class LeaseDocument(Reply, Generic[T, J], frozen=True, kw_only=True):
    """The right to run a job, and all that its handler needs."""

    job_id: str
    run_id: str
    fencing_token: int
    name: str
    queue: str = ""
    tenant: str = ""
    payload: Json[J] = ABSENT
    attempt_number: int = 1
    max_attempts: int = 0
    lease_seconds: float
    """The lease ends this long after it was asked for, unless a heartbeat renews it."""
    timeout_seconds: float | None = None
    heartbeat_timeout_seconds: float | None = None
    """The handler itself must show a sign of life this often."""
    start: str = "at_least_once"
    """`at_most_once`: say that it starts (`POST /runs/{id}/start`) before the first effect."""
    expires_at: T | None = None
    deadline: T | None = None
    schedule_id: str | None = None
    instant: T | None = None
    workflow_id: str | None = None
    task: str | None = None
    replay_of: str | None = None
    revision: int = 0


class LeaseReply(LeaseDocument[Time, msgspec.Raw], frozen=True):
    """The right to run a job, and all that its handler needs."""


class LeasesDocument(Reply, Generic[J], frozen=True):
    """Leases, in the order in which to start them; none where nothing came due in time."""

    leases: list[J]


class LeasesReply(LeasesDocument[LeaseReply], frozen=True):
    """Leases, in the order in which to start them; none where nothing came due in time."""


class LeaseState(Reply, frozen=True):
    """Whether a lease still holds, and whether its job should stop."""

    run_id: str
    valid: bool
    cancel_requested: bool = False
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
