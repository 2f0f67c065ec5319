"""The jobs of one queue that `ready` holds in memory: a lane for each region and tenant, and in it a heap for each
priority and job name.

Theory of operation. A queue has a *part* for each region that some worker asked for, and one for the jobs of no region,
"". A worker draws from the latter and from that of its own region, as if they were one. So jobs of a region without
workers are neither read nor skipped, and delay no other job.

A *job heap* holds pairs (due time, id), and has a `cut`, a position in the index. All its jobs up to the cut that are due
and not in flight are in it; those behind the cut are read when it is empty. No cut (None) means that the heap is
complete: then new jobs are put in without any read. With a cut, new jobs behind it are left in the index, so a backlog
of millions costs nothing here. A heap, and a lane, that is empty without a cut is dropped: one that does not
exist is complete and empty. A lane that has not been read holds nothing yet.

A worker of one tenant draws only from that tenant's lanes. What it takes does not count in the tenant's turn: other
workers share their jobs among the tenants as if it did not exist.

A worker that names its handlers draws only from the heaps of those names. The index is kept by name, too, so jobs of
other names are neither read nor skipped for it, however many they are.

Order within a tenant's lanes: a job's priority grows by one for each `ageing_ms` that it has waited, and the highest is
first. So a lower priority is not starved: it overtakes any job that arrives long enough after it. The order of any two
jobs never changes while they wait: it is that of `due - priority * ageing_ms`. Equal ones are ordered by due time, then
by id, that is first in, first out within a priority.

Shares of a queue: deficit round robin (Shreedhar & Varghese 1995) with a cost of one per job. The tenant of the first
lane may give as many jobs as its weight; then the tenant's lanes of all regions move to the end. A lane without
competitors is not counted. Between the fronts of two parts, the one that has waited longer is first.

Budget: the names in a queue's lanes share `limits.READY_BUFFER_JOBS_MAX` for each priority, and each has at least
`_BUDGET_MIN`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from raftsched import limits
from raftsched.core.records.ids import JobId, NameTag
from raftsched.core.records.queue import Queue
from raftsched.core.records.queue_patterns import Tags
from raftsched.leader.timers.wheel import Timer


class Line(NamedTuple):
    """Describe the jobs that workers can have: those of one line can have the same."""

    region: str
    """Theirs, beside the jobs of no region; "" = none."""
    tags: Tags | None
    """Names of their handlers; None = any name."""
    tenant: str | None = None
    """The tenant whose jobs they are given; None = all tenants."""


Place = tuple[int, JobId]
"""(due time, id): a job's position in its heap."""
START: Final[Place] = (0, JobId(b""))
"""A cut at the start: nothing is known yet."""
_BUDGET_MIN: Final = 20
"""Smallest budget of a heap, however many lanes there are: less would mean a read for every few jobs."""


class Kind:
    """The jobs of one name in memory, in one part."""

    __slots__ = ("heap_count", "size")

    def __init__(self) -> None:
        self.size = 0
        """Jobs in memory."""
        self.heap_count = 0


class JobHeap:
    """Due jobs of one queue, region, tenant, priority and name."""

    __slots__ = ("cut", "kind", "lane", "places", "priority", "tag")

    def __init__(self, lane: Lane, priority: int, tag: NameTag, kind: Kind, cut: Place | None) -> None:
        self.lane: Final = lane
        self.priority: Final = priority
        self.tag: Final = tag
        self.kind: Final = kind
        self.places: list[Place] = []
        self.cut = cut

    def grew(self, count: int) -> None:
        """Add `count` to the number of jobs in memory; it may be negative."""
        self.kind.size += count
        self.lane.part.size += count


class Lane:
    """Due jobs of one queue, region and tenant."""

    __slots__ = ("heaps", "is_read", "name_counts", "part", "tenant", "turn_number")

    def __init__(self, part: Part, tenant: str, turn_number: int, *, is_read: bool) -> None:
        self.part: Final = part
        self.tenant: Final = tenant
        self.heaps: Final[dict[tuple[int, NameTag], JobHeap]] = {}
        """By priority and name."""
        self.name_counts: Final[dict[NameTag, int]] = {}
        """Heaps of each name."""
        self.is_read = is_read
        self.turn_number = turn_number
        """Turns are taken in this order, lowest first."""

    def size_of(self, tags: Tags | None) -> int:
        """Return how many jobs of these names are in memory, counting some that have left; None = of all names."""
        return sum(len(heap.places) for heap in self.heaps.values() if tags is None or heap.tag in tags)

    @property
    def may_hold_any(self) -> bool:
        """Return whether there may be a job of any name."""
        return not self.is_read or any(heap.places or heap.cut is not None for heap in self.heaps.values())


def first_of(heaps: Iterable[JobHeap], ageing_ms: int) -> JobHeap:
    """Return the heap whose first job precedes those of the others; none may be empty, and there must be one."""
    rest = iter(heaps)
    found = next(rest)
    rank: tuple[int, int, JobId] | None = None
    for heap in rest:
        rank = rank or _rank(found, ageing_ms)
        other = _rank(heap, ageing_ms)
        if other < rank:
            found, rank = heap, other
    return found


def _rank(heap: JobHeap, ageing_ms: int) -> tuple[int, int, JobId]:
    due_at_ms, job_id = heap.places[0]
    return (due_at_ms - heap.priority * ageing_ms, due_at_ms, job_id)


class Part:
    """The jobs of a queue's region in memory."""

    __slots__ = ("kinds", "lanes", "queue", "region", "size", "unread_count")

    def __init__(self, queue: ReadyQueue, region: str) -> None:
        self.queue: Final = queue
        self.region: Final = region
        self.lanes: Final[OrderedDict[str, Lane]] = OrderedDict()
        """Lanes that may hold jobs, by tenant, in the order of their turns."""
        self.size = 0
        """Jobs in memory."""
        self.kinds: Final[dict[NameTag, Kind]] = {}
        """The names that have a heap."""
        self.unread_count = 0
        """Lanes that are not read."""

    def size_of(self, tags: Tags | None, tenant: str | None = None) -> int:
        """Return the number of jobs in memory of these names, of one tenant or of all; None = of all."""
        size = self.size if tags is None else sum(kind.size for tag, kind in self.kinds.items() if tag in tags)
        if tenant is None:
            return size
        lane = self.lanes.get(tenant)
        return 0 if lane is None else min(lane.size_of(tags), size)

    def lanes_of(self, tenant: str) -> tuple[Lane, ...]:
        """Return the tenant's lane, if it has one."""
        lane = self.lanes.get(tenant)
        return () if lane is None else (lane,)

    def has_none_of(self, tags: Tags | None) -> bool:
        """Return whether there is certainly no job of these names."""
        return tags is not None and not self.unread_count and tags.isdisjoint(self.kinds)

    @property
    def is_empty(self) -> bool:
        """Return whether there is certainly no job."""
        return not self.size and not any(lane.may_hold_any for lane in self.lanes.values())

    def is_empty_for(self, tenant: str | None) -> bool:
        """Return whether there is certainly no job of the tenant; None = of any."""
        if tenant is None:
            return self.is_empty
        lane = self.lanes.get(tenant)
        return lane is None or not lane.may_hold_any


class ReadyQueue:
    """A queue that a worker asked for: its settings, its lanes, and its jobs in flight."""

    __slots__ = (
        "_credits",
        "_default_ageing_ms",
        "_lines_max",
        "_turn_number",
        "_weights",
        "ageing_ms",
        "aside_count",
        "budget",
        "in_flight_count",
        "is_free",
        "is_keyed",
        "is_touched",
        "line_count",
        "name",
        "parts",
        "settings",
        "wake",
    )

    def __init__(self, name: str, settings: Queue | None, default_ageing_ms: int) -> None:
        self.name: Final = name
        self._default_ageing_ms: Final = default_ageing_ms
        self.is_touched = False
        self.is_keyed = False
        """Some of its jobs have options: each is checked before it is given."""
        self.in_flight_count = 0
        self.aside_count = 0
        self.wake: Timer[ReadyQueue] | None = None
        """Fires when its rate allows a lease again."""
        self._weights: dict[str, int] = {}
        self._turn_number = 0
        self.settings: Queue | None = None
        self.configure(settings)
        self.reset()

    def reset(self) -> None:
        """Forget all jobs; everything must be read again."""
        self.parts: dict[str, Part] = {}
        """By region; those that have been asked for."""
        self._credits: dict[str, int] = {}
        """Jobs that a tenant may still give in its turn; a tenant that is missing here has none."""
        self._lines_max = 1
        self.line_count = 0
        """Names in all lanes; a lane without any counts as one."""
        self.budget = limits.READY_BUFFER_JOBS_MAX
        """Budget of a heap in jobs."""

    @property
    def size(self) -> int:
        """Return the number of jobs in memory."""
        return sum(part.size for part in self.parts.values())

    def configure(self, settings: Queue | None) -> None:
        """Apply `settings` from now on; None = the queue has none."""
        if settings is None or self.settings is None or settings.weights is not self.settings.weights:
            self._weights = {each.tenant: each.weight for each in settings.weights} if settings is not None else {}
        self.settings = settings
        self.ageing_ms = (settings.ageing_ms if settings is not None else 0) or self._default_ageing_ms
        self._set_free()

    def look_at_each(self) -> None:
        """Check each job from now on: some have options."""
        self.is_keyed = True
        self._set_free()

    def _set_free(self) -> None:
        settings = self.settings
        limited = settings is not None and bool(settings.paused or settings.rate_count or settings.concurrency_max)
        self.is_free = not limited and not self.is_keyed
        """Nothing blocks any of its jobs."""

    def add_lane(self, part: Part, tenant: str, *, is_read: bool) -> Lane:
        """Add a lane for a tenant that has none in the part, behind the others. Heaps may then exceed their budget."""
        self._turn_number += 1
        lane = part.lanes[tenant] = Lane(part, tenant, self._turn_number, is_read=is_read)
        part.unread_count += not is_read
        self._count_lines(1)
        return lane

    def add_heap(self, lane: Lane, priority: int, tag: NameTag, cut: Place | None) -> JobHeap:
        """Add a heap to the lane. Others may then exceed their budget."""
        kind = lane.part.kinds.get(tag)
        if kind is None:
            kind = lane.part.kinds[tag] = Kind()
        kind.heap_count += 1
        heap = lane.heaps[priority, tag] = JobHeap(lane, priority, tag, kind, cut)
        count = lane.name_counts.get(tag, 0)
        lane.name_counts[tag] = count + 1
        if not count and len(lane.name_counts) > 1:
            self._count_lines(1)
        return heap

    def drop_heap(self, heap: JobHeap) -> None:
        """Remove an empty heap that has nothing in the index."""
        lane = heap.lane
        del lane.heaps[heap.priority, heap.tag]
        heap.kind.heap_count -= 1
        if not heap.kind.heap_count:
            del lane.part.kinds[heap.tag]
        lane.name_counts[heap.tag] -= 1
        if not lane.name_counts[heap.tag]:
            del lane.name_counts[heap.tag]
            if lane.name_counts:
                self._count_lines(-1)

    def drop_lane(self, lane: Lane) -> None:
        """Remove a lane that has nothing."""
        for heap in [*lane.heaps.values()]:
            self.drop_heap(heap)
        del lane.part.lanes[lane.tenant]
        lane.part.unread_count -= not lane.is_read
        if not any(lane.tenant in part.lanes for part in self.parts.values()):
            self._credits.pop(lane.tenant, None)
        self._count_lines(-1)

    def other_lane(self, lane: Lane, region: str) -> Lane | None:
        """Return the tenant's other lane that a worker of `region` draws from."""
        part = self.parts.get("" if lane.part.region else region)
        return part.lanes.get(lane.tenant) if part is not None and part is not lane.part else None

    def turn(self, tenant: str, default_weight: Callable[[str], int]) -> int:
        """Return how many jobs the tenant of the first lane may give now, while others wait behind.

        `default_weight` returns the weight of a tenant that the queue does not name.
        """
        credit = self._credits.get(tenant, 0)
        if credit <= 0:
            credit = self._credits[tenant] = credit + (self._weights.get(tenant) or default_weight(tenant))
        return credit

    def end_turn(self, tenant: str, given_count: int) -> None:
        """Count jobs that the tenant gave; if its turn is used up, its lanes move behind the others."""
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
        """Reset the turn of a tenant that has no job and no competitor, unless it has a turn in another part."""
        if len(self.parts) == 1:
            self._credits.pop(tenant, None)

    def is_shared(self, lane: Lane, other: Lane | None, region: str) -> bool:
        """Return whether other tenants may have jobs for a worker of `region`."""
        if not region:
            return len(lane.part.lanes) > 1
        return len(self.parts[""].lanes) + len(self.parts[region].lanes) > (1 if other is None else 2)

    def _count_lines(self, change: int) -> None:
        self.line_count += change
        if self.line_count > self._lines_max:
            self._share_room(2 * self._lines_max)
        elif self._lines_max > 1 and self.line_count <= self._lines_max // 4:
            self._share_room(self._lines_max // 2)

    def _share_room(self, line_count: int) -> None:
        self._lines_max = line_count
        self.budget = max(_BUDGET_MIN, limits.READY_BUFFER_JOBS_MAX // line_count)
