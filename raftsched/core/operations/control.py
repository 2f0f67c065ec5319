"""Define operations by which people and time change a job: pause, resume, amend, requeue, progress, logs, deadlines.

Rules of the codec: see `codec`. `actor` is the user who made the request, as the API knows it; it is recorded in the
job's notes and the audit trail.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from raftsched.core.operations.base import Operation
from raftsched.core.records.ids import FencingToken, JobId, TimeMs
from raftsched.core.records.spec import SpecChanges


class PauseJob(Operation, frozen=True, tag=8):
    """Keep a job from being leased until it is resumed. A second pause replaces the end and the reason.

    Result: `Changed`. Rejected: `not_found`, `already_finished`, `running` (a leased job can't be paused).
    """

    job_id: JobId
    tenant: str
    until_ms: TimeMs = TimeMs(0)
    reason: str = ""
    actor: str = ""


class ResumeJob(Operation, frozen=True, tag=9):
    """End the pause of a job. Resuming an unfinished job that is not paused changes nothing and succeeds.

    Result: `Changed`. Rejected: `not_found`, `already_finished`.
    """

    job_id: JobId
    tenant: str
    actor: str = ""


class AmendJob(Operation, frozen=True, tag=10):
    """Change the time and the specification of a job that is not leased.

    Result: `Changed`. Rejected: `not_found`, `already_finished`, `running`, `stale_revision`.
    """

    job_id: JobId
    tenant: str
    changes: SpecChanges = SpecChanges()
    due_at_ms: int | None = None
    """0 = now; None = unchanged."""
    payload: bytes | None = None
    """None = unchanged."""
    if_revision: int = 0
    """Reject unless this is the job's revision; 0 = any revision."""
    actor: str = ""


class RequeueJob(Operation, frozen=True, tag=11):
    """Run a dead-lettered, cancelled or skipped job again, as a new run, or make a retrying job due now.

    A new run counts its attempts from zero and waits for unfinished parents. Dependants that ended because of this job
    wait again. Passed times are removed. Result: `Changed`. Rejected: `not_found`, `completed` (replay it instead),
    `running`, `paused`, `waiting_dependencies`, `dependency_unmet` (`Refused.job_id` names a parent that did not meet the
    condition), `unique_conflict`, `stale_decision` (not dead-lettered for `reason`), `not_started` (parts of its workflow
    are missing).
    """

    job_id: JobId
    tenant: str
    due_at_ms: TimeMs = TimeMs(0)
    """0 = now."""
    reason: str = ""
    """Requeue only if the job was dead-lettered for this reason; "" = any reason."""
    actor: str = ""


class StartRun(Operation, frozen=True, tag=12):
    """Record that a worker begins a run that starts at most once, or whose target reports its outcome.

    A repeat with the same tokens succeeds. Result: `Changed`. Rejected: `not_found`, `lease_lost`, `cancelled`.
    """

    job_id: JobId
    run_number: int
    token: FencingToken
    callback_digest: bytes = b""
    """Digest of the token by which the target of a request may report the outcome; b"" = none."""


class AwaitCallback(Operation, frozen=True, tag=30):
    """Keep the lease of a run whose target has accepted the request and reports the outcome itself.

    Its worker sends no more heartbeats. A repeat succeeds, also after the callback. Result: `OutcomeRecorded`. Rejected:
    `lease_lost`, `not_found`, `cancelled`, `invalid` (no callback token was recorded with its start, or the job has no
    timeout).
    """

    job_id: JobId
    run_number: int
    token: FencingToken


class Progress(msgspec.Struct, frozen=True, array_like=True):
    job_id: JobId
    run_number: int
    token: FencingToken
    progress: bytes
    """JSON text."""


class ReportProgress(Operation, frozen=True, tag=13):
    """Store progress reports of running attempts; reports with an old token are ignored.

    Result: `Counted` (stored reports).
    """

    reports: tuple[Progress, ...]


class AppendLog(Operation, frozen=True, tag=14):
    """Add lines to the log of a running attempt, up to `limits.LOG_BYTES_MAX` for an attempt.

    Result: `Logged`. Rejected: `not_found`, `lease_lost`, `log_full`.
    """

    job_id: JobId
    run_number: int
    token: FencingToken
    lines: bytes
    """UTF-8; each line ends with a line feed."""
    sequence: int = 0
    """The worker's number of this piece in its attempt, from 1: a repeated piece is stored once. 0 = not numbered."""


class BlockJobs(Operation, frozen=True, tag=15):
    """Remove due jobs whose concurrency key is at its limit from the ready index. Result: `Counted`."""

    job_ids: tuple[JobId, ...]


class DeadlineKind(IntEnum):
    """Enumerate the records that have deadlines; part of the key of the deadlines."""

    JOB = 1
    SCHEDULE = 2
    QUEUE = 3
    WORKFLOW = 4


class HandleDeadlines(Operation, frozen=True, tag=16):
    """Handle passed deadlines: expire jobs, end pauses of jobs and queues, drop unfinished submissions of workflows.

    Each is checked again by the cluster's time. Schedules are fired by `FireSchedule`. Result: `Counted`.
    """

    deadlines: tuple[tuple[DeadlineKind, bytes], ...]
    """Kinds, and ids (for queues: names)."""


class BackgroundKind(IntEnum):
    """Enumerate the kinds of long work that is done in bounded steps; every leader continues it at its cursor."""

    RESOLVE_DEPENDANTS = 1
    """A parent ended: the dependencies on it are resolved."""
    REVIVE_DEPENDANTS = 2
    """A parent was requeued: dependants that ended because of it wait again."""
    OPEN_WORKFLOW = 3
    """A workflow's last part was applied: its jobs can run."""
    CANCEL_WORKFLOW = 4
    DROP_LEDGER = 5
    """A schedule was deleted: its ledger is removed."""
    RELEASE_BLOCKED = 6
    """A queue's limits changed: its blocked jobs are released."""
    DROP_WORKFLOW = 7
    """A submission was not finished: its jobs are removed."""


class DoBackgroundStep(Operation, frozen=True, tag=17):
    """Do the next step, of at most `limits.BACKGROUND_STEP_ITEMS_MAX` items. Result: `Counted`; 0 = there was none."""

    kind: BackgroundKind
    subject: bytes
