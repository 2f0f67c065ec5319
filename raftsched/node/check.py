"""Check the data directories of stopped nodes: all that a start checks, and every record, page and row besides.

Read only. Every fault becomes one line: no content of a damaged directory ends a check with a stack trace, and nothing
is opened that could end it with a signal. Several directories are compared as well: nodes that have applied the same
entries must have the same state, and logs must agree as far as both go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import msgspec

from raftsched.consensus.journal.log_table import LogTable
from raftsched.consensus.journal.recovery import DifferenceMark, InstallMarker, check_start
from raftsched.consensus.journal.replay import recover
from raftsched.consensus.journal.segment_files import read_entries
from raftsched.core.checks import invariants
from raftsched.disk import SystemDisk
from raftsched.encryption.cipher import NO_KEYS, Cipher
from raftsched.errors import RaftschedError
from raftsched.node.identity import DirectoryClaim, Identity, read_identity
from raftsched.storage.directory import holds_state, open_readonly
from raftsched.storage.store.port import Table
from raftsched.storage.verification import faults

_STEP_BYTES = 4 * 1024 * 1024
"""Bytes of log entries per read."""


class Report(msgspec.Struct, frozen=True):
    """The findings of a check; `violations` describe each fault."""

    node_id: str
    applied_index: int
    job_count: int
    journal_first: int
    journal_last: int
    term: int
    violations: tuple[str, ...]
    digest: str = ""
    """Digest of the state as of `applied_index`; equal on nodes that are at the same index."""


class Comparison(msgspec.Struct, frozen=True):
    """The findings of several directories; `notes` say what could not be compared, which is no violation."""

    reports: tuple[Report, ...]
    notes: tuple[str, ...]
    violations: tuple[str, ...]


@dataclass(slots=True)
class _Found:
    """The readable content of one directory."""

    directory: Path
    identity: Identity
    cipher: Cipher
    violations: list[str] = field(default_factory=list)
    applied: tuple[int, int] = (0, 0)
    """(index, term) of the state."""
    job_count: int = 0
    digest: int | None = None
    sums: dict[str, int] = field(default_factory=dict)
    log: LogTable | None = None
    term: int = 0

    @property
    def disk(self) -> SystemDisk:
        return SystemDisk(self.directory / "journal", create=False)

    def report(self) -> Report:
        log = self.log
        return Report(
            node_id=self.identity.node_id,
            applied_index=self.applied[0],
            job_count=self.job_count,
            journal_first=log.first if log is not None else 0,
            journal_last=log.last if log is not None else 0,
            term=self.term,
            violations=tuple(self.violations),
            digest="" if self.digest is None else f"{self.digest:016x}",
        )


def check_directory(directory: Path, cipher: Cipher = NO_KEYS) -> Report:
    """Check a node's data directory.

    Raises `WrongDirectory` while the node is running or if it holds no node, and `KeyMissing` if `cipher` can't decrypt it.
    """
    return _examine(directory, cipher).report()


def check_directories(directories: Sequence[Path], cipher: Cipher = NO_KEYS) -> Comparison:
    """Check each directory, and compare them; raises as `check_directory` does."""
    found = [_examine(directory, cipher) for directory in directories]
    notes: list[str] = []
    violations: list[str] = []
    for one, other in combinations(found, 2):
        _compare(one, other, notes, violations)
    return Comparison(tuple(each.report() for each in found), tuple(notes), tuple(violations))


def _examine(directory: Path, cipher: Cipher) -> _Found:
    identity = read_identity(directory)
    claim = DirectoryClaim(directory, node_id=identity.node_id, cluster=identity.cluster, keys=cipher.keys)
    try:
        found = _Found(directory, identity, cipher)
        _examine_state(found)
        _examine_journal(found)
        return found
    finally:
        claim.release()


# -- one directory ----------------------------------------------------------------------------------------------------


def _examine_state(found: _Found) -> None:
    """Check the state's file, then its contents; a missing state may be rebuilt, which the journal's check decides."""
    directory = found.directory
    if reason := DifferenceMark(directory / "snapshots").read():
        found.violations.append(f"state: {reason}")
    if not holds_state(directory / "state"):
        return
    damage = faults(directory / "state", found.cipher)
    found.violations += [f"state file: {fault}" for fault in damage]
    if damage:
        return
    try:
        state = open_readonly(directory / "state", found.cipher)
        try:
            found.applied = (state.applied_index, state.applied_term)
            found.digest, found.sums = state.digest(), state.sums()
            found.job_count = sum(state.counters().values())
            found.violations += [str(violation) for violation in invariants.check(state)]
        finally:
            state.close()
    except Exception as error:  # noqa: BLE001  # rotten records fail in any way, and a check must continue
        found.violations.append(f"state: {_in_words(error)}")


def _examine_journal(found: _Found) -> None:
    """Check every record of the journal, and whether it continues the state."""
    try:
        check_start(
            found.disk,
            newest=found.identity.journal,
            applied=found.applied,
            installing=InstallMarker(found.directory / "snapshots").read(),
            cipher=found.cipher,
        )
    except Exception as error:  # noqa: BLE001  # as above
        found.violations.append(f"journal: {_in_words(error)}")
    # Its content can be reported, and compared, even if it does not continue the state.
    with suppress(RaftschedError, OSError):
        recovered = recover(found.disk, cache_bytes=0, cipher=found.cipher)
        found.log, found.term = recovered.table, recovered.term


def _in_words(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, RaftschedError) else f"{type(error).__name__}: {text}"


# -- several directories ----------------------------------------------------------------------------------------------


def _compare(one: _Found, other: _Found, notes: list[str], violations: list[str]) -> None:
    names = f"{one.directory} and {other.directory}"
    if one.identity.cluster != other.identity.cluster:
        violations.append(f"{names} are of different clusters: {one.identity.cluster!r}, {other.identity.cluster!r}")
        return
    if one.identity.node_id == other.identity.node_id:
        violations.append(f"{names} are both of node {one.identity.node_id!r}")
    if one.applied[0] != other.applied[0]:
        notes.append(f"{names}: states are of log indexes {one.applied[0]:,} and {other.applied[0]:,}, so not compared")
    elif one.digest is not None and other.digest is not None and one.digest != other.digest:
        tables = [table.name.lower() for table in Table if one.sums.get(table.name) != other.sums.get(table.name)]
        violations.append(f"{names}: states differ at log index {one.applied[0]:,}, in {', '.join(tables)}")
    try:
        violations += [f"{names}: {fault}" for fault in _differences_of_logs(one, other)]
    except Exception as error:  # noqa: BLE001  # a journal that can't be read was reported already
        notes.append(f"{names}: logs were not compared: {_in_words(error)}")


def _differences_of_logs(one: _Found, other: _Found) -> Iterator[str]:
    """Return forbidden differences of two logs: at indexes that both applied, or before one at which their terms agree."""
    mine, theirs = one.log, other.log
    if mine is None or theirs is None or not len(mine) or not len(theirs):
        return
    first, last = max(mine.first, theirs.first), min(mine.last, theirs.last)
    if first > last:
        return

    def agrees(index: int) -> bool:
        return mine.term(index - mine.first) == theirs.term(index - theirs.first)

    applied = min(one.applied[0], other.applied[0], last)
    agreed = next((index for index in range(last, first - 1, -1) if agrees(index)), first - 1)
    index = first
    while index <= max(agreed, applied):
        stop = min(mine.stop_within(index - mine.first, _STEP_BYTES) + mine.first, max(agreed, applied) + 1)
        left = read_entries(one.disk, mine, index - mine.first, stop - mine.first, one.cipher)
        right = read_entries(other.disk, theirs, index - theirs.first, stop - theirs.first, other.cipher)
        for entry, counterpart in zip(left, right, strict=True):
            if entry != counterpart and not (entry[1] == first and entry[2] == counterpart[2]):
                yield f"the logs hold different entries at index {entry[1]:,} (terms {entry[2]} and {counterpart[2]})"
                return
        index = stop
