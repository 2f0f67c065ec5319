"""Tie a data directory to one node of one cluster and to one process at a time.

`node.json` names the owner, so that a directory mounted at the wrong node is refused before it can vote. It also holds

  * the directory's *incarnation*, drawn when it is made: by it the other nodes tell a member from a node that has lost
    its disk and kept its id (`raftsched.consensus.raft.membership.peer_identity`);
  * the newest segment of the journal, recorded before anything that depends on it leaves the node: by it a start tells
    a lost journal from one that was never begun (`raftsched.consensus.journal.register`);
  * the keys of encrypted files, recorded before the first of these is written: by them a start with a keys file that
    lacks one, or has other bytes under its id, is refused before anything is read.

The file has a checksum and is replaced as a whole. The lock that keeps a second process out is on the directory itself,
so that a refused start leaves nothing behind.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any
from zlib import crc32

import msgspec
from msgspec.structs import replace

from raftsched.consensus.journal.register import REPAIR_ADVICE, SegmentId
from raftsched.disk import make_directory, sync_directory
from raftsched.encryption.keys import Key, KeyCheck, require_keys
from raftsched.errors import RaftschedError

FORMAT_VERSION = 4
NODE_FILE = "node.json"
PARTS = ("journal", "state", "snapshots")
"""The directories of a node's data; `node.json` is the only file beside them."""
UNFINISHED = "unfinished"
"""Directory within a data directory in which a restore or a recovery prepares its content."""
_NEW_FILE = "node.json.new"


class WrongDirectory(RaftschedError):
    """The data directory belongs to another node, another cluster, or a process that is still running."""

    code = "wrong_directory"


class Identity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    node_id: str
    cluster: str
    format_version: int = FORMAT_VERSION
    incarnation: str = ""
    """Random name of this directory."""
    journal: SegmentId | None = None
    """The newest segment of the journal; None while no journal was begun."""
    keys: tuple[KeyCheck, ...] = ()
    """The keys that files in the directory may need."""
    reencrypts_to: str = ""
    """The id of the key to which a user wanted all data to be moved; "" = none."""
    crc32: int = 0
    """Checksum of the encoding in which this field is 0."""

    def sealed(self) -> Identity:
        """Return a copy with its checksum."""
        return replace(self, crc32=crc32(msgspec.json.encode(replace(self, crc32=0))))


class _Format(msgspec.Struct):
    """The one field that every format has."""

    format_version: int


def read_identity(directory: Path) -> Identity:
    """Return the owner of the directory; raises `WrongDirectory` if it has none or the file is damaged."""
    found = _read(directory)
    if found is None:
        raise WrongDirectory(f"{directory} is not the data directory of a node: {NODE_FILE} is missing")
    return found


def require_owner(directory: Path, *, node_id: str, cluster: str) -> Identity | None:
    """Return the content of node.json, None for an empty directory without owner; changes nothing.

    Raises `WrongDirectory` if it belongs to another node, or holds data without an owner.
    """
    found = _read(directory)
    if found is None:
        _require_no_data(directory)
    elif (found.node_id, found.cluster) != (node_id, cluster):
        advice = "mount the right directory, or give an empty one to a node with a new id"
        if found.node_id == node_id:
            advice = f"mount the right directory, or, after a restore or a recovery, set cluster = {found.cluster!r} on all nodes"
        raise WrongDirectory(
            f"{directory} belongs to node {found.node_id!r} of cluster {found.cluster!r}, not to {node_id!r} of "
            f"{cluster!r}: {advice}"
        )
    return found


class DirectoryClaim:
    """Hold the data directory for this process until `release`; create it if it is missing.

    It is also the register of the journal's newest segment. Raises `WrongDirectory` if the directory belongs to another
    owner or can't be trusted, and `KeyMissing` if its data needs a key that is not in `keys`; then nothing is changed or
    left behind.
    """

    def __init__(self, directory: Path, *, node_id: str, cluster: str, keys: Sequence[Key] = ()) -> None:
        self._directory = directory
        self._changing = Lock()
        """The journal records segments in a thread of its own."""
        made = make_directory(directory)
        try:
            self._descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self._lock()
                self._identity = self._own(node_id, cluster, keys)
            except BaseException:
                os.close(self._descriptor)
                raise
        except BaseException:
            _remove_empty(made)
            raise

    @property
    def incarnation(self) -> str:
        """Return the random name of this directory; the same at every start, and different for every other directory."""
        return self._identity.incarnation

    @property
    def newest(self) -> SegmentId | None:
        """Return the newest segment of the journal; None if no journal was begun."""
        return self._identity.journal

    def record(self, segment: SegmentId) -> None:
        """Remember the journal's newest segment; durable when this returns. Raises OSError."""
        self._change(journal=segment)

    @property
    def keys(self) -> tuple[KeyCheck, ...]:
        """Return the keys that files in the directory may need."""
        return self._identity.keys

    def need_key(self, key: KeyCheck) -> None:
        """Record that files may be encrypted under `key` from now on; durable when this returns. Raises OSError."""
        if key not in self._identity.keys:
            self._change(keys=(key, *self._identity.keys))

    def need_only(self, key: KeyCheck) -> None:
        """Record that no file needs another key any more; durable when this returns. Raises OSError."""
        if self._identity.keys != (key,):
            self._change(keys=(key,))

    @property
    def reencrypts_to(self) -> str:
        """Return the id of the key to which a user wanted all data to be moved; "" = none."""
        return self._identity.reencrypts_to

    def reencrypt_to(self, key_id: str) -> None:
        """Record that all data is to be moved to this key; durable when this returns. Raises OSError."""
        if self._identity.reencrypts_to != key_id:
            self._change(reencrypts_to=key_id)

    def _change(self, **fields: Any) -> None:
        with self._changing:
            self._identity = self._write(replace(self._identity, **fields))

    def release(self) -> None:
        os.close(self._descriptor)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WrongDirectory(
                f"{self._directory} is in use by another raftsched process; stop that one first"
            ) from None
        except OSError as error:
            name = errno.errorcode.get(error.errno or 0, "unknown")
            raise WrongDirectory(
                f"{self._directory} can't be locked ({name}: {error.strerror}): data_dir must lie on a local disk, not "
                "on a network file system"
            ) from error

    def _own(self, node_id: str, cluster: str, keys: Sequence[Key]) -> Identity:
        found = require_owner(self._directory, node_id=node_id, cluster=cluster)
        if found is not None:
            require_keys(found.keys, keys, whose=f"the data in {self._directory}")
        return found or self._write(Identity(node_id, cluster, incarnation=secrets.token_hex(8)))

    def _write(self, identity: Identity) -> Identity:
        """Replace the file, durably; a crash leaves the old one or the new one. Return its new content."""
        sealed = identity.sealed()
        new = self._directory / _NEW_FILE
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            try:
                os.write(descriptor, msgspec.json.encode(sealed) + b"\n")  # less than a page, so never in part
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            new.replace(self._directory / NODE_FILE)
        except OSError:
            new.unlink(missing_ok=True)
            raise
        sync_directory(self._directory)
        return sealed


def _read(directory: Path) -> Identity | None:
    """Return the content of node.json, None if there is none; raises `WrongDirectory` if it can't be trusted."""
    path = directory / NODE_FILE
    try:
        data = path.read_bytes()
        version = msgspec.json.decode(data, type=_Format).format_version
        if version != FORMAT_VERSION:
            raise WrongDirectory(
                f"{path} has format {version}; this release reads {FORMAT_VERSION}: run the release that wrote it"
            )
        found = msgspec.json.decode(data, type=Identity)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise WrongDirectory(f"{path} can't be read: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WrongDirectory(f"{path} is damaged ({error}). {REPAIR_ADVICE}.") from error
    if found.sealed() != found:
        raise WrongDirectory(f"{path} is damaged (its checksum is wrong). {REPAIR_ADVICE}.")
    return found


def _require_no_data(directory: Path) -> None:
    """Refuse data without its owner's name: its node's promises are unknown."""
    if (directory / UNFINISHED).exists():
        raise WrongDirectory(
            f"{directory} holds an unfinished restore or recovery: run `raftsched cluster recover` again, or empty the "
            "directory and run `raftsched restore` again"
        )
    held = [name for name in PARTS if any((directory / name).glob("*"))]
    if held:
        raise WrongDirectory(
            f"{directory} holds {' and '.join(held)}, but its {NODE_FILE} is missing: restore that file, or empty the "
            "directory and give it to a node with a new id"
        )


def _remove_empty(directories: list[Path]) -> None:
    """Remove the directories that a refused start has made, the deepest first."""
    for directory in reversed(directories):
        try:
            directory.rmdir()
        except OSError:
            return
