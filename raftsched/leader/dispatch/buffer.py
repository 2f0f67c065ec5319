"""The part of the ready index that is in memory: read when it runs empty, and never more than the budget allows.

See `lanes` for its contents and its order. A job that has left is dropped when it is met: heaps are never searched.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop
from typing import Final

from raftsched.core.records.ids import JobId, NameTag, TimeMs
from raftsched.core.records.queue_patterns import Tags
from raftsched.core.state.entries import WaitingEntry
from raftsched.leader.dispatch.lanes import START, JobHeap, Lane, Line, Part, Place, ReadyQueue, first_of
from raftsched.leader.view import LeaderView

PARTS_MAX: Final = 100
"""Regions known of a queue. Workers can ask for any, so their number needs a bound: beyond it, all are read again."""


class Buffer:
    """A part of `ReadyJobs`: the jobs in memory. Times are cluster milliseconds."""

    def __init__(self, view: LeaderView) -> None:
        self._view: Final = view
        self._buffered: Final[dict[JobId, JobHeap]] = {}
        self._away: Final[dict[JobId, ReadyQueue]] = {}
        """In flight or aside: not to be read again."""

    @property
    def buffered_count(self) -> int:
        """Return the number of jobs in memory; see `lanes` for the bound."""
        return len(self._buffered)

    # -- what comes next ----------------------------------------------------------------------------------------------

    def _first(self, queue: ReadyQueue, line: Line, now_ms: int) -> Lane | None:
        """Return the lane whose turn it is and that has a job for workers of `line` in memory; None if none has."""
        region = line.region
        own = self._front(queue, region, line, now_ms) if region else None
        lane = self._front(queue, "", line, now_ms)
        if own is None or (lane is not None and lane.turn_number < own.turn_number):
            return lane
        return own

    def _front(self, queue: ReadyQueue, region: str, line: Line, now_ms: int) -> Lane | None:
        """Return the lane of the part whose turn it is and that has such a job in memory; None if the part has none."""
        tags, tenant = line.tags, line.tenant
        part = queue.parts.get(region)
        if part is None:
            part = self._add_part(queue, region)
        if part.has_none_of(tags):
            return None
        found: Lane | None = None
        empty: list[Lane] = []
        for lane in part.lanes.values() if tenant is None else part.lanes_of(tenant):
            if self._first_heap(lane, tags, now_ms) is not None:
                found = lane
                break
            if tags is None or not lane.may_hold_any:
                empty.append(lane)
        for lane in empty:
            if len(part.lanes) > 1:
                queue.drop_lane(lane)
            else:  # mostly its next job is about to arrive
                queue.stand_alone(lane.tenant)
        return found

    def _first_of_both(self, lane: Lane, other: Lane, tags: Tags | None, now_ms: int) -> JobHeap | None:
        """Return the heap whose first job is the next of two lanes of one tenant; None if they have no such job."""
        heaps = [heap for each in (lane, other) if (heap := self._first_heap(each, tags, now_ms)) is not None]
        return first_of(heaps, lane.part.queue.ageing_ms) if heaps else None

    def _first_heap(self, lane: Lane, tags: Tags | None, now_ms: int) -> JobHeap | None:
        """Return the heap whose first job is the lane's next of these names; None if the lane has no such job."""
        if not lane.is_read:
            self._read_lane(lane, now_ms)
        heaps = lane.heaps
        if len(heaps) == 1:  # as mostly
            for heap in heaps.values():
                is_wanted = tags is None or heap.tag in tags
                return heap if is_wanted and self._has_any(heap, now_ms) else None
        filled: list[JobHeap] = []
        for heap in [*heaps.values()]:
            if tags is not None and heap.tag not in tags:
                continue
            if self._has_any(heap, now_ms):
                filled.append(heap)
            else:
                lane.part.queue.drop_heap(heap)
        return first_of(filled, lane.part.queue.ageing_ms) if filled else None

    def _has_any(self, heap: JobHeap, now_ms: int) -> bool:
        """Return whether the heap has a job; then the first of its places is that of a present job."""
        buffered = self._buffered
        while True:
            places = heap.places
            while places and buffered.get(places[0][1]) is not heap:  # it left meanwhile
                heappop(places)
            if places:
                return True
            if heap.cut is None:
                return False
            self._read(heap, now_ms)

    def _read_lane(self, lane: Lane, now_ms: int) -> None:
        part, queue = lane.part, lane.part.queue
        lane.is_read = True
        part.unread_count -= 1
        for entry in self._view.first_of_lane(queue.name, lane.tenant, part.region):
            if entry.due_at_ms <= now_ms:
                self._read(self._add_heap(lane, entry.priority, entry.tag, START), now_ms)

    def _read(self, heap: JobHeap, now_ms: int) -> None:
        """Read behind the cut and move it; the heap is whole if the index has no more."""
        lane, cut = heap.lane, heap.cut
        assert cut is not None
        part, queue = lane.part, lane.part.queue
        limit = queue.budget // 2  # leaves space for late arrivals in front of the cut
        after = WaitingEntry(queue.name, lane.tenant, heap.priority, heap.tag, TimeMs(cut[0]), cut[1], part.region)
        entries = self._view.waiting(
            queue.name,
            lane.tenant,
            heap.priority,
            heap.tag,
            region=part.region,
            due_until_ms=now_ms,
            limit=limit,
            after=None if cut is START else after,
        )
        away, buffered = self._away, self._buffered
        heap.places = [(entry.due_at_ms, entry.job_id) for entry in entries if entry.job_id not in away]
        for _, job_id in heap.places:
            buffered[job_id] = heap
        heap.grew(len(heap.places))
        heap.cut = (entries[-1].due_at_ms, entries[-1].job_id) if len(entries) == limit else None

    def _add_part(self, queue: ReadyQueue, region: str) -> Part:
        """Add a part for a region that is asked for the first time; its lanes are not read yet."""
        if len(queue.parts) >= PARTS_MAX:
            self._drop_all(queue)
            queue.reset()
        part = queue.parts[region] = Part(queue, region)
        view = self._view
        for tenant in view.tenants_of_region(queue.name, region) if region else view.waiting_tenants(queue.name):
            queue.add_lane(part, tenant, is_read=False)
        return part

    # -- what goes ----------------------------------------------------------------------------------------------------

    def _add_heap(self, lane: Lane, priority: int, tag: NameTag, cut: Place | None) -> JobHeap:
        """Add a heap to the lane; all other heaps are cut to their new budget."""
        queue = lane.part.queue
        budget = queue.budget
        added = queue.add_heap(lane, priority, tag, cut)
        self._keep_to_budget(queue, budget)
        return added

    def _add_lane(self, part: Part, tenant: str) -> Lane:
        """Add a lane for a tenant whose first job arrives: nothing of it has to be read."""
        queue = part.queue
        budget = queue.budget
        added = queue.add_lane(part, tenant, is_read=True)
        self._keep_to_budget(queue, budget)
        return added

    def _keep_to_budget(self, queue: ReadyQueue, budget_before: int) -> None:
        if queue.budget < budget_before:
            for heap in _heaps_of(queue):
                if len(heap.places) > queue.budget:
                    self._shorten(heap)

    def _drop_all(self, queue: ReadyQueue) -> None:
        """Drop all jobs in memory."""
        for heap in _heaps_of(queue):
            self._drop(heap, (job_id for _, job_id in heap.places))

    def _shorten(self, heap: JobHeap) -> None:
        """Drop the later part of a full heap; it stays in the index."""
        places = sorted(heap.places)
        kept_count = heap.lane.part.queue.budget // 2
        heap.places = places[:kept_count]  # sorted, so a heap
        heap.cut = heap.places[-1]
        kept = {job_id for _, job_id in heap.places}
        self._drop(heap, (job_id for _, job_id in places[kept_count:] if job_id not in kept))

    def _drop(self, heap: JobHeap, job_ids: Iterable[JobId]) -> None:
        for job_id in job_ids:
            if self._buffered.get(job_id) is heap:
                del self._buffered[job_id]
                heap.grew(-1)


def _heaps_of(queue: ReadyQueue) -> list[JobHeap]:
    return [heap for part in queue.parts.values() for lane in part.lanes.values() for heap in lane.heaps.values()]
