"""Define the documents that a client reads: those of the API, with times as `datetime` in UTC and JSON decoded.

Unknown fields are ignored, and fields that an older server leaves out have defaults.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from raftsched.wire.bulk import BulkReply
from raftsched.wire.common import FINISHED, PauseDocument
from raftsched.wire.firings import BackfillDocument, FiringDocument, PreviewDocument
from raftsched.wire.jobs import JobDocument
from raftsched.wire.observing import AuditDocument, ChangeEventDocument
from raftsched.wire.queues import OverviewDocument, QueueDocument, QueueSettingsDocument, RateReply, ScaleReply
from raftsched.wire.runs import ExplainReply, HistoryDocument, LogReply, RunsDocument
from raftsched.wire.schedules import ApplyDocument, ScheduleDocument
from raftsched.wire.tenants import TenantDocument
from raftsched.wire.tokens import CallerReply, TokenDocument
from raftsched.wire.workers import WorkerDocument
from raftsched.wire.workflows import EdgeReply, GraphDocument, NodeDocument, WorkflowDocument

PauseInfo = PauseDocument[datetime]
Runs = RunsDocument[datetime]
History = HistoryDocument[datetime]
Explanation = ExplainReply
BulkResult = BulkReply
Caller = CallerReply
Rate = RateReply
QueueSettings = QueueSettingsDocument[datetime]
QueueScale = ScaleReply
Backfill = BackfillDocument[datetime]
Applied = ApplyDocument[Any]
TaskInfo = NodeDocument[datetime]
Edge = EdgeReply


class JobInfo(JobDocument[datetime, Any], frozen=True):
    """A job as it was when it was read."""

    @property
    def is_finished(self) -> bool:
        return self.status in FINISHED


class ScheduleInfo(ScheduleDocument[datetime, Any], frozen=True):
    """A schedule as it was when it was read."""


class Firing(FiringDocument[datetime], frozen=True):
    """A ledger entry of a schedule."""


class Preview(PreviewDocument[datetime], frozen=True):
    """The next fire times of a schedule or timing."""

    paused: bool = False
    """While the schedule is paused, no fire time is decided."""


class WorkflowInfo(WorkflowDocument[datetime], frozen=True):
    """A workflow as it was when it was read."""

    @property
    def is_finished(self) -> bool:
        """Return whether every job has ended."""
        return self.completed_at is not None


class Graph(GraphDocument[datetime], frozen=True):
    """A workflow with its jobs, parents before their children, and their dependencies."""


class QueueInfo(QueueDocument[datetime], frozen=True):
    """A queue: the number of its jobs by status, and its settings."""


class Overview(OverviewDocument[datetime], frozen=True):
    """All queues in short."""


class WorkerInfo(WorkerDocument[datetime], frozen=True):
    """A worker that made a request lately."""


class TokenInfo(TokenDocument[datetime], frozen=True):
    """A token; `token` is its text, only if it was just made or rotated."""


class TenantInfo(TenantDocument[datetime], frozen=True):
    """A tenant: its quotas, its share and its usage."""


class AuditEntry(AuditDocument[datetime], frozen=True):
    """An audit entry."""


class Event(ChangeEventDocument[datetime], frozen=True):
    """A committed change; fields that do not belong to its type are None."""

    id: str = ""
    """Its position in the log; `Client.events` can continue after it."""


class LogLine(NamedTuple):
    """A line of an attempt's log, without its line feed."""

    text: str
    run_number: int
    attempt_number: int


def lines_of(part: LogReply) -> Sequence[LogLine]:
    """Return the lines of a part of a log."""
    text = part.text
    texts = text.split("\n")[:-1] if text.endswith("\n") else text.split("\n") if text else []
    return [LogLine(each, part.run_number, part.attempt_number) for each in texts]
