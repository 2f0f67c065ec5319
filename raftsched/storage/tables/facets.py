"""List jobs by queue, name, tag, tenant, workflow or schedule, and by several of them at once, in the order of ids.

Theory of operation. The result is an intersection of lists of ids, each sorted by an index: the unfinished jobs of a
queue, the completed jobs with a tag, the jobs of a workflow, the leased jobs. The algorithm asks each list in turn for
its first id at or behind a bound, and the answer is the next bound. An id that all lists return is in all of them. So it
needs no more look-ups than the shortest list has ids, however long the others are, and it reads only matching records.

The caller must examine the records for what the indexes do not tell, for example which of `queued`, `scheduled` and
`retrying` an unfinished job is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from raftsched import limits
from raftsched.core.records.ids import JobId
from raftsched.core.records.job import FINISHED, LEASED, PARKED, WAITING, Job, Status
from raftsched.core.state.entries import FacetKind
from raftsched.errors import Invalid
from raftsched.storage.store.port import Rows, Table
from raftsched.storage.tables import keys
from raftsched.storage.tables.pages import JobPage

ID_BYTES: Final = 16
LOWEST_ID: Final = bytes(ID_BYTES)
HIGHEST_ID: Final = b"\xff" * ID_BYTES
_UNFINISHED: Final = 0
_BATCH_MIN: Final = 8
_BATCH_MAX: Final = 256
"""Rows read ahead of a list that is read through; a list that is mostly skipped is read in small pieces."""


class Facets(NamedTuple):
    """Select jobs that match all fields; empty fields match all. At least one of the texts or ids must be given."""

    queue: str = ""
    name: str = ""
    tag: str = ""
    tenant: str = ""
    """Not the default one, which has no such list."""
    workflow_id: bytes = b""
    schedule_id: bytes = b""
    statuses: tuple[Status, ...] = ()
    """As far as indexes distinguish them: any status that waits for time means all of these."""


def page_of_facets(
    store: Rows,
    load: Callable[[JobId], Job],
    facets: Facets,
    *,
    low: bytes = LOWEST_ID,
    high: bytes = HIGHEST_ID,
    after: bytes = b"",
    limit: int,
    descending: bool,
) -> JobPage:
    """Return the next jobs of `facets` with low <= id <= high, by id, behind the id `after`; cursors are ids.

    At most `limits.SCAN_ROWS_MAX` bounds are tried, so a page may be short, or empty, and still have a next cursor.
    Raises `Invalid` for an impossible cursor.
    """
    step = -1 if descending else 1
    if after:
        if len(after) != ID_BYTES:
            raise Invalid("cursor: not one that this server issued", field="cursor")
        following = _beside(after, step)
        if following is None:
            return JobPage([], b"")
        low, high = (low, min(high, following)) if descending else (max(low, following), high)
    sources = [_Union([_Ids(store, *each, descending) for each in ranges], descending) for ranges in _lists(facets)]
    items: list[tuple[bytes, Job]] = []
    bound = high if descending else low
    for _ in range(limits.SCAN_ROWS_MAX):
        if len(items) == limit:
            return JobPage(items, items[-1][0])
        if low > bound or bound > high:
            return JobPage(items, b"")
        found = _advance(sources, bound)
        if found is None or not low <= found <= high:
            return JobPage(items, b"")
        if found != bound and any(source.at(found) != found for source in sources):
            bound = found
            continue
        items.append((found, load(JobId(found))))
        following = _beside(found, step)
        if following is None:
            return JobPage(items, b"")
        bound = following
    return JobPage(items, _beside(bound, -step) or b"")


def _advance(sources: Sequence[_Source], bound: bytes) -> bytes | None:
    """Return a bound up to which no id but the bound itself is in all sources; None if there are no more."""
    for source in sources:
        found = source.at(bound)
        if found is None:
            return None
        bound = found
    return bound


def _beside(job_id: bytes, step: int) -> bytes | None:
    """Return the next id above or below; None if there is none."""
    number = int.from_bytes(job_id, "big") + step
    return None if number < 0 or number >> (8 * ID_BYTES) else number.to_bytes(ID_BYTES, "big")


# -- the lists --------------------------------------------------------------------------------------------------------

_Range = tuple[Table, bytes]
"""A table, and the prefix of the list's keys; the ids are at their ends."""


def _lists(facets: Facets) -> list[list[_Range]]:
    """Return the lists to intersect, each as its ranges; lists that are probably short come first."""
    lists: list[list[_Range]] = []
    ended = _ended(facets.statuses)
    if facets.workflow_id:
        lists.append([(Table.WORKFLOW_JOBS, facets.workflow_id)])
    if facets.schedule_id:
        lists.append([(Table.SCHEDULE_JOBS, facets.schedule_id)])
    unfinished = _unfinished(facets.statuses)
    if unfinished:
        lists.append(unfinished)
    both = FacetKind.QUEUE_AND_NAME
    for value, kinds in (
        (facets.tag, (FacetKind.TAG,)),
        (facets.tenant, (FacetKind.TENANT,)),
        (facets.name, (both, FacetKind.NAME)),
        (facets.queue, (both, FacetKind.QUEUE)),
    ):
        if value:
            lists.append([(Table.FACETS, keys.facet_group(kind, value, each)) for kind in kinds for each in ended])
    return lists


def _ended(statuses: tuple[Status, ...]) -> list[int]:
    """Return the groups of `FACETS` that have jobs of these statuses."""
    if not statuses:
        return [_UNFINISHED, *sorted(FINISHED)]
    return sorted({status if status in FINISHED else _UNFINISHED for status in statuses})


def _unfinished(statuses: tuple[Status, ...]) -> list[_Range]:
    """Return the lists of these statuses in the order of ids; [] if a status has no such list."""
    if not statuses or any(status in WAITING or status in FINISHED for status in statuses):
        return []
    ranges = [(Table.PARKED, bytes([status])) for status in sorted(set(statuses) & PARKED)]
    return [*ranges, (Table.LEASED, b"")] if set(statuses) & LEASED else ranges


class _Source(Protocol):
    def at(self, bound: bytes) -> bytes | None:
        """Return the first id at or behind `bound`, which never goes back; None if there is none."""


class _Ids:
    """Read the ids of one range ahead in pieces."""

    def __init__(self, store: Rows, table: Table, prefix: bytes, descending: bool) -> None:
        self._store = store
        self._table = table
        self._prefix = prefix
        self._stop = keys.after_id(prefix)
        self._descending = descending
        self._ids: list[bytes] = []
        """The piece read last; in ascending order also for a descending range."""
        self._is_end = False
        """Nothing is behind the piece."""
        self._count = _BATCH_MIN

    def at(self, bound: bytes) -> bytes | None:
        found = self._in_piece(bound)
        if found is None and not self._is_end:
            self._read(bound)
            found = self._in_piece(bound)
        return found

    def _in_piece(self, bound: bytes) -> bytes | None:
        position = bisect_left(self._ids, bound)
        if not self._descending:
            return self._ids[position] if position < len(self._ids) else None
        if position < len(self._ids) and self._ids[position] == bound:
            return bound
        return self._ids[position - 1] if position else None

    def _read(self, bound: bytes) -> None:
        start, stop = self._prefix, self._stop
        if self._descending:
            stop = keys.after(self._prefix + bound)
        else:
            start = self._prefix + bound
        rows = self._store.scan(self._table, start, stop, limit=self._count, reverse=self._descending)
        ids = [key[-ID_BYTES:] for key, _ in rows]
        self._is_end = len(ids) < self._count
        is_walked = bool(self._ids) and _beside(self._ids[0 if self._descending else -1], -1 if self._descending else 1)
        self._count = min(2 * self._count, _BATCH_MAX) if is_walked == bound else _BATCH_MIN
        self._ids = ids[::-1] if self._descending else ids


class _Union:
    """Merge the ids of several ranges."""

    def __init__(self, ranges: Sequence[_Ids], descending: bool) -> None:
        self._ranges = ranges
        self._first = max if descending else min

    def at(self, bound: bytes) -> bytes | None:
        found = [first for each in self._ranges if (first := each.at(bound)) is not None]
        return self._first(found) if found else None
