"""A queue's rate limit: a bucket of `burst` leases into which `rate_count` flow evenly in each `rate_period_ms`.

Integer arithmetic in thousandths of a lease, so every node counts alike. What rounding loses is lost to the queue, never
given to it: less than a thousandth of a lease each time one is taken. In any span of time at most a full bucket and what
flows in meanwhile are given. So a span of one period, its end not included, gives at most `rate_count + burst - 1`
leases: with a burst of 1, never more than `rate_count`.

A bucket is only written when something is taken from it; whoever looks works out what has come in since.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from raftsched.core.records.ids import TimeMs
from raftsched.core.records.queue import Queue

LEASE_MILLI: Final = 1_000
"""What one lease takes."""
_BURST_MS: Final = 100
"""By default a bucket holds what flows in during this time: enough for leases that are given in batches."""


def is_limited(queue: Queue) -> bool:
    return queue.rate_count > 0


def burst(queue: Queue) -> int:
    """Return how many leases a full bucket holds; at least 1."""
    return queue.rate_burst or max(1, queue.rate_count * _BURST_MS // queue.rate_period_ms)


def capacity_milli(queue: Queue) -> int:
    return burst(queue) * LEASE_MILLI


def filled(queue: Queue, now_ms: int) -> Queue:
    """Return `queue` with what has come into its bucket by `now_ms`; as it was where there is no limit."""
    elapsed_ms = now_ms - queue.bucket_at_ms
    if not is_limited(queue) or elapsed_ms <= 0:
        return queue
    capacity = capacity_milli(queue)
    gained = elapsed_ms * queue.rate_count * LEASE_MILLI // queue.rate_period_ms
    if queue.bucket_milli + gained >= capacity:
        return replace(queue, bucket_milli=capacity, bucket_at_ms=TimeMs(now_ms))
    # The clock moves on by what came in, which is less than has passed where a millisecond brings less than a thousandth.
    at_ms = queue.bucket_at_ms + _ms_for(queue, gained)
    return replace(queue, bucket_milli=queue.bucket_milli + gained, bucket_at_ms=TimeMs(at_ms))


def drawn(queue: Queue, lease_count: int) -> Queue:
    """Return `queue`, which must be `filled`, after `lease_count` leases were taken."""
    return replace(queue, bucket_milli=queue.bucket_milli - lease_count * LEASE_MILLI)


def leases_left(queue: Queue) -> int:
    """How many leases a `filled` bucket has."""
    return queue.bucket_milli // LEASE_MILLI


def next_lease_at_ms(queue: Queue, now_ms: int, *, lease_count: int = 1) -> TimeMs:
    """When the bucket has its next lease if none is taken until then; `now_ms` where it has one, or there is no limit.

    With `lease_count`, at most `burst`: when it has that many.
    """
    full = filled(queue, now_ms)
    lacking_milli = lease_count * LEASE_MILLI - full.bucket_milli
    if not is_limited(queue) or lacking_milli <= 0:
        return TimeMs(now_ms)
    return TimeMs(full.bucket_at_ms + _ms_for(full, lacking_milli))


def relimited(old: Queue, new: Queue, now_ms: TimeMs) -> Queue:
    """Return `new` with the bucket that `old` had, as far as it fits; a limit that is new begins with a full one.

    `new` needs a `rate_period_ms` if it has a `rate_count`.
    """
    if not is_limited(new):
        return replace(new, bucket_milli=0, bucket_at_ms=TimeMs(0))
    if not is_limited(old):
        return replace(new, bucket_milli=capacity_milli(new), bucket_at_ms=now_ms)
    left = min(filled(old, now_ms).bucket_milli, capacity_milli(new))
    return replace(new, bucket_milli=left, bucket_at_ms=now_ms)


def _ms_for(queue: Queue, milli: int) -> int:
    """The milliseconds in which `milli` come in, rounded up."""
    return -(-milli * queue.rate_period_ms // (queue.rate_count * LEASE_MILLI))
