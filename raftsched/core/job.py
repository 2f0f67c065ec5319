"""The job record: one msgpack value that holds all a transition needs, payload and result apart.

Integers, strings and bytes only: floats and unordered collections have no place in replicated state. Times are
milliseconds of cluster time, 0 where there is none. Records are frozen; a transition makes a new one with
`msgspec.structs.replace`. Fields are stored by position: new ones go at the end, with a default.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from raftsched import limits
from raftsched.core.ids import FencingToken, JobId, TimeMs


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


class DeadLetterReason:
    """Why a job was given up; stable texts, so that each can be listed, requeued and purged."""

    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    TIMEOUT = "timeout"
    WORKER_LOST = "worker_lost"
    REJECTED = "rejected"


class Backoff(IntEnum):
    EXPONENTIAL = 1
    LINEAR = 2
    FIXED = 3
    LIST = 4


class RetryPolicy(msgspec.Struct, frozen=True, array_like=True):
    """How long to wait before the next attempt; see `raftsched.core.retry`."""

    backoff: Backoff = Backoff.EXPONENTIAL
    base_ms: int = 1_000
    factor_thousandths: int = 2_000
    cap_ms: int = 3_600_000
    jitter_thousandths: int = 200
    """The delay is spread over ± this share."""
    delays_ms: tuple[int, ...] = ()
    """For `LIST`: the delay after each failure; the last one repeats."""


class Lease(msgspec.Struct, frozen=True, array_like=True):
    """A worker's right to run a job, until a committed operation ends it."""

    worker: str
    token: FencingToken
    granted_at_ms: TimeMs
    ttl_ms: int
    request_id: str = ""
    """The worker's name for the request that got it; asked again, it gets the same lease."""


class AttemptEnd(IntEnum):
    """How an attempt ended."""

    COMPLETED = 1
    FAILED = 2
    SNOOZED = 3
    TIMEOUT = 4
    WORKER_LOST = 5
    CANCELLED = 6

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
    name: str
    queue: str
    status: Status
    priority: int
    """0 to 9; higher first."""
    due_at_ms: TimeMs
    created_at_ms: TimeMs
    updated_at_ms: TimeMs
    max_attempts: int
    """Failures, timeouts included, that end in the dead letters."""
    timeout_ms: int
    """Longest run time of one attempt; 0 = none."""
    retry: RetryPolicy
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
    tags: tuple[str, ...] = ()
    region: str = ""
    revision: int = 0
    """Log index of the latest change."""
    timed: bool = False
    """Due after its submission, retry or snooze was applied: it has an entry in `timers` while it waits."""

    def status_at(self, now_ms: int) -> Status:
        """The status users see: a waiting job whose time has come is `queued` by time alone."""
        if self.status in WAITING and self.due_at_ms <= now_ms:
            return Status.QUEUED
        return self.status

    def with_attempt(self, attempt: Attempt) -> tuple[Attempt, ...]:
        """The kept attempts after one more ended."""
        return (*self.attempts, attempt)[-limits.ATTEMPTS_KEPT_MAX :]


class Worker(msgspec.Struct, frozen=True, array_like=True):
    """The coarse mark of a worker: enough for a new leader, and for people, to know who was alive."""

    name: str
    queues: tuple[str, ...]
    capacity: int
    seen_at_ms: TimeMs
    first_seen_at_ms: TimeMs = TimeMs(0)


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
