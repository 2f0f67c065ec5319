"""What operators say about queues."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from raftsched import limits
from raftsched.wire.requests.common import LostWorkers, Name, Request, SpanSeconds

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
