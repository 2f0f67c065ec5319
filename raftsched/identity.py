"""A data directory belongs to one node of one cluster and to one process at a time.

`node.json` names the owner, so that a directory mounted at the wrong node is refused before it can vote; a lock on it
keeps a second process out.
"""

from __future__ import annotations

import fcntl
import os
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
        self._descriptor = os.open(directory / "node.json", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            self._lock(directory)
            self._check_owner(directory, Identity(node_id, cluster))
        except BaseException:
            os.close(self._descriptor)
            raise

    def release(self) -> None:
        os.close(self._descriptor)

    def _lock(self, directory: Path) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WrongDirectory(f"{directory} is in use by another raftsched process; stop that one first") from None

    def _check_owner(self, directory: Path, wanted: Identity) -> None:
        data = os.pread(self._descriptor, 4096, 0)
        if not data:
            os.pwrite(self._descriptor, msgspec.json.encode(wanted) + b"\n", 0)
            os.fsync(self._descriptor)
            return
        found = msgspec.json.decode(data, type=Identity)
        if found != wanted:
            raise WrongDirectory(
                f"{directory} belongs to node {found.node_id!r} of cluster {found.cluster!r} (format "
                f"{found.format_version}), not to {wanted.node_id!r} of {wanted.cluster!r}: mount the right directory, "
                "or give an empty one to a node with a new id"
            )
