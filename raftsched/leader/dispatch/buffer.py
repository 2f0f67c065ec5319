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
from raftsched.leader.dispatch.lanes import START, Lane, Part, Place, ReadyQueue, Shelf, first_of
from raftsched.leader.view import LeaderView

PARTS_MAX: Final = 100
"""Regions known of a queue. Workers can ask for any, so their number needs a bound: beyond it, all are read again."""


class Buffer:
    """A part of `ReadyJobs`: the jobs in memory. Times are cluster milliseconds."""

    def __init__(self, view: LeaderView) -> None:
        self._view: Final = view
        self._buffered: Final[dict[JobId, Shelf]] = {}
        self._away: Final[dict[JobId, ReadyQueue]] = {}
        """In flight or aside: not to be read again."""

    @property
    def buffered_count(self) -> int:
        """Return the number of jobs in memory; see `lanes` for the bound."""
        return len(self._buffered)

    # -- what comes next ----------------------------------------------------------------------------------------------

    def _first(self, queue: ReadyQueue, region: str, tags: Tags | None, now_ms: int) -> Lane | None:
        """Return the lane whose turn it is and that has such a job in memory; None if there is none.

        A worker of `region` can have it, which takes the names of `tags`, or any if that is None.
        """
        own = self._front(queue, region, tags, now_ms) if region else None
        lane = self._front(queue, "", tags, now_ms)
        if own is None or (lane is not None and lane.turn_number < own.turn_number):
            return lane
        return own

    def _front(self, queue: ReadyQueue, region: str, tags: Tags | None, now_ms: int) -> Lane | None:
        """Return the lane of the part whose turn it is and that has such a job in memory; None if the part has none."""
        part = queue.parts.get(region)
        if part is None:
            part = self._add_part(queue, region)
        if part.has_none_of(tags):
            return None
        found: Lane | None = None
        empty: list[Lane] = []
        for lane in part.lanes.values():
            if self._first_shelf(lane, tags, now_ms) is not None:
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

    def _first_of_both(self, lane: Lane, other: Lane, tags: Tags | None, now_ms: int) -> Shelf | None:
        """Return the shelf whose first job is the next of two lanes of one tenant; None if they have no such job."""
        shelves = [shelf for each in (lane, other) if (shelf := self._first_shelf(each, tags, now_ms)) is not None]
        return first_of(shelves, lane.part.queue.ageing_ms) if shelves else None

    def _first_shelf(self, lane: Lane, tags: Tags | None, now_ms: int) -> Shelf | None:
        """Return the shelf whose first job is the lane's next of these names; None if the lane has no such job."""
        if not lane.is_read:
            self._read_lane(lane, now_ms)
        shelves = lane.shelves
        if len(shelves) == 1:  # as mostly
            for shelf in shelves.values():
                is_wanted = tags is None or shelf.tag in tags
                return shelf if is_wanted and self._has_any(shelf, now_ms) else None
        filled: list[Shelf] = []
        for shelf in [*shelves.values()]:
            if tags is not None and shelf.tag not in tags:
                continue
            if self._has_any(shelf, now_ms):
                filled.append(shelf)
            else:
                lane.part.queue.drop_shelf(shelf)
        return first_of(filled, lane.part.queue.ageing_ms) if filled else None

    def _has_any(self, shelf: Shelf, now_ms: int) -> bool:
        """Return whether the shelf has a job; then it is the first of its heap."""
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
        part, queue = lane.part, lane.part.queue
        lane.is_read = True
        part.unread_count -= 1
        for entry in self._view.first_of_lane(queue.name, lane.tenant, part.region):
            if entry.due_at_ms <= now_ms:
                self._read(self._add_shelf(lane, entry.priority, entry.tag, START), now_ms)

    def _read(self, shelf: Shelf, now_ms: int) -> None:
        """Read behind the cut and move it; the shelf is whole if the index has no more."""
        lane, cut = shelf.lane, shelf.cut
        assert cut is not None
        part, queue = lane.part, lane.part.queue
        limit = queue.budget // 2  # leaves space for late arrivals in front of the cut
        after = WaitingEntry(queue.name, lane.tenant, shelf.priority, shelf.tag, TimeMs(cut[0]), cut[1], part.region)
        entries = self._view.waiting(
            queue.name,
            lane.tenant,
            shelf.priority,
            shelf.tag,
            region=part.region,
            due_until_ms=now_ms,
            limit=limit,
            after=None if cut is START else after,
        )
        away, buffered = self._away, self._buffered
        shelf.heap = [(entry.due_at_ms, entry.job_id) for entry in entries if entry.job_id not in away]
        for _, job_id in shelf.heap:
            buffered[job_id] = shelf
        shelf.grew(len(shelf.heap))
        shelf.cut = (entries[-1].due_at_ms, entries[-1].job_id) if len(entries) == limit else None

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

    def _add_shelf(self, lane: Lane, priority: int, tag: NameTag, cut: Place | None) -> Shelf:
        """Add a shelf to the lane; all other shelves are cut to their new budget."""
        queue = lane.part.queue
        budget = queue.budget
        added = queue.add_shelf(lane, priority, tag, cut)
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
            for shelf in _shelves(queue):
                if len(shelf.heap) > queue.budget:
                    self._shorten(shelf)

    def _drop_all(self, queue: ReadyQueue) -> None:
        """Drop all jobs in memory."""
        for shelf in _shelves(queue):
            self._drop(shelf, (job_id for _, job_id in shelf.heap))

    def _shorten(self, shelf: Shelf) -> None:
        """Drop the later part of a full shelf; it stays in the index."""
        places = sorted(shelf.heap)
        kept_count = shelf.lane.part.queue.budget // 2
        shelf.heap = places[:kept_count]  # sorted, so a heap
        shelf.cut = shelf.heap[-1]
        kept = {job_id for _, job_id in shelf.heap}
        self._drop(shelf, (job_id for _, job_id in places[kept_count:] if job_id not in kept))

    def _drop(self, shelf: Shelf, job_ids: Iterable[JobId]) -> None:
        for job_id in job_ids:
            if self._buffered.get(job_id) is shelf:
                del self._buffered[job_id]
                shelf.grew(-1)


def _shelves(queue: ReadyQueue) -> list[Shelf]:
    return [shelf for part in queue.parts.values() for lane in part.lanes.values() for shelf in lane.shelves.values()]
