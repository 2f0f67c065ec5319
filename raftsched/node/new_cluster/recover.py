"""Make a new cluster of one node that is left, offline: its majority is lost for good.

Theory of operation. The node's state and its whole journal are copied and applied into `UNFINISHED` first; its data is only
read. All entries of the journal count, also those that it does not know to be committed: any of them may have been
acknowledged. Entries that only lost nodes held are lost.

Then the directories change places: the old ones move to `BEFORE`, and stay there until a person removes them. The old
`node.json` moves first and the new one last, so a node never starts on a mixture. A recovery that was interrupted between
the two is finished by the next call.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from raftsched import limits
from raftsched.consensus.journal.log_table import LogTable
from raftsched.consensus.journal.recovery import DifferenceMark, InstallMarker, check_start
from raftsched.consensus.journal.replay import recover as read_journal
from raftsched.consensus.journal.segment_files import read_entries
from raftsched.consensus.machine import ReplicatedState
from raftsched.consensus.ports import COMMAND, CONFIGURATION, Entry
from raftsched.consensus.raft.membership.members import Member, Membership, recorded_membership
from raftsched.core.records.texts import time_text
from raftsched.disk import SystemDisk, make_directory, sync_directory
from raftsched.encryption.cipher import Cipher
from raftsched.node.identity import NODE_FILE, PARTS, UNFINISHED, DirectoryClaim, WrongDirectory, read_identity
from raftsched.node.new_cluster.founder import Founded, Founder, found, require_sound, require_valid
from raftsched.storage.directory import holds_state, open_readonly
from raftsched.storage.store.lmdb_store import DATA_FILE

BEFORE: Final = "before-recovery"
"""Directory within the data directory that keeps the old data."""
_READ_BYTES: Final = 4 * 1024 * 1024


class Survivor(msgspec.Struct, frozen=True, kw_only=True):
    """Describe the node that is left."""

    cluster: str
    node_id: str
    last_index: int
    """Index of the last entry that it holds."""
    last_term: int
    applied_index: int
    """Index of the last entry in its state; it knew all entries up to here to be committed."""
    cluster_time: str
    """Time of the last entry in its state."""
    others: tuple[str, ...]
    """The other members, as far as it knows."""
    is_voter: bool
    """False if it was removed, or had not joined yet: then the others may have more."""
    raft: str
    api: str


class _Data:
    """The data of the stopped node; nothing of it is changed."""

    def __init__(self, directory: Path, cipher: Cipher) -> None:
        """Raises as a start of the node does if the data is lost or damaged."""
        self.directory = directory
        self.cipher = cipher
        self.identity = read_identity(directory)
        self.disk = SystemDisk(directory / "journal", create=False)
        if reason := DifferenceMark(directory / "snapshots").read():
            raise WrongDirectory(f"{directory} must not be recovered: {reason}. Recover another node that is left")
        self.state_directory = directory / "state"
        self.applied, self.members, self.cluster_time = (0, 0), Membership(()), ""
        if holds_state(self.state_directory):
            self._read_state()
        check_start(
            self.disk,
            newest=self.identity.journal,
            applied=self.applied,
            installing=InstallMarker(directory / "snapshots").read(),
            cipher=cipher,
        )
        recovered = read_journal(self.disk, cache_bytes=0, cipher=cipher)
        self.log: LogTable = recovered.table
        self._require_log()

    def _read_state(self) -> None:
        state = open_readonly(self.state_directory, self.cipher)
        state.close()
        self.applied = (state.applied_index, state.applied_term)
        self.cluster_time = time_text(state.cluster_time_ms)
        if state.configuration is not None:
            self.members = recorded_membership(state.configuration.content)

    def _require_log(self) -> None:
        if self.applied == (0, 0) and self.log.first > 1:
            raise WrongDirectory(
                f"{self.directory} holds no state, and its journal begins at index {self.log.first}, so the state can't be made "
                "again: recover another node, or restore a backup"
            )
        if self.last[0] <= 1:
            raise WrongDirectory(f"{self.directory} holds nothing yet: there is nothing to recover")

    @property
    def last(self) -> tuple[int, int]:
        """Return (index, term) of the last entry that the node holds."""
        if not len(self.log) or self.log.last <= self.applied[0]:
            return self.applied
        return self.log.last, self.log.term(len(self.log) - 1)

    def entries(self) -> Iterator[Entry]:
        """Yield the entries behind the state."""
        index = self.applied[0] + 1
        while index <= self.log.last:
            start = index - self.log.first
            stop = self.log.stop_within(start, _READ_BYTES)
            yield from read_entries(self.disk, self.log, start, stop, self.cipher)
            index = self.log.first + stop

    def latest_members(self) -> Membership:
        """Return the members by the last entry that names them."""
        members = self.members
        for command, _, _ in self.entries():
            if command[:1] == CONFIGURATION:
                members = recorded_membership(command[1:])
        return members


def is_interrupted(directory: Path) -> bool:
    """Return whether an earlier recovery was interrupted when nothing was left to do but to move directories."""
    has_old, has_new = (directory / BEFORE / NODE_FILE).exists(), (directory / UNFINISHED / NODE_FILE).exists()
    return not (directory / NODE_FILE).exists() and has_old and has_new


def survey(directory: Path, cipher: Cipher) -> Survivor:
    """Return what a stopped node holds; changes nothing.

    Raises `WrongDirectory` while it runs, or if it holds nothing to recover, `KeyMissing`, and what a start raises for data
    that is lost or damaged.
    """
    identity = read_identity(directory)
    claim = DirectoryClaim(directory, node_id=identity.node_id, cluster=identity.cluster, keys=cipher.keys)
    try:
        data = _Data(directory, cipher)
        members = data.latest_members()
    finally:
        claim.release()
    own = members.member(identity.node_id) or Member(identity.node_id, is_voter=False)
    return Survivor(
        cluster=identity.cluster,
        node_id=identity.node_id,
        last_index=data.last[0],
        last_term=data.last[1],
        applied_index=data.applied[0],
        cluster_time=data.cluster_time,
        others=tuple(member for member in members.ids if member != identity.node_id),
        is_voter=own.is_voter,
        raft=own.raft,
        api=own.api,
    )


def recover(directory: Path, founder: Founder, cipher: Cipher, now_ms: int) -> Founded:
    """Make the stopped node of `directory` the only node of a new cluster, with all that it holds.

    The old data stays in `BEFORE` within the directory. It needs as much free space as the state takes. Raises as
    `survey`, `Invalid` for a name, an address or a clock that is wrong, and OSError; the node's data is as before then.
    """
    identity = read_identity(directory)
    require_valid(founder, identity.cluster)
    if (directory / BEFORE).exists():
        raise WrongDirectory(f"{directory / BEFORE} exists: move the data of the earlier recovery elsewhere first")
    claim = DirectoryClaim(directory, node_id=identity.node_id, cluster=identity.cluster, keys=cipher.keys)
    try:
        unfinished = directory / UNFINISHED
        shutil.rmtree(unfinished, ignore_errors=True)
        try:
            founded = _prepare(_Data(directory, cipher), unfinished, founder, now_ms)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        make_directory(directory / BEFORE)
        (directory / NODE_FILE).rename(directory / BEFORE / NODE_FILE)
        sync_directory(directory / BEFORE)
        sync_directory(directory)
        finish(directory)
        return founded
    finally:
        claim.release()


def finish(directory: Path) -> None:
    """Move the old parts to `BEFORE` and the new ones to their places; a repeat continues after an interruption."""
    unfinished, before = directory / UNFINISHED, directory / BEFORE
    for part in PARTS:
        if not (unfinished / part).exists():
            continue
        if (directory / part).exists():
            (directory / part).rename(before / part)
            sync_directory(before)
        (unfinished / part).rename(directory / part)
        sync_directory(directory)
    (unfinished / NODE_FILE).rename(directory / NODE_FILE)
    sync_directory(directory)
    unfinished.rmdir()


def _prepare(data: _Data, unfinished: Path, founder: Founder, now_ms: int) -> Founded:
    """Make the new directory, whole and checked."""
    cipher = data.cipher
    claim = DirectoryClaim(unfinished, node_id=founder.node_id, cluster=founder.cluster, keys=cipher.keys)
    try:
        for key in (*data.identity.keys, *cipher.checks[:1]):
            claim.need_key(key)
        make_directory(unfinished / "state")
        if data.applied != (0, 0):
            state = open_readonly(data.state_directory, cipher)
            try:
                state.copy_to(unfinished / "state" / DATA_FILE)
            finally:
                state.close()
        _apply(data, unfinished / "state")
        founded = found(claim, unfinished, founder, cipher, now_ms)
    finally:
        claim.release()
    require_sound(unfinished, cipher)
    return founded


def _apply(data: _Data, state: Path) -> None:
    """Apply the entries behind the state."""
    machine = ReplicatedState(state, map_bytes=limits.MAP_BYTES, cipher=data.cipher)
    try:
        applied_bytes = 0
        for command, index, term in data.entries():
            if command[:1] == CONFIGURATION:
                machine.configure(index, term, command[1:])
            else:
                machine.apply(index, term, command[1:] if command[:1] == COMMAND else None)
            applied_bytes += len(command)
            if applied_bytes >= limits.CHECKPOINT_BYTES:
                machine.checkpoint()
                applied_bytes = 0
        machine.checkpoint()
    finally:
        machine.state.close()
