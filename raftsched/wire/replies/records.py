"""What the API answers about what became of a job: runs, history, logs, and why it waits."""

from __future__ import annotations

from typing import Any

from raftsched.wire.replies.common import Reply, Time
from raftsched.wire.replies.jobs import ErrorReply


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
