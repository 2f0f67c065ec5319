"""The codec of log entries, and the operations on jobs and workers.

All that isn't deterministic is already decided here by the leader: ids, time, jitter, the worker. A log entry is one
`Batch`; its operations are applied in order, each with a result of its own. Fields are stored by position: new ones go at
the end, with a default, and a tag once used is never reused.

Entries are versioned: a node refuses one of a version that it does not know rather than guess. During a rolling upgrade
nodes of two versions live together, so a leader writes a later version only once every member reads it
(`consensus.raft.entry_versions`). Whatever changes what an entry holds or what `apply` makes of it goes through these steps:

1. Raise `CODEC_VERSION`. Entries of the versions before, down to `OLDEST_READ`, must be read and applied as ever.
2. A new operation declares `since`: until all members read it, it is refused with `upgrade_in_progress`.
3. A new meaning of an operation depends on `Context.version`, never on what program runs: all nodes change at one index.
   A new field may be filled only from that version on: older nodes pass it over.
4. `OLDEST_READ` may rise to the version of a release that everybody must have run before; say so in the changelog.
"""

from __future__ import annotations

from enum import IntEnum
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

import msgspec

from raftsched.core.operations import control, queues, schedules  # noqa: F401  # their operations are found by base
from raftsched.core.operations.base import Operation
from raftsched.core.operations.schedules import (
    RunSchedule,
    SaveSchedule,
)
from raftsched.core.records.ids import FencingToken, JobId, TimeMs
from raftsched.core.records.job import AttemptEnd, Dependency, JobError, SilentLease
from raftsched.core.records.spec import JobSpec
from raftsched.core.records.workflow import WorkflowId
from raftsched.errors import RaftschedError

CODEC_VERSION: Final = 1
"""The latest version of log entries that this program reads, and so the latest that it may ever write."""
OLDEST_READ: Final = 1
"""The earliest version that it still reads; a cluster without any entry begins there."""


class SubmitJob(Operation, frozen=True, tag=1):
    """Store a new job, or find the one that the same tenant submitted under the same idempotency key.

    Result: `Submitted`. Rejected: `idempotency_mismatch` (same key, other fingerprint), `unknown_dependency`,
    `unique_conflict` (never for a repeat under the same idempotency key; `Refused.job_id` names the other job).
    """

    id: JobId
    tenant: str
    spec: JobSpec
    due_at_ms: TimeMs
    """0 = now: as soon as the operation is applied."""
    payload: bytes
    """JSON text; b"" = none."""
    idempotency_key: str = ""
    fingerprint: bytes = b""
    depends_on: tuple[Dependency, ...] = ()
    paused: bool = False
    """It is stored `paused`, for a user to resume."""
    actor: str = ""
    """Who submits it; "" = not known, else the job's history begins with a note of it. Jobs of a workflow have its actor."""


class SubmitWorkflow(Operation, frozen=True, tag=27):
    """Store a workflow, or the next part of one that is too large for one entry of the log.

    Nothing of it runs, and nothing is seen in lists of workflows as running, until the last part is applied. Parents
    that jobs of it name are in this or an earlier part, or any other job that is there. Result: `WorkflowSaved`.
    Rejected, with nothing written: `unknown_dependency`, `idempotency_mismatch`, `stale_part` (not the part that
    follows what is stored).
    """

    id: WorkflowId
    tenant: str
    name: str
    job_count: int
    """In all parts."""
    first: int
    """How many jobs earlier parts had."""
    jobs: tuple[SubmitJob, ...]
    """Each with `workflow_id` and `task` in its options."""
    idempotency_key: str = ""
    fingerprint: bytes = b""
    actor: str = ""


class LeaseJobs(Operation, frozen=True, tag=2):
    """Give a worker the jobs that are still waiting and due; each grant carries a new fencing token.

    Result: `Leased`, with a grant for each job that could be given; the others are left as they are.
    """

    worker: str
    ttl_ms: int
    job_ids: tuple[JobId, ...]
    request_id: str = ""
    """Goes into each lease; see `Lease`."""
    region: str = ""
    """The worker's; a job of a region goes to workers of the same one alone. "" = it has none."""


class RecordOutcome(Operation, frozen=True, tag=3):
    """Record how an attempt ended, if its token is the current one.

    Result: `OutcomeRecorded`. Rejected: `lease_lost`, `not_found`, `cancelled` (the job is cancelled, whatever the
    worker reports), `already_recorded` (this token has reported, under another completion id).
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
    """False: the handler gave up; no further attempt."""
    delay_ms: int = -1
    """The handler's own wish for the next attempt; -1 = by the retry policy. Required for `SNOOZED`."""
    jitter: int = 0
    """Drawn by the leader: -1000 to 1000 thousandths of the policy's jitter."""


class ExpiredLease(msgspec.Struct, frozen=True, array_like=True):
    job_id: JobId
    token: FencingToken
    cause: AttemptEnd
    """`TIMEOUT` (ran too long), `WORKER_LOST` (no heartbeat), `OUTAGE` (none since the cluster had no leader for a term)
    or `CANCELLED` (did not stop within the grace)."""
    jitter: int = 0


class ExpireLeases(Operation, frozen=True, tag=4):
    """End leases that ran out. Each is checked again against the current token and the cluster's time.

    Result: `Expired`; a lease that was renewed, ended or isn't over yet is left as it is.
    """

    leases: tuple[ExpiredLease, ...]


class CancelJob(Operation, frozen=True, tag=5):
    """Cancel a job in any status.

    Result: `Cancelled`: a waiting job is cancelled at once, a leased one turns `cancelling` and its outcome no longer
    counts. Rejected: `not_found`, `already_finished` (it ended in another way before). Cancelling twice succeeds.
    """

    job_id: JobId
    tenant: str
    force: bool = False
    """End a running attempt at once instead of asking its worker first; what it reports is refused."""
    actor: str = ""


class PurgeJobs(Operation, frozen=True, tag=6):
    """Remove finished jobs whose retention is over, with payload, result and idempotency key; those that are still
    needed stay (`retention.why_kept`). Result: `Purged`.
    """

    job_ids: tuple[JobId, ...]
    finished_before_ms: TimeMs
    actor: str = ""
    """Who asked for it; "" = retention, which leaves no line in the audit trail."""


class WorkerMark(msgspec.Struct, frozen=True, array_like=True):
    name: str
    queues: tuple[str, ...]
    capacity: int
    seen_at_ms: TimeMs
    region: str = ""
    silent: tuple[SilentLease, ...] = ()
    """Takes the place of what the mark before said."""


class MarkWorkers(Operation, frozen=True, tag=7):
    """Write down coarsely which workers were heard of, and forget those not seen for long. Result: `Marked`.

    One without marks says that a leader serves: its stamp is what a later leader measures an outage from.
    """

    marks: tuple[WorkerMark, ...]
    forget: tuple[str, ...] = ()


class RecordOutage(Operation, frozen=True, tag=28):
    """Note that the cluster had no leader from `since_ms` until now, if that is longer than `longest_ms`.

    A new leader says so once, before it judges any lease. Result: `Counted` (1: it was an outage).
    """

    since_ms: TimeMs
    """The stamp of the last entry before this leader's own."""
    longest_ms: int
    """A shorter silence is no outage: a lease outlives it."""


NewWork = SubmitJob | SubmitWorkflow | SaveSchedule | RunSchedule
"""Operations that bring jobs which nobody has accepted yet: refused while the disks are nearly full."""

OPERATIONS: Final = tuple(Operation.__subclasses__())
"""Every operation: all modules of this package are imported by now."""

if TYPE_CHECKING:
    _AnyOperation = Operation
else:
    _AnyOperation = reduce(or_, OPERATIONS)
    """The union that the decoder tells apart by tag."""


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """One log entry: the leader's stamp and the operations that arrived together."""

    version: int
    """From `OLDEST_READ` to `CODEC_VERSION`; along the log it never falls."""
    stamp_ms: TimeMs
    """The leader's wall clock; cluster time is the largest stamp applied so far and never runs backward."""
    operations: tuple[_AnyOperation, ...]


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """What every version of an entry begins with; whatever follows is not looked at."""

    version: int


class UnknownVersion(RaftschedError):
    """The cluster's log entries are of a version that this raftsched does not read: it must be upgraded to go on."""

    code = "unknown_version"


_decoder = msgspec.msgpack.Decoder(Batch)
_encoder = msgspec.msgpack.Encoder()
_head_decoder = msgspec.msgpack.Decoder(_Head)


def encode_batch(stamp_ms: TimeMs, operations: tuple[Operation, ...], *, version: int = CODEC_VERSION) -> bytes:
    """Return the log entry for `operations`, which all exist in `version`."""
    return _encoder.encode(Batch(version, stamp_ms, operations))


def decode_batch(data: bytes, *, reads: int = CODEC_VERSION) -> Batch:
    """Read a log entry, as a node does that reads the versions from `OLDEST_READ` to `reads`.

    Raises `UnknownVersion` for one of another version, and `msgspec.DecodeError` for bytes that are no entry.
    """
    try:
        batch = _decoder.decode(data)
    except msgspec.ValidationError:
        require_readable(_head_decoder.decode(data).version, reads=reads)
        raise
    require_readable(batch.version, reads=reads)
    return batch


def require_readable(version: int, *, reads: int = CODEC_VERSION) -> None:
    """Raise `UnknownVersion` unless a node that reads up to `reads` can go on where `version` is in force."""
    if OLDEST_READ <= version <= reads:
        return
    known = str(reads) if reads == OLDEST_READ else f"{OLDEST_READ} to {reads}"
    advice = "upgrade this node" if version > reads else "first run a release that reads both"
    raise UnknownVersion(f"log entries are of version {version}, and this node reads {known}: {advice}")


class RejectCode(IntEnum):
    """Why an operation was refused; `label` is the stable code that users see."""

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

    @property
    def label(self) -> str:
        return self.name.lower()
