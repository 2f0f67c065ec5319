"""Implement `Store` in memory, for tests and simulation.

Theory of operation. The tables have the state with all writes. An undo log has the last commit's value of each key
written since. So a commit only drops the log, `crash` plays it back, and a copy is the tables with the log undone. There
is no disk: the data lives as long as the object.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Collection
from itertools import islice
from pathlib import Path

import msgspec
from sortedcontainers import SortedDict

from raftsched import limits
from raftsched.encryption.cipher import NO_KEYS, Cipher
from raftsched.errors import InvariantBroken
from raftsched.storage.store.port import (
    CopyFailed,
    DamagedCopy,
    Place,
    Row,
    StorageFailed,
    StoreFigures,
    Table,
    check_key,
)
from raftsched.storage.store.row_codec import ENCRYPTED_TABLES, KEYS_KEY, RowCodec, place_after
from raftsched.storage.store.seals import SUMS_KEY, Sums

_MAGIC = b"raftsched memory store 1\n"
_CRC_BYTES = 4
_HEAD_BYTES = len(_MAGIC) + _CRC_BYTES
_Image = dict[str, list[Row]]
_decode_image = msgspec.msgpack.Decoder(_Image).decode
_encode_image = msgspec.msgpack.Encoder().encode


class MemoryStore:
    """Implement `raftsched.storage.store.port.Store` with sorted dictionaries."""

    def __init__(self, cipher: Cipher = NO_KEYS) -> None:
        self._cipher = cipher
        self._codec = RowCodec(cipher, None)
        self._tables: list[SortedDict[bytes, bytes]] = [SortedDict() for _ in Table]
        self._undo: dict[tuple[Table, bytes], bytes | None] = {}
        self._refusal = ""
        self._fails_next_commit = False
        self._lock = threading.Lock()
        self._sums = Sums()
        self._late_tables: Collection[Table] = ()
        self._write_late: Callable[[], None] = lambda: None
        self._refuse_plain_rows()
        self.free_disk_bytes = 1 << 40
        """The free space that `figures` reports; tests set it to simulate a full disk."""

    @classmethod
    def load(cls, path: Path, cipher: Cipher = NO_KEYS) -> MemoryStore:
        """Make a store from a copy; raises `DamagedCopy` if the file is not one."""
        store = cls(cipher)
        for name, rows in _read_image(path).items():
            store._tables[Table[name]].update(rows)
        store._load_sums()
        return store

    def write_behind(self, tables: Collection[Table], write: Callable[[], None]) -> None:
        self._late_tables, self._write_late = tables, write

    @property
    def sums(self) -> Sums:
        self._write_late()
        return self._sums

    def get(self, table: Table, key: bytes) -> bytes | None:
        self._refuse_if_failed()
        stored: bytes | None = self._tables[table].get(key)
        return None if stored is None else self._codec.decode(table, key, stored)

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        self._refuse_if_failed()
        check_key(key, bytes_max=limits.KEY_BYTES_MAX)
        stored = self._codec.encode(table, key, value)
        self._count(table, key, self._replace(table, key, stored), stored)

    def insert(self, table: Table, key: bytes, value: bytes) -> None:
        if key in self._tables[table]:
            raise InvariantBroken(f"table {table.name.lower()} has a row {key.hex()} already")
        self.put(table, key, value)

    def delete(self, table: Table, key: bytes) -> bool:
        self._refuse_if_failed()
        if key not in self._tables[table]:
            return False
        self._count(table, key, self._replace(table, key, None), None)
        return True

    def remove(self, table: Table, key: bytes) -> None:
        if not self.delete(table, key):
            raise InvariantBroken(f"table {table.name.lower()} has no row {key.hex()} to remove")

    def _count(self, table: Table, key: bytes, old: bytes | None, new: bytes | None) -> None:
        seals = (None if stored is None else self._codec.seal_in(table, key, stored) for stored in (old, new))
        self._sums.move(table, *seals)
        self._codec.move(table, key, old, new)

    def _replace(self, table: Table, key: bytes, stored: bytes | None) -> bytes | None:
        """Store a row, or remove it if `stored` is None; return the old one."""
        rows = self._tables[table]
        with self._lock:
            old: bytes | None = rows.get(key)
            self._undo.setdefault((table, key), old)
            if stored is None:
                del rows[key]
            else:
                rows[key] = stored
        return old

    def scan(self, table: Table, start: bytes, stop: bytes | None, *, limit: int, reverse: bool = False) -> list[Row]:
        self._refuse_if_failed()
        if table in self._late_tables:
            self._write_late()
        rows = self._tables[table]
        if stop is not None and stop <= start:
            return []
        keys = rows.irange(start, stop, inclusive=(True, False), reverse=reverse)
        decode = self._codec.decode
        return [(key, decode(table, key, rows[key])) for key in islice(keys, max(limit, 0))]

    def commit(self) -> None:
        self._refuse_if_failed()
        if self._fails_next_commit:
            self._refusal = "commit failed: a simulated fault of the disk"
            raise StorageFailed(self._refusal)
        self._write_late()
        if self._undo:
            self._put_own(SUMS_KEY, self._sums.encoded())
            if self._codec.any_encrypted:
                self._put_own(KEYS_KEY, self._codec.encoded_keys())
        with self._lock:
            self._undo.clear()

    def _put_own(self, key: bytes, value: bytes) -> None:
        self._replace(Table.META, key, self._codec.encode(Table.META, key, value))

    def rows_by_key(self) -> dict[str, int]:
        self._write_late()
        of_keys = {key_id: count for key_id, count in sorted(self._codec.counts.items()) if count}
        row_count = sum(len(self._tables[table]) for table in ENCRYPTED_TABLES)
        own_count = sum(key in self._tables[Table.META] for key in (SUMS_KEY, KEYS_KEY))
        return of_keys | {"": row_count - own_count - sum(of_keys.values())}

    def reencrypt(self, place: Place, *, rows_max: int) -> Place | None:
        self._refuse_if_failed()
        table, start = place
        rows = list(islice(self._tables[table].irange(start), rows_max))
        found = [(key, self._tables[table][key]) for key in rows]
        for key, stored in found:
            if self._codec.is_outdated(table, key, stored):
                new = self._codec.encode(table, key, self._codec.decode(table, key, stored))
                self._replace(table, key, new)
                self._codec.move(table, key, stored, new)
        following = place_after(table, found, rows_max)
        if following is None:
            self._refuse_plain_rows()
        return following

    def _refuse_plain_rows(self) -> None:
        """Accept no plain row from now on, if there is none."""
        if self._codec.any_encrypted and self._sums.has_plain_rows:
            self._sums.has_plain_rows = self.rows_by_key()[""] > 0
        self._codec.refuses_plain = not self._sums.has_plain_rows

    def copy_to(self, path: Path) -> None:
        self._refuse_if_failed()
        with self._lock:
            body = _encode_image(self._committed_image())
        try:
            path.write_bytes(_head(body) + body)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise CopyFailed(f"no copy of the state was made: {error}") from error

    def close(self) -> None:
        self._refusal = self._refusal or "the store is closed"

    def crash(self) -> None:
        """Go back to the last commit, like a process that was killed and started again."""
        with self._lock:
            for (table, key), value in self._undo.items():
                if value is None:
                    self._tables[table].pop(key, None)
                else:
                    self._tables[table][key] = value
            self._undo.clear()
        self.write_behind((), lambda: None)  # what the process had not written yet is gone with it
        self._load_sums()
        self._refusal = ""
        self._fails_next_commit = False

    def fail_next_commit(self) -> None:
        """Let the next commit fail; only `crash` makes the store usable again."""
        self._fails_next_commit = True

    def figures(self) -> StoreFigures:
        self._refuse_if_failed()
        used_bytes = sum(len(key) + len(value) for rows in self._tables for key, value in rows.items())
        return StoreFigures(used_bytes, 0, self.free_disk_bytes)

    def check_readers(self) -> int:
        self._refuse_if_failed()
        return 0

    def _refuse_if_failed(self) -> None:
        if self._refusal:
            raise StorageFailed(self._refusal)

    def _load_sums(self) -> None:
        self._codec = RowCodec(NO_KEYS, None)
        self._codec = RowCodec(self._cipher, self._own(KEYS_KEY))
        self._sums.load(self._own(SUMS_KEY))
        self._refuse_plain_rows()

    def _own(self, key: bytes) -> bytes | None:
        stored: bytes | None = self._tables[Table.META].get(key)
        return None if stored is None else self._codec.decode(Table.META, key, stored)

    def _committed_image(self) -> _Image:
        undone = [dict(rows) for rows in self._tables]
        for (table, key), value in self._undo.items():
            if value is None:
                undone[table].pop(key, None)
            else:
                undone[table][key] = value
        return {table.name: list(undone[table].items()) for table in Table}


def _read_image(path: Path) -> _Image:
    data = path.read_bytes()
    body = data[_HEAD_BYTES:]
    if data[:_HEAD_BYTES] != _head(body):
        raise DamagedCopy(f"{path} is not a whole copy")
    return _decode_image(body)


def _head(body: bytes) -> bytes:
    return _MAGIC + zlib.crc32(body).to_bytes(_CRC_BYTES, "big")
