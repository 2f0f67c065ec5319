"""Ready jobs, by queue and priority, in memory only as far as they are soon needed.

Theory of operation. The ready index of the state holds every waiting job; this module keeps a bounded prefix of it for
each queue that workers ask for. A *shelf* is one queue and priority: a heap of (due time, id) and a `cut`. All jobs of
the index up to the cut that are due and not in flight are in the heap; what lies behind it is read when the heap has
run empty. No cut (None) means that the shelf holds all there is: then fresh arrivals are put in without any read. With
a cut, arrivals behind it are left in the index, so a backlog of millions costs nothing here.

A queue nobody has asked for is not known at all, and whatever is not known is read at the first `take`; so a new
leader needs no preparation, and forgetting is always allowed.

Ids that are taken are *in flight* until their lease is applied (`leave`) or the proposal came to nothing (`release`).
An id that left in another way (cancelled) is dropped when it is met: heaps are never searched.

Order: strict priority within a queue, then first due, first out; queues that are asked for together take turns. Left
out: ageing, so a stream of high priorities can starve low ones of the same queue (`depths` shows the oldest's age).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from heapq import heappop, heappush
from typing import Final

from raftsched import limits
from raftsched.core.ids import JobId, TimeMs
from raftsched.core.view import WaitingEntry
from raftsched.leader.view import LeaderView

_PRIORITY_MAX: Final = 9
_READ_JOBS: Final = limits.READY_BUFFER_JOBS_MAX // 2
"""Read at once from the index: leaves room for late arrivals in front of the cut."""
_Place = tuple[int, JobId]
"""(due time, id): where a job stands in its shelf."""
_START: Final[_Place] = (0, JobId(b""))
"""A cut at the start: nothing is known yet."""


class _Shelf:
    __slots__ = ("cut", "heap", "priority")

    def __init__(self, priority: int) -> None:
        self.priority: Final = priority
        self.heap: list[_Place] = []
        self.cut: _Place | None = _START


class _Queue:
    __slots__ = ("name", "shelves", "touched")

    def __init__(self, name: str, *, touched: bool = False) -> None:
        self.name: Final = name
        self.shelves: Final = tuple(_Shelf(priority) for priority in range(_PRIORITY_MAX, -1, -1))
        self.touched = touched


class ReadyJobs:
    """Due jobs that wait for a worker. Times are cluster milliseconds."""

    def __init__(self, view: LeaderView) -> None:
        self._view: Final = view
        self._queues: Final[dict[str, _Queue]] = {}
        self._touched: list[_Queue] = []
        self._buffered: Final[dict[JobId, _Shelf]] = {}
        self._in_flight: Final[set[JobId]] = set()
        self._turn = 0

    @property
    def buffered_count(self) -> int:
        """Jobs in memory; at most `limits.READY_BUFFER_JOBS_MAX` for each queue and priority."""
        return len(self._buffered)

    @property
    def queue_count(self) -> int:
        """Queues known."""
        return len(self._queues)

    # -- jobs come and go ---------------------------------------------------------------------------------------------

    def add(self, queue: str, priority: int, due_at_ms: int, job_id: JobId) -> None:
        """A waiting job is due: keep it, unless the index will show it when it is needed."""
        known = self._queues.get(queue)
        if known is None or job_id in self._buffered or job_id in self._in_flight:
            return
        if not known.touched:
            known.touched = True
            self._touched.append(known)
        shelf = known.shelves[_PRIORITY_MAX - priority]
        place = (due_at_ms, job_id)
        if shelf.cut is None or place <= shelf.cut:
            heappush(shelf.heap, place)
            self._buffered[job_id] = shelf
            if len(shelf.heap) > limits.READY_BUFFER_JOBS_MAX:
                self._shorten(shelf)

    def leave(self, job_id: JobId) -> None:
        """A job no longer waits: it was leased or cancelled. Unknown ids are ignored."""
        self._buffered.pop(job_id, None)
        self._in_flight.discard(job_id)

    def release(self, job_ids: Iterable[JobId]) -> None:
        """The proposal of these came to nothing; whoever still waits must be added again."""
        self._in_flight.difference_update(job_ids)

    def touched_queues(self) -> list[str]:
        """Queues that may have got jobs since the last call."""
        touched, self._touched = self._touched, []
        for queue in touched:
            queue.touched = False
        return [queue.name for queue in touched]

    # -- taking -------------------------------------------------------------------------------------------------------

    def take(self, queues: Sequence[str], count: int, now_ms: int) -> list[JobId]:
        """Take up to `count` jobs out of `queues`, which must be distinct; they are in flight then.

        Each queue gives an equal share as long as it has that many; the first turn changes with every call.
        """
        self._turn += 1
        first = self._turn % len(queues)
        asked = [self._queue(name) for name in (*queues[first:], *queues[:first])]
        taken: list[JobId] = []
        while asked and len(taken) < count:
            share = -(-(count - len(taken)) // len(asked))
            asked = [queue for queue in asked if self._take_from(queue, min(share, count - len(taken)), now_ms, taken)]
        return taken

    def fill(self, queue: str, now_ms: int) -> int:
        """Return how many jobs of `queue` are in memory, after reading into empty shelves; 0 only if none is ready."""
        known = self._queue(queue)
        return sum(len(shelf.heap) for shelf in known.shelves if self._has_any(known, shelf, now_ms))

    def _take_from(self, queue: _Queue, count: int, now_ms: int, taken: list[JobId]) -> bool:
        """Move up to `count` jobs to `taken`; False where there were fewer."""
        buffered, in_flight = self._buffered, self._in_flight
        for shelf in queue.shelves:
            while count and self._has_any(queue, shelf, now_ms):
                job_id = heappop(shelf.heap)[1]
                if buffered.get(job_id) is shelf:  # else it left meanwhile
                    del buffered[job_id]
                    in_flight.add(job_id)
                    taken.append(job_id)
                    count -= 1
            if not count:
                return True
        return False

    def _has_any(self, queue: _Queue, shelf: _Shelf, now_ms: int) -> bool:
        while not shelf.heap and shelf.cut is not None:
            self._read(queue, shelf, shelf.cut, now_ms)
        return bool(shelf.heap)

    def _read(self, queue: _Queue, shelf: _Shelf, cut: _Place, now_ms: int) -> None:
        """Read behind the cut and move it; the shelf is whole where the index has no more."""
        after = WaitingEntry(queue.name, shelf.priority, TimeMs(cut[0]), cut[1]) if cut is not _START else None
        entries = self._view.waiting(queue.name, shelf.priority, due_until_ms=now_ms, limit=_READ_JOBS, after=after)
        in_flight = self._in_flight
        shelf.heap = [(entry.due_at_ms, entry.job_id) for entry in entries if entry.job_id not in in_flight]
        for _, job_id in shelf.heap:
            self._buffered[job_id] = shelf
        shelf.cut = (entries[-1].due_at_ms, entries[-1].job_id) if len(entries) == _READ_JOBS else None

    # -- forgetting ---------------------------------------------------------------------------------------------------

    def doubt(self) -> None:
        """Read all known queues anew at the next `take`: jobs may have become due unnoticed."""
        self._buffered.clear()
        for name in self._queues:
            self._queues[name] = _Queue(name, touched=True)
        self._touched = list(self._queues.values())

    def forget_except(self, queues: Container[str]) -> None:
        """Forget what is known about all other queues."""
        for name in [name for name in self._queues if name not in queues]:
            for shelf in self._queues.pop(name).shelves:
                self._drop(shelf, (job_id for _, job_id in shelf.heap))

    def _shorten(self, shelf: _Shelf) -> None:
        """Leave the later half of a full shelf to the index."""
        places = sorted(shelf.heap)
        shelf.heap = places[:_READ_JOBS]  # sorted, so a heap
        shelf.cut = shelf.heap[-1]
        kept = {job_id for _, job_id in shelf.heap}
        self._drop(shelf, (job_id for _, job_id in places[_READ_JOBS:] if job_id not in kept))

    def _drop(self, shelf: _Shelf, job_ids: Iterable[JobId]) -> None:
        for job_id in job_ids:
            if self._buffered.get(job_id) is shelf:
                del self._buffered[job_id]

    def _queue(self, name: str) -> _Queue:
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = _Queue(name)
        return queue
