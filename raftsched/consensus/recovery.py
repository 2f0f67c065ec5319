"""What journal and machine must agree on when a node starts, and the marker that explains the one allowed difference.

Nothing is applied before it is durable in the journal (`Applying.commit`), so the machine is at most as far as the
journal, and what it lacks is replayed. One thing breaks that order: an installed snapshot replaces the machine first and
the journal second. A marker on disk, written before the one and removed after the other, tells that case from a journal
that lost entries. Such a node may have forgotten what it acknowledged, and does not start.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Protocol

import structlog

from raftsched.consensus.machine import StateMachine
from raftsched.errors import InvariantBroken

_log = structlog.get_logger()


class RecoverableLog(Protocol):
    """The journal, before the engine has it."""

    @property
    def first_index(self) -> int: ...
    @property
    def last_index(self) -> int: ...
    def __len__(self) -> int: ...
    def term_at(self, index: int) -> int: ...
    def reset(self, index: int, term: int) -> None: ...


class InstallMarker:
    """Says durably that the snapshot (index, term) is being installed."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "installing.json"

    def write(self, index: int, term: int) -> None:
        """Durable when this returns."""
        with self._path.open("w", encoding="ascii") as file:
            json.dump({"index": index, "term": term}, file)
            file.flush()
            os.fsync(file.fileno())
        _sync_directory(self._path.parent)

    def read(self) -> tuple[int, int] | None:
        """(index, term); None where nothing was being installed, or the marker itself was never finished."""
        try:
            content = json.loads(self._path.read_text(encoding="ascii"))
        except FileNotFoundError:
            return None
        except ValueError:
            return None  # torn: the machine is replaced only after the marker is durable
        return content["index"], content["term"]

    def clear(self) -> None:
        """Remove it; may come back after a power loss, which does no harm."""
        self._path.unlink(missing_ok=True)


class FormedMark:
    """Says durably that this node helped to form a new cluster, and so takes part though it is blank (`greetings.py`)."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "formed"

    @property
    def is_set(self) -> bool:
        return self._path.exists()

    def set(self) -> None:
        """Durable when this returns; blocks for the disk, once in a node's life."""
        with self._path.open("wb") as file:
            os.fsync(file.fileno())
        _sync_directory(self._path.parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def align(log: RecoverableLog, machine: StateMachine, marker: InstallMarker) -> None:
    """Finish an interrupted installation, then check that the log leads on from the machine.

    Raises `InvariantBroken`, with nothing changed, where it doesn't: the data directory is damaged or mixed from two
    nodes, and this node must not vote or acknowledge.
    """
    position = (machine.applied_index, machine.applied_term)
    if marker.read() == position and not _holds(log, *position):
        _log.warning("snapshot_installation_finished", index=position[0])
        log.reset(*position)
    _check(log, *position)


def _holds(log: RecoverableLog, index: int, term: int) -> bool:
    return len(log) > 0 and log.first_index <= index <= log.last_index and log.term_at(index) == term


def _check(log: RecoverableLog, applied: int, term: int) -> None:
    if not len(log):
        if applied:
            raise InvariantBroken(f"the state is at index {applied}, but the journal is empty")
        return
    first, last = log.first_index, log.last_index
    if first > applied + 1:
        raise InvariantBroken(f"the journal begins at index {first}, but the state ends at {applied}")
    if last < applied:
        raise InvariantBroken(f"the journal ends at index {last}, but the state is at {applied}: entries were lost")
    if first <= applied and log.term_at(applied) != term:
        raise InvariantBroken(f"journal and state hold different entries at index {applied}")
