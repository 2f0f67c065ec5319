"""What `apply` returns to be written.

`apply` never writes. The storage layer executes its writes together with the index entries and counters that follow from
them; so indexes cannot disagree with records by a forgotten line.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from raftsched.core.operations.control import BackgroundKind
from raftsched.core.records.ids import FencingToken, JobId, TimeMs
from raftsched.core.records.job import Dependency, Job, Worker
from raftsched.core.records.queue import Queue
from raftsched.core.records.schedule import Firing, Schedule, ScheduleId
from raftsched.core.records.workflow import Workflow
from raftsched.core.state.entries import AuditEntry, Dependant


class PutJob(msgspec.Struct, frozen=True):
    """Store `new` in place of `old` (None for a new job); payload and result go with it where given.

    A struct, which is made in a third of the time: every job has several.
    """

    old: Job | None
    new: Job
    payload: bytes | None = None
    result: bytes | None = None


class PutDependencies(NamedTuple):
    """Store what a new job depends on, and the way from each parent, `PENDING` all. They go with the job."""

    child: JobId
    dependencies: tuple[Dependency, ...]


class PutDependant(NamedTuple):
    """Store what a dependency has come to; it was stored before."""

    parent: JobId
    dependant: Dependant


class RemoveJob(NamedTuple):
    """Remove the job, its payload, result, logs, dependencies, keys and index entries."""

    old: Job


class PutFence(NamedTuple):
    token: FencingToken


class PutZoneRules(NamedTuple):
    """Store the version of the time zone rules by which next instants are computed."""

    version: str


class PutOutage(NamedTuple):
    """The cluster has a leader again since `ended_at_ms`, after an outage."""

    ended_at_ms: TimeMs


class PutWorker(NamedTuple):
    worker: Worker


class RemoveWorker(NamedTuple):
    name: str


class PutQueue(NamedTuple):
    old: Queue | None
    new: Queue


class PutWorkflow(NamedTuple):
    old: Workflow | None
    new: Workflow


class RemoveWorkflow(NamedTuple):
    old: Workflow


class PutSchedule(NamedTuple):
    """Store `new` in place of `old`; the template's payload lies apart, under the schedule's id (`View.payload`)."""

    old: Schedule | None
    new: Schedule
    payload: bytes | None = None
    """The template's; None = as it was, b"" = none."""


class RemoveSchedule(NamedTuple):
    old: Schedule


class PutFiring(NamedTuple):
    schedule_id: ScheduleId
    firing: Firing


class RemoveFirings(NamedTuple):
    schedule_id: ScheduleId
    firings: tuple[Firing, ...]


class PutBackgroundWork(NamedTuple):
    """Start a chore, or move it on to `cursor`."""

    kind: BackgroundKind
    subject: bytes
    cursor: bytes = b""


class RemoveBackgroundWork(NamedTuple):
    kind: BackgroundKind
    subject: bytes


class PutLog(NamedTuple):
    """Add a piece to an attempt's log, behind the pieces that are there."""

    job_id: JobId
    run_number: int
    attempt_number: int
    lines: bytes
    sequence: int = 0


class PutAudit(NamedTuple):
    entry: AuditEntry


class RemoveAudit(NamedTuple):
    """Remove the lines of log entries before `before_index`, at most `limit`."""

    before_index: int
    limit: int


Write = (
    PutJob
    | PutDependencies
    | PutDependant
    | RemoveJob
    | PutFence
    | PutOutage
    | PutZoneRules
    | PutWorker
    | RemoveWorker
    | PutQueue
    | PutWorkflow
    | RemoveWorkflow
    | PutSchedule
    | RemoveSchedule
    | PutFiring
    | RemoveFirings
    | PutBackgroundWork
    | RemoveBackgroundWork
    | PutLog
    | PutAudit
    | RemoveAudit
)
