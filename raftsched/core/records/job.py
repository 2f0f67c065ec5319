"""The job record: one msgpack value that holds all a transition needs, payload and result apart.

Integers, strings and bytes only: floats and unordered collections have no place in replicated state. Times are
milliseconds of cluster time; where there is none, those that cluster time sets are 0, which it never is, and those that
users set are None, so that 1970 is a time like any other. Records are frozen; a transition makes a new one with
`msgspec.structs.replace`. Fields are stored by position: new ones go at the end, with a default.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

from raftsched import limits
from raftsched.core.records.ids import FencingToken, JobId, TimeMs
from raftsched.core.records.spec import JobSpec


class Status(IntEnum):
    """Where a job stands. The stored number never changes its meaning; `label` is what users see."""

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


WAITING = frozenset({Status.SCHEDULED, Status.QUEUED, Status.RETRYING})
"""Only time stands between these and a lease: a due one is ready, whatever its stored status."""
LEASED = frozenset({Status.RUNNING, Status.CANCELLING})
"""A worker holds a valid token for these."""
FINISHED = frozenset({Status.COMPLETED, Status.FAILED, Status.DEAD_LETTER, Status.CANCELLED, Status.SKIPPED})
"""Nothing changes these but a requeue by hand, and retention, which removes them."""


PARKED = frozenset({Status.WAITING_DEPENDENCIES, Status.PAUSED})
"""Something other than time stands between these and a lease: a parent, or a user."""


class DeadLetterReason:
    """Why a job was given up; stable texts, so that each can be listed, requeued and purged."""

    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    TIMEOUT = "timeout"
    WORKER_LOST = "worker_lost"
    REJECTED = "rejected"
    EXPIRED = "expired"
    """Not started by `expires_at`, or not finished by its deadline."""
    DEPENDENCY_FAILED = "dependency_failed"


class Condition(IntEnum):
    """How a parent must end for its dependant to run."""

    SUCCESS = 1
    FAILURE = 2
    COMPLETION = 3
    """In whatever way."""

    @property
    def label(self) -> str:
        return self.name.lower()


class Dependency(msgspec.Struct, frozen=True, array_like=True):
    parent: JobId
    condition: Condition = Condition.SUCCESS


class Verdict(IntEnum):
    """What a dependency has come to; stands with the way from the parent to its dependant."""

    PENDING = 0
    """The dependant has not been told of an end of its parent."""
    MET = 1
    """The parent ended as it should. Final: what the parent does later no longer matters to the dependant."""
    UNMET = 2
    """The parent ended otherwise. Pending again once the parent is requeued."""


class Pause(msgspec.Struct, frozen=True, array_like=True):
    since_ms: TimeMs
    until_ms: TimeMs = TimeMs(0)
    """It goes on by itself then; 0 = only by a user."""
    reason: str = ""


CREATED: Final = "created"
"""The note of who submitted a job, where he said so: its history begins with it, so it is kept."""


class Note(msgspec.Struct, frozen=True, array_like=True):
    """A line of a job's history that no attempt tells: what a user, a parent or the clock did to it."""

    at_ms: TimeMs
    action: str
    """`created`, `paused`, `resumed`, `rescheduled`, `reprioritised`, `requeued`, `cancel_requested`, `expired`,
    `released`, …"""
    actor: str = ""
    detail: str = ""
    revision: int = 0


class Lease(msgspec.Struct, frozen=True, array_like=True):
    """A worker's right to run a job, until a committed operation ends it."""

    worker: str
    token: FencingToken
    granted_at_ms: TimeMs
    ttl_ms: int
    request_id: str = ""
    """The worker's name for the request that got it; asked again, it gets the same lease."""
    started: bool = False
    """`StartRun` was committed: what begins at most once has begun."""


class AttemptEnd(IntEnum):
    """How an attempt ended."""

    COMPLETED = 1
    FAILED = 2
    SNOOZED = 3
    TIMEOUT = 4
    WORKER_LOST = 5
    CANCELLED = 6
    OUTAGE = 7
    """Its worker was not heard of after an outage in which it could not be: it counts against nothing."""

    @property
    def label(self) -> str:
        return self.name.lower()


class JobError(msgspec.Struct, frozen=True, array_like=True):
    """What a handler reported: the error's type, its message, and its trace."""

    type: str
    message: str
    trace: str = ""


class Attempt(msgspec.Struct, frozen=True, array_like=True):
    """One ended try of a run: who held the lease, when, and how it ended."""

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
    """One job, whole but for its payload and result."""

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
    """Why it is in the dead letters (`DeadLetterReason`), or the latest failure's error type."""
    attempts: tuple[Attempt, ...] = ()
    """The latest ended attempts, oldest first, at most `limits.ATTEMPTS_KEPT_MAX`."""
    idempotency_key: str = ""
    fingerprint: bytes = b""
    """Digest of the submitted body: the same key with another body is refused."""
    revision: int = 0
    """Log index of the latest change."""
    timed: bool = False
    """Due after its submission, retry or snooze was applied: it has an entry in `timers` while it waits."""
    dependency_count: int = 0
    """Its parents; which they are stands beside the record (`View.dependencies`), since they may be thousands."""
    pending_count: int = 0
    """Parents whose end it has not been told, and 1 more while its workflow is not whole."""
    blocked: bool = False
    """Due, but its concurrency key was at its limit when a lease was tried: it is out of the ready index until a run
    of that key ends."""
    has_dependants: bool = False
    """Others depend on it. Jobs of a workflow are not marked one by one (`dependency_resolution.may_have_dependants`)."""
    pause: Pause | None = None
    """Set exactly while `PAUSED`."""
    progress: bytes = b""
    """JSON text that the running, or the latest, attempt reported last."""
    notes: tuple[Note, ...] = ()
    """The latest, oldest first, at most `limits.NOTES_KEPT_MAX`, behind that of its creation."""
    unmet_count: int = 0
    """Parents that ended otherwise than they should; 0 unless the job ended, too."""
    requested_at_ms: TimeMs = TimeMs(0)
    """The time that its user asked for, where a retry or a snooze has moved `due_at_ms`; 0 = that is it."""
    kept_until_ms: TimeMs = TimeMs(0)
    """Its retention is over, but it is still needed (`retention.why_kept`): it is looked at again then. 0 = not so."""

    def is_overdue(self, now_ms: int) -> bool:
        """Whether its deadline has passed."""
        options = self.spec.options
        return options is not None and options.deadline_ms is not None and options.deadline_ms <= now_ms

    def is_too_late_to_start(self, now_ms: int) -> bool:
        """Whether the time has passed by which its first attempt had to begin, and none has."""
        options = self.spec.options
        if options is None or options.expires_at_ms is None:
            return False
        return not self.attempt_number and options.expires_at_ms <= now_ms

    def status_at(self, now_ms: int) -> Status:
        """The status users see: a waiting job whose time has come is `queued` by time alone."""
        if self.status in WAITING and self.due_at_ms <= now_ms:
            return Status.QUEUED
        return self.status

    @property
    def run_at_ms(self) -> TimeMs:
        """When its user wants it to run; `due_at_ms` says when it does next."""
        return self.requested_at_ms or self.due_at_ms

    def with_attempt(self, attempt: Attempt) -> tuple[Attempt, ...]:
        """The kept attempts after one more ended."""
        return (*self.attempts, attempt)[-limits.ATTEMPTS_KEPT_MAX :]

    def with_note(self, note: Note) -> tuple[Note, ...]:
        """The kept notes after one more."""
        created = self.notes[:1] if self.notes and self.notes[0].action == CREATED else ()
        others = (*self.notes[len(created) :], note)
        return (*created, *others[len(created) - limits.NOTES_KEPT_MAX :])

    @property
    def next_deadline_ms(self) -> int:
        """When something must happen to it by time other than becoming due; 0 = never.

        Unfinished, see `deadlines.handle_deadlines`. Finished: the end of its own retention, or the time at which a job
        that had to be kept longer is examined again; then it is purged.
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
    """A running lease that its worker, or its handler, had not renewed for a while when the worker was marked."""

    token: FencingToken
    heartbeat_at_ms: TimeMs
    """When it was renewed last."""
    handler_heartbeat_at_ms: TimeMs
    """When its handler gave a sign of life last; the grant counts as one."""


class Worker(msgspec.Struct, frozen=True, array_like=True):
    """The coarse mark of a worker: enough for a new leader, and for people, to know who was alive."""

    name: str
    queues: tuple[str, ...]
    capacity: int
    seen_at_ms: TimeMs
    first_seen_at_ms: TimeMs = TimeMs(0)
    region: str = ""
    """"" = none: it takes no job that has one."""
    silent: tuple[SilentLease, ...] = ()
    """Its leases that were silent at this mark; it had renewed all others a short time before `seen_at_ms`, or later."""


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
