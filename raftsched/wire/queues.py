"""Queues: their settings, counts and scale."""

from __future__ import annotations

from typing import Annotated, Generic

from msgspec import UNSET, Meta, UnsetType

from raftsched import limits
from raftsched.wire.common import (
    ABSENT,
    Cursor,
    LostWorkers,
    Name,
    PauseDocument,
    ReadQuery,
    Reply,
    Request,
    SpanSeconds,
    T,
    Time,
)

QueueLimit = Annotated[int, Meta(ge=1, le=limits.QUEUE_LIMIT_MAX)]


class RateRequest(Request, frozen=True):
    """At most `count` leases in `per_seconds`, evenly spread, and up to `burst` at once after a rest.

    A span of `per_seconds` sees at most `count + burst - 1` leases: with `burst` 1 never more than `count`. Without
    `burst` it is what flows in within 100 ms, at least 1.
    """

    count: QueueLimit
    per_seconds: Annotated[float, Meta(ge=0.001, le=limits.RATE_PERIOD_MS_MAX / 1000)] = 1.0
    burst: QueueLimit | None = None


class QueuePatch(Request, frozen=True):
    """What to change of a queue's settings; what is left out stays, `null` takes a setting away."""

    rate: RateRequest | UnsetType | None = UNSET
    """Leases per time."""
    concurrency: QueueLimit | UnsetType | None = UNSET
    """Jobs that run at the same time."""
    key_concurrency: QueueLimit | UnsetType | None = UNSET
    """Jobs of one concurrency key that run at the same time; 1 by default."""
    ageing_seconds: SpanSeconds | UnsetType | None = UNSET
    """A waiting job gains one priority for each of these; as the cluster says by default."""
    retention_seconds: SpanSeconds | UnsetType | None = UNSET
    """How long finished jobs are kept; as the cluster says by default."""
    max_lost_workers: LostWorkers | UnsetType | None = UNSET
    """Lost workers that end a job which does not say it itself in the dead letters; 3 by default. The largest value stands
    for any number."""
    weights: dict[Name, Annotated[int, Meta(ge=1, le=1_000)]] | UnsetType | None = UNSET
    """Shares of tenants; those that are not named have 1."""


class QueuesQuery(ReadQuery, frozen=True):
    """Which page of the queues."""

    limit: Annotated[int, Meta(ge=1, le=limits.PAGE_QUEUES_MAX)] = 100
    cursor: Cursor | None = None
    """`next_cursor` of the page before."""


class RateReply(Reply, frozen=True):
    """At most `count` leases in `per_seconds`, evenly spread, and up to `burst` at once after a rest.

    A span of `per_seconds` sees at most `count + burst - 1` leases: with `burst` 1 never more than `count`. Without
    `burst` it is what flows in within 100 ms, at least 1.
    """

    count: int
    per_seconds: float = 1.0
    burst: int = ABSENT


class QueueSettingsDocument(Reply, Generic[T], frozen=True):
    """What operators said about a queue; null where nobody said anything."""

    pause: PauseDocument[T] | None = None
    """While it is paused no worker gets a job of it."""
    rate: RateReply | None = None
    concurrency: int | None = None
    key_concurrency: int | None = None
    """null: 1 for jobs that have a concurrency key."""
    ageing_seconds: float | None = None
    """null: as the cluster says."""
    retention_seconds: float | None = None
    """null: as the cluster says."""
    max_lost_workers: int | None = None
    """null: 3."""
    weights: dict[str, int] = {}
    """Shares of tenants; those that are not named have 1."""
    revision: int | None = None
    """Log index of the latest change."""
    updated_at: T | None = None


class QueueSettingsReply(QueueSettingsDocument[Time], frozen=True):
    """What operators said about a queue; null where nobody said anything."""


class QueueDocument(Reply, Generic[T], frozen=True):
    """How many jobs of each status a queue holds, and its settings."""

    name: str
    tenant: str = ""
    scheduled: int = 0
    waiting_dependencies: int = 0
    queued: int = 0
    running: int = 0
    cancelling: int = 0
    paused: int = 0
    """Jobs that are paused; whether the queue is, its settings say."""
    retrying: int = 0
    completed: int = 0
    failed: int = 0
    dead_letter: int = 0
    cancelled: int = 0
    skipped: int = 0
    exact: bool = True
    """False: so many timed jobs came due that not all were looked at; some count as they were before."""
    oldest_wait_ms: int = 0
    """How long the job that is due longest waits for a worker; 0 = none waits."""
    waiting_workers: int | None = None
    """Workers that wait for jobs of this queue; null where the answering node does not lead."""
    settings: QueueSettingsDocument[T] = QueueSettingsDocument()


class QueueReply(QueueDocument[Time], frozen=True):
    """How many jobs of each status a queue holds, and its settings."""


class QueuesReply(Reply, frozen=True):
    """The queues that hold jobs or have settings, by name."""

    queues: list[QueueReply]
    next_cursor: str | None


class ScaleReply(Reply, frozen=True):
    """What decides how many workers a queue should have."""

    queue: str = ""
    ready: int = 0
    """Jobs that are due and wait for nothing but a worker, and the queue's limits."""
    exact: bool = True
    """False: `ready` is an estimate, as in the queue's counts."""
    running: int = 0
    oldest_wait_ms: int = 0
    waiting_workers: int = 0
    """Workers that wait for jobs of this queue now."""
    worker_slots: int = 1
    """Jobs that a typical worker of the queue runs at the same time; 1 where none is known."""
    wanted_workers: int = 0
    """How many of those would run all that runs or is ready, as far as the queue's pause and limits let it."""
