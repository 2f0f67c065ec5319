"""Read pages of jobs in a stable order, with keys as cursors and a bound on the rows read.

Theory of operation. A page is read from an index in the order of its keys, and a cursor is the key after which the next
page begins. So a client that reads all pages sees every job that stays in the list exactly once, whatever is added or
removed meanwhile. That holds even if the job at the cursor is removed, or another node answers (case A10).

The index of each status:

    queued               WAITING up to now, lane by lane: due waiting jobs, whatever status is stored; then BLOCKED
    scheduled, retrying  TIMERS of the status from now on. Of one queue: WAITING from now on, lane by lane
    running, cancelling  LEASED; the record has the status
    parked ones          PARKED, by id, that is by age
    the finished ones    FINISHED, oldest first; dead letters of one reason: DEAD_LETTERS

A page examines at most `limits.SCAN_ROWS_MAX` index rows or lanes. So it may be short, or empty, and still have a next
cursor. Callers filter pages by other fields; lists by queue, name, tag or tenant, whatever the status, are in `facets`.

A job that changes its place in the order between two pages (it is blocked, released, retried, or gets another priority)
may be seen twice or not at all.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from raftsched import limits
from raftsched.core.records.ids import JobId
from raftsched.core.records.job import FINISHED, LEASED, PARKED, WAITING, Job, Status
from raftsched.errors import Invalid
from raftsched.storage.store.port import Row, Rows, Table
from raftsched.storage.tables import keys

_Item = TypeVar("_Item")
_BLOCKED_CURSOR = b"\xff"
"""Prefix of the cursors of `BLOCKED`: above all cursors of `WAITING`, which begin with a queue's name."""


class Page(NamedTuple, Generic[_Item]):
    """Carry records in order, and the cursor of the next page."""

    items: list[tuple[bytes, _Item]]
    next_cursor: bytes
    """The cursor of the next page; b"" at the end of the list."""


JobPage = Page[Job]


class _Rows(NamedTuple):
    """Carry index rows in order, and the cursor of the next ones; b"" at the end."""

    rows: list[Row]
    next_cursor: bytes


class _Span(NamedTuple):
    """Select keys with start <= key < stop."""

    start: bytes = b""
    stop: bytes | None = None


class _Lanes(NamedTuple):
    """Select lanes of `WAITING`: those of one queue, or of some, or all."""

    span: _Span = _Span()
    queues: Sequence[bytes] | None = None
    """Prefixes of the queues to look into, in order; None = all."""

    def start_from(self, key: bytes) -> bytes | None:
        """Return the first key from `key` on to look at; None if no queue is left."""
        if self.queues is None:
            return key
        position = bisect_right(self.queues, key)
        if position and key < keys.after_texts(self.queues[position - 1]):
            return key
        return self.queues[position] if position < len(self.queues) else None

    def stop_before(self, key: bytes | None) -> _Span | None:
        """Return the keys below `key` to look at; None if no queue is left."""
        if self.queues is None:
            return _Span(self.span.start, key)
        position = len(self.queues) if key is None else bisect_left(self.queues, key)
        if not position:
            return None
        end = keys.after_texts(self.queues[position - 1])
        return _Span(self.queues[position - 1], end if key is None else min(key, end))


def _within(queue: str, due_queues: Sequence[str] | None) -> _Lanes:
    if queue:
        return _Lanes(_Span(keys.text(queue), keys.after_waiting_queue(queue)))
    return _Lanes(queues=None if due_queues is None else [keys.text(name) for name in due_queues])


_Part = Callable[[bytes], _Span]
"""Given a lane of `WAITING`, returns the part of it to read."""


def page_by_status(
    store: Rows,
    load: Callable[[JobId], Job],
    status: Status,
    *,
    now_ms: int,
    queue: str = "",
    due_queues: Sequence[str] | None = None,
    reason: str = "",
    after: bytes,
    limit: int,
    descending: bool,
) -> JobPage:
    """Return the next jobs that users see as `status` at `now_ms`; raises `Invalid` for an impossible cursor.

    `queue`: only rows of this queue are examined; "" = all queues. Raises `Invalid` if the index of the status is not
    kept by queue. `due_queues`: all queues that may have due jobs, by name, so that a list of queued jobs skips the
    others; None = not known. `reason`: of dead letters, only those that were given up for it; "" = any.
    """
    check_cursor(after)
    if queue and status not in WAITING:
        raise Invalid(f"status: jobs that are {status.label} are not kept by queue", field="status")
    if reason and status is Status.DEAD_LETTER:
        start, stop = keys.text(reason), keys.after_texts(keys.text(reason))
        found = _range_rows(store, Table.DEAD_LETTERS, start, stop, after=after, limit=limit, descending=descending)
    else:
        within = _within(queue, due_queues)
        found = _index_rows(store, status, within, now_ms=now_ms, after=after, limit=limit, descending=descending)
    items: list[tuple[bytes, Job]] = []
    for key, _ in found.rows:
        if len(items) == limit:
            return JobPage(items, items[-1][0])
        job = load(keys.job_id_at_end(key))
        if job.status_at(now_ms) == status:
            items.append((key, job))
    return JobPage(items, found.next_cursor)


def page_of_range(
    store: Rows,
    table: Table,
    read: Callable[[bytes, bytes], _Item],
    *,
    start: bytes = b"",
    stop: bytes | None = None,
    after: bytes,
    limit: int,
    descending: bool = False,
) -> Page[_Item]:
    """Return the next rows of `table` with start <= key < stop, each converted by `read` from key and value.

    Raises `Invalid` for an impossible cursor.
    """
    check_cursor(after)
    found = _range_rows(store, table, start, stop, after=after, limit=limit, descending=descending)
    return Page([(key, read(key, value)) for key, value in found.rows], found.next_cursor)


def check_cursor(cursor: bytes) -> None:
    """Raise `Invalid` for a cursor that can't be a key; any other cursor is safe to use."""
    if len(cursor) > limits.KEY_BYTES_MAX:
        raise Invalid("cursor: not one that this server issued", field="cursor")


def _index_rows(
    store: Rows, status: Status, within: _Lanes, *, now_ms: int, after: bytes, limit: int, descending: bool
) -> _Rows:
    """Return the index rows of `status`, and perhaps of the status that shares its index."""
    if status is Status.QUEUED:
        read_queued = _queued_backward if descending else _queued_forward
        return read_queued(store, now_ms, within, after, limit)
    if status in WAITING and within.span.start:
        read_lanes = _lanes_backward if descending else _lanes_forward
        return read_lanes(store, _later_part(now_ms), within, after, limit)
    if status in WAITING:
        start, stop = keys.timers_until(status, now_ms + 1), bytes([status + 1])
        return _range_rows(store, Table.TIMERS, start, stop, after=after, limit=limit, descending=descending)
    if status in LEASED:
        return _range_rows(
            store, Table.LEASED, b"", None, after=after, limit=limits.SCAN_ROWS_MAX, descending=descending
        )
    if status in FINISHED or status in PARKED:
        table = Table.FINISHED if status in FINISHED else Table.PARKED
        start, stop = bytes([status]), bytes([status + 1])
        return _range_rows(store, table, start, stop, after=after, limit=limit, descending=descending)
    return _Rows([], b"")


def _range_rows(
    store: Rows, table: Table, start: bytes, stop: bytes | None, *, after: bytes, limit: int, descending: bool
) -> _Rows:
    """Return up to `limit` rows of one range, from the cursor on."""
    if after and descending:
        stop = after if stop is None else min(stop, after)
    elif after:
        start = max(start, keys.after(after))
    rows = store.scan(table, start, stop, limit=limit, reverse=descending)
    return _Rows(rows, rows[-1][0] if rows and len(rows) == limit else b"")


def _queued_forward(store: Rows, now_ms: int, within: _Lanes, after: bytes, limit: int) -> _Rows:
    """Return waiting jobs that are due, then blocked ones; the cursors of these begin with `_BLOCKED_CURSOR`."""
    if after.startswith(_BLOCKED_CURSOR):
        return _blocked_rows(store, within, after, limit, descending=False)
    ready = _lanes_forward(store, _due_part(now_ms), within, after, limit)
    if ready.next_cursor:
        return ready
    blocked = _blocked_rows(store, within, b"", limit - len(ready.rows), descending=False)
    return _Rows(ready.rows + blocked.rows, blocked.next_cursor)


def _queued_backward(store: Rows, now_ms: int, within: _Lanes, after: bytes, limit: int) -> _Rows:
    """Do the same as `_queued_forward`, from the last blocked job back."""
    if after and not after.startswith(_BLOCKED_CURSOR):
        return _lanes_backward(store, _due_part(now_ms), within, after, limit)
    blocked = _blocked_rows(store, within, after, limit, descending=True)
    if blocked.next_cursor:
        return blocked
    ready = _lanes_backward(store, _due_part(now_ms), within, b"", limit - len(blocked.rows))
    return _Rows(blocked.rows + ready.rows, ready.next_cursor)


def _blocked_rows(store: Rows, within: _Lanes, after: bytes, limit: int, *, descending: bool) -> _Rows:
    """Return blocked jobs, each under its key with `_BLOCKED_CURSOR` before it."""
    cursor = after.removeprefix(_BLOCKED_CURSOR)
    if after and not cursor:  # the cursor before all blocked jobs
        return _Rows([], b"") if descending else _blocked_rows(store, within, b"", limit, descending=False)
    found = _range_rows(store, Table.BLOCKED, *within.span, after=cursor, limit=limit, descending=descending)
    rows = [(_BLOCKED_CURSOR + key, value) for key, value in found.rows]
    return _Rows(rows, _BLOCKED_CURSOR + found.next_cursor if found.next_cursor else b"")


def _due_part(now_ms: int) -> _Part:
    """Return the part of a lane that is due."""
    return lambda group: _Span(group, group + keys.time(now_ms + 1))


def _later_part(now_ms: int) -> _Part:
    """Return the part of a lane that is not due yet."""
    return lambda group: _Span(group + keys.time(now_ms + 1), keys.after_waiting_group(group))


def _lanes_forward(store: Rows, part: _Part, within: _Lanes, after: bytes, limit: int) -> _Rows:
    """Return waiting entries of one part of each lane, and skip the other part."""
    rows: list[Row] = []
    start = max(within.span.start, keys.after(after)) if after else within.span.start
    for _ in range(limits.SCAN_ROWS_MAX):
        following = within.start_from(start)
        head = [] if following is None else store.scan(Table.WAITING, following, within.span.stop, limit=1)
        if not head:
            return _Rows(rows, b"")
        group = keys.waiting_group_of(head[0][0])
        wanted = part(group)
        begin = max(wanted.start, head[0][0])
        rows += store.scan(Table.WAITING, begin, wanted.stop, limit=limit - len(rows))
        if len(rows) >= limit:
            break
        start = keys.after_waiting_group(group)
    return _Rows(rows, rows[-1][0] if len(rows) >= limit > 0 else start)


def _lanes_backward(store: Rows, part: _Part, within: _Lanes, after: bytes, limit: int) -> _Rows:
    """Do the same as `_lanes_forward`, from the last queue and its lowest priority up."""
    rows: list[Row] = []
    stop = within.span.stop
    if after:
        stop = after if stop is None else min(stop, after)
    for _ in range(limits.SCAN_ROWS_MAX):
        span = within.stop_before(stop)
        if span is None:
            return _Rows(rows, b"")
        head = store.scan(Table.WAITING, *span, limit=1, reverse=True)
        if not head and within.queues is None:
            return _Rows(rows, b"")
        if not head:
            stop = span.start
            continue
        group = keys.waiting_group_of(head[0][0])
        wanted = part(group)
        end = min(wanted.stop or keys.after(head[0][0]), keys.after(head[0][0]))
        rows += store.scan(Table.WAITING, wanted.start, end, limit=limit - len(rows), reverse=True)
        if len(rows) >= limit:
            break
        stop = group
    return _Rows(rows, rows[-1][0] if len(rows) >= limit > 0 else stop or b"")
