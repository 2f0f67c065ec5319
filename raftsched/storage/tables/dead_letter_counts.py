"""Count the dead letters of each tenant and reason.

Theory of operation. As `Counters`: the counts are in memory, change with each job written, and are written at the
checkpoint, in the transaction of the jobs they count. They are rows of the same table, with 0 in place of a status.
"""

from __future__ import annotations

from raftsched.core.records.job import Job, Status
from raftsched.errors import InvariantBroken
from raftsched.storage.store.port import Rows, Table, all_rows
from raftsched.storage.tables import keys

_COUNT_BYTES = 8
_DEAD_LETTER = Status.DEAD_LETTER


class DeadLetterCounts:
    """Keep the counts as of the last write; the constructor reads them from `store`."""

    def __init__(self, store: Rows) -> None:
        self._counts: dict[tuple[str, str], int] = {
            keys.read_reason_key(key): int.from_bytes(value, "big")
            for key, value in all_rows(store, Table.COUNTERS)
            if keys.is_reason_key(key)
        }
        self._changed: set[tuple[str, str]] = set()

    def move(self, old: Job | None, new: Job | None) -> None:
        """Replace `old` by `new` in the counts; raises `InvariantBroken` if a count would fall below zero."""
        if new is not None and new.status is _DEAD_LETTER:
            self._add((new.tenant, new.reason), 1)
        if old is not None and old.status is _DEAD_LETTER:
            self._add((old.tenant, old.reason), -1)

    def save(self, store: Rows) -> None:
        """Write the counts changed since the last save; zeros are dropped."""
        for key in sorted(self._changed):
            count = self._counts[key]
            if count:
                store.put(Table.COUNTERS, keys.reason_key(*key), count.to_bytes(_COUNT_BYTES, "big"))
            else:
                store.delete(Table.COUNTERS, keys.reason_key(*key))
                del self._counts[key]
        self._changed.clear()

    def all(self) -> dict[tuple[str, str], int]:
        """Return every count above zero, by tenant and reason."""
        return {key: count for key, count in self._counts.items() if count}

    def _add(self, key: tuple[str, str], change: int) -> None:
        count = self._counts.get(key, 0) + change
        if count < 0:
            raise InvariantBroken(f"the count of dead letters of {key} would fall below zero")
        self._counts[key] = count
        self._changed.add(key)
