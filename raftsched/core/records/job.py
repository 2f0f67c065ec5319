"""Define the job record: one msgpack value with all that a transition needs, except payload and result.

Fields are integers, strings and bytes; replicated state has no floats and no unordered collections. Times are milliseconds
of cluster time. A missing time is 0 if cluster time sets it (which is never 0), and None if users set it, so that 1970 is
an ordinary time. Records are frozen; a transition makes a new one with `msgspec.structs.replace`. Fields are stored by
position: new ones go at the end, with a default.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Final, NamedTuple

import msgspec

from raftsched import limits
from raftsched.core.records.ids import FencingToken, JobId, TimeMs, key_group
from raftsched.core.records.spec import JobSpec


class Status(IntEnum):
    """Enumerate the statuses of a job. A stored number never changes its meaning; users see `label`."""

    SCHEDULED = 1
    WAITING_DEPENDENCIES = 2
    QUEUED = 3
    RUNNING = 4
    CANCELLING = 5
    PAUSED = 6
    RETRYING = 7
    COMPLETED = 8
    FAILED = 9
    DEAD_LETTER = 10
    CANCELLED = 11
    SKIPPED = 12

    @property
    def label(self) -> str:
        return self.name.lower()


class Condition(IntEnum):
    """Enumerate the ways in which a parent must end for its dependant to run."""

    SUCCESS = 1
    FAILURE = 2
    COMPLETION = 3
    """Any end."""

    @property
    def label(self) -> str:
        return self.name.lower()


class Group(Enum):
    """Enumerate the groups of statuses."""

    WAITING = "waiting"
    """The job waits only for time: once it is due it is ready for a lease, whatever its stored status."""
    LEASED = "leased"
    """A worker has a valid token."""
    PARKED = "parked"
    """It waits for a parent or a user."""
    FINISHED = "finished"
    """The status is final: only a requeue by hand changes it, and retention removes the job."""


class Traits(NamedTuple):
    """Define the traits of a status."""

    group: Group
    workflow_count: str = ""
    """The field of a workflow that counts jobs finished so; "" = none, they are the rest."""
    meets: Condition = Condition.COMPLETION
    """The condition of dependants that this end meets, besides `COMPLETION`."""
    runs_again: bool = False
    """Users can run the job again."""


TRAITS: Final[Mapping[Status, Traits]] = {
    Status.SCHEDULED: Traits(Group.WAITING),
    Status.WAITING_DEPENDENCIES: Traits(Group.PARKED),
    Status.QUEUED: Traits(Group.WAITING),
    Status.RUNNING: Traits(Group.LEASED),
    Status.CANCELLING: Traits(Group.LEASED),
    Status.PAUSED: Traits(Group.PARKED),
    Status.RETRYING: Traits(Group.WAITING),
    Status.COMPLETED: Traits(Group.FINISHED, meets=Condition.SUCCESS),
    Status.FAILED: Traits(Group.FINISHED),
    Status.DEAD_LETTER: Traits(Group.FINISHED, "failed_count", Condition.FAILURE, runs_again=True),
    Status.CANCELLED: Traits(Group.FINISHED, "cancelled_count", runs_again=True),
    Status.SKIPPED: Traits(Group.FINISHED, "skipped_count", runs_again=True),
}
"""The traits of each status. The sets below are made from them."""


def _statuses_in(group: Group) -> frozenset[Status]:
    return frozenset(status for status, traits in TRAITS.items() if traits.group is group)


WAITING: Final = _statuses_in(Group.WAITING)
LEASED: Final = _statuses_in(Group.LEASED)
PARKED: Final = _statuses_in(Group.PARKED)
FINISHED: Final = _statuses_in(Group.FINISHED)
RUN_AGAIN: Final = tuple(status for status, traits in TRAITS.items() if traits.runs_again)
"""Statuses from which users can run a job again."""
MEETS: Final = {
    condition: frozenset(status for status in FINISHED if condition in (Condition.COMPLETION, TRAITS[status].meets))
    for condition in Condition
}
"""Statuses of a parent in which its dependant's condition is met."""


class DeadLetterReason:
    """List the reasons of dead letters. The texts are stable, so that jobs can be listed and requeued by reason."""

    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    TIMEOUT = "timeout"
    WORKER_LOST = "worker_lost"
    REJECTED = "rejected"
    EXPIRED = "expired"
    """Not started by `expires_at`, or not finished by its deadline."""
    DEPENDENCY_FAILED = "dependency_failed"
    TARGET_REFUSED = "target_refused"
    """Its executor may not connect to the address of its request."""


DEAD_LETTER_REASONS: Final = tuple(value for name, value in vars(DeadLetterReason).items() if name.isupper())


class Dependency(msgspec.Struct, frozen=True, array_like=True):
    parent: JobId
    condition: Condition = Condition.SUCCESS


class Verdict(IntEnum):
    """Enumerate the states of a dependency; stored with the edge from the parent to its dependant."""

    PENDING = 0
    """No end of the parent has been applied to the dependant."""
    MET = 1
    """The parent's end met the condition. Final: later changes of the parent do not matter."""
    UNMET = 2
    """The parent's end did not meet the condition. Pending again once the parent is requeued."""


class Pause(msgspec.Struct, frozen=True, array_like=True):
    since_ms: TimeMs
    until_ms: TimeMs = TimeMs(0)
    """It ends by itself then; 0 = only a user ends it."""
    reason: str = ""


CREATED: Final = "created"
"""The action of a job's first note, which names the submitter if known; it is never dropped."""
RESUMED: Final = "resumed"
"""The action of the note at the end of a pause."""


class Note(msgspec.Struct, frozen=True, array_like=True):
    """Record in a job's history what a user, a parent or the clock did to it; attempts are recorded apart."""

    at_ms: TimeMs
    action: str
    """`created`, `paused`, `resumed`, `rescheduled`, `reprioritised`, `requeued`, `cancel_requested`, `expired`,
    `released`, …"""
    actor: str = ""
    detail: str = ""
    revision: int = 0


class Lease(msgspec.Struct, frozen=True, array_like=True):
    """Record a worker's right to run a job, until a committed operation ends it."""

    worker: str
    token: FencingToken
    granted_at_ms: TimeMs
    ttl_ms: int
    request_id: str = ""
    """The worker's id of its lease request; a repeated request gets the same lease."""
    started: bool = False
    """`StartRun` was committed: a run that starts at most once has started."""
    callback_digest: bytes = b""
    """Digest of the token by which the run's target may report its outcome; b"" = it may not."""
    awaits_callback: bool = False
    """Its worker is done, and sends no heartbeats: it ends by the callback, the job's timeout or a cancel."""


class AttemptEnd(IntEnum):
    """Enumerate the ways in which an attempt ends."""

    COMPLETED = 1
    FAILED = 2
    SNOOZED = 3
    TIMEOUT = 4
    WORKER_LOST = 5
    CANCELLED = 6
    OUTAGE = 7
    """Its worker sent no heartbeat after an outage, in which it could not. It counts against no limit."""

    @property
    def label(self) -> str:
        return self.name.lower()


class JobError(msgspec.Struct, frozen=True, array_like=True):
    """Record an error that a handler reported."""

    type: str
    message: str
    trace: str = ""


class Attempt(msgspec.Struct, frozen=True, array_like=True):
    """Record an ended attempt of a run: who had the lease, when, and how it ended."""

    run_number: int
    attempt_number: int
    token: FencingToken
    worker: str
    started_at_ms: TimeMs
    ended_at_ms: TimeMs
    end: AttemptEnd
    completion_id: str = ""
    error: JobError | None = None


class Job(msgspec.Struct, frozen=True, array_like=True):
    """Record a job, except its payload and result."""

    id: JobId
    tenant: str
    spec: JobSpec
    status: Status
    due_at_ms: TimeMs
    created_at_ms: TimeMs
    updated_at_ms: TimeMs
    run_number: int = 1
    attempt_number: int = 0
    """Leases granted in this run so far, snoozed and lost ones included."""
    failure_count: int = 0
    lost_count: int = 0
    lease: Lease | None = None
    started_at_ms: TimeMs = TimeMs(0)
    """Start of the latest attempt."""
    finished_at_ms: TimeMs = TimeMs(0)
    cancel_requested_at_ms: TimeMs = TimeMs(0)
    failure_reason: str = ""
    """The reason of a dead letter (`DeadLetterReason`), or the error type of the latest failure."""
    attempts: tuple[Attempt, ...] = ()
    """The latest ended attempts, oldest first, at most `limits.ATTEMPTS_KEPT_MAX`."""
    idempotency_key: str = ""
    fingerprint: bytes = b""
    """Digest of the submitted body: the same key with another body is rejected."""
    revision: int = 0
    """Log index of the latest change."""
    timed: bool = False
    """It was not due when it was submitted, retried or snoozed: it has an entry in `timers` while it waits."""
    dependency_count: int = 0
    """Count of its parents; they may be thousands and are stored apart from the record (`View.dependencies`)."""
    pending_count: int = 0
    """Count of pending dependencies, plus 1 while its workflow is not complete."""
    blocked: bool = False
    """It is due, but its concurrency key was at its limit when a lease was tried. It is not in the ready index until a
    run of that key ends."""
    has_dependants: bool = False
    """Other jobs depend on it. Not set for jobs of a workflow (`dependency_resolution.may_have_dependants`)."""
    pause: Pause | None = None
    """Set exactly while `PAUSED`."""
    progress: bytes = b""
    """JSON text of the last progress report of the running or latest attempt."""
    notes: tuple[Note, ...] = ()
    """The note of its creation, then the latest ones, oldest first, at most `limits.NOTES_KEPT_MAX`."""
    unmet_count: int = 0
    """Count of unmet dependencies; 0 unless the job ended, too."""
    requested_at_ms: TimeMs = TimeMs(0)
    """The time that its user requested, if a retry or a snooze has moved `due_at_ms`; 0 = `due_at_ms`."""
    kept_until_ms: TimeMs = TimeMs(0)
    """Its retention is over, but it is still needed (`retention.why_kept`) and is examined again then; 0 = otherwise."""

    def is_overdue(self, now_ms: int) -> bool:
        """Return whether its deadline has passed."""
        options = self.spec.options
        return options is not None and options.deadline_ms is not None and options.deadline_ms <= now_ms

    def is_too_late_to_start(self, now_ms: int) -> bool:
        """Return whether `expires_at_ms` has passed before the first attempt."""
        options = self.spec.options
        if options is None or options.expires_at_ms is None:
            return False
        return not self.attempt_number and options.expires_at_ms <= now_ms

    def status_at(self, now_ms: int) -> Status:
        """Return the status that users see: a waiting job that is due is `queued` by time alone."""
        if self.status in WAITING and self.due_at_ms <= now_ms:
            return Status.QUEUED
        return self.status

    @property
    def ready_since_ms(self) -> TimeMs:
        """Return when a waiting job that is due could start: its parents had ended by then, and no pause held it."""
        if not self.dependency_count and len(self.notes) < 2:  # all but its creation
            return self.due_at_ms
        released_at_ms = self.updated_at_ms if self.dependency_count else 0
        resumed_at_ms = max((note.at_ms for note in self.notes if note.action == RESUMED), default=0)
        return TimeMs(max(self.due_at_ms, released_at_ms, resumed_at_ms))

    @property
    def reason(self) -> str:
        """Return the reason by which it is listed if it is a dead letter (`DeadLetterReason`), without the details."""
        return self.failure_reason.partition(":")[0]

    @property
    def key_group(self) -> str:
        """Return the name of the jobs of its queue that its concurrency key limits; "" if it has no key."""
        key = self.spec.concurrency_key
        return key and key_group(self.tenant, key)

    @property
    def run_at_ms(self) -> TimeMs:
        """Return the time that its user requested; `due_at_ms` is the time of its next attempt."""
        return self.requested_at_ms or self.due_at_ms

    def with_attempt(self, attempt: Attempt) -> tuple[Attempt, ...]:
        """Return the attempts to keep after one more ended."""
        return (*self.attempts, attempt)[-limits.ATTEMPTS_KEPT_MAX :]

    def with_note(self, note: Note) -> tuple[Note, ...]:
        """Return the notes to keep after one more."""
        created = self.notes[:1] if self.notes and self.notes[0].action == CREATED else ()
        others = (*self.notes[len(created) :], note)
        return (*created, *others[len(created) - limits.NOTES_KEPT_MAX :])

    @property
    def next_deadline_ms(self) -> int:
        """Return the next time at which time must change it, other than making it due; 0 = never.

        For an unfinished job see `deadlines.handle_deadlines`. A finished one is purged then: at the end of its own
        retention, or when a job that had to be kept longer is examined again.
        """
        if self.status in FINISHED:
            kept_ms = self.spec.options.retention_ms if self.spec.options is not None else 0
            return max(self.finished_at_ms + kept_ms if kept_ms else 0, self.kept_until_ms)
        times = [self.pause.until_ms] if self.pause is not None and self.pause.until_ms else []
        if self.spec.options is not None:
            if self.spec.options.deadline_ms is not None:
                times.append(self.spec.options.deadline_ms)
            if self.spec.options.expires_at_ms is not None and not self.attempt_number and self.status not in LEASED:
                times.append(self.spec.options.expires_at_ms)
        return max(min(times), 1) if times else 0


class SilentLease(msgspec.Struct, frozen=True, array_like=True):
    """Record a lease that its worker, or its handler, had not renewed for a while when the worker was marked."""

    token: FencingToken
    heartbeat_at_ms: TimeMs
    """The time of its last renewal."""
    handler_heartbeat_at_ms: TimeMs
    """The time of its handler's last sign of life; the grant counts as one."""


class Worker(msgspec.Struct, frozen=True, array_like=True):
    """Record coarsely when a worker was seen, for a new leader and for people."""

    name: str
    queues: tuple[str, ...]
    capacity: int
    seen_at_ms: TimeMs
    first_seen_at_ms: TimeMs = TimeMs(0)
    region: str = ""
    """"" = none: it gets no job that has a region."""
    silent: tuple[SilentLease, ...] = ()
    """Its leases that were silent at this mark; all others were renewed shortly before `seen_at_ms`, or later."""
    tenant: str = ""
    """The tenant whose jobs it is given; "" = all."""
    version: str = ""
    """The release of raftsched that it runs; "" = it did not tell."""
    drained_at_ms: TimeMs = TimeMs(0)
    """The time from which on it gets no further jobs; 0 = it gets jobs."""
    drained_by: str = ""
    drain_reason: str = ""


_job_decoder = msgspec.msgpack.Decoder(Job)
_worker_decoder = msgspec.msgpack.Decoder(Worker)
_encode = msgspec.msgpack.Encoder().encode


def encode_job(job: Job) -> bytes:
    return _encode(job)


def decode_job(data: bytes | memoryview) -> Job:
    return _job_decoder.decode(data)


def encode_worker(worker: Worker) -> bytes:
    return _encode(worker)


def decode_worker(data: bytes | memoryview) -> Worker:
    return _worker_decoder.decode(data)
