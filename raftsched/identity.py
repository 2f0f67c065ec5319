"""A data directory belongs to one node of one cluster and to one process at a time.

`node.json` names the owner, so that a directory mounted at the wrong node is refused before it can vote; a lock on it
keeps a second process out. It also holds the directory's *incarnation*, drawn when it is made: by it the other nodes tell
a member from a node that has lost its disk and kept its id (`raftsched.consensus.greetings`).
"""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path

import msgspec

from raftsched.errors import RaftschedError

FORMAT_VERSION = 1


class WrongDirectory(RaftschedError):
    """The data directory belongs to another node, another cluster, or a process that is still running."""

    code = "wrong_directory"


class Identity(msgspec.Struct, frozen=True):
    node_id: str
    cluster: str
    format_version: int = FORMAT_VERSION
    incarnation: str = ""
    """Which of all directories it is; "" in those of raftsched before 0.2, until their next start."""

    def is_of(self, other: Identity) -> bool:
        """Whether both are of the same node, in the same format."""
        mine = (self.node_id, self.cluster, self.format_version)
        return mine == (other.node_id, other.cluster, other.format_version)


def read_identity(directory: Path) -> Identity:
    """Return whose directory it is; raises `WrongDirectory` where it is nobody's."""
    try:
        return msgspec.json.decode((directory / "node.json").read_bytes(), type=Identity)
    except (OSError, msgspec.DecodeError) as error:
        raise WrongDirectory(f"{directory} is not the data directory of a node: {error}") from error


class DirectoryClaim:
    """Holds the data directory for this process until `release`; creates it where it is missing.

    Raises `WrongDirectory` where it belongs to somebody else; nothing is changed then.
    """

    def __init__(self, directory: Path, *, node_id: str, cluster: str) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._incarnation = ""
        self._descriptor = os.open(directory / "node.json", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            self._lock(directory)
            self._check_owner(directory, Identity(node_id, cluster))
        except BaseException:
            os.close(self._descriptor)
            raise

    @property
    def incarnation(self) -> str:
        """Which directory this is; the same at every start, and of no other directory."""
        return self._incarnation

    def release(self) -> None:
        os.close(self._descriptor)

    def _lock(self, directory: Path) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WrongDirectory(f"{directory} is in use by another raftsched process; stop that one first") from None

    def _check_owner(self, directory: Path, wanted: Identity) -> None:
        found = self._read(directory)
        if found is None:
            _require_no_data(directory)
            found = wanted
        if not found.is_of(wanted):
            raise WrongDirectory(
                f"{directory} belongs to node {found.node_id!r} of cluster {found.cluster!r} (format "
                f"{found.format_version}), not to {wanted.node_id!r} of {wanted.cluster!r}: mount the right directory, "
                "or give an empty one to a node with a new id"
            )
        self._incarnation = found.incarnation or secrets.token_hex(8)
        if not found.incarnation:
            self._write(Identity(found.node_id, found.cluster, incarnation=self._incarnation))

    def _read(self, directory: Path) -> Identity | None:
        data = os.pread(self._descriptor, 4096, 0)
        if not data:
            return None
        try:
            return msgspec.json.decode(data, type=Identity)
        except msgspec.DecodeError as error:
            raise WrongDirectory(f"{directory}/node.json is damaged: {error}; restore it from a backup") from error

    def _write(self, identity: Identity) -> None:
        """Durable when this returns; it is less than a sector, so it is written as a whole or not at all."""
        os.pwrite(self._descriptor, msgspec.json.encode(identity) + b"\n", 0)
        os.fsync(self._descriptor)


def _require_no_data(directory: Path) -> None:
    """Refuse data without its owner's name: nobody could tell whose promises it holds."""
    held = [name for name in ("journal", "state") if any((directory / name).glob("*"))]
    if held:
        raise WrongDirectory(
            f"{directory} holds {' and '.join(held)}, but its node.json is missing: restore that file, or empty the "
            "directory and give it to a node with a new id"
        )
