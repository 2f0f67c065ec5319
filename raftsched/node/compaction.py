"""Return disk space that a stopped node's state no longer needs.

LMDB uses free pages again and never makes its file smaller, so a backlog of millions leaves a large file behind. A
compact copy holds the live pages only. It is verified, row by row, before it takes the old file's place by a rename: if
this is stopped at any point, the node finds the old state or the new one, whole. A copy that was not finished is
removed by the next start.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from raftsched.disk import make_directory
from raftsched.encryption.cipher import NO_KEYS, Cipher
from raftsched.node.identity import DirectoryClaim, WrongDirectory, read_identity
from raftsched.storage.directory import holds_state, inspect_copy, open_readonly, replace_state_file
from raftsched.storage.store.lmdb_store import DATA_FILE
from raftsched.storage.verification import require_sound


class Compacted(NamedTuple):
    """Bytes of the state's file, before and after."""

    before_bytes: int
    after_bytes: int


def compact_directory(directory: Path, cipher: Cipher = NO_KEYS) -> Compacted:
    """Replace a stopped node's state by a compact copy of it, durably.

    Needs as much free space as the copy takes. Raises `WrongDirectory` while the node runs or if there is none,
    `KeyMissing`, `DamagedState`, `CopyFailed`, `DamagedCopy` and OSError; the old state is still there then.
    """
    identity = read_identity(directory)
    claim = DirectoryClaim(directory, node_id=identity.node_id, cluster=identity.cluster, keys=cipher.keys)
    try:
        return _compact(directory, cipher)
    finally:
        claim.release()


def _compact(directory: Path, cipher: Cipher) -> Compacted:
    state, copies = directory / "state", directory / "snapshots"
    if not holds_state(state):
        raise WrongDirectory(f"{directory} holds no state: there is nothing to compact")
    require_sound(state, cipher)
    before_bytes = (state / DATA_FILE).stat().st_size
    make_directory(copies)
    copy = copies / "compacted.copy"
    try:
        reader = open_readonly(state, cipher)
        try:
            position = (reader.applied_index, reader.applied_term, reader.digest())
            reader.copy_to(copy)
        finally:
            reader.close()
        inspect_copy(copy, cipher)
        copied = open_readonly(copy, cipher)
        found = (copied.applied_index, copied.applied_term, copied.digest())
        copied.close()
        assert found == position, f"the copy is of {found}, the state of {position}"
        after_bytes = copy.stat().st_size
        replace_state_file(state, copy)
    finally:
        copy.unlink(missing_ok=True)
    return Compacted(before_bytes, after_bytes)
