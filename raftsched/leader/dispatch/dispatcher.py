"""Queue workers that wait for jobs, first come, first served.

Theory of operation. A worker asks for jobs of some queues. If there are any for its region it takes them at once: no
other worker can be waiting for the same ones, since whatever arrives is first handed to its waiters. Otherwise it
waits. When jobs have arrived (`match`, once for all changes of a log entry) each queue's waiters are served in the
order they came, each with an even share of the jobs, so that a burst spreads over idle workers and still costs one
lease operation a worker. Jobs are handed to a waiter directly, so no waiter wakes up without one. There is a line of
waiters for each region, and lines without a job are skipped as a whole.

A line belongs to a region, to a tenant or to all, and to the job names that its workers have handlers for: workers of
one release share a line.
A worker that asks by pattern is in the lines of the pattern, which are served with each queue that matches.

A match commits nothing: the waiter proposes the lease, and the log decides. Left out: this module neither proposes
nor sleeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from raftsched import limits
from raftsched.core.records.ids import JobId
from raftsched.core.records.queue_patterns import is_pattern, matches, tags_of
from raftsched.errors import RaftschedError, Unavailable
from raftsched.leader.dispatch.lanes import Line
from raftsched.leader.dispatch.ready import ReadyJobs
from raftsched.leader.now import NEVER_MS, Now
from raftsched.leader.timers.wheel import Timer, Wheel

READY_QUEUES_MAX: Final = 10_000
"""Queues known to `ready`, beyond those waited for; workers can ask for any name, so their number needs a bound."""


Lines = dict[Line, dict["Waiter", None]]
"""In the order they came; no line is empty."""


class Waiter:
    """A worker's request for up to `capacity` jobs. `jobs` gets the ids of its jobs, or [] when the wait has timed out.

    `queues` are names and patterns; `names` are the job names that it has handlers for, None = any. Its jobs are those of
    `tenant`; None = of all.
    """

    __slots__ = ("capacity", "jobs", "line", "names", "number", "queues", "timer", "version", "worker")

    def __init__(
        self,
        worker: str,
        queues: Sequence[str],
        capacity: int,
        jobs: asyncio.Future[list[JobId]],
        region: str = "",
        *,
        names: Sequence[str] | None = None,
        tenant: str | None = None,
        version: str = "",
    ) -> None:
        self.worker: Final = worker
        self.queues: Final = queues
        self.capacity: Final = capacity
        self.jobs: Final = jobs
        self.names: Final = names
        self.version: Final = version
        self.line: Final = Line(region, None if names is None else tags_of(names), tenant)
        self.number = 0
        """Order of arrival, lower is earlier; set when it waits."""
        self.timer: Timer[Waiter] | None = None


class Dispatcher:
    """Match waiting workers with ready jobs. Waits are measured in monotonic milliseconds."""

    def __init__(self, ready: ReadyJobs) -> None:
        self._ready: Final = ready
        self._queues: Final[dict[str, Lines]] = {}
        """By queue."""
        self._patterns: Final[dict[str, Lines]] = {}
        """By pattern."""
        ready.watch(self._patterns.keys())
        self._waiters: Final[dict[Waiter, None]] = {}
        self._deadlines: Final[Wheel[Waiter]] = Wheel()
        self._number = 0
        self._ready_queues_max = READY_QUEUES_MAX

    def __len__(self) -> int:
        """Return the number of waiting workers."""
        return len(self._waiters)

    def waiting_count(self, queue: str, tenant: str | None = None) -> int:
        """Return the number of workers waiting for jobs of `queue`, of one tenant or of any."""
        lines = [self._queues.get(queue, {}), *self._lines_by_pattern(queue)]
        return sum(
            len(waiters)
            for each in lines
            for line, waiters in each.items()
            if tenant is None or line.tenant in (None, tenant)
        )

    def waiting_workers(self) -> Iterator[str]:
        """Return the name of every worker that waits, once for each of its requests."""
        return (waiter.worker for waiter in self._waiters)

    def ask(self, waiter: Waiter, until_ms: int, now: Now) -> None:
        """Hand ready jobs to `waiter`, or let it wait until `until_ms`.

        Raises `Unavailable` if too many wait already; then nothing is changed.
        """
        self._limit_queues()
        job_ids = self._ready.take(waiter.queues, waiter.line, waiter.capacity, now.cluster_ms)
        if job_ids or until_ms <= now.monotonic_ms:
            waiter.jobs.set_result(job_ids)
            return
        if len(self._waiters) >= limits.WAITING_WORKERS_MAX:
            raise Unavailable("too many workers are waiting for jobs; retry in a moment")
        self._waiters[waiter] = None
        self._number += 1
        waiter.number = self._number
        waiter.timer = self._deadlines.add(until_ms, waiter)
        for queue in waiter.queues:
            self._places(queue).setdefault(queue, {}).setdefault(waiter.line, {})[waiter] = None

    def leave(self, waiter: Waiter) -> None:
        """End the wait if it is still open, without jobs."""
        if waiter.timer is None:
            return
        self._deadlines.cancel(waiter.timer)
        waiter.timer = None
        del self._waiters[waiter]
        for queue in waiter.queues:
            places = self._places(queue)
            lines = places[queue]
            del lines[waiter.line][waiter]
            if not lines[waiter.line]:
                del lines[waiter.line]
            if not lines:
                del places[queue]

    def dismiss(self, worker: str) -> None:
        """End the waits of a worker, without jobs, so that it asks again."""
        for waiter in [each for each in self._waiters if each.worker == worker]:
            self.leave(waiter)
            waiter.jobs.set_result([])

    def match(self, now: Now) -> None:
        """Give the jobs that have arrived since the last call to the workers that wait for them."""
        for queue in self._ready.touched_queues(now.cluster_ms):
            if queue in self._queues or self._patterns:
                self._serve(queue, now)

    def step(self, now: Now) -> None:
        """End the waits that have timed out."""
        for waiter in self._deadlines.advance(now.monotonic_ms):
            self._resolve(waiter, [])

    def close(self, error: RaftschedError) -> None:
        """End all waits with `error`."""
        for waiter in list(self._waiters):
            self.leave(waiter)
            if not waiter.jobs.done():
                waiter.jobs.set_exception(error)

    def next_call_ms(self) -> int:
        next_ms = self._deadlines.next_call()
        return NEVER_MS if next_ms is None else next_ms

    def _limit_queues(self) -> None:
        if self._ready.queue_count > self._ready_queues_max:
            self._ready.forget_except(self._queues)
            # Twice the minimum, so that each sweep is amortised over as many new names.
            self._ready_queues_max = max(READY_QUEUES_MAX, 2 * self._ready.queue_count)

    def _serve(self, queue: str, now: Now) -> None:
        empty: set[Line] = set()
        """Lines without a job; what others are given adds none to them."""
        while True:
            lines = [self._queues.get(queue, {}), *self._lines_by_pattern(queue)]
            asking = [(line, waiters) for each in lines for line, waiters in each.items() if line not in empty]
            counts = {line: self._ready.fill(queue, line, now.cluster_ms) for line, _ in asking}
            empty.update(line for line, count in counts.items() if not count)
            served = [(next(iter(waiters)), counts[line]) for line, waiters in asking if counts[line]]
            if not served:
                return
            waiter, available = min(served, key=_came)
            if waiter.jobs.done():  # its caller is gone and will leave in a moment
                self.leave(waiter)
                continue
            share = min(waiter.capacity, -(-available // self.waiting_count(queue)))
            queues = waiter.queues if queue in waiter.queues else (queue,)
            if job_ids := self._ready.take(queues, waiter.line, share, now.cluster_ms):
                self._resolve(waiter, job_ids)

    def _places(self, queue: str) -> dict[str, Lines]:
        return self._patterns if is_pattern(queue) else self._queues

    def _lines_by_pattern(self, queue: str) -> Iterator[Lines]:
        return (lines for pattern, lines in self._patterns.items() if matches(pattern, queue))

    def _resolve(self, waiter: Waiter, job_ids: list[JobId]) -> None:
        self.leave(waiter)
        if not waiter.jobs.done():
            waiter.jobs.set_result(job_ids)


def _came(served: tuple[Waiter, int]) -> int:
    return served[0].number
