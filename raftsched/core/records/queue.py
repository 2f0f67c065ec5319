"""Define a queue's settings. Every queue exists; one without settings has no record."""

from __future__ import annotations

import msgspec

from raftsched.core.records.ids import TimeMs
from raftsched.core.records.spec import Hook


class TenantWeight(msgspec.Struct, frozen=True, array_like=True):
    tenant: str
    weight: int
    """1 to `tenant.WEIGHT_MAX`; tenants without an entry have that of their settings."""


class Queue(msgspec.Struct, frozen=True, array_like=True):
    """Record a queue's settings, and the level of its rate limit's bucket."""

    name: str
    paused: bool = False
    paused_at_ms: TimeMs = TimeMs(0)
    pause_until_ms: TimeMs = TimeMs(0)
    """Its pause ends by itself then; 0 = only a user ends it."""
    pause_reason: str = ""
    rate_count: int = 0
    """Leases per `rate_period_ms`; 0 = no limit."""
    rate_period_ms: int = 0
    rate_burst: int = 0
    """Leases that can be granted at once after an idle time; 0 = the rate of 100 ms, at least 1."""
    concurrency_max: int = 0
    """Jobs leased at the same time; 0 = no limit."""
    key_concurrency_max: int = 0
    """Jobs of one concurrency key leased at the same time; 0 = 1 for jobs that have a key."""
    ageing_ms: int = 0
    """A waiting job gains one priority for each of these; 0 = the cluster's."""
    retention_ms: int = 0
    """Retention of its finished jobs; 0 = the cluster's."""
    lost_workers_max: int = 0
    """Lost workers after which a job is dead-lettered; 0 = `limits.LOST_WORKERS_DEFAULT`."""
    weights: tuple[TenantWeight, ...] = ()
    bucket_milli: int = 0
    """Thousandths of leases left in the bucket at `bucket_at_ms`."""
    bucket_at_ms: TimeMs = TimeMs(0)
    created_at_ms: TimeMs = TimeMs(0)
    updated_at_ms: TimeMs = TimeMs(0)
    revision: int = 0
    on_failure: Hook | None = None
    """The hook of its jobs that have none of their own; None = none."""
    on_success: Hook | None = None
    paused_by: str = ""
    """The actor who paused it; "" = not known."""

    @property
    def next_deadline_ms(self) -> int:
        """Return the time at which its pause ends by itself; 0 = never."""
        return self.pause_until_ms if self.paused else 0


_decoder = msgspec.msgpack.Decoder(Queue)
_encode = msgspec.msgpack.Encoder().encode


def encode_queue(queue: Queue) -> bytes:
    return _encode(queue)


def decode_queue(data: bytes | memoryview) -> Queue:
    return _decoder.decode(data)
