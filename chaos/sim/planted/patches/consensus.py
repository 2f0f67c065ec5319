"""Planted into elections, replication, snapshots and the answers of proposals."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

from pysyncobj.node import Node

from raftsched.consensus.net import framing
from raftsched.consensus.ports import COMMAND, Entry
from raftsched.consensus.raft.engine import RaftEngine
from raftsched.consensus.raft.leadership.elections import Elections
from raftsched.consensus.raft.log.apply_queue import ApplyQueue
from raftsched.consensus.raft.log.progress import Progress
from raftsched.consensus.raft.log.proposals import Proposals
from raftsched.consensus.raft.messages import APPEND, VOTE_REQUEST, Message
from raftsched.consensus.raft.pysyncobj_adapter import RaftCore
from raftsched.consensus.raft.replication import snapshots
from raftsched.consensus.raft.replication.follower import Follower
from raftsched.consensus.raft.replication.leader import Replication


def loses_a_piece_of_a_snapshot(patch: Any) -> None:
    """One piece is not written, and nobody compares what came with what was sent."""
    original = snapshots.SnapshotReceiver._take  # noqa: SLF001  # what is patched

    def take(self: snapshots.SnapshotReceiver, chunk: Message) -> int:
        data = chunk["data"]
        spoiled = bytes(len(data)) if chunk["offset"] else data
        return original(self, {**chunk, "data": spoiled})

    patch.setattr(snapshots.SnapshotReceiver, "_take", take)
    patch.setattr(snapshots, "_checksum", lambda path: (path.stat().st_size, 0))


def installs_what_is_covered(patch: Any) -> None:
    """An older snapshot replaces a newer log."""
    patch.setattr(Follower, "_covers", lambda _self, _index, _term: False)


def believes_old_answers(patch: Any) -> None:
    """An acknowledgement of an earlier term counts."""

    def is_current(self: RaftCore, message: Message) -> bool:
        if message["term"] > self.term:
            self.step_down(message["term"])
        return True

    patch.setattr(RaftCore, "is_current", is_current)


def counts_votes_twice(patch: Any) -> None:
    """A voter counts as often as it answers, of whatever term."""

    def on_vote(self: Elections, node: Node, message: Message) -> None:
        self._core.stock_message(node, {**message, "term": self._core.term})

    patch.setattr(Elections, "on_vote", on_vote)


def never_walks_back(patch: Any) -> None:
    """A refusal doesn't move the leader behind the mismatch."""
    original = Replication._refused  # noqa: SLF001  # what is patched

    def refused(self: Replication, progress: Any, rejected: int, hint: int) -> None:
        original(self, progress, rejected, hint)
        progress.next = rejected + 1

    patch.setattr(Replication, "_refused", refused)


def answers_by_index_alone(patch: Any) -> None:
    """A proposal is answered by whatever entry is at its index."""
    original = Proposals.applied

    def applied(self: Proposals, index: int, _term: int, result: object) -> None:
        for waiting in self._by_index.get(index, ()):
            original(self, index, waiting.term, result)

    patch.setattr(Proposals, "applied", applied)


def applies_again_where_an_answer_fails(patch: Any) -> None:
    """An entry whose caller can't be answered is applied once more."""
    original = ApplyQueue._apply  # noqa: SLF001  # what is patched

    def apply(self: ApplyQueue, command: bytes, index: int, term: int) -> object:
        result = original(self, command, index, term)
        if index % 8 == 0 and self._takes_proposals() and command[:1] == COMMAND:
            self._machine.apply(index, term, command[1:])
        return result

    patch.setattr(ApplyQueue, "_apply", apply)


def stops_at_large_entries(patch: Any) -> None:
    """A follower never gets an entry whole that is larger than a message is meant to be."""
    original = RaftEngine.__init__

    def init(self: RaftEngine, *arguments: Any, **values: Any) -> None:
        original(self, *arguments, **values)
        on_append = self._handlers[APPEND]

        def drop_large(node: Node, message: Message) -> None:
            if all(len(command) < self.ports.sizes.append_bytes for command, _, _ in message["entries"]):
                on_append(node, message)

        self._handlers[APPEND] = drop_large

    patch.setattr(RaftEngine, "__init__", init)


def acknowledges_what_it_did_not_install(patch: Any) -> None:
    """A snapshot counts as installed, whatever becomes of it."""
    patch.setattr(Follower, "_install", lambda _self, received: received.path.unlink())


def spins_while_a_copy_is_made(patch: Any) -> None:
    """While there is no piece to send, something empty is sent, again and again."""
    original = Replication._send_chunks  # noqa: SLF001  # what is patched

    def send(self: Replication, progress: Progress, now: float) -> None:
        original(self, progress, now)
        total = self._sender.progress(progress.node.id)
        for _ in range(20 if total is not None and not total[1] else 0):
            self._send_empty(progress, now)

    patch.setattr(Replication, "_send_chunks", send)


def moves_back_with_each_answer(patch: Any) -> None:
    """Entries in flight are sent again with each answer to what was sent before."""
    original = Progress.matched

    def matched(self: Progress, index: int) -> None:
        original(self, index)
        self.next = index + 1

    patch.setattr(Progress, "matched", matched)


def stands_without_asking(patch: Any) -> None:
    """A follower that receives nothing raises its term at once, without a pre-vote."""

    def stand(self: Elections, now: float) -> None:
        core = self._core
        if not core.leads and self.may_campaign and self._identity.takes_part and core.election_deadline <= now:
            core.election_deadline = 0.0

    patch.setattr(Elections, "campaign_if_due", stand)


def takes_pickled_commands(patch: Any) -> None:
    """Whoever reaches the port of the nodes has a command unpickled and put into the log."""
    original = RaftEngine.on_message
    shapes = {**framing.MESSAGE_SHAPES, "apply_command": framing.Shape({"command": framing.blob})}

    def on_message(self: RaftEngine, node: Node, message: Message) -> None:
        if message["type"] != "apply_command":
            original(self, node, message)
        elif self.leads:
            self.propose(pickle.loads(message["command"]), lambda _result, _reason: None)

    patch.setattr(framing, "MESSAGE_SHAPES", shapes)
    patch.setattr(RaftEngine, "on_message", on_message)


def commits_entries_of_earlier_terms(patch: Any) -> None:
    """An entry counts as committed once a majority holds it, whatever its term (Raft paper §5.4.2, figure 8)."""
    original = RaftEngine.step

    def step(self: RaftEngine) -> None:
        core, commit = self.core, self.commit
        if core.leads:
            held = sorted((commit.durable_index, *(core.match_index[node] for node in core.other_nodes)), reverse=True)
            self.configuration.commit(held[len(held) // 2])
        original(self)

    patch.setattr(RaftEngine, "step", step)


def keeps_its_promise_in_pre_votes_only(patch: Any) -> None:
    """A voter asked for the vote itself forgets what it promised a live leader."""

    def on_vote_request(self: Elections, node: Node, message: Message) -> None:
        if self._identity.takes_part:
            self._core.stock_message(node, message)

    patch.setattr(Elections, "on_vote_request", on_vote_request)


def votes_for_shorter_logs(patch: Any) -> None:
    """A voter asked for the vote itself does not look at the length of the candidate's log."""
    _spoil_vote_requests(patch, lambda _self, message: {**message, "last_log_index": 1 << 60})


def votes_for_older_logs(patch: Any) -> None:
    """A voter asked for the vote itself does not look at the term in which the candidate's log ends."""

    def spoil(self: Elections, message: Message) -> Message:
        own_term = self._log.term_at(self._log.last_index)
        return {**message, "last_log_term": max(own_term, message["last_log_term"])}

    _spoil_vote_requests(patch, spoil)


def _spoil_vote_requests(patch: Any, spoil: Callable[[Elections, Message], Message]) -> None:
    original = Elections.on_vote_request

    def on_vote_request(self: Elections, node: Node, message: Message) -> None:
        original(self, node, spoil(self, message))

    patch.setattr(Elections, "on_vote_request", on_vote_request)


def stands_by_force_ever_after(patch: Any) -> None:
    """Once a leader has transferred to it, a node breaks the others' promises each time it is a candidate."""
    original = Elections.outgoing

    def outgoing(self: Elections, node: Node, message: Message) -> bool:
        if message["type"] == VOTE_REQUEST and self._forced_term:
            self._forced_term = message["term"]
        return original(self, node, message)

    patch.setattr(Elections, "outgoing", outgoing)


def installs_what_the_log_has_passed(patch: Any) -> None:
    """A snapshot that was found to be right is installed, whatever the log has got meanwhile."""

    def install_received(self: Follower) -> None:
        received = self._receiver.take_received()
        if received is None:
            return
        self._install(received)
        leader = self._following.leader_node
        if leader is not None and not self._following.leads:
            self._answer(leader, {"sent_us": 0}, success=True, next_index=received.index + 1)

    patch.setattr(Follower, "install_received", install_received)


def skips_an_entry_behind_the_logs_start(patch: Any) -> None:
    """Of entries that begin before the log, one more is dropped than the log's base covers."""
    original = Follower._append  # noqa: SLF001  # what is patched

    def append(self: Follower, previous: int, previous_term: int, entries: Sequence[Entry]) -> int | None:
        surplus = self._log.first_index - previous
        if surplus <= 0:
            return original(self, previous, previous_term, entries)
        kept = entries[surplus + 1 :]
        start = previous + surplus + 1
        for position, (_, index, term) in enumerate(kept):
            if index > self._log.last_index or self._log.term_at(index) != term:
                self._replace_tail(kept[position:])
                break
        return max(previous + len(entries), start)

    patch.setattr(Follower, "_append", append)


def sends_no_snapshot_for_the_logs_first_entry(patch: Any) -> None:
    """A follower that lacks the log's first entry, and none before it, is asked again and again what it has."""
    original = Replication._refused  # noqa: SLF001  # what is patched

    def refused(self: Replication, progress: Progress, rejected: int, hint: int) -> None:
        if min(hint, rejected) != self._log.first_index:
            original(self, progress, rejected, hint)
            return
        progress.probe(self._log.first_index)

    patch.setattr(Replication, "_refused", refused)
