"""What `ready` holds in memory of one queue: a lane for each tenant, and in it a shelf for each priority.

Theory of operation. A *shelf* is a heap of (due time, id) and a `cut`. All jobs of its part of the index up to the cut
that are due and not on their way are in the heap; what lies behind it is read when the heap has run empty. No cut
(None) means that the shelf holds all there is: then fresh arrivals are put in without any read. With a cut, arrivals
behind it are left in the index, so a backlog of millions costs nothing here. A shelf, and a lane, that is empty without
a cut is dropped: what is not there holds all there is, namely nothing. A lane that has not been read holds nothing yet.

Order within a lane: a job's priority grows by one for each `ageing_ms` that it has waited, and the highest goes first.
So a lower priority is not starved, for it overtakes whatever arrives long enough behind it, and the order of any two
jobs never changes while they wait: it is that of `due - priority * ageing_ms`. Equal ones go by due time, then by id,
that is first in, first out within a priority.

Shares of a queue: deficit round robin (Shreedhar & Varghese 1995) with every job at a cost of one. The lane in front
may give as many jobs as its tenant has weight, then it goes behind the others. A lane that stands alone is not counted.

Room: a queue's lanes share `limits.READY_BUFFER_JOBS_MAX` for each priority, and each has at least `_ROOM_MIN`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from raftsched import limits
from raftsched.core.ids import JobId
from raftsched.core.queue import Queue
from raftsched.leader.wheel import Timer

PRIORITIES: Final = range(9, -1, -1)
Place = tuple[int, JobId]
"""(due time, id): where a job stands in its shelf."""
START: Final[Place] = (0, JobId(b""))
"""A cut at the start: nothing is known yet."""
_ROOM_MIN: Final = 20
"""Jobs of a shelf that are always held, however many lanes there are: fewer would mean a read for every few jobs."""


class Shelf:
    """Due jobs of one queue, tenant and priority."""

    __slots__ = ("cut", "heap", "lane", "priority")

    def __init__(self, lane: Lane, priority: int, cut: Place | None) -> None:
        self.lane: Final = lane
        self.priority: Final = priority
        self.heap: list[Place] = []
        self.cut = cut


class Lane:
    """Due jobs of one queue and tenant."""

    __slots__ = ("credit", "is_read", "queue", "shelves", "tenant")

    def __init__(self, queue: ReadyQueue, tenant: str, *, is_read: bool) -> None:
        self.queue: Final = queue
        self.tenant: Final = tenant
        self.shelves: Final[dict[int, Shelf]] = {}
        self.is_read = is_read
        self.credit = 0
        """Jobs that it may still give before the others have their turn."""

    def first(self) -> Shelf:
        """The shelf whose first job is the next one; none may be empty, and there must be one."""
        shelves = iter(self.shelves.values())
        found = next(shelves)
        if len(self.shelves) > 1:
            ageing_ms = self.queue.ageing_ms
            rank = _rank(found, ageing_ms)
            for shelf in shelves:
                other = _rank(shelf, ageing_ms)
                if other < rank:
                    found, rank = shelf, other
        return found


def _rank(shelf: Shelf, ageing_ms: int) -> tuple[int, int, JobId]:
    due_at_ms, job_id = shelf.heap[0]
    return (due_at_ms - shelf.priority * ageing_ms, due_at_ms, job_id)


class ReadyQueue:
    """A queue that somebody asked for: its settings, its lanes, and how much of it is on its way."""

    __slots__ = (
        "_default_ageing_ms",
        "_lanes_max",
        "_weights",
        "ageing_ms",
        "aside_count",
        "in_flight_count",
        "is_free",
        "is_keyed",
        "is_known",
        "is_touched",
        "lanes",
        "name",
        "room",
        "settings",
        "size",
        "wake",
    )

    def __init__(self, name: str, settings: Queue | None, default_ageing_ms: int) -> None:
        self.name: Final = name
        self._default_ageing_ms: Final = default_ageing_ms
        self.is_touched = False
        self.is_keyed = False
        """Some of its jobs have options: each is looked at before it is given."""
        self.in_flight_count = 0
        self.aside_count = 0
        self.wake: Timer[ReadyQueue] | None = None
        """Rings when its rate allows a lease again."""
        self._weights: dict[str, int] = {}
        self.settings: Queue | None = None
        self.configure(settings)
        self.reset()

    def reset(self) -> None:
        """Forget all jobs, and that anything is known."""
        self.is_known = False
        self.lanes: OrderedDict[str, Lane] = OrderedDict()
        """Those that may hold jobs, whose turn is next in front."""
        self.size = 0
        """Jobs in memory."""
        self._lanes_max = 1
        self.room = limits.READY_BUFFER_JOBS_MAX
        """Jobs that a shelf may hold."""

    def configure(self, settings: Queue | None) -> None:
        """Go by `settings` from now on; None = nobody made any."""
        if settings is None or self.settings is None or settings.weights is not self.settings.weights:
            self._weights = {each.tenant: each.weight for each in settings.weights} if settings is not None else {}
        self.settings = settings
        self.ageing_ms = (settings.ageing_ms if settings is not None else 0) or self._default_ageing_ms
        self._set_free()

    def look_at_each(self) -> None:
        """Some of its jobs have options: look at each from now on."""
        self.is_keyed = True
        self._set_free()

    def _set_free(self) -> None:
        settings = self.settings
        limited = settings is not None and bool(settings.paused or settings.rate_count or settings.concurrency_max)
        self.is_free = not limited and not self.is_keyed
        """Nothing keeps back any of its jobs."""

    def add_lane(self, tenant: str, *, is_read: bool) -> Lane:
        """A lane for a tenant that has none, behind the others. Shelves may then hold more than their room."""
        lane = self.lanes[tenant] = Lane(self, tenant, is_read=is_read)
        if len(self.lanes) > self._lanes_max:
            self._share_room(2 * self._lanes_max)
        return lane

    def drop_lane(self, lane: Lane) -> None:
        """The lane has nothing any more."""
        del self.lanes[lane.tenant]
        if self._lanes_max > 1 and len(self.lanes) <= self._lanes_max // 4:
            self._share_room(self._lanes_max // 2)

    def turn(self, lane: Lane) -> int:
        """How many jobs the lane in front may give now, which others wait behind."""
        if lane.credit <= 0:
            lane.credit += self._weights.get(lane.tenant, 1)
        return lane.credit

    def end_turn(self, lane: Lane, given_count: int) -> None:
        """The lane in front gave so many; where that was all it may, it goes behind the others."""
        lane.credit -= given_count
        if lane.credit <= 0:
            self.lanes.move_to_end(lane.tenant)

    def _share_room(self, lane_count: int) -> None:
        self._lanes_max = lane_count
        self.room = max(_ROOM_MIN, limits.READY_BUFFER_JOBS_MAX // lane_count)
