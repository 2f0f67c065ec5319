"""A queue's settings; a queue without any has no record, and all queues exist."""

from __future__ import annotations

import msgspec

from raftsched.core.records.ids import TimeMs


class TenantWeight(msgspec.Struct, frozen=True, array_like=True):
    tenant: str
    weight: int
    """1 to 1,000; a tenant that is not named has 1."""


class Queue(msgspec.Struct, frozen=True, array_like=True):
    """What operators said about a queue, and what its rate limit has left."""

    name: str
    paused: bool = False
    paused_at_ms: TimeMs = TimeMs(0)
    pause_until_ms: TimeMs = TimeMs(0)
    """It goes on by itself then; 0 = only by a user."""
    pause_reason: str = ""
    rate_count: int = 0
    """Leases per `rate_period_ms`; 0 = no limit."""
    rate_period_ms: int = 0
    rate_burst: int = 0
    """Leases that may be given at once after a rest; 0 = what flows in within 100 ms, at least 1."""
    concurrency_max: int = 0
    """Jobs leased at the same time; 0 = no limit."""
    key_concurrency_max: int = 0
    """Jobs of one concurrency key leased at the same time; 0 = 1 for jobs that have a key."""
    ageing_ms: int = 0
    """A waiting job gains one priority for each of these; 0 = as the cluster says."""
    retention_ms: int = 0
    """How long its finished jobs are kept; 0 = as the cluster says."""
    lost_workers_max: int = 0
    """Lost workers that end a job in the dead letters; 0 = `limits.LOST_WORKERS_DEFAULT`."""
    weights: tuple[TenantWeight, ...] = ()
    bucket_milli: int = 0
    """Thousandths of leases left in the bucket at `bucket_at_ms`."""
    bucket_at_ms: TimeMs = TimeMs(0)
    created_at_ms: TimeMs = TimeMs(0)
    updated_at_ms: TimeMs = TimeMs(0)
    revision: int = 0

    @property
    def next_deadline_ms(self) -> int:
        """When its pause ends by itself; 0 = never."""
        return self.pause_until_ms if self.paused else 0

    def weight_of(self, tenant: str) -> int:
        return next((each.weight for each in self.weights if each.tenant == tenant), 1)


_decoder = msgspec.msgpack.Decoder(Queue)
_encode = msgspec.msgpack.Encoder().encode


def encode_queue(queue: Queue) -> bytes:
    return _encode(queue)


def decode_queue(data: bytes | memoryview) -> Queue:
    return _decoder.decode(data)
