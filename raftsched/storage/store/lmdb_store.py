"""Implement `Store` with LMDB: a file `data.mdb` and its lock file in a directory of their own.

Theory of operation. The first use begins a write transaction that stays open until `commit`. LMDB never overwrites a
page of the last commit: changed pages are copied in memory, and commit writes and syncs them before it syncs the page
that points to them. So the file is consistent at every moment, also after a power loss. It is never opened with NOSYNC or
NOMETASYNC, which would break that.

Rows that are put are buffered (`pending`) and handed to LMDB table by table, sorted: before a scan of the table, before
the sums are read, and at commit. Most jobs are leased and completed soon after their submission. So most of their rows
are replaced or removed before that, and cost LMDB nothing. A read of a single row also looks into the buffer. A row that
LMDB has is removed at once.

A hot copy is compact: it uses a read transaction of its own and never waits for the writer. A plain copy would wait for
our transaction for ever. Reader slots are registered in the lock file; they keep the writer from reusing pages that a
copy still reads. Therefore locking stays on.

The map. LMDB fails a transaction that outgrows the map, and can't continue it. The map is only address space, so much of
it is kept free ahead of the data, and it is enlarged between two transactions (case R19). It can't move during a copy;
then the next commit tries again. A full disk is the remaining cause of a failed commit.

Duties of the caller: call all but `copy_to` in one thread, since LMDB's write lock belongs to the thread that took it;
let only one process at a time write in a directory.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

import lmdb
from lmdb import _Database as Database

from raftsched import limits
from raftsched.encryption.cipher import NO_KEYS, Cipher
from raftsched.errors import InvariantBroken, RaftschedError
from raftsched.storage.store.pending import PendingRows
from raftsched.storage.store.port import (
    REPLACE_THIS_NODE,
    CopyFailed,
    DamagedCopy,
    Place,
    Row,
    StorageFailed,
    StoreFigures,
    Table,
    check_key,
)
from raftsched.storage.store.resident import let_go, mapped_bytes
from raftsched.storage.store.row_codec import ENCRYPTED_TABLES, KEYS_KEY, RowCodec, place_after
from raftsched.storage.store.seals import SEAL_AT, SUMS_KEY, Sums, read_seal

DATA_FILE = "data.mdb"
LOCK_FILE = "lock.mdb"
_KEY_BYTES_MAX = limits.KEY_BYTES_MAX
_FORMAT_V1 = 0
"""LMDB 0.9's file format, which other tools read; a file in another one is refused."""
_FULL_BYTES = 1 << 20
"""If less space than this is free, a failed write is reported as a full disk."""
_SYNC_BYTES = 4 << 20
"""Bytes of a copy after which it is synced: a journal on the same disk waits for no more."""
_HINTS: dict[type[Exception], str] = {
    lmdb.MapFullError: "; one transaction was larger than all the address space kept free for it",
    lmdb.DiskError: "; the disk is failing, its data is intact as of the last checkpoint",
}
_READS_MAX = 128
"""Reads after which the map's pages in this process are counted.

A random read maps some 90 KiB, although LMDB advises the kernel not to read ahead: the kernel also maps the neighbours
that are in the file cache. Changing a job touches about six places.
"""
_ROTTEN: tuple[type[lmdb.Error], ...] = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.PanicError)
"""Errors that LMDB raises for a damaged page."""


def open_store(
    directory: Path,
    *,
    map_bytes: int = limits.MAP_BYTES,
    headroom_bytes: int = limits.MAP_HEADROOM_BYTES,
    cipher: Cipher = NO_KEYS,
) -> LmdbStore:
    """Open the store in `directory`, and make the directory if it is missing.

    `map_bytes` is the address space reserved at first; it grows so that `headroom_bytes` stay free for a transaction.
    Rows are encrypted by `cipher`. Raises `StorageFailed` if the directory can't be used, and `KeyMissing`.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_new = not (directory / DATA_FILE).exists()
        env = lmdb.open(
            str(directory),
            map_size=map_bytes,
            max_dbs=len(Table),
            mode=0o700,
            readahead=False,
            lib_version=_FORMAT_V1,
        )
        store = LmdbStore(directory, env, _open_tables(env), headroom_bytes=headroom_bytes, cipher=cipher)
        if is_new:
            sync_directory(directory)
            sync_directory(directory.parent)
    except (lmdb.Error, OSError) as error:
        raise StorageFailed(f"the state in {directory} can't be opened: {error}") from error
    store.check_readers()
    return store


def open_read_only(path: Path, cipher: Cipher = NO_KEYS) -> LmdbStore:
    """Open a data directory, or the file of a copy, to read the commit that is the last at the first read.

    A directory may be in use by a node; its old pages are kept until `close`. Raises `DamagedCopy` if the file is missing
    or incomplete, and `KeyMissing` if `cipher` can't decrypt it.
    """
    is_directory = path.is_dir()
    try:
        env = lmdb.open(
            str(path),
            subdir=is_directory,
            lock=is_directory,
            readonly=True,
            max_dbs=len(Table),
            readahead=False,
            lib_version=_FORMAT_V1,
        )
    except (lmdb.Error, OSError) as error:
        raise DamagedCopy(f"{path} holds no state: {error}") from error
    try:
        _check_length(env, path / DATA_FILE if is_directory else path)
        return LmdbStore(path, env, _open_tables(env, create=False), read_only=True, cipher=cipher)
    except (lmdb.Error, StorageFailed) as error:
        env.close()
        raise DamagedCopy(f"{path} holds no state: {error}") from error
    except RaftschedError:
        env.close()
        raise


class LmdbStore:
    """Implement `raftsched.storage.store.port.Store` over an LMDB environment; see `open_store` and `open_read_only`."""

    def __init__(
        self,
        path: Path,
        env: lmdb.Environment,
        tables: list[Database],
        *,
        headroom_bytes: int = 0,
        read_only: bool = False,
        cipher: Cipher = NO_KEYS,
    ) -> None:
        self._path = path
        self._env = env
        self._tables = tables
        self._headroom_bytes = headroom_bytes
        self._read_only = read_only
        self._txn: lmdb.Transaction[bytes] | None = None
        self._refusal = ""
        self._owner = threading.get_ident()
        self._copying = threading.Lock()
        self._reads = 0
        self._pending = tuple(PendingRows() for _ in Table)
        self._late_tables: Collection[Table] = ()
        self._write_late: Callable[[], None] = lambda: None
        self._sums = Sums()
        self._of_tables = self._sums.of_tables
        self._codec = RowCodec(NO_KEYS, None)
        try:
            self._codec = RowCodec(cipher, self.get(Table.META, KEYS_KEY))
            self._sums.load(self.get(Table.META, SUMS_KEY))
            self._refuse_plain_rows()
            self._drop_transaction()
            self._keep_headroom()
        except RaftschedError:
            self.close()
            raise

    def __del__(self) -> None:
        """Warn of a store that nobody closed while a transaction was open.

        The lock of that transaction belongs to the thread that began it. The garbage collector runs in any thread, and
        elsewhere it can't release the lock, only unmap it; a later lock of its owner ends the process by SIGSEGV.
        """
        if self._txn is not None:
            warnings.warn(f"the state in {self._path} was not closed", ResourceWarning, stacklevel=2, source=self)

    def write_behind(self, tables: Collection[Table], write: Callable[[], None]) -> None:
        self._late_tables, self._write_late = tables, write

    @property
    def sums(self) -> Sums:
        self._write_all_pending()
        return self._sums

    def get(self, table: Table, key: bytes) -> bytes | None:
        txn = self._txn or self._begin()
        pending = self._pending[table]
        if key in pending.new:
            return pending.new[key]
        if key in pending.changed:
            return pending.changed[key]
        self._reads += 1
        if self._reads >= _READS_MAX:
            self._let_go_if_large()
        try:
            stored = txn.get(key, None, self._tables[table])
        except lmdb.Error as error:
            raise self._fail("get", key, error) from error
        return None if stored is None else self._codec.decode(table, key, stored)

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        if self._txn is None or self._read_only:
            self._begin_to_write()
        pending = self._pending[table]
        if key in pending.new:
            pending.new[key] = value
        else:
            check_key(key, bytes_max=_KEY_BYTES_MAX)
            pending.changed[key] = value

    def insert(self, table: Table, key: bytes, value: bytes) -> None:
        if self._txn is None or self._read_only:
            self._begin_to_write()
        pending = self._pending[table]
        if key in pending.new or key in pending.changed:
            raise InvariantBroken(f"table {table.name.lower()} has a row {key.hex()} already")
        if not 0 < len(key) <= _KEY_BYTES_MAX:
            check_key(key, bytes_max=_KEY_BYTES_MAX)
        pending.new[key] = value

    def delete(self, table: Table, key: bytes) -> bool:
        txn = self._txn or self._begin()
        pending = self._pending[table]
        if pending.new.pop(key, None) is not None:
            return True
        try:
            old = txn.pop(key, self._tables[table])
        except lmdb.Error as error:
            raise self._fail("delete", key, error) from error
        if old is not None:
            if self._codec.any_encrypted:
                self._sums.move(table, self._codec.seal_in(table, key, old), None)
                self._codec.move(table, key, old, None)
            else:
                self._of_tables[table] -= read_seal(old, SEAL_AT)[0] ** 2  # `Sums.move`, written out
            if pending.changed:
                pending.changed.pop(key, None)
            return True
        return pending.changed.pop(key, None) is not None

    def remove(self, table: Table, key: bytes) -> None:
        if not self.delete(table, key):
            raise InvariantBroken(f"table {table.name.lower()} has no row {key.hex()} to remove")

    def scan(self, table: Table, start: bytes, stop: bytes | None, *, limit: int, reverse: bool = False) -> list[Row]:
        if table in self._late_tables:
            self._write_late()
        txn = self._txn or self._begin()
        self._write_pending(table, txn)
        self._reads += 1
        if self._reads >= _READS_MAX:
            self._let_go_if_large()
        read = _backward if reverse else _forward
        try:
            with txn.cursor(self._tables[table]) as cursor:
                rows = read(cursor, start, stop, limit) if limit > 0 else []
        except lmdb.Error as error:
            raise self._fail("scan", start, error) from error
        decode = self._codec.decode
        return [(key, decode(table, key, stored)) for key, stored in rows]

    def commit(self) -> None:
        self._check_use()
        if self._read_only:
            raise InvariantBroken(f"{self._path} is open for reading only")
        self._write_all_pending()
        txn, self._txn = self._txn, None
        try:
            if txn is not None:
                self._put_own(txn, SUMS_KEY, self._sums.encoded())
                if self._codec.any_encrypted:
                    self._put_own(txn, KEYS_KEY, self._codec.encoded_keys())
                txn.commit()
            self._keep_headroom()
        except lmdb.Error as error:
            raise self._fail("commit", b"", error) from error
        self._let_go_if_large()

    def _put_own(self, txn: lmdb.Transaction[bytes], key: bytes, value: bytes) -> None:
        txn.put(key, self._codec.encode(Table.META, key, value), db=self._tables[Table.META])

    def rows_by_key(self) -> dict[str, int]:
        self._write_all_pending()
        txn = self._txn or self._begin()
        of_keys = {key_id: count for key_id, count in sorted(self._codec.counts.items()) if count}
        row_count = sum(int(txn.stat(self._tables[table])["entries"]) for table in ENCRYPTED_TABLES)
        own_count = sum(txn.get(key, None, self._tables[Table.META]) is not None for key in (SUMS_KEY, KEYS_KEY))
        return of_keys | {"": row_count - own_count - sum(of_keys.values())}

    def reencrypt(self, place: Place, *, rows_max: int) -> Place | None:
        txn = self._begin_to_write()
        table, start = place
        try:
            with txn.cursor(self._tables[table]) as cursor:
                rows = _forward(cursor, start, None, rows_max)
            for key, stored in rows:
                if self._codec.is_outdated(table, key, stored):
                    new = self._codec.encode(table, key, self._codec.decode(table, key, stored))
                    txn.put(key, new, db=self._tables[table])
                    self._codec.move(table, key, stored, new)
        except lmdb.Error as error:
            raise self._fail("put", b"", error) from error
        following = place_after(table, rows, rows_max)
        if following is None:
            self._refuse_plain_rows()
        return following

    def _refuse_plain_rows(self) -> None:
        """Accept no plain row from now on, if there is none."""
        if self._codec.any_encrypted and self._sums.has_plain_rows:
            self._sums.has_plain_rows = self.rows_by_key()[""] > 0
        self._codec.refuses_plain = not self._sums.has_plain_rows

    def _write_all_pending(self) -> None:
        self._write_late()
        txn = self._txn
        if txn is not None:
            for table in Table:
                self._write_pending(table, txn)

    def _write_pending(self, table: Table, txn: lmdb.Transaction[bytes]) -> None:
        """Write the buffered rows of a table to LMDB."""
        pending = self._pending[table]
        if not (pending.new or pending.changed):
            return
        try:
            pending.write_to(table, txn, self._tables[table], self._sums, self._codec)
        except lmdb.Error as error:
            raise self._fail("put", b"", error) from error

    def copy_to(self, path: Path) -> None:
        with self._copying:
            self._refuse_if_failed()
            try:
                _copy(self._env, path)
            except _ROTTEN as error:
                path.unlink(missing_ok=True)
                raise StorageFailed(f"a copy of {self._path} failed: {error}. {REPLACE_THIS_NODE}") from error
            except (lmdb.Error, OSError) as error:
                path.unlink(missing_ok=True)
                raise CopyFailed(f"no copy of the state was made: {error}{_hint(error, path.parent)}") from error

    def close(self) -> None:
        self._refusal = self._refusal or "the store is closed"
        with self._copying:
            self._drop_transaction()
            self._env.close()

    def figures(self) -> StoreFigures:
        self._refuse_if_failed()
        disk = os.statvfs(self._path)
        return StoreFigures(_used_bytes(self._env), self._env.info()["map_size"], disk.f_bavail * disk.f_frsize)

    def check_readers(self) -> int:
        self._refuse_if_failed()
        return self._env.reader_check()

    def _let_go_if_large(self) -> None:
        self._reads = 0
        if mapped_bytes() > limits.MAPPED_BYTES_MAX:
            let_go(self._path / DATA_FILE)

    def _drop_transaction(self) -> None:
        if self._txn is not None:
            self._txn.abort()
            self._txn = None

    def _begin_to_write(self) -> lmdb.Transaction[bytes]:
        if self._read_only:
            raise InvariantBroken(f"{self._path} is open for reading only")
        return self._txn or self._begin()

    def _begin(self) -> lmdb.Transaction[bytes]:
        self._check_use()
        try:
            self._txn = self._env.begin(write=not self._read_only)
        except lmdb.Error as error:
            raise self._fail("begin", b"", error) from error
        return self._txn

    def _check_use(self) -> None:
        self._refuse_if_failed()
        if threading.get_ident() != self._owner:
            raise InvariantBroken("only the thread that opened a store may use it")

    def _refuse_if_failed(self) -> None:
        if self._refusal:
            raise StorageFailed(self._refusal)

    def _fail(self, what: str, key: bytes, error: lmdb.Error) -> InvariantBroken:
        """Refuse all calls from now on, unless LMDB rejected the arguments before it changed anything."""
        if isinstance(error, lmdb.BadValsizeError):
            return InvariantBroken(f"a key has {len(key)} bytes; 1 to {limits.KEY_BYTES_MAX} are possible")
        if isinstance(error, lmdb.ReadonlyError):
            return InvariantBroken(f"{self._path} is open for reading only")
        self._refusal = f"{what} failed in {self._path}: {error}{_hint(error, self._path)}"
        txn, self._txn = self._txn, None
        if txn is not None:
            with suppress(lmdb.Error):  # the first error is the one that is reported
                txn.abort()
        return StorageFailed(self._refusal)

    def _keep_headroom(self) -> None:
        """Enlarge the map while no transaction is open. During a copy in another thread, the next commit does it."""
        map_bytes = self._env.info()["map_size"]
        needed_bytes = _used_bytes(self._env) + self._headroom_bytes
        if needed_bytes <= map_bytes or not self._copying.acquire(blocking=False):
            return
        try:
            self._env.set_mapsize(max(needed_bytes + self._headroom_bytes, 2 * map_bytes))
        finally:
            self._copying.release()


def sync_directory(directory: Path) -> None:
    """Sync the names of the files in `directory` to disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _hint(error: lmdb.Error | OSError, path: Path) -> str:
    """Return what an error means for an operator.

    The file system is asked whether it is full: LMDB reports the short write of a full disk as "Input/output error".
    """
    if isinstance(error, lmdb.MapFullError):
        return _HINTS[lmdb.MapFullError]
    with suppress(OSError):  # the directory is gone, or the disk
        disk = os.statvfs(path)
        free_bytes = disk.f_bavail * disk.f_frsize
        if free_bytes < _FULL_BYTES:
            return f"; the disk is full, {free_bytes >> 10} KiB are left: free some space, then start the node again"
    return _HINTS.get(type(error), "")


def _open_tables(env: lmdb.Environment, *, create: bool = True) -> list[Database]:
    """Open every table, and create all of them if the file has none; raises `StorageFailed` if one is not ours."""
    if create and not env.stat()["entries"]:
        with env.begin(write=True) as txn:
            return [env.open_db(_name(table), txn=txn) for table in Table]
    return [_open_table(env, table) for table in Table]


def _open_table(env: lmdb.Environment, table: Table) -> Database:
    try:
        database = env.open_db(_name(table), create=False)
    except lmdb.NotFoundError as error:
        raise StorageFailed(f"the table {table.name.lower()} is missing. {REPLACE_THIS_NODE}") from error
    if any(database.flags().values()):
        raise StorageFailed(f"the table {table.name.lower()} has flags that nobody set. {REPLACE_THIS_NODE}")
    return database


def _name(table: Table) -> bytes:
    return table.name.lower().encode()


def _used_bytes(env: lmdb.Environment) -> int:
    return (env.info()["last_pgno"] + 1) * env.stat()["psize"]


def _check_length(env: lmdb.Environment, path: Path) -> None:
    """Raise `DamagedCopy` for a truncated file: a missing page would end the process with SIGBUS."""
    file_bytes = path.stat().st_size
    if file_bytes < _used_bytes(env):
        raise DamagedCopy(f"{path} was cut short: {file_bytes} of {_used_bytes(env)} bytes")


def _copy(env: lmdb.Environment, path: Path) -> None:
    """Write a compact copy to a new file, synced piece by piece.

    One sync of gigabytes in the end would hold up those of the journal, on the same disk, for seconds.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    source, sink = os.pipe()
    failures: list[OSError] = []
    storing = threading.Thread(target=_store, args=(source, descriptor, failures), name="copy")
    storing.start()
    try:
        env.copyfd(sink, compact=True)
    except lmdb.Error:
        if not failures:
            raise
    finally:
        os.close(sink)
        storing.join()
        os.close(descriptor)
    if failures:
        raise failures[0]


def _store(source: int, target: int, failures: list[OSError]) -> None:
    """Write all that comes from the pipe `source` to the file `target`, and sync it; runs in a thread."""
    try:
        unsynced = 0
        while data := os.read(source, _SYNC_BYTES):
            unsynced += len(data)
            while data:
                data = data[os.write(target, data) :]
            if unsynced >= _SYNC_BYTES:
                os.fdatasync(target)
                unsynced = 0
        os.fsync(target)
    except OSError as error:
        failures.append(error)
    finally:
        os.close(source)


def _forward(cursor: lmdb.Cursor[bytes], start: bytes, stop: bytes | None, limit: int) -> list[Row]:
    rows: list[Row] = []
    if not cursor.set_range(start):
        return rows
    for row in cursor.iternext():
        if stop is not None and row[0] >= stop:
            break
        rows.append(row)
        if len(rows) == limit:
            break
    return rows


def _backward(cursor: lmdb.Cursor[bytes], start: bytes, stop: bytes | None, limit: int) -> list[Row]:
    rows: list[Row] = []
    is_at_stop = stop is not None and cursor.set_range(stop)
    if not (cursor.prev() if is_at_stop else cursor.last()):
        return rows
    for row in cursor.iterprev():
        if row[0] < start:
            break
        rows.append(row)
        if len(rows) == limit:
            break
    return rows
