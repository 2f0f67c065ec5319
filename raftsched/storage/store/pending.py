"""Buffer rows of one table that LMDB does not have yet.

Theory of operation. If a job is submitted, leased and completed between two commits, only its last record and its last
index entries have to be written. A row that was *inserted* is known to be missing in LMDB. It can be dropped without a
look-up, and written without reading an old value. Sorted rows are written several times as fast as single ones, since
LMDB's cursor stays on the page.
"""

from __future__ import annotations

import lmdb
from lmdb import _Database as Database

from raftsched.storage.store.port import Table
from raftsched.storage.store.row_codec import PLAIN_TABLES, RowCodec, sealed_rows
from raftsched.storage.store.seals import SEAL_AT, Sums, read_seal


class PendingRows:
    """Keep the rows written since the last commit, by key."""

    __slots__ = ("changed", "new")

    def __init__(self) -> None:
        self.new: dict[bytes, bytes] = {}
        """Rows that LMDB does not have."""
        self.changed: dict[bytes, bytes] = {}
        """Rows that it may have, with another value."""

    def write_to(
        self, table: Table, txn: lmdb.Transaction[bytes], database: Database, sums: Sums, codec: RowCodec
    ) -> None:
        """Write all rows to LMDB, as `codec` stores them. Raises `lmdb.Error`, also if an inserted row exists already."""
        may_be_encrypted = codec.any_encrypted and table not in PLAIN_TABLES
        encoded = codec.encode_all if may_be_encrypted else sealed_rows
        with txn.cursor(database) as cursor:
            if self.new:
                rows = encoded(table, self.new, sums)
                _, added = cursor.putmulti(rows, overwrite=False)
                if added != len(rows):
                    raise lmdb.KeyExistsError(f"table {table.name.lower()}: a row that was inserted was there already")
                self.new.clear()
            if self.changed:
                for key, old in cursor.getmulti(sorted(self.changed)):
                    if may_be_encrypted:
                        sums.move(table, codec.seal_in(table, key, old), None)
                        codec.move(table, key, old, None)
                    else:
                        sums.of_tables[table] -= read_seal(old, SEAL_AT)[0] ** 2
                cursor.putmulti(encoded(table, self.changed, sums))
                self.changed.clear()
