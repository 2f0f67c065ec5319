"""Compute how many leases the limits of queues allow now, as far as the leader can tell before it proposes.

Theory of operation. The state counts running jobs. Jobs in flight count as leased, too, so a proposed lease is mostly
granted, and two proposals never compete for one place. The log decides all the same (`core.jobs.admission`).

A queue whose bucket is empty is woken when the next lease is allowed: exactly then, and only if it was asked for. All
other limits end with an event that the leader sees: a job that ends, a failed proposal, changed settings.
"""

from __future__ import annotations

from typing import Final

from raftsched import limits
from raftsched.core.jobs import rate_limit as bucket
from raftsched.core.jobs.admission import key_concurrency_max
from raftsched.core.records.ids import JobId
from raftsched.core.records.job import Job
from raftsched.core.records.queue import Queue
from raftsched.leader.dispatch.lanes import ReadyQueue
from raftsched.leader.now import NEVER_MS
from raftsched.leader.timers.wheel import Wheel
from raftsched.leader.view import LeaderView

NO_LIMIT: Final = 1 << 62


class QueueLimits:
    """Enforce the limits of whole queues. Times are cluster milliseconds."""

    def __init__(self, view: LeaderView) -> None:
        self._view: Final = view
        self._wakes: Final[Wheel[ReadyQueue]] = Wheel()
        self.has_any = False
        """Whether a queue may have to be woken."""

    def allowance(self, queue: ReadyQueue, now_ms: int) -> int:
        """Return how many more jobs of the queue may be taken; if its rate allows none, it will be woken."""
        if queue.aside_count >= limits.BLOCK_JOBS_MAX:
            return 0
        settings = queue.settings
        if settings is None:
            return NO_LIMIT
        if settings.paused:
            return 0
        allowed = NO_LIMIT
        if settings.concurrency_max:
            allowed = settings.concurrency_max - self._view.running_count(queue.name) - queue.in_flight_count
        if settings.rate_count and allowed > 0:
            left = bucket.leases_left(bucket.filled(settings, now_ms)) - queue.in_flight_count
            if left <= 0:
                self._wake_later(queue, settings, now_ms)
            allowed = min(allowed, left)
        return max(allowed, 0)

    def advance(self, now_ms: int) -> list[ReadyQueue]:
        """Return the queues that were to be woken by now."""
        woken = self._wakes.advance(now_ms)
        for queue in woken:
            queue.wake = None
        self.has_any = len(self._wakes) > 0
        return woken

    def next_call_ms(self) -> int:
        """Return when `advance` must be called next, in cluster milliseconds."""
        next_ms = self._wakes.next_call()
        return NEVER_MS if next_ms is None else next_ms

    def forget(self, queue: ReadyQueue) -> None:
        """Drop the queue: no worker asks for it."""
        if queue.wake is not None:
            self._wakes.cancel(queue.wake)
            queue.wake = None

    def _wake_later(self, queue: ReadyQueue, settings: Queue, now_ms: int) -> None:
        """Wake the queue when a lease beyond those in flight is allowed; failures of those in flight wake it, too."""
        lease_count = queue.in_flight_count + 1
        if lease_count > bucket.burst(settings):
            return
        at_ms = bucket.next_lease_at_ms(settings, now_ms, lease_count=lease_count)
        if queue.wake is not None:
            if queue.wake.due_ms == at_ms:
                return
            self._wakes.cancel(queue.wake)
        queue.wake = self._wakes.add(at_ms, queue)
        self.has_any = True


class KeysInFlight:
    """Enforce the limits of concurrency keys: jobs in flight are added to those that the state counts as leased."""

    def __init__(self, view: LeaderView) -> None:
        self._view: Final = view
        self._counts: Final[dict[tuple[str, str], int]] = {}
        self._keys: Final[dict[JobId, tuple[str, str]]] = {}

    def has_place(self, job: Job, settings: Queue | None) -> bool:
        """Return whether the job's key allows one more; always true for a job without a key."""
        key = job.key_group
        if not key:
            return True
        taken = self._view.key_running_count(job.spec.queue, key) + self._counts.get((job.spec.queue, key), 0)
        return taken < key_concurrency_max(settings)

    def take_off(self, job: Job, settings: Queue | None) -> bool:
        """Count the job as in flight and return True, unless its key is at its limit."""
        if not self.has_place(job, settings):
            return False
        if key := job.key_group:
            place = (job.spec.queue, key)
            self._keys[job.id] = place
            self._counts[place] = self._counts.get(place, 0) + 1
        return True

    def land(self, job_id: JobId) -> None:
        """Remove the job from those in flight. Jobs without a key are ignored."""
        place = self._keys.pop(job_id, None)
        if place is not None:
            self._counts[place] -= 1
            if not self._counts[place]:
                del self._counts[place]
