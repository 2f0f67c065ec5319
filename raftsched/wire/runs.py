"""What happened to a job: its runs, history and logs, and why it waits."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from raftsched import limits
from raftsched.wire.common import Cursor, ErrorReply, ReadQuery, Reply, Time


class LogQuery(ReadQuery, frozen=True):
    """Whose log, and from where on."""

    run: Annotated[int, Meta(ge=1)] | None = None
    """Number of the run; default: the latest. With `attempt`, the log of that attempt alone."""
    attempt: Annotated[int, Meta(ge=1)] | None = None
    cursor: Cursor | None = None
    """`next_cursor` of the part before."""
    wait_seconds: Annotated[float, Meta(ge=0, le=limits.LEASE_WAIT_SECONDS_MAX)] = 0.0
    """How long to wait for lines where there are none yet and more may come."""
    max_bytes: Annotated[int, Meta(ge=1, le=limits.LOG_BYTES_MAX)] = 256 * 1024
    """The part ends with the piece that passes this."""


class AttemptReply(Reply, frozen=True):
    """One try of a run."""

    attempt_number: int
    worker: str
    fencing_token: int
    started_at: Time
    ended_at: Time | None
    execution_time_ms: int | None
    end: str | None
    """`completed`, `failed`, `snoozed`, `timeout`, `worker_lost`, `outage` or `cancelled`; null while it runs."""
    error: ErrorReply | None
    log_bytes: int


class RunReply(Reply, frozen=True):
    """One execution of a job up to an outcome, with its attempts, oldest first."""

    run_id: str
    run_number: int
    attempts: list[AttemptReply]


class RunsReply(Reply, frozen=True):
    """The runs of a job, oldest first."""

    id: str
    status: str
    runs: list[RunReply]
    truncated: bool
    """Whether older attempts are no longer kept."""
    revision: int


class EventReply(Reply, frozen=True):
    """Something that happened to a job."""

    at: Time
    event: str
    """`created`, `attempt_started`, `attempt_ended`, `finished`, or what was noted: `paused`, `requeued`, …"""
    actor: str | None
    detail: str | None
    run_number: int | None
    attempt_number: int | None
    worker: str | None


class HistoryReply(Reply, frozen=True):
    """What happened to a job, in order."""

    id: str
    status: str
    events: list[EventReply]
    truncated: bool
    """Whether older attempts or notes are no longer kept."""
    revision: int


class LogReply(Reply, frozen=True):
    """A part of an attempt's log."""

    id: str
    run_id: str
    run_number: int
    attempt_number: int
    text: str
    """Whole lines, each closed by a line feed; "" where there is nothing new."""
    attempt_ended: bool
    next_cursor: str | None
    """Where to go on: in this log, or in that of the next attempt; null where no more lines can come."""


class ReasonReply(Reply, frozen=True):
    """One thing that stands in a job's way."""

    code: str
    text: str
    details: dict[str, Any]


class ExplainReply(Reply, frozen=True):
    """Why a job isn't running, what must happen first in front."""

    id: str
    status: str
    reasons: list[ReasonReply]
    revision: int
