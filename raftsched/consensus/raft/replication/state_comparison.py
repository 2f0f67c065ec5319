"""Compare this node's state with the others' by digests, exchanged at agreed places in the log.

Every node applies the same entries to the same state, so at one index all must have the same digest (`storage.seals`).
Memory that flips a bit, a disk that brings back an old page, or a release that applies something differently breaks that
and nothing else would tell.

    note      the digest as of an *agreed* index: each EVERY_ENTRIES entries, while idle the newest one every BEAT_SECONDS,
              and any that a peer has named first
    tell      each new note goes to every peer, and while idle the newest one again: messages may be lost
    judge     at one index, with the digests of the voters: if a majority of them agrees on another digest than this node
              has, this node is wrong; a voter with another one than the majority is wrong as well

A node that is wrong says so durably (`DifferenceMark`) and serves nothing more: it does not lead, so it is no source of
snapshots, answers no reads, and hands out no jobs. It still votes and acknowledges entries, since its log is sound: the
cluster loses no majority. The mark goes away with a state that another node has sent.

While no majority of the voters agrees, nobody can tell who is wrong: the log says that states differ, and all continue.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from math import inf
from typing import Final

import structlog
from pysyncobj.node import Node

from raftsched.consensus.journal.recovery import DifferenceMark
from raftsched.consensus.machine import StateMachine
from raftsched.consensus.ports import NodeId
from raftsched.consensus.raft.messages import Message
from raftsched.storage.store.port import REPLACE_THIS_NODE

EVERY_ENTRIES: Final = 256
"""About two seconds at full load. More often would cost more than the digest: the state must store what it holds back."""
BEAT_SECONDS: Final = 2.0
_NOTES_MAX: Final = 256
"""Digests kept for each node: a follower may be that many notes behind and is still compared."""
_DISPUTES_MIN: Final = 3

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Note:
    """The digest of a state as of a log index."""

    index: int
    digest: int


class _Notes(OrderedDict[int, int]):
    """The latest digests by index."""

    def add(self, note: Note) -> None:
        self[note.index] = note.digest
        while len(self) > _NOTES_MAX:
            self.popitem(last=False)


class StateComparison:
    """The digests of this node and its peers. It takes entries, messages and time, and returns the messages to send."""

    def __init__(self, node_id: NodeId, machine: StateMachine, mark: DifferenceMark) -> None:
        self._node_id = node_id
        self._machine = machine
        self._mark = mark
        self._notes: dict[NodeId, _Notes] = {node_id: _Notes()}
        self._awaited: set[int] = set()
        """Indexes that a peer has named and this node has not reached."""
        self._unsent: list[Note] = []
        self._beat_at = 0.0
        self._has_news = False
        self._disputed: tuple[NodeId, ...] = ()
        self.differing: frozenset[NodeId] = frozenset()
        """Voters whose state is known not to be that of the majority, this node perhaps among them."""
        self.difference = mark.read()
        """Return the reason why this node must not serve, for people; "" while it may."""
        if self.difference:
            _log.critical("state_differs", node=node_id, reason=self.difference)

    # -- notes --------------------------------------------------------------------------------------------------------

    def applied(self, index: int) -> None:
        """The machine has just applied the entry at `index`."""
        if index % EVERY_ENTRIES == 0 or index in self._awaited:
            self._note(index)

    def _note(self, index: int) -> None:
        own = self._notes[self._node_id]
        if index not in own:
            note = Note(index, self._machine.digest)
            own.add(note)
            self._unsent.append(note)
            self._has_news = True
        self._awaited.discard(index)

    @property
    def deadline(self) -> float:
        """Return the time at which `due` has a message although nothing was applied."""
        return self._beat_at if self._machine.applied_index else inf

    def due(self, now: float) -> list[Note]:
        """Return the message for every peer now."""
        if now < self._beat_at and not self._unsent:
            return []
        applied = self._machine.applied_index
        if now >= self._beat_at and applied:
            self._beat_at = now + BEAT_SECONDS
            self._note(applied)
            newest = Note(applied, self._notes[self._node_id][applied])
            if newest not in self._unsent:
                self._unsent.append(newest)
        notes, self._unsent = self._unsent[-_NOTES_MAX:], []
        return notes

    def on_digest(self, node: Node, message: Message) -> None:
        """Process the digest of a peer."""
        self.record(str(node.id), Note(message["index"], message["digest"]))

    def record(self, peer: NodeId, note: Note) -> None:
        """Record a peer's digest; it may be of an index that this node has not reached."""
        notes = self._notes.setdefault(peer, _Notes())
        if note.index > self._machine.applied_index and len(self._awaited) < _NOTES_MAX:
            self._awaited.add(note.index)
        notes.add(note)
        self._has_news = True

    def replaced(self) -> None:
        """The machine's state is another node's now, so nothing is known against it."""
        self._notes[self._node_id].clear()
        self._awaited.clear()
        self._unsent.clear()
        if self.difference:
            _log.warning("state_replaced", node=self._node_id)
        self.difference = ""
        self.differing -= {self._node_id}
        self._mark.clear()

    # -- judgement ----------------------------------------------------------------------------------------------------

    def judge(self, voters: Collection[NodeId]) -> None:
        """Compare at the newest index at which a majority agrees; sets `difference` and `differing`."""
        if not self._has_news:
            return
        self._has_news = False
        for peer in [peer for peer in self._notes if peer != self._node_id and peer not in voters]:
            del self._notes[peer]
        disputes: list[tuple[int, dict[NodeId, int]]] = []
        for index in reversed(self._notes[self._node_id]):
            said = {voter: self._notes[voter][index] for voter in sorted(voters) if index in self._notes.get(voter, ())}
            digest, count = Counter(said.values()).most_common(1)[0] if said else (0, 0)
            if 2 * count > len(voters):
                self._settle(index, said, digest)
                break
            if len(set(said.values())) > 1:
                disputes.append((index, said))
        # One or two may be settled by messages that are on their way.
        if len(disputes) >= _DISPUTES_MIN:
            self._dispute(*disputes[0])
        else:
            self._disputed = ()

    def _settle(self, index: int, said: dict[NodeId, int], digest: int) -> None:
        """Process the `digest` of a majority of the voters."""
        differing = frozenset(voter for voter, other in said.items() if other != digest)
        for peer in sorted(differing - self.differing - {self._node_id}):
            _log.error("member_differs", node=self._node_id, peer=peer, index=index, advice=REPLACE_THIS_NODE)
        self.differing = differing
        own = self._notes[self._node_id][index]
        if own == digest or self.difference:
            return
        agreed = ", ".join(sorted(voter for voter, other in said.items() if other == digest))
        self.difference = (
            f"this node's state as of log index {index} has the digest {own:016x}, but {agreed} have {digest:016x}: it "
            f"serves nothing more. {REPLACE_THIS_NODE}"
        )
        self._mark.write(self.difference)
        _log.critical("state_differs", node=self._node_id, reason=self.difference)

    def _dispute(self, index: int, said: dict[NodeId, int]) -> None:
        """Say once that states differ and nobody can tell whose is wrong."""
        members = tuple(sorted(said))
        if members != self._disputed:
            self._disputed = members
            digests = {voter: f"{said[voter]:016x}" for voter in members}
            advice = "a majority of the voters must be up to tell whose is wrong"
            _log.error("states_differ", node=self._node_id, index=index, digests=digests, advice=advice)

    @property
    def warning(self) -> str:
        """Return a warning for people although this node serves; "" if there is none."""
        if self._disputed:
            return f"the states of {', '.join(self._disputed)} differ, and too few voters are up to tell whose is wrong"
        others = sorted(self.differing - {self._node_id})
        return f"the state of {', '.join(others)} is not that of the majority: replace it" if others else ""
