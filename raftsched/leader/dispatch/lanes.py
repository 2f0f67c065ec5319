"""What `ready` holds in memory of one queue: a lane for each region and tenant, and in it a shelf for each priority and
job name.

Theory of operation. A queue has a *part* for each region that some worker asked for, and one for the jobs of no region,
"". A worker draws from the latter and from that of its own region, as if they were one; so jobs of a region without
workers are neither read nor passed over, and keep nobody back.

A *shelf* is a heap of (due time, id) and a `cut`. All jobs of its place in the index up to the cut that are due and not
on their way are in the heap; what lies behind it is read when the heap has run empty. No cut (None) means that the
shelf holds all there is: then fresh arrivals are put in without any read. With a cut, arrivals behind it are left in the
index, so a backlog of millions costs nothing here. A shelf, and a lane, that is empty without a cut is dropped: what is
not there holds all there is, namely nothing. A lane that has not been read holds nothing yet.

A worker that says which names it has handlers for draws from the shelves of those alone. The index is kept by name, too, so
however many jobs of other names wait, they are neither read nor passed over for it.

Order within a tenant's lanes: a job's priority grows by one for each `ageing_ms` that it has waited, and the highest
goes first. So a lower priority is not starved, for it overtakes whatever arrives long enough behind it, and the order of
any two jobs never changes while they wait: it is that of `due - priority * ageing_ms`. Equal ones go by due time, then
by id, that is first in, first out within a priority.

Shares of a queue: deficit round robin (Shreedhar & Varghese 1995) with every job at a cost of one. The lane in front
may give as many jobs as its tenant has weight, then the tenant's lanes go behind the others, whatever their region. A
lane that stands alone is not counted. Between the fronts of two parts, the one that has waited longer is first.

Room: the names in a queue's lanes share `limits.READY_BUFFER_JOBS_MAX` for each priority, and each has at least
`_ROOM_MIN`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from raftsched import limits
from raftsched.core.records.ids import JobId, NameTag
from raftsched.core.records.queue import Queue
from raftsched.core.records.wanted import Tags
from raftsched.leader.timers.wheel import Timer

Line = tuple[str, Tags | None]
"""Whom jobs are for: workers of a region, with handlers for these names; None = for any."""
Place = tuple[int, JobId]
"""(due time, id): where a job stands in its shelf."""
START: Final[Place] = (0, JobId(b""))
"""A cut at the start: nothing is known yet."""
_ROOM_MIN: Final = 20
"""Jobs of a shelf that are always held, however many lanes there are: fewer would mean a read for every few jobs."""


class Kind:
    """What is in memory of a part's jobs of one name."""

    __slots__ = ("shelf_count", "size")

    def __init__(self) -> None:
        self.size = 0
        """Jobs in memory."""
        self.shelf_count = 0


class Shelf:
    """Due jobs of one queue, region, tenant, priority and name."""

    __slots__ = ("cut", "heap", "kind", "lane", "priority", "tag")

    def __init__(self, lane: Lane, priority: int, tag: NameTag, kind: Kind, cut: Place | None) -> None:
        self.lane: Final = lane
        self.priority: Final = priority
        self.tag: Final = tag
        self.kind: Final = kind
        self.heap: list[Place] = []
        self.cut = cut

    def grew(self, count: int) -> None:
        """So many jobs came to be in memory, or are no longer."""
        self.kind.size += count
        self.lane.part.size += count


class Lane:
    """Due jobs of one queue, region and tenant."""

    __slots__ = ("is_read", "name_counts", "part", "shelves", "tenant", "turn_number")

    def __init__(self, part: Part, tenant: str, turn_number: int, *, is_read: bool) -> None:
        self.part: Final = part
        self.tenant: Final = tenant
        self.shelves: Final[dict[tuple[int, NameTag], Shelf]] = {}
        """By priority and name."""
        self.name_counts: Final[dict[NameTag, int]] = {}
        """Shelves of each name."""
        self.is_read = is_read
        self.turn_number = turn_number
        """The lower, the earlier is its turn."""

    @property
    def may_hold_any(self) -> bool:
        """Whether there may be a job of any name."""
        return not self.is_read or any(shelf.heap or shelf.cut is not None for shelf in self.shelves.values())


def first_of(shelves: Iterable[Shelf], ageing_ms: int) -> Shelf:
    """The shelf whose first job goes before those of the others; none may be empty, and there must be one."""
    rest = iter(shelves)
    found = next(rest)
    rank: tuple[int, int, JobId] | None = None
    for shelf in rest:
        rank = rank or _rank(found, ageing_ms)
        other = _rank(shelf, ageing_ms)
        if other < rank:
            found, rank = shelf, other
    return found


def _rank(shelf: Shelf, ageing_ms: int) -> tuple[int, int, JobId]:
    due_at_ms, job_id = shelf.heap[0]
    return (due_at_ms - shelf.priority * ageing_ms, due_at_ms, job_id)


class Part:
    """What is in memory of a queue's jobs of one region."""

    __slots__ = ("kinds", "lanes", "queue", "region", "size", "unread_count")

    def __init__(self, queue: ReadyQueue, region: str) -> None:
        self.queue: Final = queue
        self.region: Final = region
        self.lanes: Final[OrderedDict[str, Lane]] = OrderedDict()
        """Those that may hold jobs, by tenant, whose turn is next in front."""
        self.size = 0
        """Jobs in memory."""
        self.kinds: Final[dict[NameTag, Kind]] = {}
        """The names that have a shelf."""
        self.unread_count = 0
        """Lanes that are not read."""

    def size_of(self, tags: Tags | None) -> int:
        """Jobs in memory of these names; None = of all."""
        if tags is None:
            return self.size
        return sum(kind.size for tag, kind in self.kinds.items() if tag in tags)

    def has_none_of(self, tags: Tags | None) -> bool:
        """Whether there is certainly no job of these names."""
        return tags is not None and not self.unread_count and tags.isdisjoint(self.kinds)

    @property
    def is_empty(self) -> bool:
        """Whether there is certainly no job."""
        return not self.size and not any(lane.may_hold_any for lane in self.lanes.values())


class ReadyQueue:
    """A queue that somebody asked for: its settings, its lanes, and how much of it is on its way."""

    __slots__ = (
        "_credits",
        "_default_ageing_ms",
        "_lines_max",
        "_turn_number",
        "_weights",
        "ageing_ms",
        "aside_count",
        "in_flight_count",
        "is_free",
        "is_keyed",
        "is_touched",
        "line_count",
        "name",
        "parts",
        "room",
        "settings",
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
        self._turn_number = 0
        self.settings: Queue | None = None
        self.configure(settings)
        self.reset()

    def reset(self) -> None:
        """Forget all jobs, and that anything is known."""
        self.parts: dict[str, Part] = {}
        """By region; those that have been asked for."""
        self._credits: dict[str, int] = {}
        """Jobs that a tenant may still give before the others have their turn; one that isn't here has none."""
        self._lines_max = 1
        self.line_count = 0
        """Names in all lanes; a lane without any counts as one."""
        self.room = limits.READY_BUFFER_JOBS_MAX
        """Jobs that a shelf may hold."""

    @property
    def size(self) -> int:
        """Jobs in memory."""
        return sum(part.size for part in self.parts.values())

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

    def add_lane(self, part: Part, tenant: str, *, is_read: bool) -> Lane:
        """A lane for a tenant that has none in the part, behind the others. Shelves may then hold more than their room."""
        self._turn_number += 1
        lane = part.lanes[tenant] = Lane(part, tenant, self._turn_number, is_read=is_read)
        part.unread_count += not is_read
        self._count_lines(1)
        return lane

    def add_shelf(self, lane: Lane, priority: int, tag: NameTag, cut: Place | None) -> Shelf:
        """A shelf that the lane does not have yet. Others may then hold more than their room."""
        kind = lane.part.kinds.get(tag)
        if kind is None:
            kind = lane.part.kinds[tag] = Kind()
        kind.shelf_count += 1
        shelf = lane.shelves[priority, tag] = Shelf(lane, priority, tag, kind, cut)
        count = lane.name_counts.get(tag, 0)
        lane.name_counts[tag] = count + 1
        if not count and len(lane.name_counts) > 1:
            self._count_lines(1)
        return shelf

    def drop_shelf(self, shelf: Shelf) -> None:
        """The shelf, which is empty, has nothing any more."""
        lane = shelf.lane
        del lane.shelves[shelf.priority, shelf.tag]
        shelf.kind.shelf_count -= 1
        if not shelf.kind.shelf_count:
            del lane.part.kinds[shelf.tag]
        lane.name_counts[shelf.tag] -= 1
        if not lane.name_counts[shelf.tag]:
            del lane.name_counts[shelf.tag]
            if lane.name_counts:
                self._count_lines(-1)

    def drop_lane(self, lane: Lane) -> None:
        """The lane has nothing any more."""
        for shelf in [*lane.shelves.values()]:
            self.drop_shelf(shelf)
        del lane.part.lanes[lane.tenant]
        lane.part.unread_count -= not lane.is_read
        if not any(lane.tenant in part.lanes for part in self.parts.values()):
            self._credits.pop(lane.tenant, None)
        self._count_lines(-1)

    def twin(self, lane: Lane, region: str) -> Lane | None:
        """The tenant's other lane that a worker of `region` draws from."""
        part = self.parts.get("" if lane.part.region else region)
        return part.lanes.get(lane.tenant) if part is not None and part is not lane.part else None

    def turn(self, tenant: str) -> int:
        """How many jobs the tenant whose lane is in front may give now, while others wait behind."""
        credit = self._credits.get(tenant, 0)
        if credit <= 0:
            credit = self._credits[tenant] = credit + self._weights.get(tenant, 1)
        return credit

    def end_turn(self, tenant: str, given_count: int) -> None:
        """The tenant gave so many; where that was all it may, its lanes go behind the others."""
        credit = self._credits[tenant] = self._credits[tenant] - given_count
        if credit > 0:
            return
        self._turn_number += 1
        for part in self.parts.values():
            lane = part.lanes.get(tenant)
            if lane is not None:
                lane.turn_number = self._turn_number
                part.lanes.move_to_end(tenant)

    def stand_alone(self, tenant: str) -> None:
        """The tenant has no job, and no other waits behind it: it begins anew, unless it has a turn in another part."""
        if len(self.parts) == 1:
            self._credits.pop(tenant, None)

    def is_shared(self, lane: Lane, twin: Lane | None, region: str) -> bool:
        """Whether others than the tenant may have jobs for a worker of `region`."""
        if not region:
            return len(lane.part.lanes) > 1
        return len(self.parts[""].lanes) + len(self.parts[region].lanes) > (1 if twin is None else 2)

    def _count_lines(self, change: int) -> None:
        self.line_count += change
        if self.line_count > self._lines_max:
            self._share_room(2 * self._lines_max)
        elif self._lines_max > 1 and self.line_count <= self._lines_max // 4:
            self._share_room(self._lines_max // 2)

    def _share_room(self, line_count: int) -> None:
        self._lines_max = line_count
        self.room = max(_ROOM_MIN, limits.READY_BUFFER_JOBS_MAX // line_count)
