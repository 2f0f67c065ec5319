"""What the core reads and what it returns: a narrow view of the state, writes, changes and results.

`apply` never writes. It returns writes, which the storage layer executes together with the index entries and counters
that follow from them; so indexes cannot disagree with records by a forgotten line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import msgspec

from raftsched.core.ids import FencingToken, JobId, TimeMs
from raftsched.core.job import Job, Status, Worker
from raftsched.core.operations import CODEC_VERSION, RejectCode


class View(Protocol):
    """The state as `apply` may read it."""

    @property
    def fence(self) -> FencingToken:
        """The last fencing token given out; 0 before the first."""

    def job(self, job_id: JobId) -> Job | None: ...
    def payload(self, job_id: JobId) -> bytes: ...
    def job_id_for_key(self, tenant: str, idempotency_key: str) -> JobId | None: ...
    def worker(self, name: str) -> Worker | None: ...


class WaitingEntry(NamedTuple):
    """An entry of the ready index; it sorts by queue, then falling priority, then due time, then id."""

    queue: str
    priority: int
    due_at_ms: TimeMs
    job_id: JobId


class TimerEntry(NamedTuple):
    """An entry of the timers: a job that becomes due later."""

    due_at_ms: TimeMs
    job_id: JobId
    queue: str
    priority: int


class CounterKey(NamedTuple):
    tenant: str
    queue: str
    status: Status


class AuditableView(View, Protocol):
    """The state as `invariants.check` walks it: every record, index entry and counter."""

    @property
    def cluster_time_ms(self) -> TimeMs: ...
    def all_jobs(self) -> Iterator[Job]: ...
    def all_waiting(self) -> Iterator[WaitingEntry]: ...
    def all_timers(self) -> Iterator[TimerEntry]: ...
    def all_leased(self) -> Iterator[JobId]: ...
    def all_finished(self) -> Iterator[tuple[TimeMs, JobId]]: ...
    def all_keys(self) -> Iterator[tuple[str, str, JobId]]:
        """(tenant, idempotency key, job id)."""

    def all_payload_ids(self) -> Iterator[JobId]: ...
    def all_result_ids(self) -> Iterator[JobId]: ...
    def counters(self) -> dict[CounterKey, int]: ...


# -- writes -----------------------------------------------------------------------------------------------------------


class PutJob(NamedTuple):
    """Store `new` in place of `old` (None for a new job); payload and result go with it where given."""

    old: Job | None
    new: Job
    payload: bytes | None = None
    result: bytes | None = None


class RemoveJob(NamedTuple):
    """Remove the job, its payload, result, idempotency key and index entries."""

    old: Job


class PutFence(NamedTuple):
    token: FencingToken


class PutWorker(NamedTuple):
    worker: Worker


class RemoveWorker(NamedTuple):
    name: str


Write = PutJob | RemoveJob | PutFence | PutWorker | RemoveWorker

# -- results ----------------------------------------------------------------------------------------------------------


class Submitted(NamedTuple):
    job: Job
    duplicate: bool
    """True where the same submit was applied before; `job` is then the job as it stands now."""


class Grant(NamedTuple):
    job: Job
    payload: bytes


class Leased(NamedTuple):
    grants: tuple[Grant, ...]
    missed: tuple[JobId, ...]
    """Asked for, but no longer waiting, not due, or more than one reply should carry (`limits.LEASE_BYTES_MAX`)."""


class OutcomeRecorded(NamedTuple):
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


class Refused(NamedTuple):
    """The operation is not legal now; nothing was written.

    But for `RejectCode.CANCELLED`: a worker's report on a cancelled job is refused, and closes its lease.
    """

    code: RejectCode
    message: str


Result = Submitted | Leased | OutcomeRecorded | Expired | Cancelled | Purged | Marked | Refused


class Context(msgspec.Struct, frozen=True):
    """What the log says about the entry: cluster time, position and version."""

    now_ms: TimeMs
    index: int
    version: int = CODEC_VERSION
    """The version in force (`operations`): what an operation means may depend on it, since it is the same everywhere."""


class Applied(NamedTuple):
    result: Result
    writes: tuple[Write, ...] = ()
