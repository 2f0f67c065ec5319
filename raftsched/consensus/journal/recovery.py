"""Check that journal and machine agree when a node starts; a marker explains the one allowed difference.

Nothing is applied before it is durable in the journal (`CommitIndex.raise_to`). So the machine is never ahead of the
journal, and the missing entries are replayed. One case breaks that order: an installed snapshot replaces the machine
first and the journal second. A marker on disk, written before the first and removed after the second, distinguishes
that case from a journal that lost entries. A node with a lost journal may have forgotten its acknowledgements, and does
not start.

A lost state is rebuilt from the journal if that begins at the first entry; otherwise the node does not start.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import structlog

from raftsched.consensus.journal.log_table import LogTable
from raftsched.consensus.journal.register import REPAIR_ADVICE, SegmentId, require_newest
from raftsched.consensus.journal.replay import JournalSummary, recover, summary_of
from raftsched.consensus.machine import StateMachine
from raftsched.disk import sync_directory
from raftsched.encryption.cipher import NO_KEYS, Cipher
from raftsched.errors import InvariantBroken
from raftsched.ports import Disk

_log = structlog.get_logger()


class ReadableLog(Protocol):
    """The log that the journal holds."""

    @property
    def first_index(self) -> int: ...
    @property
    def last_index(self) -> int: ...
    def __len__(self) -> int: ...
    def term_at(self, index: int) -> int: ...


class RecoverableLog(ReadableLog, Protocol):
    """The journal, before the engine uses it."""

    def reset(self, index: int, term: int) -> None: ...


class InstallMarker:
    """A durable marker while the snapshot (index, term) is being installed."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "installing.json"

    def write(self, index: int, term: int) -> None:
        """Write the marker; it is durable when this returns."""
        with self._path.open("w", encoding="ascii") as file:
            json.dump({"index": index, "term": term}, file)
            file.flush()
            os.fsync(file.fileno())
        sync_directory(self._path.parent)

    def read(self) -> tuple[int, int] | None:
        """Return (index, term); None if nothing was being installed, or if the marker was not completely written."""
        try:
            content = json.loads(self._path.read_text(encoding="ascii"))
        except FileNotFoundError:
            return None
        except ValueError:
            return None  # torn: the machine is replaced only after the marker is durable
        return content["index"], content["term"]

    def clear(self) -> None:
        """Remove the marker; it may reappear after a power loss, which is harmless."""
        self._path.unlink(missing_ok=True)


class FormedMark:
    """A durable mark that this node helped to form a new cluster, so it takes part though blank (`peer_identity.py`)."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "formed"

    @property
    def is_set(self) -> bool:
        return self._path.exists()

    def set(self) -> None:
        """Set the mark; it is durable when this returns. Blocks for the disk, once in a node's life."""
        with self._path.open("wb") as file:
            os.fsync(file.fileno())
        sync_directory(self._path.parent)


class DifferenceMark:
    """A durable mark that this node's state differs from the others', with the reason (`state_comparison.py`)."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "differs"

    def write(self, reason: str) -> None:
        """Write the mark; it is durable when this returns. Blocks for the disk."""
        with self._path.open("w", encoding="utf-8") as file:
            file.write(reason)
            file.flush()
            os.fsync(file.fileno())
        sync_directory(self._path.parent)

    def read(self) -> str:
        """Return the reason; "" if there is no mark."""
        try:
            return self._path.read_text(encoding="utf-8") or "this node's state differs from the others'"
        except FileNotFoundError:
            return ""

    def clear(self) -> None:
        """Remove the mark, durably: the state has been replaced."""
        if self._path.exists():
            self._path.unlink()
            sync_directory(self._path.parent)


class StateLost(InvariantBroken):
    """The state does not fit the journal: one of the two is damaged, lost, or of another time or node."""

    code = "state_lost"

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}. {REPAIR_ADVICE}.")


def align(log: RecoverableLog, machine: StateMachine, marker: InstallMarker) -> None:
    """Finish an interrupted installation, then check that the log continues from the machine.

    Raises `StateLost`, with nothing changed, if it does not: then this node must not vote or acknowledge.
    """
    position = (machine.applied_index, machine.applied_term)
    if marker.read() == position and not _holds(log, *position):
        _log.warning("snapshot_installation_finished", index=position[0])
        log.reset(*position)
    _check(log, *position)


def check_start(
    disk: Disk,
    *,
    newest: SegmentId | None,
    applied: tuple[int, int],
    installing: tuple[int, int] | None,
    cipher: Cipher = NO_KEYS,
) -> JournalSummary:
    """Check the journal on `disk` as a start does, read only, and return a summary of it.

    `newest` is the segment named by node.json, `applied` the (index, term) of the state, and `installing` the result of
    `InstallMarker.read`. Raises as the start: `JournalLost`, `StateLost`, and as `recover`.
    """
    require_newest(disk, newest)
    recovered = recover(disk, cache_bytes=0, cipher=cipher)
    log = _Replayed(recovered.table)
    if installing != applied or _holds(log, *applied):
        _check(log, *applied)
    return summary_of(disk, recovered)


def require_state(log: ReadableLog, *, is_there: bool) -> None:
    """Check, before a state is created, that the log can rebuild it if it is lost; raises `StateLost` if it can't."""
    if is_there or log.last_index <= 1:
        return
    if log.first_index > 1:
        raise StateLost(f"the state is lost, and the journal begins at index {log.first_index}, so it can't be rebuilt")
    _log.warning("state_made_again", reason="the state was lost; the journal holds all entries", entries=log.last_index)


@dataclass(frozen=True, slots=True)
class _Replayed:
    """The log as read from the journal, for `_check`."""

    table: LogTable

    @property
    def first_index(self) -> int:
        return self.table.first

    @property
    def last_index(self) -> int:
        return self.table.last

    def __len__(self) -> int:
        return len(self.table)

    def term_at(self, index: int) -> int:
        return self.table.term(index - self.table.first)


def _holds(log: ReadableLog, index: int, term: int) -> bool:
    return len(log) > 0 and log.first_index <= index <= log.last_index and log.term_at(index) == term


def _check(log: ReadableLog, applied: int, term: int) -> None:
    if not len(log):
        if applied:
            raise StateLost(f"the state is at index {applied}, but the journal is empty")
        return
    first, last = log.first_index, log.last_index
    if first > applied + 1:
        raise StateLost(f"the journal begins at index {first}, but the state ends at {applied}")
    if last < applied:
        raise StateLost(f"the journal ends at index {last}, but the state is at {applied}: entries were lost")
    if first <= applied and log.term_at(applied) != term:
        raise StateLost(f"journal and state hold different entries at index {applied}")
