"""Write rows over those of a store, which does not change until they are merged.

Theory of operation. A written row is kept in memory and hides the row beneath. A scan merges both: it sorts the written
rows if any were added since the last scan, and skips hidden rows beneath. Rows beneath do not change meanwhile, so hidden
rows at the start of a scan are skipped only once: taking the first row of a list repeatedly costs one scan of the list.

Left out: seals, sums and the length of keys. The store beneath adds and checks them when it gets the rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice

from raftsched import limits
from raftsched.errors import InvariantBroken
from raftsched.storage.store.port import Row, Rows, Table

_Written = dict[bytes, bytes | None]
"""Rows by key; None = removed."""
_NONE: _Written = {}
"""The rows of a table without writes; never changed."""
_NO_ROWS = [_NONE] * len(Table)


class ForkedRows:
    """Implement `raftsched.storage.store.port.Rows` over `beneath`, which must not change meanwhile.

    Most forks have a few rows in a few tables, so containers are created when they are needed.
    """

    __slots__ = ("_begun", "_beneath", "_changed", "_new", "_orders")

    def __init__(self, beneath: Rows) -> None:
        self._beneath = beneath
        self._new = _NO_ROWS.copy()
        """By table: rows that are not beneath."""
        self._changed = _NO_ROWS.copy()
        """By table: rows that may be beneath, with another value."""
        self._begun: list[tuple[Table, _Written]] = []
        """The non-empty tables of both, in the order of their first writes."""
        self._orders: dict[Table, _Order] = {}

    def get(self, table: Table, key: bytes) -> bytes | None:
        new, changed = self._new[table], self._changed[table]
        if key in new:
            return new[key]
        return changed[key] if key in changed else self._beneath.get(table, key)

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        new = self._new[table]
        if key in new:
            new[key] = value
        else:
            changed = self._changed[table]
            if changed is _NONE:
                changed = self._begin(self._changed, table)
            changed[key] = value

    def insert(self, table: Table, key: bytes, value: bytes) -> None:
        new, changed = self._new[table], self._changed[table]
        rows = changed if key in changed else new
        if rows.get(key) is not None:
            raise InvariantBroken(f"table {table.name.lower()} has a row {key.hex()} already")
        if rows is _NONE:
            rows = self._begin(self._new, table)
        rows[key] = value

    def delete(self, table: Table, key: bytes) -> bool:
        if self.get(table, key) is None:
            return False
        self.remove(table, key)
        return True

    def remove(self, table: Table, key: bytes) -> None:
        new, changed = self._new[table], self._changed[table]
        rows = new if key in new else changed
        if rows.get(key, key) is None:
            raise InvariantBroken(f"table {table.name.lower()} has no row {key.hex()} to remove")
        if rows is changed and key in changed and self._beneath.get(table, key) is None:
            del changed[key]  # it was put on this fork, so there is nothing to hide beneath
            self._orders.pop(table, None)
            return
        if rows is _NONE:
            rows = self._begin(self._changed, table)
        rows[key] = None

    def scan(self, table: Table, start: bytes, stop: bytes | None, *, limit: int, reverse: bool = False) -> list[Row]:
        if self._new[table] is _NONE and self._changed[table] is _NONE:
            return self._beneath.scan(table, start, stop, limit=limit, reverse=reverse)
        limit = max(limit, 0)
        rows = list(islice(self._written(table, start, stop, reverse=reverse), limit))
        if reverse:
            rows += self._visible_backward(table, start, stop, limit)
        else:
            rows += self._visible_forward(table, start, stop, limit)
        rows.sort(reverse=reverse)
        return rows[:limit]

    def merge(self) -> None:
        """Write all rows to the store beneath; the fork must not be used after that."""
        put, insert, remove = self._beneath.put, self._beneath.insert, self._beneath.remove
        for table, rows in self._begun:
            is_new = rows is self._new[table]
            for key, value in rows.items():
                if is_new:
                    if value is not None:
                        insert(table, key, value)
                elif value is not None:
                    put(table, key, value)
                else:
                    remove(table, key)

    def _begin(self, tables: list[_Written], table: Table) -> _Written:
        rows: _Written = {}
        tables[table] = rows
        self._begun.append((table, rows))
        return rows

    def _written(self, table: Table, start: bytes, stop: bytes | None, *, reverse: bool) -> Iterator[Row]:
        """Yield the written rows with start <= key < stop in order, without removed ones."""
        new, changed = self._new[table], self._changed[table]
        order = self._order(table).up_to(new, changed)
        low = bisect_left(order, start)
        high = len(order) if stop is None else bisect_left(order, stop)
        for place in range(high - 1, low - 1, -1) if reverse else range(low, high):
            key = order[place]
            value = new[key] if key in new else changed[key]
            if value is not None:
                yield key, value

    def _order(self, table: Table) -> _Order:
        known = self._orders.get(table)
        if known is None:
            known = self._orders[table] = _Order()
        return known

    def _visible_forward(self, table: Table, start: bytes, stop: bytes | None, limit: int) -> list[Row]:
        """Return the first `limit` rows beneath that no written row hides."""
        found: list[Row] = []
        hidden, passed = self._changed[table], self._order(table).passed
        low, page_rows = passed.get(start, start), limit
        while len(found) < limit:
            page = self._beneath.scan(table, low, stop, limit=page_rows)
            found += [row for row in page if row[0] not in hidden]
            if page and not found:
                passed[start] = page[-1][0] + b"\0"
            if len(page) < page_rows:
                break
            low, page_rows = page[-1][0] + b"\0", min(2 * page_rows, limits.SCAN_ROWS_MAX)
        return found

    def _visible_backward(self, table: Table, start: bytes, stop: bytes | None, limit: int) -> list[Row]:
        """Do the same as `_visible_forward`, from the upper end down."""
        found: list[Row] = []
        while len(found) < limit:
            page = self._beneath.scan(table, start, stop, limit=limit, reverse=True)
            found += [row for row in page if row[0] not in self._changed[table]]
            if len(page) < limit:
                break
            stop = page[-1][0]
        return found


class _Order:
    """Sort the keys of a table's written rows when a scan needs them."""

    __slots__ = ("_changed_count", "_keys", "_new_count", "passed")

    def __init__(self) -> None:
        self.passed: dict[bytes, bytes] = {}
        """Start of a scan → a later key before which every row beneath is hidden."""
        self._keys: list[bytes] = []
        self._new_count = self._changed_count = 0

    def up_to(self, new: _Written, changed: _Written) -> list[bytes]:
        """Return the keys of both, sorted."""
        if len(self._keys) < len(new) + len(changed):
            self._keys += islice(new, self._new_count, None)
            self._keys += islice(changed, self._changed_count, None)
            self._keys.sort()
            self._new_count, self._changed_count = len(new), len(changed)
        return self._keys
