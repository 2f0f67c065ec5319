"""Encode and decode log entries, and define the operations on jobs and workers.

The leader has already decided all that is not deterministic: ids, time, jitter, the worker. A log entry is one `Batch`.
Its operations are applied in order, each with its own result. Fields are stored by position: new ones go at the end, with
a default. A tag is never used again.

Entries have versions, and a node rejects an unknown version. In a rolling upgrade, nodes of two versions run together. So
a leader writes a later version only when every member reads it (`consensus.raft.log.entry_versions`). Every change of the
content of entries, or of their effect in `apply`, follows these steps:

1. Raise `CODEC_VERSION`. Entries of earlier versions, down to `OLDEST_READ`, must be read and applied as before.
2. A new operation declares `since`: until all members read it, it is rejected with `upgrade_in_progress`.
3. A new meaning of an operation depends on `Context.version`, never on the running program: all nodes change at one index.
   A new field can be filled only from that version on: older nodes ignore it.
4. `OLDEST_READ` can rise to the version of a release that every cluster must have run before; say so in the changelog.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from functools import reduce
from itertools import zip_longest
from operator import or_
from typing import TYPE_CHECKING, Final

import msgspec

from raftsched.core.operations import (  # noqa: F401  # base finds their operations
    access,
    backup,
    control,
    encryption,
    queues,
    schedules,
    tenants,
    workers,
)
from raftsched.core.operations.base import Operation
from raftsched.core.operations.schedules import (
    RunSchedule,
    SaveSchedule,
)
from raftsched.core.records.ids import FencingToken, JobId, TimeMs
from raftsched.core.records.job import AttemptEnd, Dependency, JobError, SilentLease
from raftsched.core.records.origin import Origin
from raftsched.core.records.spec import JobSpec
from raftsched.core.records.workflow import WorkflowId
from raftsched.errors import RaftschedError

CODEC_VERSION: Final = 1
"""The latest version of log entries that this program reads; it never writes a later one."""
OLDEST_READ: Final = 1
"""The earliest version that it reads; a new cluster begins with it."""


class SubmitJob(Operation, frozen=True, tag=1):
    """Store a new job, or find the job that the same tenant submitted with the same idempotency key.

    Result: `Submitted`. Rejected: `idempotency_mismatch` (same key, other fingerprint), `unknown_dependency`,
    `unique_conflict` (never for a repeat under the same idempotency key; `Refused.job_id` names the other job),
    `quota_exceeded`.
    """

    id: JobId
    tenant: str
    spec: JobSpec
    due_at_ms: TimeMs
    """0 = now, when the operation is applied."""
    payload: bytes
    """JSON text; b"" = none."""
    idempotency_key: str = ""
    fingerprint: bytes = b""
    depends_on: tuple[Dependency, ...] = ()
    paused: bool = False
    """It is stored `paused` until a user resumes it."""
    actor: str = ""
    """The submitter, recorded in the job's first note; "" = not known. Jobs of a workflow have the workflow's actor."""


class SubmitWorkflow(Operation, frozen=True, tag=27):
    """Store a workflow, or the next part of one that is too large for one log entry.

    None of its jobs runs, and lists do not show it as running, until the last part is applied. Parents are jobs of this or
    an earlier part, or any other stored jobs. Result: `WorkflowSaved`. Rejected, with nothing written:
    `unknown_dependency`, `idempotency_mismatch`, `stale_part` (not the next part), `quota_exceeded` (not all of its
    jobs, or not all that are left of them, are allowed).
    """

    id: WorkflowId
    tenant: str
    name: str
    job_count: int
    """Jobs of all parts."""
    first: int
    """Jobs of all earlier parts."""
    jobs: tuple[SubmitJob, ...]
    """Each has `workflow_id` and `task` in its options."""
    idempotency_key: str = ""
    fingerprint: bytes = b""
    actor: str = ""


class LeaseJobs(Operation, frozen=True, tag=2):
    """Lease to a worker those of the jobs that are waiting and due; each grant has a new fencing token.

    Result: `Leased`, with a grant for each leased job; the others are unchanged.
    """

    worker: str
    ttl_ms: int
    job_ids: tuple[JobId, ...]
    request_id: str = ""
    """Stored in each lease; see `Lease`."""
    region: str = ""
    """The worker's region; a job with a region goes only to workers of that region. "" = none."""
    tenant: str = ""
    """The tenant whose jobs the worker is given; "" = all."""


class RecordOutcome(Operation, frozen=True, tag=3):
    """Record the end of an attempt, if its token is the current one.

    Result: `OutcomeRecorded`. Rejected: `lease_lost`, `not_found`, `cancelled` (the job is cancelled, whatever the
    worker reports), `already_recorded` (this token has already reported, with another completion id).
    """

    job_id: JobId
    run_number: int
    token: FencingToken
    end: AttemptEnd
    """`COMPLETED`, `FAILED` or `SNOOZED`."""
    completion_id: str = ""
    result: bytes = b""
    """JSON text; b"" = none."""
    error: JobError | None = None
    retryable: bool = True
    """False: the handler asked for no further attempt."""
    delay_ms: int = -1
    """The delay that the handler requested for the next attempt; -1 = by the retry policy. Required for `SNOOZED`."""
    jitter: int = 0
    """Drawn by the leader: -1000 to 1000 thousandths of the policy's jitter."""


class ExpiredLease(msgspec.Struct, frozen=True, array_like=True):
    job_id: JobId
    token: FencingToken
    cause: AttemptEnd
    """`TIMEOUT` (ran too long), `WORKER_LOST` (no heartbeat), `OUTAGE` (no heartbeat since an outage) or `CANCELLED` (did
    not stop within the grace)."""
    jitter: int = 0


class ExpireLeases(Operation, frozen=True, tag=4):
    """End expired leases. Each is checked again against the current token and the cluster's time.

    Result: `Expired`; a lease that was renewed, has ended or is not over yet is unchanged.
    """

    leases: tuple[ExpiredLease, ...]


class CancelJob(Operation, frozen=True, tag=5):
    """Cancel a job in any status.

    Result: `Cancelled`. A waiting job is cancelled at once. A leased one becomes `cancelling`, and its outcome no longer
    counts. Rejected: `not_found`, `already_finished` (it ended in another way before). Cancelling twice succeeds.
    """

    job_id: JobId
    tenant: str
    force: bool = False
    """End a running attempt at once, without asking its worker to stop; its report is rejected."""
    actor: str = ""


class PurgeJobs(Operation, frozen=True, tag=6):
    """Remove finished jobs whose retention is over, with payload, result and idempotency key.

    Jobs that are still needed stay (`retention.why_kept`). Result: `Purged`.
    """

    job_ids: tuple[JobId, ...]
    finished_before_ms: TimeMs
    actor: str = ""
    """The user who requested it; "" = retention, which writes no line to the audit trail."""


class WorkerMark(msgspec.Struct, frozen=True, array_like=True):
    name: str
    queues: tuple[str, ...]
    capacity: int
    seen_at_ms: TimeMs
    region: str = ""
    silent: tuple[SilentLease, ...] = ()
    """Replaces the list of the mark before."""
    tenant: str = ""
    """The tenant whose jobs the worker is given; "" = all."""
    version: str = ""
    """The release of raftsched that it runs; "" = it did not tell."""


class MarkWorkers(Operation, frozen=True, tag=7):
    """Record coarsely when workers were seen, and remove those not seen for long. Result: `Marked`.

    Without marks it records that a leader serves: a later leader measures an outage from its stamp.
    """

    marks: tuple[WorkerMark, ...]
    forget: tuple[str, ...] = ()


class RecordOutage(Operation, frozen=True, tag=28):
    """Record that the cluster had no leader from `since_ms` until now, if that is longer than `longest_ms`.

    A new leader proposes it once, before it expires any lease. Result: `Counted` (1: it was an outage).
    """

    since_ms: TimeMs
    """The stamp of the last entry before this leader's own."""
    longest_ms: int
    """A shorter time without a leader is no outage: a lease outlives it."""


NewWork = SubmitJob | SubmitWorkflow | SaveSchedule | RunSchedule
"""Operations that add jobs: rejected while the disks are nearly full."""

OPERATIONS: Final = tuple(Operation.__subclasses__())
"""All operations; all modules of this package are imported before this line."""

if TYPE_CHECKING:
    _AnyOperation = Operation
else:
    _AnyOperation = reduce(or_, OPERATIONS)
    """The union whose members the decoder distinguishes by tag."""


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """Carry one log entry: the leader's stamp and the operations gathered in it."""

    version: int
    """From `OLDEST_READ` to `CODEC_VERSION`; it never decreases along the log."""
    stamp_ms: TimeMs
    """The leader's wall clock; cluster time is the largest stamp applied so far and never goes back."""
    operations: tuple[_AnyOperation, ...]
    origins: tuple[Origin | None, ...] = ()
    """The origin of the request of each operation; () = not known of any."""

    def each(self) -> Iterator[tuple[Operation, Origin | None]]:
        """Yield the operations, each with its origin."""
        return zip_longest(self.operations, self.origins[: len(self.operations)])


def is_audited(operation: Operation) -> bool:
    """Return whether the operation can leave a line in the audit trail for the one who asked for it."""
    return bool(getattr(operation, "actor", "")) and not isinstance(operation, SubmitJob)


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """Decode the first field of an entry, which all versions have; the rest is ignored."""

    version: int


class UnknownVersion(RaftschedError):
    """The cluster's log entries have a version that this raftsched does not read; it must be upgraded to continue."""

    code = "unknown_version"


_decoder = msgspec.msgpack.Decoder(Batch)
_encoder = msgspec.msgpack.Encoder()
_head_decoder = msgspec.msgpack.Decoder(_Head)


def encode_batch(
    stamp_ms: TimeMs,
    operations: tuple[Operation, ...],
    *,
    version: int = CODEC_VERSION,
    origins: tuple[Origin | None, ...] = (),
) -> bytes:
    """Return the log entry for `operations`, which all exist in `version`; `origins` has one for each, or is empty."""
    if not any(origins):  # most entries: as short as they were before there were origins
        return _encoder.encode((version, stamp_ms, operations))
    return _encoder.encode(Batch(version, stamp_ms, operations, origins))


def decode_batch(data: bytes, *, reads: int = CODEC_VERSION) -> Batch:
    """Decode a log entry, like a node that reads the versions from `OLDEST_READ` to `reads`.

    Raises `UnknownVersion` for another version, and `msgspec.DecodeError` for bytes that are not an entry.
    """
    try:
        batch = _decoder.decode(data)
    except msgspec.ValidationError:
        require_readable(_head_decoder.decode(data).version, reads=reads)
        raise
    require_readable(batch.version, reads=reads)
    return batch


def require_readable(version: int, *, reads: int = CODEC_VERSION) -> None:
    """Raise `UnknownVersion` if `version` is in force and a node reads only up to `reads`."""
    if OLDEST_READ <= version <= reads:
        return
    known = str(reads) if reads == OLDEST_READ else f"{OLDEST_READ} to {reads}"
    advice = "upgrade this node" if version > reads else "first run a release that reads both"
    raise UnknownVersion(f"log entries are of version {version}, and this node reads {known}: {advice}")


class RejectCode(IntEnum):
    """Enumerate the reasons of rejected operations; `label` is the stable code that users see."""

    NOT_FOUND = 1
    ALREADY_FINISHED = 2
    IDEMPOTENCY_MISMATCH = 3
    LEASE_LOST = 4
    ALREADY_RECORDED = 5
    CANCELLED = 6
    INVALID = 7
    RUNNING = 8
    COMPLETED = 9
    STALE_REVISION = 10
    STALE_DECISION = 11
    STALE_PART = 12
    PAUSED = 13
    EXISTS = 14
    UNKNOWN_DEPENDENCY = 15
    LOG_FULL = 16
    UNIQUE_CONFLICT = 17
    NOT_STARTED = 18
    LIMIT_REACHED = 19
    WAITING_DEPENDENCIES = 20
    DEPENDENCY_UNMET = 21
    QUOTA_EXCEEDED = 22

    @property
    def label(self) -> str:
        return self.name.lower()
