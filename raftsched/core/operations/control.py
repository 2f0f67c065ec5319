"""Operations by which people, and time, change a job: pause, resume, amend, requeue, progress, logs, alarms.

Rules of the codec: see `operations`. `actor` is who asked, as the API knows them; it goes into the job's notes and the
audit trail.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from raftsched.core.operations.base import Operation
from raftsched.core.records.ids import FencingToken, JobId, TimeMs
from raftsched.core.records.spec import SpecChanges


class PauseJob(Operation, frozen=True, tag=8):
    """Keep a job from being leased until it is resumed. Pausing twice takes over the new end and reason.

    Result: `Changed`. Rejected: `not_found`, `already_finished`, `running` (a leased job can't be paused).
    """

    job_id: JobId
    tenant: str
    until_ms: TimeMs = TimeMs(0)
    reason: str = ""
    actor: str = ""


class ResumeJob(Operation, frozen=True, tag=9):
    """Let a paused job go on. Resuming one that isn't paused changes nothing and succeeds, while it isn't finished.

    Result: `Changed`. Rejected: `not_found`, `already_finished`.
    """

    job_id: JobId
    tenant: str
    actor: str = ""


class AmendJob(Operation, frozen=True, tag=10):
    """Change when and how a job that is not leased runs.

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
    """Refuse unless this is the job's revision; 0 = whatever it is."""
    actor: str = ""


class RequeueJob(Operation, frozen=True, tag=11):
    """Run a dead-lettered, cancelled or skipped job again, as a new run with its attempts counted from zero; or make a
    job that waits for its next attempt due now.

    A new run waits for the parents that have not ended; dependants that ended for want of it wait again. Times of it
    that have passed are dropped. Result: `Changed`. Rejected: `not_found`, `completed` (replay it instead), `running`,
    `paused`, `waiting_dependencies`, `dependency_unmet` (`Refused.job_id` names a parent that ended otherwise than it
    should), `unique_conflict`, `stale_decision` (not in the dead letters for `reason`), `not_started` (its workflow is
    not whole).
    """

    job_id: JobId
    tenant: str
    due_at_ms: TimeMs = TimeMs(0)
    """0 = now."""
    reason: str = ""
    """Only a job in the dead letters for this reason; "" = whatever it is."""
    actor: str = ""


class StartRun(Operation, frozen=True, tag=12):
    """The worker is about to begin a run that begins at most once. Repeated with the same token it succeeds again.

    Result: `Changed`. Rejected: `not_found`, `lease_lost`, `cancelled`.
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
    """Keep what running attempts said about themselves; reports with an old token are left out.

    Result: `Counted` (reports that were kept).
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
    """UTF-8, each line closed by a line feed."""
    sequence: int = 0
    """The worker's number of this piece in its attempt, from 1: a repeat is stored once. 0 = not numbered."""


class BlockJobs(Operation, frozen=True, tag=15):
    """Take due jobs whose concurrency key is at its limit out of the ready index. Result: `Counted`."""

    job_ids: tuple[JobId, ...]


class DeadlineKind(IntEnum):
    """Whose alarm: part of the key of the alarms."""

    JOB = 1
    SCHEDULE = 2
    QUEUE = 3
    WORKFLOW = 4


class HandleDeadlines(Operation, frozen=True, tag=16):
    """Do what is due by time: expire jobs, end pauses of jobs and queues, drop submissions of workflows that were left.

    Each is looked at again by the cluster's time. Schedules are not rung but fired. Result: `Counted`.
    """

    deadlines: tuple[tuple[DeadlineKind, bytes], ...]
    """Kind, and the id or (of a queue) the name."""


class BackgroundKind(IntEnum):
    """Long work that is done in bounded steps; each is resumed where it stands, whoever leads."""

    RESOLVE_DEPENDANTS = 1
    """A parent ended: its dependants are told."""
    REVIVE_DEPENDANTS = 2
    """A parent was requeued: dependants that ended for want of it wait again."""
    OPEN_WORKFLOW = 3
    """A workflow is whole: its jobs may run."""
    CANCEL_WORKFLOW = 4
    DROP_LEDGER = 5
    """A schedule was deleted: its ledger goes."""
    RELEASE_BLOCKED = 6
    """A queue's limits changed: its held jobs are offered again."""
    DROP_WORKFLOW = 7
    """A submission was left half-done: its jobs go."""


class DoBackgroundStep(Operation, frozen=True, tag=17):
    """Do the next step, of at most `limits.BACKGROUND_STEP_ITEMS_MAX` items. Result: `Counted`; 0 = there was none."""

    kind: BackgroundKind
    subject: bytes
