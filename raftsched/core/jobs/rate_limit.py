"""Limit a queue's rate by a token bucket: `burst` leases, filled evenly with `rate_count` per `rate_period_ms`.

Integer arithmetic in thousandths of a lease, so every node counts the same. Rounding loses less than a thousandth of a
lease each time one is taken, and never adds any. In any span of time at most a full bucket and the inflow are granted. So
a span of one period, its end not included, grants at most `rate_count + burst - 1` leases: with a burst of 1, never more
than `rate_count`.

A bucket is written only when a lease is taken from it; readers compute the inflow since.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from raftsched.core.records.ids import TimeMs
from raftsched.core.records.queue import Queue

LEASE_MILLI: Final = 1_000
"""The cost of one lease."""
_BURST_MS: Final = 100
"""By default a bucket's capacity is the inflow of this time: enough for leases that are granted in batches."""


def is_limited(queue: Queue) -> bool:
    return queue.rate_count > 0


def burst(queue: Queue) -> int:
    """Return the capacity of the bucket in leases; at least 1."""
    return queue.rate_burst or max(1, queue.rate_count * _BURST_MS // queue.rate_period_ms)


def capacity_milli(queue: Queue) -> int:
    return burst(queue) * LEASE_MILLI


def filled(queue: Queue, now_ms: int) -> Queue:
    """Return `queue` with its bucket filled up to `now_ms`; unchanged if it has no limit."""
    elapsed_ms = now_ms - queue.bucket_at_ms
    if not is_limited(queue) or elapsed_ms <= 0:
        return queue
    capacity = capacity_milli(queue)
    gained = elapsed_ms * queue.rate_count * LEASE_MILLI // queue.rate_period_ms
    if queue.bucket_milli + gained >= capacity:
        return replace(queue, bucket_milli=capacity, bucket_at_ms=TimeMs(now_ms))
    # Advance the clock only by the time of the inflow: a millisecond may bring less than a thousandth of a lease.
    at_ms = queue.bucket_at_ms + _ms_for(queue, gained)
    return replace(queue, bucket_milli=queue.bucket_milli + gained, bucket_at_ms=TimeMs(at_ms))


def drawn(queue: Queue, lease_count: int) -> Queue:
    """Return `queue`, which must be `filled`, after `lease_count` leases were taken."""
    return replace(queue, bucket_milli=queue.bucket_milli - lease_count * LEASE_MILLI)


def leases_left(queue: Queue) -> int:
    """Return the number of leases in a `filled` bucket."""
    return queue.bucket_milli // LEASE_MILLI


def next_lease_at_ms(queue: Queue, now_ms: int, *, lease_count: int = 1) -> TimeMs:
    """Return the time at which the bucket has `lease_count` leases (at most `burst`) if none is taken until then.

    It is `now_ms` if it has them already, or there is no limit.
    """
    full = filled(queue, now_ms)
    lacking_milli = lease_count * LEASE_MILLI - full.bucket_milli
    if not is_limited(queue) or lacking_milli <= 0:
        return TimeMs(now_ms)
    return TimeMs(full.bucket_at_ms + _ms_for(full, lacking_milli))


def relimited(old: Queue, new: Queue, now_ms: TimeMs) -> Queue:
    """Return `new` with the bucket of `old`, cut to the new capacity; a new limit begins with a full bucket.

    `new` needs a `rate_period_ms` if it has a `rate_count`.
    """
    if not is_limited(new):
        return replace(new, bucket_milli=0, bucket_at_ms=TimeMs(0))
    if not is_limited(old):
        return replace(new, bucket_milli=capacity_milli(new), bucket_at_ms=now_ms)
    left = min(filled(old, now_ms).bucket_milli, capacity_milli(new))
    return replace(new, bucket_milli=left, bucket_at_ms=now_ms)


def _ms_for(queue: Queue, milli: int) -> int:
    """Return the milliseconds in which `milli` flow in, rounded up."""
    return -(-milli * queue.rate_period_ms // (queue.rate_count * LEASE_MILLI))
