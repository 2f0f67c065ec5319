"""Open the state's directory on disk, check a copy of it, and replace the state by a copy.

`<data_dir>/state/` holds LMDB's `data.mdb` and its lock file, nothing else. A copy is a `data.mdb` of another node or
time. It is checked before it is used. A rename puts it in the old file's place, so a power loss at any moment leaves one
of the two intact.
"""

from __future__ import annotations

import os
from pathlib import Path

from raftsched import limits
from raftsched.encryption.cipher import NO_KEYS, Cipher
from raftsched.storage.reader import StateReader
from raftsched.storage.state import State
from raftsched.storage.store.lmdb_store import (
    DATA_FILE,
    LOCK_FILE,
    open_read_only,
    open_store,
    sync_directory,
)
from raftsched.storage.store.port import DamagedCopy, DamagedValue, StorageFailed
from raftsched.storage.verification import require_sound, require_sound_copy


def open_state(
    directory: Path, *, map_bytes: int = limits.MAP_BYTES, is_verified: bool = False, cipher: Cipher = NO_KEYS
) -> State:
    """Open a node's state; it is empty if the directory is new. `map_bytes` is the address space reserved at first.

    Verifies the file first (`raftsched.storage.verification`), unless `is_verified`. Raises `DamagedState`,
    `StorageFailed` if the directory can't be used, `KeyMissing` if `cipher` can't decrypt it, and `UnknownFormat`.
    """
    if not is_verified:
        require_sound(directory, cipher)
    store = open_store(directory, map_bytes=map_bytes, cipher=cipher)
    try:
        return State(store)
    except BaseException:
        store.close()
        raise


def holds_state(directory: Path) -> bool:
    """Return whether there is a state in `directory`. Its content is not checked."""
    return (directory / DATA_FILE).exists()


def open_readonly(path: Path, cipher: Cipher = NO_KEYS) -> StateReader:
    """Open a directory or a copy to read its last commit.

    Raises `DamagedCopy` if there is no state, `KeyMissing` if `cipher` can't decrypt it, and `UnknownFormat`.
    """
    store = open_read_only(path, cipher)
    try:
        return StateReader(store)
    except BaseException:
        store.close()
        raise


def inspect_copy(path: Path, cipher: Cipher = NO_KEYS) -> tuple[int, int]:
    """Return (applied index, applied term) of a copy.

    Raises `DamagedCopy` unless the file has its full length, a position, and every row unchanged since it was made.
    Raises `KeyMissing` if `cipher` can't decrypt it, and `UnknownFormat`. Blocks for 2 to 3 µs a row; many rows are read
    in a child process.
    """
    require_sound_copy(path, cipher)
    try:
        reader = open_readonly(path, cipher)
    except (StorageFailed, DamagedValue) as error:
        raise DamagedCopy(f"{path} can't be read: {error}") from error
    reader.close()
    if reader.applied_index == 0:
        raise DamagedCopy(f"{path} was made before anything was applied")
    return reader.applied_index, reader.applied_term


def replace_state_file(directory: Path, copy_path: Path) -> None:
    """Replace the state in `directory` by the copy, durably. The copy's file is moved.

    The state must be closed, and the copy must be in the same file system. Raises OSError; the old state is unchanged
    then.
    """
    with copy_path.open("rb") as copy:
        os.fsync(copy.fileno())
    (directory / LOCK_FILE).unlink(missing_ok=True)
    copy_path.replace(directory / DATA_FILE)
    sync_directory(directory)
