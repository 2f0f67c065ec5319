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
from raftsched.storage.store.seals import SEAL_AT, SEEDS, Sums, pack_seal, read_seal


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
        with txn.cursor(database) as cursor:
            if self.new:
                rows = _sealed(table, self.new, sums)
                _, added = cursor.putmulti(rows, overwrite=False)
                if added != len(rows):
                    raise lmdb.KeyExistsError(f"table {table.name.lower()}: a row that was inserted was there already")
                self.new.clear()
            if self.changed:
                for _, old in cursor.getmulti(sorted(self.changed)):
                    sums.of_tables[table] -= read_seal(old, SEAL_AT)[0] ** 2
                cursor.putmulti(_sealed(table, self.changed, sums))
                self.changed.clear()


def _sealed(table: Table, rows: dict[bytes, bytes], sums: Sums) -> list[Row]:
    """Return the rows as they are stored, by key, counted in the table's sum."""
    total = 0
    seed = SEEDS[table]
    found: list[Row] = []
    for key in sorted(rows):
        value = rows[key]
        seal = crc32(value, crc32(key, seed | len(key)))  # `sealed`, written out: half of what it costs is the call
        total += seal * seal
        found.append((key, value + pack_seal(seal)))
    sums.of_tables[table] += total
    return found
