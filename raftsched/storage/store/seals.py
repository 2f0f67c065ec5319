"""Seal every stored value with a checksum, and keep the sum of all seals of a table.

Theory of operation. LMDB has no checksums, so one flipped bit on the disk would be served, leased and copied to other
nodes. A *seal* is the CRC-32 of table, key and value. The store itself writes it behind the value and checks it whenever
it reads the row, so it covers every table. Table and key are part of it: a value under a wrong key is found, and an index
entry without a value is protected, too.

A seal does not show that a row is missing, or that an older row has come back. The *sums* do: for each table the sum of
the squares of all seals, modulo 2^64. Each write subtracts the old seal and adds the new one. So sums cost no reads and do
not depend on the order of the writes. They are committed with the rows. The seals of a table must add up to its sum, and
nodes that have applied the same entries must have the same sums. They are squares because CRC-32 is linear: the same bit
flipped in many values of equal length would change all their seals alike, and plain sums of these may cancel out.

Neither protects against intentional changes; encryption does (`row_codec`).
"""

from __future__ import annotations

from struct import Struct
from typing import ClassVar, Final
from zlib import crc32

import msgspec

from raftsched.storage.store.port import Table

SUMS_KEY: Final = b"sums"
"""The row of `META` that has the sums; it is in no sum."""
_SEAL_BYTES: Final = 4
SEAL_AT: Final = -_SEAL_BYTES
"""Position of the seal in a stored row."""
RESIDUE: Final = 0x2144DF1C
"""CRC-32 of any bytes followed by their own CRC-32, lowest byte first."""
SEEDS: Final = tuple(crc32(table.name.lower().encode()) & ~0xFFF for table in Table)
"""A seed for each table; its low bits are free for the length of the key, which separates key and value."""
pack_seal = Struct("<I").pack
read_seal = Struct("<I").unpack_from
_MODULUS: Final = 1 << 64
_DIGEST_MODULUS: Final = 1 << 63
"""Messages between nodes have integers below this."""
_LOCAL: Final = (Table.META, Table.COUNTERS)
"""Tables that each node writes at its own checkpoints; they differ between nodes."""
_ALL_ENCRYPTED: Final = "all encrypted"
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, int]).decode


def seal_of(table: Table, key: bytes, value: bytes) -> int:
    """Return the seal of a row."""
    return crc32(value, crc32(key, SEEDS[table] | len(key)))


class Sums:
    """Keep the sum of each table, as of the last write."""

    __slots__ = ("has_plain_rows", "of_tables")

    compared: ClassVar[tuple[Table, ...]] = tuple(table for table in Table if table not in _LOCAL)
    """The tables whose content depends on the log only."""

    def __init__(self) -> None:
        self.of_tables = [0] * len(Table)
        """Not reduced by the modulus; writers add and subtract squares of seals."""
        self.has_plain_rows = True
        """Tables that are to be encrypted may have rows that are not."""

    def move(self, table: Table, old: int | None, new: int | None) -> None:
        """Replace the seal `old` by `new` in the table's sum; None = no row."""
        if old is not None:
            self.of_tables[table] -= old**2
        if new is not None:
            self.of_tables[table] += new**2

    def of(self, table: Table) -> int:
        """Return the sum of one table."""
        return self.of_tables[table] % _MODULUS

    def digest(self) -> int:
        """Return one number over all that the log alone decides: equal on nodes that have applied the same entries."""
        return sum(self.of_tables[table] for table in self.compared) % _DIGEST_MODULUS

    def encoded(self) -> bytes:
        """Return the row of `META`; tables are known by name, so that their numbers may change."""
        sums = {table.name: self.of(table) for table in Table}
        return _encode(sums if self.has_plain_rows else sums | {_ALL_ENCRYPTED: 1})

    def load(self, row: bytes | None) -> None:
        """Take over the sums of a commit; None: nothing was committed yet."""
        stored = {} if row is None else _decode(row)
        self.has_plain_rows = _ALL_ENCRYPTED not in stored
        self.of_tables[:] = [stored.get(table.name, 0) for table in Table]
