"""Pages of jobs: stable orders, cursors that are keys, and a bound on what one page may read.

Theory of operation. A page is read from an index in the order of its keys, and a cursor is the key after which the next
page begins. So a walk sees every job that stays in the list exactly once, whatever is added or removed meanwhile, also
when the job at the cursor is gone, or another node answers (case A10).

Which index a status is read by:

    queued               WAITING up to now, group by group: a waiting job whose time has come, whatever is stored
    scheduled, retrying  TIMERS from now on; the entry tells the two apart
    running, cancelling  LEASED; the record tells the two apart
    the finished ones    FINISHED, oldest first

A page examines at most `limits.SCAN_ROWS_MAX` index rows or groups. It may therefore come back short, or empty, and
still have a next cursor. Filters by other fields are the caller's, over pages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from raftsched import limits
from raftsched.core.ids import JobId, TimeMs
from raftsched.core.job import FINISHED, LEASED, WAITING, Job, Status
from raftsched.errors import Invalid
from raftsched.storage import keys
from raftsched.storage.store import Row, Store, Table


class JobPage(NamedTuple):
    """Jobs in order, each with the cursor that continues after it."""

    items: list[tuple[bytes, Job]]
    next_cursor: bytes
    """Where the next page begins; b"" at the end of the list."""


class _Rows(NamedTuple):
    """Index rows in order, and where the next ones begin; b"" at the end."""

    rows: list[Row]
    next_cursor: bytes


def page_by_status(
    store: Store,
    load: Callable[[JobId], Job],
    status: Status,
    *,
    now_ms: int,
    after: bytes,
    limit: int,
    descending: bool,
) -> JobPage:
    """Return the next jobs that users see as `status` at `now_ms`; raises `Invalid` for an impossible cursor."""
    check_cursor(after)
    found = _index_rows(store, status, now_ms=now_ms, after=after, limit=limit, descending=descending)
    items: list[tuple[bytes, Job]] = []
    for key, _ in found.rows:
        if len(items) == limit:
            return JobPage(items, items[-1][0])
        job = load(keys.job_id_at_end(key))
        if job.status_at(now_ms) == status:
            items.append((key, job))
    return JobPage(items, found.next_cursor)


def check_cursor(cursor: bytes) -> None:
    """A cursor may come from anyone; this is all it takes for it to be harmless."""
    if len(cursor) > limits.KEY_BYTES_MAX:
        raise Invalid("cursor: not one that this server gave out", field="cursor")


def _index_rows(store: Store, status: Status, *, now_ms: int, after: bytes, limit: int, descending: bool) -> _Rows:
    """The index rows of `status`, and perhaps of the status that shares its index."""
    if status is Status.QUEUED:
        read_ready = _ready_backward if descending else _ready_forward
        return read_ready(store, now_ms, after, limit)
    if status in WAITING:
        start = keys.time(TimeMs(now_ms + 1))
        found = _range_rows(
            store, Table.TIMERS, start, None, after=after, limit=limits.SCAN_ROWS_MAX, descending=descending
        )
        return _Rows([row for row in found.rows if row[1][0] == status], found.next_cursor)
    if status in LEASED:
        return _range_rows(
            store, Table.LEASED, b"", None, after=after, limit=limits.SCAN_ROWS_MAX, descending=descending
        )
    if status in FINISHED:
        start, stop = bytes([status]), bytes([status + 1])
        return _range_rows(store, Table.FINISHED, start, stop, after=after, limit=limit, descending=descending)
    return _Rows([], b"")


def _range_rows(
    store: Store, table: Table, start: bytes, stop: bytes | None, *, after: bytes, limit: int, descending: bool
) -> _Rows:
    """Up to `limit` rows of one range, on from the cursor."""
    if after and descending:
        stop = after if stop is None else min(stop, after)
    elif after:
        start = max(start, keys.after(after))
    rows = store.scan(table, start, stop, limit=limit, reverse=descending)
    return _Rows(rows, rows[-1][0] if rows and len(rows) == limit else b"")


def _ready_forward(store: Store, now_ms: int, after: bytes, limit: int) -> _Rows:
    """Waiting entries that are due, skipping from group to group what isn't."""
    rows: list[Row] = []
    start = keys.after(after) if after else b""
    for _ in range(limits.SCAN_ROWS_MAX):
        head = store.scan(Table.WAITING, start, None, limit=1)
        if not head:
            return _Rows(rows, b"")
        group = keys.waiting_group_of(head[0][0])
        rows += store.scan(Table.WAITING, head[0][0], group + keys.time(now_ms + 1), limit=limit - len(rows))
        if len(rows) >= limit:
            break
        start = keys.after_waiting_group(group)
    return _Rows(rows, rows[-1][0] if len(rows) >= limit > 0 else start)


def _ready_backward(store: Store, now_ms: int, after: bytes, limit: int) -> _Rows:
    """As `_ready_forward`, from the last queue and its lowest priority up."""
    rows: list[Row] = []
    stop = after or None
    for _ in range(limits.SCAN_ROWS_MAX):
        head = store.scan(Table.WAITING, b"", stop, limit=1, reverse=True)
        if not head:
            return _Rows(rows, b"")
        group = keys.waiting_group_of(head[0][0])
        due_end = group + keys.time(now_ms + 1)
        end = due_end if stop is None else min(due_end, stop)
        rows += store.scan(Table.WAITING, group, end, limit=limit - len(rows), reverse=True)
        if len(rows) >= limit:
            break
        stop = group
    return _Rows(rows, rows[-1][0] if len(rows) >= limit > 0 else stop or b"")
