"""Restore a backup: make the data directory of the first node of a new cluster from it.

The directory must be empty. Until all is checked nothing but `UNFINISHED` is in it; a failed restore leaves it empty, and
an interrupted one is refused by a node's start.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from raftsched.disk import make_directory, sync_directory
from raftsched.encryption.cipher import Cipher
from raftsched.encryption.keys import require_keys
from raftsched.node.identity import NODE_FILE, PARTS, UNFINISHED, DirectoryClaim, WrongDirectory
from raftsched.node.new_cluster.founder import Founded, Founder, found, require_sound, require_valid
from raftsched.storage.backup import DamagedBackup, Manifest, extract, read_manifest
from raftsched.storage.directory import inspect_copy
from raftsched.storage.store.lmdb_store import DATA_FILE
from raftsched.storage.store.port import DamagedCopy
from raftsched.storage.tables.position import FORMAT_VERSION, UnknownFormat

_OF_THE_FILE_SYSTEM: Final = "lost+found"
"""A directory at the root of an ext4 file system, which belongs to the system."""


def restore(file: Path, directory: Path, founder: Founder, cipher: Cipher, now_ms: int) -> Founded:
    """Make `directory` the data directory of the first node of a new cluster, with the state of the backup `file`.

    Raises `WrongDirectory` unless the directory is empty or missing, `DamagedBackup`, `KeyMissing`, `UnknownFormat`,
    `UnknownVersion`, `Invalid` for a name or a clock that is wrong, and OSError; the directory is as before then.
    """
    manifest = read_manifest(file)
    _require_readable(file, manifest, founder, cipher)
    _require_empty(directory)
    with _cleared_after_failure(directory):
        unfinished = directory / UNFINISHED
        claim = DirectoryClaim(unfinished, node_id=founder.node_id, cluster=founder.cluster, keys=cipher.keys)
        try:
            for key in (*manifest.key_checks(), *cipher.checks[:1]):
                claim.need_key(key)
            make_directory(unfinished / "state")
            _extract(file, unfinished / "state" / DATA_FILE, manifest, cipher)
            founded = found(claim, unfinished, founder, cipher, now_ms)
        finally:
            claim.release()
        require_sound(unfinished, cipher)
        for part in (*PARTS, NODE_FILE):
            (unfinished / part).rename(directory / part)
            sync_directory(directory)
        unfinished.rmdir()
    return founded


def detail_of(manifest: Manifest) -> str:
    """Return the origin of a restored state, for people."""
    return f"restored from the backup of {manifest.cluster} that was taken at {manifest.taken_at}, at index {manifest.applied_index}"


def _require_readable(file: Path, manifest: Manifest, founder: Founder, cipher: Cipher) -> None:
    """Raise before anything is made, if that is possible already."""
    require_valid(founder, manifest.cluster)
    if manifest.state_format != FORMAT_VERSION:
        raise UnknownFormat(
            f"{file} holds a state in format {manifest.state_format}, and this release reads {FORMAT_VERSION}: restore it with "
            f"release {manifest.release}"
        )
    require_keys(manifest.key_checks(), cipher.keys, whose=f"the backup {file}")


def _extract(file: Path, target: Path, manifest: Manifest, cipher: Cipher) -> None:
    extract(file, target)
    try:
        position = inspect_copy(target, cipher)
    except DamagedCopy as error:
        raise DamagedBackup(f"{file} is damaged: {error}") from error
    if position != (manifest.applied_index, manifest.applied_term):
        raise DamagedBackup(f"{file} is damaged: its state is of index {position[0]}, not of {manifest.applied_index}")


def _require_empty(directory: Path) -> None:
    try:
        names = sorted(path.name for path in directory.iterdir())
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise WrongDirectory(f"{directory} is not a directory") from None
    if held := [name for name in names if name != _OF_THE_FILE_SYSTEM]:
        advice = "empty it after you have made sure that nobody needs it" if UNFINISHED in held else "name an empty one"
        raise WrongDirectory(f"{directory} is not empty, it holds {', '.join(held[:4])}: {advice}")


@contextmanager
def _cleared_after_failure(directory: Path) -> Iterator[None]:
    """Make `directory` if it is missing; after a failure remove all that was made."""
    made = make_directory(directory)
    try:
        yield
    except BaseException:
        shutil.rmtree(directory / UNFINISHED, ignore_errors=True)
        for part in PARTS:
            shutil.rmtree(directory / part, ignore_errors=True)
        for path in reversed(made):
            path.rmdir()
        raise
