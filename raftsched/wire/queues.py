"""Define the documents of queues: settings, counts and scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Generic

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
    or_null,
)
from raftsched.wire.jobs import HookBody

QueueLimit = Annotated[int, Meta(ge=1, le=limits.QUEUE_LIMIT_MAX)]


class RateRequest(Request, frozen=True):
    """A rate limit: `count` leases in `per_seconds`, evenly spread, and up to `burst` at once after an idle time.

    Any period of `per_seconds` contains at most `count + burst - 1` leases; with `burst` 1 never more than `count`. The
    default of `burst` is the number of leases in 100 ms, at least 1.
    """

    count: QueueLimit
    per_seconds: Annotated[float, Meta(ge=0.001, le=limits.RATE_PERIOD_MS_MAX / 1000)] = 1.0
    burst: QueueLimit | None = None


class QueuePatch(Request, frozen=True):
    """Changes of a queue's settings. Omitted settings stay, `null` removes a setting."""

    rate: RateRequest | UnsetType | None = UNSET
    """Leases per time."""
    concurrency: QueueLimit | UnsetType | None = UNSET
    """Jobs that run at the same time."""
    key_concurrency: QueueLimit | UnsetType | None = UNSET
    """Jobs of one concurrency key that run at the same time; 1 by default."""
    ageing_seconds: SpanSeconds | UnsetType | None = UNSET
    """A waiting job's priority rises by one each time this period passes. Default: the cluster's setting."""
    retention_seconds: SpanSeconds | UnsetType | None = UNSET
    """Time to keep finished jobs. Default: the cluster's setting."""
    max_lost_workers: LostWorkers | UnsetType | None = UNSET
    """Lost workers until the dead-letter queue, for jobs without a limit of their own; 3 by default. The largest value
    means no limit."""
    weights: dict[Name, Annotated[int, Meta(ge=1, le=1_000)]] | UnsetType | None = UNSET
    """Shares of tenants; an unnamed tenant has 1."""
    on_failure: HookBody | UnsetType | None = UNSET
    """A job to submit if one ends in the dead-letter queue that has no `on_failure` of its own."""
    on_success: HookBody | UnsetType | None = UNSET
    """The same for jobs that complete."""


class QueuesQuery(ReadQuery, frozen=True):
    """A page of the queues."""

    limit: Annotated[int, Meta(ge=1, le=limits.PAGE_QUEUES_MAX)] = 100
    cursor: Cursor | None = None
    """`next_cursor` of the previous page."""


class RateReply(Reply, frozen=True):
    """A rate limit: `count` leases in `per_seconds`, evenly spread, and up to `burst` at once after an idle time.

    Any period of `per_seconds` contains at most `count + burst - 1` leases; with `burst` 1 never more than `count`. The
    default of `burst` is the number of leases in 100 ms, at least 1.
    """

    count: int
    per_seconds: float = 1.0
    burst: int = ABSENT


class QueueSettingsDocument(Reply, Generic[T], frozen=True):
    """The settings of a queue; null for a setting that nobody has made."""

    pause: PauseDocument[T] | None = None
    """While the queue is paused, its jobs are not dispatched."""
    rate: RateReply | None = None
    concurrency: int | None = None
    key_concurrency: int | None = None
    """null: 1 for jobs that have a concurrency key."""
    ageing_seconds: float | None = None
    """null: the cluster's setting."""
    retention_seconds: float | None = None
    """null: the cluster's setting."""
    max_lost_workers: int | None = None
    """null: 3."""
    weights: dict[str, int] = {}
    """Shares of tenants; an unnamed tenant has 1."""
    on_failure: Annotated[Any, or_null("HookBody")] = None
    on_success: Annotated[Any, or_null("HookBody")] = None
    revision: int | None = None
    """Log index of the latest change."""
    updated_at: T | None = None


class QueueSettingsReply(QueueSettingsDocument[Time], frozen=True):
    """The settings of a queue; null for a setting that nobody has made."""


class ActivityPeriodDocument(Reply, Generic[T], frozen=True):
    """Changes of a queue's jobs within some seconds."""

    at: T
    """Its start."""
    submitted: int = 0
    started: int = 0
    completed: int = 0
    failed: int = 0
    """Attempts that failed, and jobs that ended otherwise than completed."""
    wait_p99_ms: int | None = None
    """99 % of the jobs that started waited at most this long, rounded up to a step of a scale; null if none started."""


class ActivityDocument(Reply, Generic[T], frozen=True):
    """The last minutes of a queue, as the answering node has seen them since its start."""

    period_seconds: float = 0.0
    wait_p99_ms: int | None = None
    """The same for all periods together."""
    periods: Sequence[ActivityPeriodDocument[T]] = ()
    """The oldest first."""


class QueueDocument(Reply, Generic[T], frozen=True):
    """A queue: the number of its jobs by status, and its settings."""

    name: str
    tenant: str | None = None
    """The tenant whose jobs are counted; null = all tenants."""
    scheduled: int = 0
    waiting_dependencies: int = 0
    queued: int = 0
    running: int = 0
    cancelling: int = 0
    paused: int = 0
    """Paused jobs; `settings.pause` shows whether the queue is paused."""
    retrying: int = 0
    completed: int = 0
    failed: int = 0
    dead_letter: int = 0
    cancelled: int = 0
    skipped: int = 0
    exact: bool = True
    """False: too many timed jobs became due to examine them all; some are counted in their previous status."""
    oldest_wait_ms: int = 0
    """Waiting time of the job that could have started first; 0 = none waits."""
    waiting_workers: int | None = None
    """Workers that wait for jobs of this queue; null if the answering node does not lead."""
    settings: QueueSettingsDocument[T] = QueueSettingsDocument()
    activity: ActivityDocument[T] | None = None
    """null in lists."""


class QueueReply(QueueDocument[Time], frozen=True):
    """A queue: the number of its jobs by status, and its settings."""


class QueuesReply(Reply, frozen=True):
    """The queues that hold jobs or have settings, by name."""

    queues: list[QueueReply]
    next_cursor: str | None


class RatesReply(Reply, frozen=True):
    """Jobs per second lately, as the answering node has seen them."""

    submitted: float = 0.0
    completed: float = 0.0
    failed: float = 0.0
    """Attempts that failed, and are made again."""
    dead_letter: float = 0.0
    """Jobs that were given up."""
    over_seconds: float = 0.0
    """The time that was looked at: a minute, or less if more happened than is kept."""


class OverviewDocument(Reply, Generic[T], frozen=True):
    """All queues in short: how much there is to do, and the queues that need a look."""

    tenant: str | None = None
    """The tenant whose jobs are counted; null = all tenants."""
    jobs: dict[str, int] = {}
    """Jobs by status."""
    exact: bool = True
    """False: some jobs that became due are counted in their previous status, or not all queues were looked at for the
    longest waits."""
    queue_count: int = 0
    """Queues that hold jobs."""
    busiest: Sequence[QueueDocument[T]] = ()
    """The queues with the most due jobs."""
    longest_waits: Sequence[QueueDocument[T]] = ()
    """The queues in which a job waits for longest; none that is paused."""
    paused: Sequence[QueueDocument[T]] = ()
    """The first of the paused queues."""
    paused_count: int = 0
    dead_letters: dict[str, int] = {}
    """Jobs of the dead-letter queue by reason, the most frequent first."""
    rates: RatesReply = RatesReply()


class OverviewReply(OverviewDocument[Time], frozen=True):
    """All queues in short: how much there is to do, and the queues that need a look."""


class ScaleReply(Reply, frozen=True):
    """The numbers from which the count of workers of a queue is decided."""

    queue: str = ""
    backlog: int = 0
    """`ready` + `leased`: the jobs that workers have, or could have now."""
    ready: int = 0
    """Due jobs that wait only for a worker, or for the queue's limits."""
    delayed: int = 0
    """Jobs that wait for their time."""
    leased: int = 0
    """Jobs that workers run."""
    oldest_ready_seconds: float = 0.0
    """Waiting time of the job that could have started first; 0 = none waits."""
    workers: int = 0
    """Living workers that take jobs of this queue, busy ones included."""
    exact: bool = True
    """False: `ready` is an estimate, as in the queue's counts."""
    running: int = 0
    """The same as `leased`."""
    oldest_wait_ms: int = 0
    """The same as `oldest_ready_seconds`, in milliseconds."""
    waiting_workers: int = 0
    """Workers that wait for jobs of this queue now."""
    worker_slots: int = 1
    """Jobs that a typical worker of the queue runs at the same time; 1 if no worker is known."""
    wanted_workers: int = 0
    """Number of such workers for all running and ready jobs, within the queue's pause and limits."""
