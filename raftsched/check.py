"""Checks the data directory of a stopped node: every record of the journal, every page and every record of the state.

Read only. It needs no other node, and says nothing about what the other nodes hold.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from raftsched.consensus.recovery import InstallMarker, check_start
from raftsched.core import invariants
from raftsched.disk import SystemDisk
from raftsched.errors import RaftschedError
from raftsched.identity import DirectoryClaim, Identity, read_identity
from raftsched.storage.directory import open_readonly
from raftsched.storage.verification import faults


class Report(msgspec.Struct, frozen=True):
    """What was found; `violations` says in words what is not as it must be."""

    node_id: str
    applied_index: int
    job_count: int
    journal_first: int
    journal_last: int
    term: int
    violations: tuple[str, ...]


def check_directory(directory: Path) -> Report:
    """Check a node's data directory; raises `WrongDirectory` while the node is running or where there is no node."""
    identity: Identity = read_identity(directory)
    claim = DirectoryClaim(directory, node_id=identity.node_id, cluster=identity.cluster)
    try:
        return _check(directory, identity)
    finally:
        claim.release()


def _check(directory: Path, identity: Identity) -> Report:
    violations = [f"state file: {text}" for text in faults(directory / "state")]
    state = open_readonly(directory / "state")
    try:
        violations += [str(violation) for violation in invariants.check(state)]
        job_count, applied, applied_term = sum(state.counters().values()), state.applied_index, state.applied_term
    finally:
        state.close()
    first = last = term = 0
    try:
        journal = check_start(
            SystemDisk(directory / "journal", create=False),
            newest=identity.journal,
            applied=(applied, applied_term),
            installing=InstallMarker(directory / "snapshots").read(),
        )
        first, last, term = journal.first_index, journal.last_index, journal.term
    except (RaftschedError, OSError) as error:
        violations.append(f"journal: {error}")
    return Report(identity.node_id, applied, job_count, first, last, term, tuple(violations))
