"""Hold ready jobs, by queue, tenant and priority, in memory only as far as they are needed soon.

Theory of operation. The ready index of the state holds every waiting job; this module keeps a bounded prefix of it for
each queue and region that workers ask for (`buffer`, and `lanes` for the order of jobs). Nothing is known of a queue
that was not asked for, and anything unknown is read at the first `take`. So a new leader needs no preparation, and
forgetting is always allowed.

Ids that are taken are *in flight* until their lease is applied (`leave`) or the proposal has failed (`release`).

Limits. A queue gives no more than its limits allow (`limits`), counting jobs in flight as leased, so that proposals are
granted. Jobs with options are checked before they are given. One whose concurrency key is at its limit is set *aside*,
and so is one that has expired: it is neither given nor read again until it changes or is released, and the jobs behind
it may pass. `blocked` takes the former out of the index. A queue with `limits.BLOCK_JOBS_MAX` jobs aside gives nothing
until some are gone.

Workers also ask by pattern (`core.wanted`). The queues that may have ready jobs are known from the first such request
on (`open_queues`), so a request reads only those. A queue that gets its first job becomes known if a worker waits for
it by pattern.

Queues that are asked for together take turns. A queue whose limits may allow more than before is *touched*, like one
that got jobs, and its waiters are served again.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence
from heapq import heappop, heappush
from typing import Final

from raftsched.core.jobs.lease import is_expired
from raftsched.core.records.ids import JobId, NameTag
from raftsched.core.records.job import WAITING, Job
from raftsched.core.records.queue import Queue
from raftsched.leader.dispatch.buffer import Buffer
from raftsched.leader.dispatch.lanes import Line, ReadyQueue
from raftsched.leader.dispatch.limits import NO_LIMIT, KeysInFlight, QueueLimits
from raftsched.leader.dispatch.open_queues import OpenQueues
from raftsched.leader.now import NEVER_MS, Now
from raftsched.leader.view import LeaderView


class ReadyJobs(Buffer):
    """Due jobs that wait for a worker. Times are cluster milliseconds."""

    def __init__(self, view: LeaderView, *, ageing_ms: int) -> None:
        super().__init__(view)
        self._ageing_ms: Final = ageing_ms
        self._queues: Final[dict[str, ReadyQueue]] = {}
        self._touched: list[ReadyQueue] = []
        self._aside: Final[set[JobId]] = set()
        self._to_block: Final[dict[JobId, None]] = {}
        """Jobs aside that are to be blocked, in the order they were met."""
        self._keys: Final = KeysInFlight(view)
        self._limits: Final = QueueLimits(view)
        self._open: Final = OpenQueues(view)
        self._turn = 0
        self.has_limits = False
        """Whether any queue that was known may have had limits."""

    def watch(self, patterns: Collection[str]) -> None:
        """Use these patterns of waiting workers from now on; the caller changes them as workers come and go."""
        self._open.patterns = patterns

    @property
    def queue_count(self) -> int:
        """Return the number of known queues."""
        return len(self._queues)

    # -- jobs come and go ---------------------------------------------------------------------------------------------

    def add(
        self, queue: str, tenant: str, priority: int, due_at_ms: int, job_id: JobId, *, tag: NameTag, region: str
    ) -> None:
        """Keep a due job, unless it will be read from the index when it is needed."""
        self._open.filled(queue, region, tenant)
        known = self._queues.get(queue) or self._met(queue)
        if known is None or job_id in self._buffered or job_id in self._away:
            return
        if not known.is_touched:
            self._touch(known)
        part = known.parts.get(region)
        if part is None:
            return
        lane = part.lanes.get(tenant)
        if lane is None:
            lane = self._add_lane(part, tenant)
        elif not lane.is_read:
            return
        heap = lane.heaps.get((priority, tag))
        if heap is None:
            heap = self._add_heap(lane, priority, tag, None)
        place = (due_at_ms, job_id)
        if heap.cut is None or place <= heap.cut:
            heappush(heap.places, place)
            self._buffered[job_id] = heap
            heap.grew(1)
            if len(heap.places) > known.budget:
                self._shorten(heap)

    def leave(self, job_id: JobId) -> None:
        """Remove a job that no longer waits: it was leased, blocked or cancelled. Unknown ids are ignored."""
        heap = self._buffered.pop(job_id, None)
        if heap is not None:
            heap.grew(-1)
            return
        queue = self._away.pop(job_id, None)
        if queue is None:
            return
        if queue.is_free:
            queue.in_flight_count -= 1
            return
        if job_id in self._aside:
            self._aside.discard(job_id)
            self._to_block.pop(job_id, None)
            queue.aside_count -= 1
        else:
            queue.in_flight_count -= 1
            self._keys.land(job_id)
        self._touch(queue)

    def release(self, job_ids: Iterable[JobId]) -> None:
        """End the flight of jobs whose proposal failed; those that still wait must be added again."""
        away = self._away
        for job_id in job_ids:
            if job_id in away:
                self.leave(job_id)

    # -- queues change ------------------------------------------------------------------------------------------------

    def configured(self, settings: Queue) -> None:
        """Apply changed settings of the queue; also called after a lease took from its bucket."""
        known = self._queues.get(settings.name)
        if known is not None:
            known.configure(settings)
            self.has_limits = True
            self._touch(known)

    def look_at_each(self, queue: str) -> None:
        """Check each job of the queue: one with options arrived."""
        known = self._queues.get(queue)
        if known is not None and not known.is_keyed:
            known.look_at_each()
            self.has_limits = True

    def freed(self, queue: str) -> None:
        """Touch the queue: a job of it is no longer leased, so others may be."""
        known = self._queues.get(queue)
        if known is not None and not known.is_free:
            self._touch(known)

    def next_call_ms(self, now: Now) -> int:
        """Return when there are touched queues next, in monotonic milliseconds."""
        if self._touched:
            return now.monotonic_ms
        return now.monotonic_at(self._limits.next_call_ms()) if self._limits.has_any else NEVER_MS

    def touched_queues(self, now_ms: int) -> list[str]:
        """Return the queues that may have got jobs, or may give more, since the last call."""
        if self._limits.has_any:
            for woken in self._limits.advance(now_ms):
                self._touch(woken)
        if not self._touched:
            return []
        touched, self._touched = self._touched, []
        for queue in touched:
            queue.is_touched = False
        return [queue.name for queue in touched]

    def _met(self, name: str) -> ReadyQueue | None:
        """Make a queue known that has a job, if a worker waits for it by pattern."""
        return self._queue(name) if self._open.is_asked_by_pattern(name) else None

    def _touch(self, queue: ReadyQueue) -> None:
        if not queue.is_touched:
            queue.is_touched = True
            self._touched.append(queue)

    # -- taking -------------------------------------------------------------------------------------------------------

    def take(self, queues: Sequence[str], line: Line, count: int, now_ms: int) -> list[JobId]:
        """Take up to `count` jobs for a worker of `line` out of `queues`, names and patterns, which must be distinct.

        Jobs taken are in flight. Each queue gives an equal share as long as it has that many; the first turn changes
        with every call.
        """
        self._turn += 1
        names = self._open.names(queues, line)
        if not names:
            return []
        first = self._turn % len(names)
        asked = [self._queue(name) for name in (*names[first:], *names[:first])]
        looked_at = asked if names is not queues else ()
        taken: list[JobId] = []
        while asked and len(taken) < count:
            share = -(-(count - len(taken)) // len(asked))
            asked = [
                queue for queue in asked if self._take_from(queue, line, min(share, count - len(taken)), now_ms, taken)
            ]
        for queue in looked_at:
            self._open.looked_at(queue, line)
        return taken

    def fill(self, queue: str, line: Line, now_ms: int) -> int:
        """Return how many jobs of `queue` in memory a worker of `line` may take; read the index if there are none.

        0 = none.
        """
        region, tags, tenant = line
        known = self._queue(queue)
        allowed = NO_LIMIT if known.is_free else self._limits.allowance(known, now_ms)
        if not allowed or self._first(known, line, now_ms) is None:
            return 0
        size = known.parts[""].size_of(tags, tenant)
        return min(size + known.parts[region].size_of(tags, tenant) if region else size, allowed)

    def _take_from(self, queue: ReadyQueue, line: Line, count: int, now_ms: int, taken: list[JobId]) -> bool:
        """Move up to `count` jobs to `taken`; return False if there were fewer."""
        if queue.is_free:
            return self._draw(queue, line, count, now_ms, taken)
        goal = len(taken) + count
        while allowed := min(goal - len(taken), self._limits.allowance(queue, now_ms)):
            drawn: list[JobId] = []
            had_all = self._draw(queue, line, allowed, now_ms, drawn)
            taken += [job_id for job_id in drawn if self._may_go(queue, job_id, now_ms)] if queue.is_keyed else drawn
            if not had_all:
                break
        return len(taken) == goal

    def _draw(self, queue: ReadyQueue, line: Line, count: int, now_ms: int, taken: list[JobId]) -> bool:
        """Move up to `count` jobs to `taken`, ignoring limits; return False if there were fewer."""
        buffered, away = self._buffered, self._away
        region, tags, tenant = line
        while count:
            lane = self._first(queue, line, now_ms)
            if lane is None:
                return False
            other = queue.other_lane(lane, region) if region else None
            shared = tenant is None and queue.is_shared(lane, other, region)
            share = left = min(count, queue.turn(lane.tenant, self._weight)) if shared else count
            while left:
                heap = (
                    self._first_heap(lane, tags, now_ms)
                    if other is None
                    else self._first_of_both(lane, other, tags, now_ms)
                )
                if heap is None:
                    break
                job_id = heappop(heap.places)[1]
                del buffered[job_id]
                heap.grew(-1)
                away[job_id] = queue
                taken.append(job_id)
                left -= 1
            given = share - left
            queue.in_flight_count += given
            count -= given
            if shared:
                queue.end_turn(lane.tenant, given)
        return True

    def _weight(self, tenant: str) -> int:
        settings = self._view.tenant(tenant)
        return 1 if settings is None else settings.weight

    # -- looking at each ----------------------------------------------------------------------------------------------

    def _may_go(self, queue: ReadyQueue, job_id: JobId, now_ms: int) -> bool:
        """Return whether the options of a drawn job allow its lease; otherwise set it aside."""
        job = self._view.job(job_id)
        if job is None or job.status not in WAITING or job.blocked:
            self.leave(job_id)
            return False
        options = job.spec.options
        if options is None:
            return True
        if is_expired(job, now_ms):
            self._set_aside(queue, job_id)  # its deadline is about to fire
            return False
        if self._keys.take_off(job, queue.settings):
            return True
        self._set_aside(queue, job_id)
        self._to_block[job_id] = None
        return False

    def _set_aside(self, queue: ReadyQueue, job_id: JobId) -> None:
        queue.in_flight_count -= 1
        queue.aside_count += 1
        self._aside.add(job_id)

    def hold(self, job: Job) -> None:
        """Park a ready job whose lease was refused because its concurrency key is at its limit."""
        queue = self._queue(job.spec.queue)
        self.leave(job.id)
        queue.look_at_each()
        self.has_limits = True
        queue.aside_count += 1
        self._away[job.id] = queue
        self._aside.add(job.id)
        self._to_block[job.id] = None

    def block_again(self, job_id: JobId) -> None:
        """Try again to block a job: whether it was blocked is unknown."""
        if job_id in self._aside:
            self._to_block[job_id] = None

    def next_to_block(self, limit: int) -> tuple[JobId, ...]:
        """Return the first `limit` jobs that are to be blocked; they stay aside."""
        job_ids = tuple(self._to_block)[:limit]
        for job_id in job_ids:
            del self._to_block[job_id]
        return job_ids

    @property
    def has_to_block(self) -> bool:
        return bool(self._to_block)

    def is_aside(self, job_id: JobId) -> bool:
        return job_id in self._aside

    def key_has_room(self, job: Job) -> bool:
        """Return whether the job's concurrency key allows one more, counting jobs in flight."""
        known = self._queues.get(job.spec.queue)
        settings = self._view.queue(job.spec.queue) if known is None else known.settings
        return self._keys.has_place(job, settings)

    # -- forgetting ---------------------------------------------------------------------------------------------------

    def doubt(self) -> None:
        """Read all known queues again at the next `take`: jobs may have become due unnoticed, or may not have expired
        after all.
        """
        self.release(tuple(self._aside))
        self._buffered.clear()
        self._open.doubt()
        for queue in self._queues.values():
            queue.reset()
            self._touch(queue)

    def forget_except(self, queues: Container[str]) -> None:
        """Forget what is known about all other queues; those with limits that have jobs in flight are kept.

        So are those that have jobs and are waited for by pattern.
        """
        for queue in [queue for queue in self._queues.values() if queue.name not in queues]:
            if self._open.is_asked_by_pattern(queue.name) and not all(part.is_empty for part in queue.parts.values()):
                continue
            if queue.is_free or not (queue.in_flight_count or queue.aside_count):
                del self._queues[queue.name]
                self._limits.forget(queue)
                self._drop_all(queue)

    def _queue(self, name: str) -> ReadyQueue:
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = ReadyQueue(name, self._view.queue(name), self._ageing_ms)
            self.has_limits = self.has_limits or not queue.is_free
        return queue
