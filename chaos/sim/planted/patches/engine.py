"""Planted into the engine, and found in clusters of bare engines too (`chaos.sim.engine`), by faults or by a directed test.

Random faults on 3 bare engines find most within 30 seeds; `cuts_what_matches` takes some hundreds,
`votes_against_its_promise` about a hundred. Directed tests alone find `forgets_its_promise_at_a_restart` (test_engine.py)
and `acknowledges_the_log_behind_a_snapshot` (test_snapshots.py), and most of those of the members (test_configuration.py,
test_peer_identity.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pysyncobj.node import Node

from raftsched.consensus.ports import Entry
from raftsched.consensus.raft import messages
from raftsched.consensus.raft.clocks.quorum_lease import QuorumContact
from raftsched.consensus.raft.engine import RaftEngine
from raftsched.consensus.raft.leadership.elections import Elections
from raftsched.consensus.raft.log.commit_index import CommitIndex
from raftsched.consensus.raft.log.proposals import DISCARDED, Proposals
from raftsched.consensus.raft.membership.configuration import Configuration
from raftsched.consensus.raft.membership.members import Membership
from raftsched.consensus.raft.membership.peer_identity import PeerIdentity
from raftsched.consensus.raft.messages import Message
from raftsched.consensus.raft.replication.follower import Follower
from raftsched.consensus.raft.replication.leader import Replication

Plant = Callable[[Any], None]
"""Takes pytest's monkeypatch, or anything with its `setattr`."""


def commits_before_the_sync(patch: Any) -> None:
    """The leader counts itself, and a follower applies, before anything is on disk (defect 3)."""

    def raise_to(self: CommitIndex, index: int) -> None:
        self._index = max(self._index, index)

    patch.setattr(CommitIndex, "raise_to", raise_to)


def cuts_what_matches(patch: Any) -> None:
    """The log is cut behind every message (defect 2)."""
    original = Follower._append

    def append(self: Follower, previous: int, previous_term: int, entries: Sequence[Entry]) -> int | None:
        log = self._log
        matches = log.first_index <= previous < log.last_index and log.term_at(previous) == previous_term
        if matches and previous >= self._commit.index:
            log.deleteEntriesFrom(previous + 1 - log.first_index)
        return original(self, previous, previous_term, entries)

    patch.setattr(Follower, "_append", append)


def pieces_of_snapshots_commit(patch: Any) -> None:
    """A piece of a snapshot raises the commit index to the end of whatever log is there (defect 1)."""
    original = Follower.on_chunk

    def on_chunk(self: Follower, node: Node, message: Message) -> None:
        original(self, node, message)
        self._commit.leader_committed(min(message["index"], self._log.last_index))

    patch.setattr(Follower, "on_chunk", on_chunk)


def acknowledges_the_log_behind_a_snapshot(patch: Any) -> None:
    """A snapshot that isn't needed is acknowledged with the end of a log that may differ (seed 100530)."""
    original = Follower._answer

    def answer(self: Follower, node: Node, message: Message, **values: Any) -> None:
        if message.get("type") == messages.CHUNK and values.get("success"):
            values["next_index"] = self._log.last_index + 1
        original(self, node, message, **values)

    patch.setattr(Follower, "_answer", answer)


def counts_contact_from_the_answer(patch: Any) -> None:
    """The leader believes that it was followed when it looks at an answer, not when it asked."""
    original = Replication._record_contact

    def record_contact(self: Replication, node: Node, message: Message) -> None:
        original(self, node, {**message, "sent_us": int(self._clock.monotonic() * 1_000_000)})

    patch.setattr(Replication, "_record_contact", record_contact)


def votes_against_its_promise(patch: Any) -> None:
    """A follower that has a leader votes for others."""
    patch.setattr(Elections, "_leader_is_alive", lambda self: self._core.leads)


def forgets_its_promise_at_a_restart(patch: Any) -> None:
    original = Elections.__init__

    def init(self: Elections, *arguments: Any, **values: Any) -> None:
        original(self, *arguments, **values)
        self.leader_seen_at = -1e9

    patch.setattr(Elections, "__init__", init)


def serves_during_a_transfer(patch: Any) -> None:
    """The old leader continues with reads after it asked another node to take over."""
    patch.setattr(RaftEngine, "takes_proposals", property(lambda self: self.leads))
    patch.setattr(
        RaftEngine,
        "is_leading",
        property(lambda self: self.leads and self.applied_index >= (self.core.no_op_index or 0)),
    )


def reads_without_contact(patch: Any) -> None:
    """Whoever thinks that it leads serves reads."""
    patch.setattr(QuorumContact, "is_fresh", lambda _self, _now: True)


def calls_unknown_outcomes_failures(patch: Any) -> None:
    """A caller gets "certainly not" as soon as the leader changes."""

    def lost(self: Proposals, _now: float, *, is_cut_off: bool) -> None:
        for waiting in self._by_index.values():
            for proposal in waiting:
                proposal.answer(None, DISCARDED)
        self._by_index.clear()

    patch.setattr(Proposals, "lost_leadership", lost)


def votes_twice(patch: Any) -> None:
    """A vote is forgotten at once."""
    original = Elections.on_vote_request

    def request(self: Elections, node: Node, message: Message) -> None:
        self._core.voted_for = None
        original(self, node, message)

    patch.setattr(Elections, "on_vote_request", request)


def applies_before_matching(patch: Any) -> None:
    """A follower takes the leader's commit index over for entries that it does not know to match."""
    original = Follower.on_append

    def on_append(self: Follower, node: Node, message: Message) -> None:
        original(self, node, message)
        if message["term"] == self._following.term:
            self._commit.leader_committed(min(message["commit_index"], self._log.last_index))

    patch.setattr(Follower, "on_append", on_append)


# -- who belongs to the cluster ---------------------------------------------------------------------------------------


def changes_members_while_a_change_is_open(patch: Any) -> None:
    """A change is taken before the one before is committed (defect 11)."""
    patch.setattr(Configuration, "_is_changeable", property(lambda self: self._has_committed_in_term))


def changes_members_before_committing(patch: Any) -> None:
    """A new leader changes members before it has committed anything (the error of 2015)."""
    patch.setattr(Configuration, "_has_committed_in_term", property(lambda _self: True))


def keeps_a_configuration_that_was_cut(patch: Any) -> None:
    patch.setattr(Configuration, "cut", lambda _self, _start: None)


def goes_by_the_config_file_at_a_restart(patch: Any) -> None:
    """The config file wins over the log and the state (case R08)."""
    patch.setattr(Configuration, "load", lambda self: self._adopt())


def counts_nodes_that_join(patch: Any) -> None:
    """Whoever is in the configuration counts as a voter."""
    patch.setattr(Membership, "voters", property(lambda self: frozenset(self.ids)))


def counts_itself_where_it_does_not_vote(patch: Any) -> None:
    patch.setattr(Configuration, "commit", lambda self, index: self._commit.raise_to(index))


def takes_part_with_an_empty_disk(patch: Any) -> None:
    """A node whose disk was emptied votes and is a candidate, and its peers don't mind."""
    patch.setattr(PeerIdentity, "takes_part", property(lambda _self: True))
    patch.setattr(PeerIdentity, "accepts", lambda _self, _node: True)


def takes_any_disk_for_a_members(patch: Any) -> None:
    """Peers talk to a node whose disk is not the one that is recorded."""

    def judge(self: PeerIdentity, node: Node) -> None:
        if node not in self._voter.connected_nodes:
            self._voter.connected_nodes.add(node)
            self._on_identified(node)

    patch.setattr(PeerIdentity, "_judge", judge)


def stands_at_once_where_it_is_the_last_voter(patch: Any) -> None:
    """A restarted node that finds only itself in its log is a candidate at once, against its promise (members seed 1189)."""
    original = RaftEngine.__init__

    def init(self: RaftEngine, *arguments: Any, **values: Any) -> None:
        original(self, *arguments, **values)
        if not self.core.other_nodes:
            self.core.election_deadline = 0.0

    patch.setattr(RaftEngine, "__init__", init)
