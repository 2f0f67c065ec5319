"""Turn values into rows as they are stored, and back: each with a seal, and encrypted if the node has keys.

Theory of operation. An encrypted row is the value and its seal, encrypted for its table and key, and a second seal over
that. The second seal is begun otherwise than that of a plain row. CRC-32 maps different beginnings to different results,
so no row is taken for one of the other kind, and plain and encrypted rows can be in the same table. Rot is found by the
second seal, without a key. What someone has changed with care is found by the cipher. Once no plain row is left, none is
accepted any more: the row of the sums says so, which is encrypted itself.

The seal within is the one that counts for the sums. So the sums do not depend on keys, and nodes can compare them.

Rows of `PLAIN_TABLES` are never encrypted: keys of LMDB must be in order, and these tables are keys without values, or
have values that say what other keys say. All other tables are encrypted, new ones included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final
from zlib import crc32

import msgspec

from raftsched.encryption.cipher import Cipher, DataUnreadable, key_id_of
from raftsched.encryption.keys import KeyCheck, require_keys
from raftsched.storage.store.port import DamagedValue, Place, Row, Table
from raftsched.storage.store.seals import RESIDUE, SEAL_AT, SEEDS, SUMS_KEY, Sums, pack_seal, read_seal, seal_of

KEYS_KEY: Final = b"keys"
"""The row of `META` that names the keys of the encrypted rows; it is never encrypted."""
PLAIN_TABLES: Final = frozenset(
    {
        *(Table.WAITING, Table.TIMERS, Table.LEASED, Table.FINISHED, Table.PARKED, Table.BLOCKED, Table.DEADLINES),
        *(Table.KEYS, Table.UNIQUE, Table.WORKFLOW_KEYS, Table.SCHEDULE_NAMES, Table.FACETS, Table.COUNTERS),
        *(Table.DEPENDENCIES, Table.DEPENDANTS, Table.WORKFLOW_JOBS, Table.SCHEDULE_JOBS, Table.BACKGROUND_WORK),
        *(Table.WORKERS, Table.LOG_SIZES, Table.DEAD_LETTERS),
    }
)
ENCRYPTED_TABLES: Final = tuple(table for table in Table if table not in PLAIN_TABLES)
FIRST_PLACE: Final[Place] = (ENCRYPTED_TABLES[0], b"")
_ENCRYPTED_SEEDS: Final = tuple(crc32(b"encrypted " + table.name.lower().encode()) & ~0xFFF for table in Table)
_PLACES: Final = tuple(b"state\0" + table.name.lower().encode() + b"\0" for table in Table)
assert len({*SEEDS, *_ENCRYPTED_SEEDS}) == 2 * len(Table), "a plain row could be taken for an encrypted one"


class RowKeys(msgspec.Struct, frozen=True, array_like=True):
    """Name the keys of the encrypted rows, with the count of rows of each."""

    keys: tuple[tuple[KeyCheck, int], ...] = ()


_decode_keys = msgspec.msgpack.Decoder(RowKeys).decode
_encode_keys = msgspec.msgpack.Encoder().encode


def needed_keys(stored: bytes | None) -> tuple[KeyCheck, ...]:
    """Return the keys without which not all rows can be read; `stored` is the value of `KEYS_KEY`."""
    return () if stored is None else tuple(check for check, _ in _decode_keys(stored).keys)


class RowCodec:
    """Encode and decode the rows of a store, and count its encrypted rows by key.

    `any_encrypted` is False if rows need neither encryption nor decryption, now and later: then all are plain.
    """

    __slots__ = ("_checks", "_cipher", "_encrypted", "_may_be_encrypted", "any_encrypted", "counts", "refuses_plain")

    def __init__(self, cipher: Cipher, stored_keys: bytes | None) -> None:
        """`stored_keys`: the value of `KEYS_KEY`. Raises `KeyMissing` if the cipher can't decrypt the rows."""
        known = () if stored_keys is None else _decode_keys(stored_keys).keys
        require_keys([check for check, _ in known], cipher.keys, whose="the state")
        self.refuses_plain = False
        """A plain row of a table that is encrypted is not accepted."""
        self._cipher = cipher
        self._checks = {check.id: check for check, _ in known}
        self.counts = Counter({check.id: number for check, number in known})
        """The count of encrypted rows of each key."""
        self._encrypted = frozenset(ENCRYPTED_TABLES) if cipher else frozenset[Table]()
        self.any_encrypted = bool(cipher) or bool(known)
        self._may_be_encrypted = frozenset(ENCRYPTED_TABLES) if self.any_encrypted else frozenset[Table]()

    def encode(self, table: Table, key: bytes, value: bytes) -> bytes:
        """Return the value as it is stored under `key`."""
        plain = value + pack_seal(seal_of(table, key, value))
        if table not in self._encrypted or (table is Table.META and key == KEYS_KEY):
            return plain
        encrypted = self._cipher.encryptor.encrypt(_PLACES[table] + key, plain)
        return encrypted + pack_seal(crc32(encrypted, crc32(key, _ENCRYPTED_SEEDS[table] | len(key))))

    def encode_all(self, table: Table, rows: dict[bytes, bytes], sums: Sums) -> list[Row]:
        """Return the rows as they are stored, sorted by key, and add them to the table's sum and to the counts."""
        plain = sealed_rows(table, rows, sums)
        if table not in self._encrypted:
            return plain
        encryptor = self._cipher.encryptor
        self.counts[encryptor.key_id] += len(rows)
        seed = _ENCRYPTED_SEEDS[table]
        return [  # `encode`, written out: the calls are half of its cost
            (key, encrypted + pack_seal(crc32(encrypted, crc32(key, seed | len(key)))))
            for (key, _), encrypted in zip(plain, encryptor.encrypt_all(_PLACES[table], plain), strict=True)
        ]

    def decode(self, table: Table, key: bytes, stored: bytes) -> bytes:
        """Return the value of a stored row.

        Raises `DamagedValue` if the row was changed since it was written, `DataUnreadable` if that was done with care, and
        `KeyMissing`.
        """
        if table in self._may_be_encrypted and is_encrypted(table, key, stored):
            return self._plain_of(table, key, stored)[:SEAL_AT]
        if crc32(stored, crc32(key, SEEDS[table] | len(key))) == RESIDUE:
            if self.refuses_plain and table in self._encrypted and not _is_of_store(table, key):
                raise DataUnreadable(f"the stored data of {_row(table, key)} is plain, although all is encrypted")
            return stored[:SEAL_AT]
        if is_encrypted(table, key, stored):
            return self._plain_of(table, key, stored)[:SEAL_AT]
        raise DamagedValue(table.name.lower(), key)

    def seal_in(self, table: Table, key: bytes, stored: bytes) -> int:
        """Return the seal of the value of a stored row; raises as `decode` does for an encrypted one."""
        if table in self._may_be_encrypted and is_encrypted(table, key, stored):
            stored = self._plain_of(table, key, stored)
        return int(read_seal(stored, SEAL_AT)[0])

    def key_id(self, table: Table, key: bytes, stored: bytes) -> str:
        """Return the id of the key of a stored row; "" if it is plain."""
        return key_id_of(stored) if is_encrypted(table, key, stored) else ""

    def move(self, table: Table, key: bytes, old: bytes | None, new: bytes | None) -> None:
        """Replace the stored row `old` by `new` in the counts; None = no row."""
        if table not in self._may_be_encrypted or _is_of_store(table, key):
            return
        if old is not None and (key_id := self.key_id(table, key, old)):
            self.counts[key_id] -= 1
        if new is not None and (key_id := self.key_id(table, key, new)):
            self.counts[key_id] += 1

    def is_outdated(self, table: Table, key: bytes, stored: bytes) -> bool:
        """Return whether a stored row is not encrypted under the present key, but should be."""
        if table not in self._encrypted or _is_of_store(table, key):
            return False
        return self.key_id(table, key, stored) != self._cipher.key_id

    def encoded_keys(self) -> bytes:
        """Return the value of `KEYS_KEY`: the keys that any row needs, and their counts."""
        checks = self._checks
        if not self.counts.keys() <= checks.keys():  # the node encrypts under a new key
            checks |= {check.id: check for check in self._cipher.checks}
        return _encode_keys(
            RowKeys(tuple((checks[key_id], count) for key_id, count in sorted(self.counts.items()) if count))
        )

    def _plain_of(self, table: Table, key: bytes, stored: bytes) -> bytes:
        """Return an encrypted row as a plain one."""
        try:
            return self._cipher.decrypt(_PLACES[table] + key, stored[:SEAL_AT])
        except DataUnreadable as error:
            raise DataUnreadable(f"the stored data of {_row(table, key)} can't be read: {error}") from None


def sealed_rows(table: Table, rows: dict[bytes, bytes], sums: Sums) -> list[Row]:
    """Return the rows with their seals, not encrypted, sorted by key, and add them to the table's sum."""
    total = 0
    seed = SEEDS[table]
    found: list[Row] = []
    for key in sorted(rows):
        value = rows[key]
        seal = crc32(value, crc32(key, seed | len(key)))  # `seal_of`, inlined: the call is half of its cost
        total += seal * seal
        found.append((key, value + pack_seal(seal)))
    sums.of_tables[table] += total
    return found


def _row(table: Table, key: bytes) -> str:
    return f"table {table.name.lower()}, key {key.hex()}"


def _is_of_store(table: Table, key: bytes) -> bool:
    """Return whether the store writes this row itself, at each commit. Such rows are not counted."""
    return table is Table.META and key in (SUMS_KEY, KEYS_KEY)


def is_encrypted(table: Table, key: bytes, stored: bytes) -> bool:
    """Return whether a stored row is an encrypted one that no fault of the disk has changed."""
    return crc32(stored, crc32(key, _ENCRYPTED_SEEDS[table] | len(key))) == RESIDUE


def place_after(table: Table, rows: Sequence[Row], rows_max: int) -> Place | None:
    """Return the place behind `rows`, which were read from `table`; None behind the last table to encrypt."""
    if len(rows) == rows_max:
        return table, rows[-1][0] + b"\0"
    position = ENCRYPTED_TABLES.index(table) + 1
    return (ENCRYPTED_TABLES[position], b"") if position < len(ENCRYPTED_TABLES) else None
