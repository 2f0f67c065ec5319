"""The part of the ready index that is in memory: read where it has run empty, and never more than there is room for.

See `lanes` for what is held and in which order it goes. A job that left is dropped when it is met: heaps are never
searched.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop
from typing import Final

from raftsched.core.ids import JobId, TimeMs
from raftsched.core.view import WaitingEntry
from raftsched.leader.lanes import PRIORITIES, START, Lane, ReadyQueue, Shelf
from raftsched.leader.view import LeaderView


class Buffer:
    """A part of `ReadyJobs`: the jobs in memory. Times are cluster milliseconds."""

    def __init__(self, view: LeaderView) -> None:
        self._view: Final = view
        self._buffered: Final[dict[JobId, Shelf]] = {}
        self._away: Final[dict[JobId, ReadyQueue]] = {}
        """In flight or aside: not to be read again."""

    @property
    def buffered_count(self) -> int:
        """Jobs in memory; see `lanes` for the bound."""
        return len(self._buffered)

    # -- what comes next ----------------------------------------------------------------------------------------------

    def _first(self, queue: ReadyQueue, now_ms: int) -> Lane | None:
        """The lane whose turn it is, which has a job in memory; None where the queue has no job."""
        if not queue.is_known:
            queue.is_known = True
            for tenant in self._view.waiting_tenants(queue.name):
                queue.add_lane(tenant, is_read=False)
        lanes = queue.lanes
        while lanes:
            lane = next(iter(lanes.values()))
            if self._first_shelf(lane, now_ms) is not None:
                return lane
            if len(lanes) == 1:  # mostly its next job is about to arrive
                lane.credit = 0
                return None
            queue.drop_lane(lane)
        return None

    def _first_shelf(self, lane: Lane, now_ms: int) -> Shelf | None:
        """The shelf whose first job is the lane's next; None where the lane has no job."""
        if not lane.is_read:
            self._read_lane(lane, now_ms)
        shelves = lane.shelves
        if len(shelves) == 1:  # as mostly
            for shelf in shelves.values():
                return shelf if self._has_any(shelf, now_ms) else None
        empty = [priority for priority, shelf in shelves.items() if not self._has_any(shelf, now_ms)]
        for priority in empty:
            del shelves[priority]
        return lane.first() if shelves else None

    def _has_any(self, shelf: Shelf, now_ms: int) -> bool:
        """Whether the shelf has a job; then it is the first of its heap."""
        buffered = self._buffered
        while True:
            heap = shelf.heap
            while heap and buffered.get(heap[0][1]) is not shelf:  # it left meanwhile
                heappop(heap)
            if heap:
                return True
            if shelf.cut is None:
                return False
            self._read(shelf, now_ms)

    def _read_lane(self, lane: Lane, now_ms: int) -> None:
        lane.is_read = True
        for priority in PRIORITIES:
            shelf = Shelf(lane, priority, START)
            if self._has_any(shelf, now_ms):
                lane.shelves[priority] = shelf

    def _read(self, shelf: Shelf, now_ms: int) -> None:
        """Read behind the cut and move it; the shelf is whole where the index has no more."""
        lane, cut = shelf.lane, shelf.cut
        assert cut is not None
        queue, limit = lane.queue, lane.queue.room // 2  # leaves room for late arrivals in front of the cut
        after = WaitingEntry(queue.name, lane.tenant, shelf.priority, TimeMs(cut[0]), cut[1])
        entries = self._view.waiting(
            queue.name,
            lane.tenant,
            shelf.priority,
            due_until_ms=now_ms,
            limit=limit,
            after=None if cut is START else after,
        )
        away, buffered = self._away, self._buffered
        shelf.heap = [(entry.due_at_ms, entry.job_id) for entry in entries if entry.job_id not in away]
        for _, job_id in shelf.heap:
            buffered[job_id] = shelf
        queue.size += len(shelf.heap)
        shelf.cut = (entries[-1].due_at_ms, entries[-1].job_id) if len(entries) == limit else None

    # -- what goes ----------------------------------------------------------------------------------------------------

    def _add_lane(self, queue: ReadyQueue, tenant: str) -> Lane:
        """A lane for a tenant whose first job arrives: there is nothing of it that would have to be read."""
        room = queue.room
        added = queue.add_lane(tenant, is_read=True)
        if queue.room < room:
            for lane in queue.lanes.values():
                for shelf in lane.shelves.values():
                    if len(shelf.heap) > queue.room:
                        self._shorten(shelf)
        return added

    def _shorten(self, shelf: Shelf) -> None:
        """Leave the later part of a full shelf to the index."""
        places = sorted(shelf.heap)
        kept_count = shelf.lane.queue.room // 2
        shelf.heap = places[:kept_count]  # sorted, so a heap
        shelf.cut = shelf.heap[-1]
        kept = {job_id for _, job_id in shelf.heap}
        self._drop(shelf, (job_id for _, job_id in places[kept_count:] if job_id not in kept))

    def _drop(self, shelf: Shelf, job_ids: Iterable[JobId]) -> None:
        for job_id in job_ids:
            if self._buffered.get(job_id) is shelf:
                del self._buffered[job_id]
                shelf.lane.queue.size -= 1
