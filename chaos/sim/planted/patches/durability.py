"""Planted into what keeps promises over a crash: the journal, the state, and the order between the two."""

from __future__ import annotations

from typing import Any

import msgspec

from chaos.sim.network.links import SimulatedTransport
from raftsched.consensus import machine as machine_module
from raftsched.consensus.journal import journal as journal_module
from raftsched.consensus.journal import segments
from raftsched.consensus.journal.journal import Journal
from raftsched.consensus.journal.recovery import InstallMarker
from raftsched.consensus.raft.engine import RaftEngine
from raftsched.consensus.raft.log.commit_index import CommitIndex
from raftsched.consensus.raft.replication.follower import Follower
from raftsched.consensus.raft.replication.leader import Replication
from raftsched.consensus.raft.replication.snapshots import Received
from raftsched.disk import DiskFailed
from raftsched.storage import state as state_module
from raftsched.storage.store.memory_store import MemoryStore
from raftsched.storage.store.port import Table
from raftsched.storage.tables.position import Position, write_position


def answers_before_the_sync(patch: Any) -> None:
    original = SimulatedTransport.flush
    patch.setattr(
        SimulatedTransport, "flush", lambda self, *, early: original(self, early=early and self.node_id == "")
    )


def no_fsync(patch: Any) -> None:
    patch.setattr(Journal, "datasync", lambda _self: None)


def starts_without_its_journal(patch: Any) -> None:
    """The register of the newest segment is not looked at: what is left counts as the whole journal."""
    patch.setattr(journal_module, "require_newest", lambda _disk, _newest: None)


def goes_on_after_a_failed_sync(patch: Any) -> None:
    original = Journal.datasync

    def datasync(self: Journal) -> None:
        try:
            original(self)
        except DiskFailed:
            self._failure = None

    patch.setattr(Journal, "datasync", datasync)


def commits_alone(patch: Any) -> None:
    """The leader answers as soon as its own disk has the entry."""
    original = RaftEngine.synced

    def synced(self: RaftEngine) -> None:
        original(self)
        if self.leads:
            self.commit._index = self.commit.durable_index  # noqa: SLF001  # what no port offers

    patch.setattr(RaftEngine, "synced", synced)


def forgets_votes_at_a_restart(patch: Any) -> None:
    def set_term(self: Journal, term: int, voted: str | None) -> None:
        self._term, self._voted = term, voted

    patch.setattr(Journal, "setCurrentTerm", set_term)


def cuts_the_log_before_the_checkpoint(patch: Any) -> None:
    original = Replication.compact

    def compact(self: Replication) -> None:
        original(self)
        self._log.compact_to(self._commit.index)

    patch.setattr(Replication, "compact", compact)
    patch.setattr(machine_module.ReplicatedState, "checkpoint", lambda self: self.state.durable_index)


def restores_a_commit_index(patch: Any) -> None:
    """A node that starts takes its whole log for committed."""
    original = CommitIndex.__init__

    def init(self: CommitIndex, **values: Any) -> None:
        original(self, **values)
        self._index = max(1, self.durable_index)

    patch.setattr(CommitIndex, "__init__", init)


def ignores_checksums(patch: Any) -> None:
    """A record is believed whatever its checksum says."""
    patch.setattr(segments, "crc32", lambda _data, _value=0: 0)


def writes_no_marker(patch: Any) -> None:
    patch.setattr(InstallMarker, "write", lambda _self, _index, _term: None)


def removes_the_marker_too_early(patch: Any) -> None:
    """The marker of an installation is gone once the state is replaced, before the log on disk says the same."""
    original = Follower._install  # noqa: SLF001  # what is patched

    def install(self: Follower, received: Received) -> None:
        original(self, received)
        self._marker.clear()

    patch.setattr(Follower, "_install", install)


def cuts_the_log_one_entry_too_far(patch: Any) -> None:
    """Behind a checkpoint the log begins with the first entry that the checkpoint doesn't hold."""
    original = Journal.compact_to
    patch.setattr(Journal, "compact_to", lambda self, index: original(self, index + 1))


def applies_again_after_a_restart(patch: Any) -> None:
    """The state's position is one entry behind its contents."""
    original = write_position

    def write(store: Any, position: Position) -> None:
        original(store, msgspec.structs.replace(position, applied_index=max(0, position.applied_index - 1)))

    patch.setattr(state_module, "write_position", write)


def goes_on_with_a_full_disk(patch: Any) -> None:
    """A write that was done in part is done again behind its own remains."""
    original = Journal.write

    def write(self: Journal) -> None:
        try:
            original(self)
        except DiskFailed:
            self._failure = None
            original(self)

    patch.setattr(Journal, "write", write)


def compacts_in_place(patch: Any) -> None:
    """The log is emptied, and what is to stay is written again behind it."""

    def compact_to(self: Journal, index: int) -> None:
        kept = self.entries(min(index, self.last_index), 1 << 30)
        self.clear()
        self.sync()
        for command, kept_index, term in kept:
            self.add(command, kept_index, term)

    patch.setattr(Journal, "compact_to", compact_to)


def leaves_a_table_out_of_copies(patch: Any) -> None:
    """A snapshot lacks the payloads."""
    original = MemoryStore._committed_image  # noqa: SLF001  # what is patched

    def image(self: MemoryStore) -> Any:
        return {**original(self), Table.PAYLOADS.name: []}

    patch.setattr(MemoryStore, "_committed_image", image)
