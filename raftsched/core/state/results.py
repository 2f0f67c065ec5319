"""Define the context of an operation, its results, and the return value of `apply`."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from raftsched import limits
from raftsched.core.operations.codec import CODEC_VERSION, RejectCode
from raftsched.core.records.api_token import ApiToken
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.job import Job, Worker
from raftsched.core.records.origin import Origin
from raftsched.core.records.queue import Queue
from raftsched.core.records.schedule import Firing, Schedule
from raftsched.core.records.tenant import Tenant
from raftsched.core.records.workflow import Workflow
from raftsched.core.state.writes import Write


class Submitted(msgspec.Struct, frozen=True):
    job: Job
    duplicate: bool
    """True if the same submit was applied before; then `job` has its present state."""


class Grant(msgspec.Struct, frozen=True):
    job: Job
    payload: bytes


class Leased(NamedTuple):
    grants: tuple[Grant, ...]
    missed: tuple[JobId, ...]
    """Requested jobs that are no longer waiting, not due, or too large for one reply (`limits.LEASE_BYTES_MAX`)."""


class OutcomeRecorded(msgspec.Struct, frozen=True):
    job: Job
    repeated: bool
    """True if this outcome was recorded before with the same completion id."""


class Expired(NamedTuple):
    jobs: tuple[Job, ...]
    """The jobs whose lease ended, after the change."""
    kept: tuple[JobId, ...]
    """Unchanged jobs: the token is not current, or the lease is not over."""


class Cancelled(NamedTuple):
    job: Job


class Purged(msgspec.Struct, frozen=True):
    count: int
    """Jobs removed."""


class Marked(msgspec.Struct, frozen=True):
    count: int
    """Workers marked or removed."""


class Changed(NamedTuple):
    job: Job
    """Its present state, changed or not."""


class Counted(msgspec.Struct, frozen=True):
    count: int


class Logged(NamedTuple):
    byte_count: int
    """The size of the attempt's whole log."""
    repeated: bool


class ScheduleSaved(NamedTuple):
    schedule: Schedule
    """Its present state; for a deleted one, its last."""
    created: bool = False
    changed: bool = True


class Fired(NamedTuple):
    schedule: Schedule
    firings: tuple[Firing, ...]
    """The decisions, in order."""


class QueueSaved(NamedTuple):
    queue: Queue


class WorkerSaved(NamedTuple):
    worker: Worker


class TenantSaved(NamedTuple):
    tenant: Tenant
    """Its present settings; if they were removed, the last ones."""


class TokenSaved(NamedTuple):
    token: ApiToken


class WorkflowSaved(NamedTuple):
    workflow: Workflow
    duplicate: bool = False


class Refused(NamedTuple):
    """The operation was rejected, and nothing was written.

    Exception: with `RejectCode.CANCELLED` a worker's report on a cancelled job is rejected, but its lease is closed.
    """

    code: RejectCode
    message: str
    job_id: JobId = JobId(b"")
    """The job that is the reason, if there is one."""


Result = (
    Submitted
    | Leased
    | OutcomeRecorded
    | Expired
    | Cancelled
    | Purged
    | Marked
    | Changed
    | Counted
    | Logged
    | ScheduleSaved
    | Fired
    | QueueSaved
    | WorkerSaved
    | TenantSaved
    | TokenSaved
    | WorkflowSaved
    | Refused
)


class Context(msgspec.Struct, frozen=True):
    """Carry cluster time, position and version of the log entry."""

    now_ms: TimeMs
    index: int
    version: int = CODEC_VERSION
    """The version in force (`operations`). The meaning of an operation can depend on it: it is the same on all nodes."""
    writes_left: int = limits.ENTRY_WRITES_MAX
    """Writes left for the operations of the entry."""
    origin: Origin | None = None
    """The origin of the request of the operation."""

    @property
    def inline_max(self) -> int:
        """Return how many dependants, or jobs of a workflow, this operation can change; steps change the others."""
        return min(limits.INLINE_DEPENDANTS_MAX, max(self.writes_left, limits.INLINE_DEPENDANTS_MIN))

    def of(self, origin: Origin | None) -> Context:
        """Return the context of an operation whose request came from there."""
        return self if origin is self.origin else replace(self, origin=origin)

    def after(self, written_count: int) -> Context:
        """Return the context of the entry's next operation, after `written_count` writes of earlier ones."""
        writes_left = limits.ENTRY_WRITES_MAX - written_count
        return self if writes_left >= limits.INLINE_DEPENDANTS_MAX else replace(self, writes_left=writes_left)


class Applied(NamedTuple):
    result: Result
    writes: tuple[Write, ...] = ()
