"""Define the writes that `apply` returns.

`apply` never writes. The storage layer executes the writes, and derives index entries and counters from them. So a
forgotten line can't make an index disagree with the records.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from raftsched.core.operations.control import BackgroundKind
from raftsched.core.records.api_token import ApiToken
from raftsched.core.records.backup import LastBackup
from raftsched.core.records.encryption import ClusterKey
from raftsched.core.records.ids import FencingToken, JobId, TimeMs
from raftsched.core.records.job import Dependency, Job, Worker
from raftsched.core.records.queue import Queue
from raftsched.core.records.schedule import Firing, Schedule, ScheduleId
from raftsched.core.records.tenant import Tenant
from raftsched.core.records.workflow import Workflow
from raftsched.core.state.entries import AuditEntry, Dependant


class PutJob(msgspec.Struct, frozen=True):
    """Replace `old` by `new` (None for a new job), and store payload and result if given.

    It is a struct, which is created in a third of the time of a tuple: every job has several of these writes.
    """

    old: Job | None
    new: Job
    payload: bytes | None = None
    result: bytes | None = None


class PutDependencies(NamedTuple):
    """Store a new job's dependencies, and a pending edge from each parent. They are removed with the job."""

    child: JobId
    dependencies: tuple[Dependency, ...]


class PutDependant(NamedTuple):
    """Store the verdict of a dependency, which must exist."""

    parent: JobId
    dependant: Dependant


class RemoveJob(NamedTuple):
    """Remove the job, its payload, result, logs, dependencies, keys and index entries."""

    old: Job


class PutFence(NamedTuple):
    token: FencingToken


class PutZoneRules(NamedTuple):
    """Store the version of the time zone rules by which next fire times are computed."""

    version: str


class PutClusterKey(NamedTuple):
    """Store the key with which the leader encrypts its files."""

    key: ClusterKey


class PutBackup(NamedTuple):
    """Store the latest backup."""

    backup: LastBackup


class PutOutage(NamedTuple):
    """Store that an outage ended at `ended_at_ms`, when a leader took over."""

    ended_at_ms: TimeMs


class PutWorker(NamedTuple):
    worker: Worker


class RemoveWorker(NamedTuple):
    name: str


class PutQueue(NamedTuple):
    old: Queue | None
    new: Queue


class PutTenant(NamedTuple):
    tenant: Tenant


class RemoveTenantRecord(NamedTuple):
    """Remove the settings of a tenant, which must exist."""

    name: str


class PutToken(NamedTuple):
    token: ApiToken


class RemoveToken(NamedTuple):
    """Remove an API token, which must exist."""

    id: str


class PutWorkflow(NamedTuple):
    old: Workflow | None
    new: Workflow


class RemoveWorkflow(NamedTuple):
    old: Workflow


class PutSchedule(NamedTuple):
    """Replace `old` by `new`; the template's payload is stored apart, under the schedule's id (`View.payload`)."""

    old: Schedule | None
    new: Schedule
    payload: bytes | None = None
    """The template's payload; None = unchanged, b"" = none."""


class RemoveSchedule(NamedTuple):
    old: Schedule


class PutFiring(NamedTuple):
    schedule_id: ScheduleId
    firing: Firing


class RemoveFirings(NamedTuple):
    schedule_id: ScheduleId
    firings: tuple[Firing, ...]


class PutBackgroundWork(NamedTuple):
    """Begin background work, or advance it to `cursor`."""

    kind: BackgroundKind
    subject: bytes
    cursor: bytes = b""


class RemoveBackgroundWork(NamedTuple):
    kind: BackgroundKind
    subject: bytes


class PutLog(NamedTuple):
    """Append a piece to an attempt's log."""

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
    | PutClusterKey
    | PutBackup
    | PutWorker
    | RemoveWorker
    | PutQueue
    | PutTenant
    | RemoveTenantRecord
    | PutToken
    | RemoveToken
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
