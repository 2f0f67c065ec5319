"""What an operation is applied in, and what comes of it: context, results, and all that `apply` returns."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from raftsched import limits
from raftsched.core.operations.codec import CODEC_VERSION, RejectCode
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.job import Job
from raftsched.core.records.queue import Queue
from raftsched.core.records.schedule import Firing, Schedule
from raftsched.core.records.workflow import Workflow
from raftsched.core.state.writes import Write


class Submitted(msgspec.Struct, frozen=True):
    job: Job
    duplicate: bool
    """True where the same submit was applied before; `job` is then the job as it stands now."""


class Grant(msgspec.Struct, frozen=True):
    job: Job
    payload: bytes


class Leased(NamedTuple):
    grants: tuple[Grant, ...]
    missed: tuple[JobId, ...]
    """Asked for, but no longer waiting, not due, or more than one reply should carry (`limits.LEASE_BYTES_MAX`)."""


class OutcomeRecorded(msgspec.Struct, frozen=True):
    job: Job
    repeated: bool
    """True where this outcome was recorded before under the same completion id."""


class Expired(NamedTuple):
    jobs: tuple[Job, ...]
    """The jobs whose lease ended, after the change."""
    kept: tuple[JobId, ...]
    """Left as they were: the token is not current, or the lease isn't over."""


class Cancelled(NamedTuple):
    job: Job


class Purged(msgspec.Struct, frozen=True):
    count: int
    """Jobs removed."""


class Marked(msgspec.Struct, frozen=True):
    count: int
    """Workers written down or forgotten."""


class Changed(NamedTuple):
    job: Job
    """As it is now, changed or not."""


class Counted(msgspec.Struct, frozen=True):
    count: int


class Logged(NamedTuple):
    byte_count: int
    """Of the attempt's log, in all."""
    repeated: bool


class ScheduleSaved(NamedTuple):
    schedule: Schedule
    """As it is now; of a deleted one, as it was."""
    created: bool = False
    changed: bool = True


class Fired(NamedTuple):
    schedule: Schedule
    firings: tuple[Firing, ...]
    """What was decided, in order."""


class QueueSaved(NamedTuple):
    queue: Queue


class WorkflowSaved(NamedTuple):
    workflow: Workflow
    duplicate: bool = False


class Refused(NamedTuple):
    """The operation is not legal now; nothing was written.

    But for `RejectCode.CANCELLED`: a worker's report on a cancelled job is refused, and closes its lease.
    """

    code: RejectCode
    message: str
    job_id: JobId = JobId(b"")
    """The job that stands in the way, where there is one."""


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
    | WorkflowSaved
    | Refused
)


class Context(msgspec.Struct, frozen=True):
    """What the log says about the entry: cluster time, position and version."""

    now_ms: TimeMs
    index: int
    version: int = CODEC_VERSION
    """The version in force (`operations`): what an operation means may depend on it, since it is the same everywhere."""
    writes_left: int = limits.ENTRY_WRITES_MAX
    """Writes that the operations of the entry may still come to."""

    @property
    def inline_max(self) -> int:
        """How many dependants, or jobs of a workflow, this operation may change; the others follow in steps."""
        return min(limits.INLINE_DEPENDANTS_MAX, max(self.writes_left, limits.INLINE_DEPENDANTS_MIN))

    def after(self, written_count: int) -> Context:
        """Return the context of the entry's next operation, where those before came to so many writes."""
        writes_left = limits.ENTRY_WRITES_MAX - written_count
        return self if writes_left >= limits.INLINE_DEPENDANTS_MAX else replace(self, writes_left=writes_left)


class Applied(NamedTuple):
    result: Result
    writes: tuple[Write, ...] = ()
