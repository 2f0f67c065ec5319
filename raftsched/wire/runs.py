"""Define the documents of a job's past: its runs, history and logs, and the reasons why it waits."""

from __future__ import annotations

from typing import Annotated, Any, Generic

from msgspec import Meta

from raftsched import limits
from raftsched.wire.common import ABSENT, Cursor, ErrorReply, ReadQuery, Reply, T, Time


class LogQuery(ReadQuery, frozen=True):
    """A run or attempt, and a position in its log."""

    run: Annotated[int, Meta(ge=1)] | None = None
    """Number of the run; default: the latest. With `attempt`, the log of that attempt alone."""
    attempt: Annotated[int, Meta(ge=1)] | None = None
    cursor: Cursor | None = None
    """`next_cursor` of the previous part."""
    wait_seconds: Annotated[float, Meta(ge=0, le=limits.LEASE_WAIT_SECONDS_MAX)] = 0.0
    """Longest time to wait for lines if there are none yet and more may follow."""
    max_bytes: Annotated[int, Meta(ge=1, le=limits.LOG_BYTES_MAX)] = 256 * 1024
    """The part ends with the piece that exceeds this."""


class AttemptDocument(Reply, Generic[T], frozen=True):
    """One attempt of a run."""

    attempt_number: int
    worker: str = ""
    fencing_token: int = 0
    started_at: T = ABSENT
    ended_at: T | None = None
    execution_time_ms: int | None = None
    end: str | None = None
    """`completed`, `failed`, `snoozed`, `timeout`, `worker_lost`, `outage` or `cancelled`; null while it runs."""
    error: ErrorReply | None = None
    log_bytes: int = 0


class RunDocument(Reply, Generic[T], frozen=True):
    """A run of a job, with its attempts, oldest first."""

    run_id: str
    run_number: int = 0
    attempts: list[AttemptDocument[T]] = []


class RunsDocument(Reply, Generic[T], frozen=True):
    """The runs of a job, oldest first."""

    id: str = ""
    status: str = ""
    runs: list[RunDocument[T]] = []
    truncated: bool = False
    """Whether older attempts are no longer kept."""
    revision: int = 0


class RunsReply(RunsDocument[Time], frozen=True):
    """The runs of a job, oldest first."""


class EventDocument(Reply, Generic[T], frozen=True):
    """An event in the life of a job."""

    at: T
    event: str
    """`created`, `attempt_started`, `attempt_ended`, `finished`, or a recorded change: `paused`, `requeued`, …"""
    actor: str | None = None
    detail: str | None = None
    run_number: int | None = None
    attempt_number: int | None = None
    worker: str | None = None


class HistoryDocument(Reply, Generic[T], frozen=True):
    """The events of a job, in order."""

    id: str = ""
    status: str = ""
    events: list[EventDocument[T]] = []
    truncated: bool = False
    """Whether older attempts or events are no longer kept."""
    revision: int = 0


class HistoryReply(HistoryDocument[Time], frozen=True):
    """The events of a job, in order."""


class LogReply(Reply, frozen=True):
    """A part of an attempt's log."""

    id: str = ""
    run_id: str = ""
    run_number: int = 0
    attempt_number: int = 0
    text: str = ""
    """Whole lines, each with its line feed; "" if there are no new lines."""
    attempt_ended: bool = False
    next_cursor: str | None = None
    """Cursor of the next part, in this log or in that of the next attempt; null if no more lines can follow."""


class ReasonReply(Reply, frozen=True):
    """One reason why a job is not running."""

    code: str
    text: str = ""
    details: dict[str, Any] = {}


class ExplainReply(Reply, frozen=True):
    """The reasons why a job is not running, the most immediate first."""

    id: str = ""
    status: str = ""
    reasons: list[ReasonReply] = []
    revision: int = 0
