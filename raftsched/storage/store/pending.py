"""Rows of one table that were written and that LMDB does not have yet.

Theory of operation. Of a job that is submitted, leased and completed between two commits, only the last record and the
last index entries are worth writing. A row that was *inserted* is known to be missing in LMDB: it can be dropped without
a look-up, and be written without reading what it replaces. Sorted rows go to LMDB several times as fast as single ones,
since its cursor stays on the page.
"""

from __future__ import annotations

from zlib import crc32

import lmdb
from lmdb import _Database as Database

from raftsched.storage.store.port import Row, Table
from raftsched.storage.store.seals import SEEDS, Sums, pack_seal, sealed


class PendingRows:
    """At most what is written between two commits, by key."""

    __slots__ = ("changed", "new")

    def __init__(self) -> None:
        self.new: dict[bytes, bytes] = {}
        """Rows that LMDB does not have."""
        self.changed: dict[bytes, bytes] = {}
        """Rows that it may have, with another value."""

    def hand_over(self, table: Table, txn: lmdb.Transaction[bytes], database: Database, sums: Sums) -> None:
        """Write all rows to LMDB, each with its seal; raises `lmdb.Error`, also where an inserted one was there already."""
        if self.new:
            sums.of_tables[table] += self._insert(table, txn, database)
            self.new.clear()
        for key in sorted(self.changed):
            new = sealed(table, key, self.changed[key])
            sums.move(table, txn.replace(key, new, database), new)
        self.changed.clear()

    def _insert(self, table: Table, txn: lmdb.Transaction[bytes], database: Database) -> int:
        """Write the new rows; return what they add to the table's sum."""
        total = 0
        seed = SEEDS[table]
        rows: list[Row] = []
        for key in sorted(self.new):
            value = self.new[key]
            seal = crc32(value, crc32(key, seed | len(key)))  # `sealed`, written out: half of what it costs is the call
            total += seal * seal
            rows.append((key, value + pack_seal(seal)))
        with txn.cursor(database) as cursor:
            _, added = cursor.putmulti(rows, overwrite=False)
        if added != len(rows):
            raise lmdb.KeyExistsError(f"table {table.name.lower()}: a row that was inserted was there already")
        return total
