"""Define the documents of workers: leases, heartbeats, outcomes, logs and progress."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Generic, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from raftsched import limits
from raftsched.wire.calls import Kind
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
    or_null,
)
from raftsched.wire.parameters import PARAMETERS_SCHEMA

CALLBACK_TOKEN_HEADER: Final = "Raftsched-Callback-Token"  # noqa: S105  # the name of a header
CallbackToken = Annotated[str, Meta(min_length=16, max_length=limits.CALLBACK_TOKEN_CHARS_MAX)]


class LeaseRequest(Request, frozen=True):
    """A worker's request for jobs; it can wait if none are due."""

    worker: Name
    queues: Annotated[Sequence[QueuePattern], Meta(min_length=1, max_length=limits.QUEUES_PER_LEASE_MAX)]
    """Names of queues, and patterns: `mail*` = all names with this prefix, `*` = all queues."""
    capacity: Annotated[int, Meta(ge=1, le=limits.LEASE_CAPACITY_MAX)] = 1
    wait_seconds: Annotated[float, Meta(ge=0, le=limits.LEASE_WAIT_SECONDS_MAX)] = 0.0
    request_id: Annotated[str, Meta(max_length=limits.REQUEST_ID_CHARS_MAX)] = ""
    """The worker's own id of this request. A repeated request, after a lost reply, gets the same leases."""
    region: Name | None = None
    """The worker's region. It gets jobs of this region and jobs without one; without it, only jobs without one."""
    names: Annotated[Sequence[Name], Meta(max_length=limits.NAMES_PER_LEASE_MAX)] | None = None
    """Names of the jobs for which the worker has handlers; it gets no others. Omitted: jobs of any name."""
    executes: Annotated[Sequence[Kind], Meta(max_length=2)] | None = None
    """Kinds of jobs without a handler that it executes, whatever their names. Without `names` it gets no others."""
    version: Annotated[str, Meta(max_length=limits.WORKER_VERSION_CHARS_MAX)] = ""
    """The release of raftsched that the worker runs, for people who look at it."""


class HeldLease(Request, frozen=True):
    """A lease that its worker still works on."""

    run_id: str
    fencing_token: Token
    progress: msgspec.Raw | UnsetType = UNSET
    """JSON of any kind, reported by the handler; it is also a sign of life from the handler."""
    alive: bool = False
    """The handler itself, and not only its worker, gave a sign of life since the last heartbeat."""


class HeartbeatRequest(Request, frozen=True):
    """A worker's sign of life, which renews its leases."""

    worker: Name
    leases: Annotated[
        list[Annotated[msgspec.Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/HeldLease"})]],
        Meta(max_length=limits.HEARTBEAT_LEASES_MAX),
    ]
    """Each is renewed or rejected on its own."""


class ErrorReport(Request, frozen=True):
    """An error in a handler. Texts that are too long are cut: the start of the message and the end of the trace
    remain.
    """

    type: str = ""
    message: str = ""
    trace: str = ""


class Outcome(Request, frozen=True):
    """The outcome of an attempt."""

    status: Literal["completed", "failed", "snoozed", "accepted"]
    """`accepted`: the target of a request with the completion `callback` answered 202, and reports the outcome itself.
    The worker sends no more heartbeats for the run."""
    result: msgspec.Raw | UnsetType = UNSET
    """JSON of any kind; of completed runs only."""
    error: ErrorReport | None = None
    """Of failed runs only."""
    retryable: bool = True
    """False: no further attempt, whatever `max_attempts` allows. Of failed runs only."""
    retry_after_seconds: DelaySeconds | None = None
    """Delay of the next attempt, requested by the handler; null: by the job's policy. Of failed runs only."""
    snooze_seconds: DelaySeconds | None = None
    """Delay before the job runs again, without using an attempt. Of snoozed runs only, and required for them."""


class OutcomeReport(Outcome, frozen=True, kw_only=True):
    """The outcome of an attempt, with its run and fencing token."""

    run_id: str
    fencing_token: Token
    completion_id: CompletionId | None = None
    """The worker's own id of this report; a repeated report with the same id gets the recorded answer."""


class OutcomesRequest(Request, frozen=True):
    """Outcomes reported by one worker, each recorded or rejected on its own."""

    worker: Name
    outcomes: Annotated[
        list[Annotated[msgspec.Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/OutcomeReport"})]],
        Meta(max_length=limits.OUTCOMES_MAX),
    ]


class StartRequest(Request, frozen=True):
    """A worker's announcement that it starts a run which starts at most once."""

    fencing_token: Token
    callback_token: CallbackToken | None = None
    """A secret of the worker for this attempt: whoever has it may report the outcome (`POST /runs/{id}/complete`)."""


class CallbackReport(Request, frozen=True):
    """The outcome of a run, reported by the target of its request."""

    status: Literal["completed", "failed"] = "completed"
    result: msgspec.Raw | UnsetType = UNSET
    """JSON of any kind; of completed runs only."""
    error: ErrorReport | None = None
    """Of failed runs only."""
    retryable: bool = True
    """False: no further attempt, whatever `max_attempts` allows. Of failed runs only."""
    retry_after_seconds: DelaySeconds | None = None
    """Delay of the next attempt. Of failed runs only."""


class LogRequest(Request, frozen=True):
    """Lines of a running attempt's log."""

    fencing_token: Token
    lines: Annotated[list[str], Meta(min_length=1, max_length=limits.LOG_PIECES_MAX)]
    """Without their line feeds."""
    sequence: Annotated[int, Meta(ge=1, le=(1 << 53) - 1)] | None = None
    """The worker's number of this piece in its attempt, rising from 1; a repeated piece is stored once."""


class ProgressRequest(Request, frozen=True):
    """Progress that a running handler reports."""

    fencing_token: Token
    progress: msgspec.Raw
    """JSON of any kind."""


class LeaseDocument(Reply, Generic[T, J], frozen=True, kw_only=True):
    """The right to run a job, and the data that its handler needs."""

    job_id: str
    run_id: str
    fencing_token: int
    name: str
    queue: str = ""
    tenant: str = ""
    payload: Json[J] = ABSENT
    """For a request its body, for a command its standard input."""
    http: Annotated[J, or_null("HttpCall")] = ABSENT
    """The request to send, without its body; null for other jobs."""
    shell: Annotated[J, or_null("ShellCommand")] = ABSENT
    """The command to run, without its input; null for other jobs."""
    parameters: Annotated[J, Meta(extra_json_schema=PARAMETERS_SCHEMA)] = ABSENT
    """Values of its schedule's parameters by their names; a secret is `{"secret": NAME}`."""
    attempt_number: int = 1
    max_attempts: int = 0
    run_at: T | None = None
    """The requested time; retries and snoozes do not change it."""
    retry_cap_seconds: float = 3_600.0
    """The longest delay of its retry policy."""
    lease_seconds: float
    """The lease ends this long after its request, unless a heartbeat renews it."""
    timeout_seconds: float | None = None
    heartbeat_timeout_seconds: float | None = None
    """The handler itself must show a sign of life this often."""
    start: str = "at_least_once"
    """`at_most_once`: announce the start (`POST /runs/{id}/start`) before the first effect."""
    expires_at: T | None = None
    deadline: T | None = None
    schedule_id: str | None = None
    instant: T | None = None
    workflow_id: str | None = None
    task: str | None = None
    replay_of: str | None = None
    traceparent: str | None = None
    """The span that submitted the job, for that of the run."""
    revision: int = 0


class LeaseReply(LeaseDocument[Time, msgspec.Raw], frozen=True):
    """The right to run a job, and the data that its handler needs."""


class LeasesDocument(Reply, Generic[J], frozen=True):
    """Leases, in the order in which to start them; empty if no job became due in time."""

    leases: list[J]


class LeasesReply(LeasesDocument[LeaseReply], frozen=True):
    """Leases, in the order in which to start them; empty if no job became due in time."""


class LeaseState(Reply, frozen=True):
    """The validity of a lease, and whether its job should stop."""

    run_id: str
    valid: bool
    cancel_requested: bool = False
    problem: Problem | UnsetType = UNSET
    """The fault in this part of the heartbeat. A lease stays valid if only its progress is faulty."""


class HeartbeatReply(Reply, frozen=True):
    """The state of each lease, in the order of the request."""

    leases: list[LeaseState]


class OutcomeReply(Reply, frozen=True, omit_defaults=True):
    """The result for one outcome. If it is rejected, `code` has the reason, and `retryable` whether to report it
    again.
    """

    run_id: str
    accepted: bool
    revision: int = 0
    code: str = ""
    detail: str = ""
    retryable: bool = False


class OutcomesReply(Reply, frozen=True):
    """The result for each outcome, in the order of the request."""

    outcomes: list[OutcomeReply]


class StartReply(Reply, frozen=True):
    """The run may start; its start is stored."""

    run_id: str
    started: Literal[True]
    revision: int


class LoggedReply(Reply, frozen=True):
    """The lines are stored."""

    run_id: str
    byte_count: int
    """Total size of the attempt's log."""
    repeated: bool
    """Whether this piece was stored before."""


class ProgressReply(Reply, frozen=True):
    """The progress is stored."""

    run_id: str
    accepted: Literal[True]


class DrainRequest(Request, frozen=True):
    """The reason of a drain."""

    reason: Annotated[str, Meta(max_length=limits.PAUSE_REASON_CHARS_MAX)] | None = None


class WorkerDocument(Reply, Generic[T], frozen=True):
    """A worker that made a request lately. The time of that is stored every few seconds only."""

    name: str
    queues: Sequence[str] = ()
    capacity: int = 0
    """The jobs for which it asked last."""
    region: str | None = None
    tenant: str | None = None
    """The tenant whose jobs it is given; null = all."""
    version: str | None = None
    """The release of raftsched that it runs; null if it did not tell."""
    first_seen_at: T | None = None
    seen_at: T | None = None
    state: Literal["active", "draining", "drained"] = "active"
    """`draining`: it gets no further jobs, and still runs some. `drained`: it runs none."""
    drained_at: T | None = None
    """The time from which on it gets no further jobs."""
    drained_by: str | None = None
    drain_reason: str | None = None
    running: int | None = None
    """Jobs that it runs; null if the answering node does not lead."""
    slots: int | None = None
    """Jobs that it runs at the same time at most; null if it is not known."""
    names: Sequence[str] | None = None
    """Names of the jobs that it has handlers for; null = any, or not known."""


class WorkerReply(WorkerDocument[Time], frozen=True):
    """A worker that made a request lately. The time of that is stored every few seconds only."""


class WorkersReply(Reply, frozen=True):
    """The workers, by name."""

    workers: list[WorkerReply]
