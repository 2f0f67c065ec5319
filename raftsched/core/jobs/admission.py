"""Enforce the limits of a queue: its pause, its rate, and its concurrency, in all and per concurrency key.

The counts of leased jobs are derived from the records. So every end of a job, also by a cancel, frees its place in the
same write (cases D37, D40), and no place is lost.
"""

from __future__ import annotations

from raftsched import limits
from raftsched.core.jobs import rate_limit as bucket
from raftsched.core.operations.control import BackgroundKind
from raftsched.core.records.job import Job
from raftsched.core.records.queue import Queue
from raftsched.core.records.spec import Options
from raftsched.core.state.view import View
from raftsched.core.state.writes import PutQueue


def key_concurrency_max(queue: Queue | None) -> int:
    """Return how many jobs of one concurrency key can be leased at the same time."""
    return (queue.key_concurrency_max if queue is not None else 0) or 1


def lost_workers_max(job: Job, queue: Queue | None) -> int:
    """Return the count of lost workers that ends the job: by its option, its queue's setting, or the default."""
    own = job.spec.options.lost_workers_max if job.spec.options is not None else 0
    return own or (queue.lost_workers_max if queue is not None else 0) or limits.LOST_WORKERS_DEFAULT


def is_being_cancelled(view: View, options: Options) -> bool:
    """Return whether the job's workflow is being cancelled by background steps: it must not start any more."""
    workflow_id = options.workflow_id
    return bool(workflow_id) and view.background_cursor(BackgroundKind.CANCEL_WORKFLOW, workflow_id) is not None


def gate_of(view: View, name: str, now_ms: int) -> Gate | None:
    """Return the gate of a queue; None if it has no limits, and only concurrency keys can block jobs."""
    queue = view.queue(name)
    return None if queue is None else Gate(view, name, queue, now_ms)


class Gate:
    """Check one queue's limits within one operation; it counts admitted jobs, which the view does not show.

    Cost: a count for each limit that is set, and one for each concurrency key.
    """

    __slots__ = ("_key_max", "_key_room", "_name", "_old", "_queue", "_room", "_taken_count", "_view")

    def __init__(self, view: View, name: str, queue: Queue | None, now_ms: int) -> None:
        self._view = view
        self._name = name
        self._old = queue
        self._queue = queue if queue is None else bucket.filled(queue, now_ms)
        self._room = 0
        self._taken_count = 0
        self._key_room: dict[str, int] = {}
        self._key_max = key_concurrency_max(queue)
        if queue is not None and queue.concurrency_max:
            self._room = queue.concurrency_max - view.running_count(name)

    def admit(self, job: Job) -> bool:
        """Return whether `job` can be leased now; if so, it takes a place."""
        if not self._has_place():
            return False
        key = job.key_group
        if key:
            if key not in self._key_room:
                self._key_room[key] = self._key_max - self._view.key_running_count(self._name, key)
            if self._key_room[key] <= 0:
                return False
            self._key_room[key] -= 1
        self._room -= 1
        self._taken_count += 1
        return True

    def write(self) -> PutQueue | None:
        """Return the write of the queue's bucket, or None if nothing was taken from it."""
        if self._old is None or self._queue is None or not self._taken_count or not bucket.is_limited(self._old):
            return None
        return PutQueue(self._old, bucket.drawn(self._queue, self._taken_count))

    def _has_place(self) -> bool:
        queue = self._queue
        if queue is None:
            return True
        return (
            not queue.paused
            and (not queue.concurrency_max or self._room > 0)
            and (not queue.rate_count or self._taken_count < bucket.leases_left(queue))
        )
