"""What journal and machine must agree on when a node starts, and the marker that explains the one allowed difference.

Nothing is applied before it is durable in the journal (`CommitIndex.raise_to`), so the machine is at most as far as the
journal, and what it lacks is replayed. One thing breaks that order: an installed snapshot replaces the machine first and
the journal second. A marker on disk, written before the one and removed after the other, tells that case from a journal
that lost entries. Such a node may have forgotten what it acknowledged, and does not start.

A state that is gone is made again from the journal if that begins at the first entry; otherwise the node does not start.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import structlog

from raftsched.consensus.journal.log_table import LogTable
from raftsched.consensus.journal.register import WAY_OUT, SegmentId, require_newest
from raftsched.consensus.journal.replay import JournalSummary, recover, summary_of
from raftsched.consensus.machine import StateMachine
from raftsched.disk import sync_directory
from raftsched.errors import InvariantBroken
from raftsched.ports import Disk

_log = structlog.get_logger()


class HeldLog(Protocol):
    """What the journal holds."""

    @property
    def first_index(self) -> int: ...
    @property
    def last_index(self) -> int: ...
    def __len__(self) -> int: ...
    def term_at(self, index: int) -> int: ...


class RecoverableLog(HeldLog, Protocol):
    """The journal, before the engine has it."""

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
        sync_directory(self._path.parent)

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
    """Says durably that this node helped to form a new cluster: it takes part though it is blank (`peer_identity.py`)."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "formed"

    @property
    def is_set(self) -> bool:
        return self._path.exists()

    def set(self) -> None:
        """Durable when this returns; blocks for the disk, once in a node's life."""
        with self._path.open("wb") as file:
            os.fsync(file.fileno())
        sync_directory(self._path.parent)


class DifferenceMark:
    """Says durably that this node's state is not the one that the others have, and why (`state_comparison.py`)."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "differs"

    def write(self, reason: str) -> None:
        """Durable when this returns; blocks for the disk."""
        with self._path.open("w", encoding="utf-8") as file:
            file.write(reason)
            file.flush()
            os.fsync(file.fileno())
        sync_directory(self._path.parent)

    def read(self) -> str:
        """The reason; "" where there is no mark."""
        try:
            return self._path.read_text(encoding="utf-8") or "this node's state is not the one that the others have"
        except FileNotFoundError:
            return ""

    def clear(self) -> None:
        """Remove it, durably: the state is another one now."""
        if self._path.exists():
            self._path.unlink()
            sync_directory(self._path.parent)


class StateLost(InvariantBroken):
    """The state is not what the journal goes on from: one of the two is damaged, gone, or of another time or node."""

    code = "state_lost"

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}. {WAY_OUT}.")


def align(log: RecoverableLog, machine: StateMachine, marker: InstallMarker) -> None:
    """Finish an interrupted installation, then check that the log leads on from the machine.

    Raises `StateLost`, with nothing changed, where it doesn't: this node must not vote or acknowledge.
    """
    position = (machine.applied_index, machine.applied_term)
    if marker.read() == position and not _holds(log, *position):
        _log.warning("snapshot_installation_finished", index=position[0])
        log.reset(*position)
    _check(log, *position)


def check_start(
    disk: Disk, *, newest: SegmentId | None, applied: tuple[int, int], installing: tuple[int, int] | None
) -> JournalSummary:
    """Check all that a start checks of the journal on `disk`, read only, and return what the journal holds.

    `newest` is what node.json says, `applied` the (index, term) of the state, and `installing` what `InstallMarker.read`
    returns. Raises what the start would raise: `JournalLost`, `JournalCorrupt`, `JournalTooNew`, `StateLost`, OSError.
    """
    require_newest(disk, newest)
    recovered = recover(disk, cache_bytes=0)
    log = _Replayed(recovered.table)
    if installing != applied or _holds(log, *applied):
        _check(log, *applied)
    return summary_of(disk, recovered)


def require_state(log: HeldLog, *, is_there: bool) -> None:
    """Check, before a state is made, that the log can make it again if it is gone; raises `StateLost` if it can't."""
    if is_there or log.last_index <= 1:
        return
    if log.first_index > 1:
        raise StateLost(
            f"the state is gone, and the journal begins at index {log.first_index}, so it can't be made again"
        )
    _log.warning("state_made_again", reason="the state was gone; the journal holds all entries", entries=log.last_index)


@dataclass(frozen=True, slots=True)
class _Replayed:
    """The log as it was read from the journal, for `_check`."""

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


def _holds(log: HeldLog, index: int, term: int) -> bool:
    return len(log) > 0 and log.first_index <= index <= log.last_index and log.term_at(index) == term


def _check(log: HeldLog, applied: int, term: int) -> None:
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
