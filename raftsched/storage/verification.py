"""Verify a state's file: its pages, its rows, and the sums of its tables.

Theory of operation. LMDB reads through a map and trusts every page number that it finds there. A truncated file ends the
process with SIGBUS, and a flipped bit in a branch page makes rows disappear, or worse. So a file is verified in two
passes, and only the second uses LMDB:

    pages   `lmdb.verify`, without the map: meta pages, trees, order of keys, counters, free pages. It also finds
            missing pages. 16 MB a second.
    rows    Every row has its seal and is found by its key, and the seals of a table add up to its sum (`seals`). So no
            row is missing, duplicate, or of an older commit. 2 to 3 µs a row.

A file up to `limits.VERIFIED_AT_START_BYTES` is verified completely before a node opens it. Of a larger one only the
length is checked then, since 10 million jobs must not take minutes to start. A child process of low priority verifies the
rest while the node runs (`python -m raftsched.storage.verification`). The child holds a reader slot of LMDB, so that no
page that it has to read is used again. Large copies are verified in a child, too: reading them would block a leader.

Not found: free pages that are missing from the list of free pages. They are lost space, nothing else.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple, cast

import lmdb.verify

from raftsched import limits
from raftsched.encryption.cipher import NO_KEYS, Cipher
from raftsched.encryption.keys import KeyMissing, read_keys
from raftsched.errors import InvariantBroken, RaftschedError
from raftsched.storage.store.lmdb_store import DATA_FILE, open_read_only
from raftsched.storage.store.port import (
    REPLACE_THIS_NODE,
    DamagedCopy,
    DamagedValue,
    Store,
    Table,
    all_rows,
)
from raftsched.storage.store.row_codec import KEYS_KEY
from raftsched.storage.store.seals import SUMS_KEY, Sums, seal_of

_NICE: Final = 19
_FAULTS_MAX: Final = 20
"""Faults reported for one file; more would not help to understand it."""
_FOUND: Final = 3
"""Exit code of a child that found faults; its output has one fault per line."""
_LOST_SPACE: Final = "neither reachable nor in the freeDB"
_META: Final = Struct("<QHHHHIIQQIHHQQQQQIHHQQQQQQQ")
"""Meta page: page number, pad, flags, bounds; magic, version, address, map size; free and main tree; last page, txn id."""
_INTEGER_KEYS: Final = 0x08
_NO_PAGE: Final = 2**64 - 1
"""The root of an empty tree."""


class DamagedState(InvariantBroken):
    """The state's file differs from what was written. It is left unchanged, and the node must not start with it."""

    code = "damaged_state"

    def __init__(self, path: Path, fault: str) -> None:
        super().__init__(
            f"{path} is damaged: {fault}. {REPLACE_THIS_NODE} If its journal still begins at index 1 (`raftsched check` says "
            f"so), removing the directory `state` is enough: the node makes it again from the journal."
        )


def require_sound(directory: Path, cipher: Cipher = NO_KEYS) -> None:
    """Verify the file of a stopped node before it is opened; of a large one only its length. Raises `DamagedState`.

    Raises `KeyMissing` if `cipher` can't decrypt its rows.

    A file without any commit passes: a power loss at the first start can leave one. If the state had content,
    `consensus.recovery.check_start` refuses a journal that can't restore it.
    """
    path = directory / DATA_FILE
    if not _has_commit(path):
        return
    size = path.stat().st_size
    if size <= limits.VERIFIED_AT_START_BYTES or size < _expected_bytes(path):
        for fault in faults(directory, cipher):
            raise DamagedState(path, fault)


def is_verified_later(directory: Path) -> bool:
    """Return whether `require_sound` leaves most of the file for `verify_elsewhere`."""
    return (directory / DATA_FILE).stat().st_size > limits.VERIFIED_AT_START_BYTES


def require_sound_copy(path: Path, cipher: Cipher = NO_KEYS) -> None:
    """Verify a copy; raises `DamagedCopy`, and `KeyMissing` if `cipher` can't decrypt it. Blocks.

    A large copy is read by a child, and only its rows: a compact copy has no free pages. Damage may crash the child.
    """
    try:
        is_large = path.stat().st_size > limits.VERIFIED_AT_START_BYTES
    except OSError as error:
        raise DamagedCopy(f"the copy {path} can't be read: {error}") from error
    if found := verify_elsewhere(path, cipher) if is_large else faults(path, cipher):
        raise DamagedCopy(f"the copy {path.name} is damaged: {found[0]}")


def verify_elsewhere(path: Path, cipher: Cipher = NO_KEYS) -> list[str]:
    """Return the faults that a child of low priority finds in a directory (also one in use) or a copy. Blocks."""
    ended = subprocess.run(  # noqa: S603  # this very module
        child_command(path, cipher), capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    return child_verdict(ended.returncode, ended.stdout, ended.stderr)


def child_command(path: Path, cipher: Cipher = NO_KEYS) -> list[str]:
    """Return the child's command, for callers that can't block. The child reads the keys of `cipher` from their file."""
    keys_file = [] if cipher.source is None else [str(cipher.source)]
    return [sys.executable, "-m", __name__, str(path), *keys_file]


def child_verdict(code: int, output: str, errors: str) -> list[str]:
    """Return the faults that the child found. A child that crashed counts as a fault; `errors` is its stderr."""
    if code == 0:
        return []
    if code == _FOUND:
        return output.splitlines()
    what = f"signal {-code}" if code < 0 else f"exit code {code}"
    return [f"reading it ended a process with {what}: {errors.strip()[-200:]}"]


def faults(path: Path, cipher: Cipher = NO_KEYS) -> list[str]:
    """Return the faults of a directory's or a copy's file, as sentences. Rows are read only if all pages are valid.

    Raises `KeyMissing` if `cipher` can't decrypt the rows.
    """
    return page_faults(path) or list(row_faults(path, cipher))


def page_faults(path: Path) -> list[str]:
    """Return the faults of the file's pages, read without the map. Takes about a minute per gigabyte."""
    verify = cast("Callable[[str], list[str]]", lmdb.verify.verify)
    try:
        found = [fault for fault in verify(str(path)) if _LOST_SPACE not in fault]
        return (found or list(_flag_faults(path)))[:_FAULTS_MAX]
    except (lmdb.verify.VerifyError, OSError) as error:
        return [str(error)]
    except Exception as error:  # noqa: BLE001  # a walk over garbage may fail in any way
        return [f"its pages can't be walked: {type(error).__name__}: {error}"]


def row_faults(path: Path, cipher: Cipher = NO_KEYS) -> Iterator[str]:
    """Read every row; yield the first fault of each table. Raises `KeyMissing`."""
    try:
        store = open_read_only(path, cipher)
    except KeyMissing:
        raise
    except RaftschedError as error:
        yield str(error)
        return
    try:
        yield from faults_of_rows(store)
    except DamagedValue as error:
        yield error.fault
    except RaftschedError as error:
        yield str(error)
    finally:
        store.close()


def faults_of_rows(store: Store) -> Iterator[str]:
    """Do the same as `row_faults` for an open store; raises `DamagedValue`."""
    found = Sums()
    for table in Table:
        last = b""
        for key, value in all_rows(store, table):
            if key <= last:
                yield f"table {table.name.lower()}: keys are out of order at {key.hex()}"
                return
            last = key
            if store.get(table, key) != value:
                yield f"table {table.name.lower()}: the row {key.hex()} is not found by its key"
                return
            if key not in (SUMS_KEY, KEYS_KEY) or table is not Table.META:
                found.move(table, None, seal_of(table, key, value))
        if found.of(table) != store.sums.of(table):
            yield f"table {table.name.lower()}: rows are missing, or of an older time: their seals don't add up to the sum"


# -- meta pages -------------------------------------------------------------------------------------------------------


def _has_commit(path: Path) -> bool:
    """Return False if the file is missing, is empty, or has the meta pages alone that LMDB writes first."""
    if not path.exists() or path.stat().st_size == 0:
        return False
    meta = _newest_meta(path)
    return meta is None or meta.main_root != _NO_PAGE or meta.transaction > 0


def _expected_bytes(path: Path) -> int:
    """Return the file's length by its newest meta page; a huge number if no meta page can be read."""
    meta = _newest_meta(path)
    return sys.maxsize if meta is None else (meta.last_page + 1) * meta.page_bytes


class _MetaPage(NamedTuple):
    page_bytes: int
    last_page: int
    free_flags: int
    """Flags of the tree of free pages."""
    main_flags: int
    main_root: int
    transaction: int


def _newest_meta(path: Path) -> _MetaPage | None:
    newest: _MetaPage | None = None
    with path.open("rb") as file:
        page_bytes = 0
        for number in range(2):
            file.seek(number * page_bytes)
            head = file.read(_META.size)
            if len(head) < _META.size:
                return None
            fields = _META.unpack(head)
            page_bytes = page_bytes or fields[9]
            found = _MetaPage(fields[9], fields[25], fields[10], fields[18], fields[24], fields[26])
            if newest is None or found.transaction > newest.transaction:
                newest = found
    return newest


def _flag_faults(path: Path) -> Iterator[str]:
    """Yield flags that `lmdb.verify` allows but we never write: other orders of keys, several values under one key."""
    meta = _newest_meta(path / DATA_FILE if path.is_dir() else path)
    if meta is None or (meta.free_flags, meta.main_flags) != (_INTEGER_KEYS, 0):
        yield f"its meta page has other flags than were written: {meta}"


def main(path: str, keys_file: str = "") -> int:
    """Verify in a separate process; the exit code is 0, or `_FOUND` with one fault per line."""
    os.nice(_NICE)
    directory = Path(path)
    cipher = Cipher(read_keys(Path(keys_file))) if keys_file else NO_KEYS
    try:
        is_in_use = directory.is_dir()
        found = _faults_beside_a_node(directory, cipher) if is_in_use else list(row_faults(directory, cipher))
    except KeyMissing as error:
        found = [str(error)]
    sys.stdout.write("".join(f"{fault}\n" for fault in found))
    return _FOUND if found else 0


def _faults_beside_a_node(directory: Path, cipher: Cipher) -> list[str]:
    """As `faults`, of a directory in use: a reader slot keeps the pages of the commit at hand from being used again.

    A meta page that is being written may be read torn, so what is found is looked at twice.
    """
    store = open_read_only(directory, cipher)
    try:
        store.get(Table.META, SUMS_KEY)
        if found := page_faults(directory) and page_faults(directory):
            return found
        return list(faults_of_rows(store))
    except DamagedValue as error:
        return [error.fault]
    except RaftschedError as error:
        return [str(error)]
    finally:
        store.close()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
