"""Copying the log to followers: what a leader sends, what a follower does with it, what the leader makes of the answer.

Overrides of pysyncobj's replication, each with the defect of PYSYNCOBJ.md that it mends:

    append_entries  2  stock cuts off entries that match, and were acknowledged, whenever an old or a repeated message
                       arrives; here the log is cut only at a real conflict, and never at or below the commit index.
                    7  stock answers a mismatch with its log's end and walks back one index a period, or livelocks with
                       messages in flight; here the hint is the commit index, below which all logs are equal.
    snapshots       1  stock takes over the leader's commit index with a piece of a snapshot, over a log that may differ,
                       and applies what was never committed; here only entries that matched raise it.
                    6  stock acknowledges a snapshot that failed to load; here only an installed one counts, and only up
                       to its own index (not up to the end of a log that may differ: "seed 100530").
                    -  "snapstale": stock lets an older snapshot replace a newer log; here what is covered is not
                       installed.
    next_node_idx   4  stock's answers carry no term, so that one from an earlier term counts (five nodes); here they do,
                       and a higher term ends this leadership.
                    -  "nextidx": stock's answers move the next index back; here only a refusal that fits does.
    send loop       8  stock spins while no piece of a snapshot is ready; here each follower is visited once.
                    9  stock splits large entries wrongly; here none is split.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import structlog
from pysyncobj.node import Node

from raftsched.consensus import messages
from raftsched.consensus.cluster_clock import ClusterClock
from raftsched.consensus.comparison import Comparing
from raftsched.consensus.disk_space import ClusterSpace, Space
from raftsched.consensus.lease import QuorumContact
from raftsched.consensus.membership import CONFIGURATION
from raftsched.consensus.messages import Message
from raftsched.consensus.ports import Entry, NodeId, Sizes
from raftsched.consensus.progress import Progress
from raftsched.consensus.recovery import DifferenceMark, FormedMark, InstallMarker, align
from raftsched.consensus.round_trips import RoundTrips
from raftsched.consensus.snapshots import (
    Received,
    SnapshotReceiver,
    SnapshotSender,
    Work,
    remove_leftovers,
)
from raftsched.consensus.stock import FOLLOWER
from raftsched.errors import InvariantBroken

_KINDS: Final = (b"\x00", b"\x01", CONFIGURATION)

_log = structlog.get_logger()


class Replication(Comparing):
    """Leader's and follower's halves of replication."""

    def __init__(
        self,
        *,
        snapshot_directory: Path,
        sizes: Sizes,
        cluster_clock: ClusterClock | None = None,
        space: ClusterSpace | None = None,
        **rest: Any,
    ) -> None:
        self.sizes = sizes
        remove_leftovers(snapshot_directory)
        self._marker = InstallMarker(snapshot_directory)
        align(rest["log"], rest["machine"], self._marker)
        self.progress: dict[NodeId, Progress] = {}
        self.cluster_clock = cluster_clock or ClusterClock(rest["clock"])
        self.space = space or ClusterSpace(rest["node_id"], rest["clock"])
        self.contact = QuorumContact((), promise_seconds=rest["timing"].election_min_seconds)
        self.round_trips = RoundTrips(rest["timing"])
        self.heard_leader = False
        self.leader_seen_at: float = rest["clock"].monotonic()
        """When a leader was last heard; a start counts as such, for what was promised before it (`lease.py`)."""
        self.sender = SnapshotSender(snapshot_directory, rest["machine"], rest["randomness"], sizes)
        self.receiver = SnapshotReceiver(snapshot_directory, rest["machine"])
        self._marked = True
        super().__init__(formed=FormedMark(snapshot_directory), difference=DifferenceMark(snapshot_directory), **rest)

    # -- both ---------------------------------------------------------------------------------------------------------

    def members_changed(self) -> None:
        """Count contact, clocks and progress of those who are members now."""
        super().members_changed()
        others = sorted(str(node.id) for node in self.other_nodes)
        self.contact.set_voters(others, counts_self=self.is_voter)
        self.cluster_clock.set_peers(others)
        self.round_trips.keep(set(others))
        self.space.set_voters(others, counts_self=self.is_voter)
        if not self.leads:
            return
        now = self.clock.monotonic()
        for peer, node in self.nodes.items():
            progress = self.progress.setdefault(peer, Progress(node, self.log.last_index + 1))
            self.match_index[node] = progress.match
            self.last_response.setdefault(node, now)

    def step_down(self, term: int) -> None:
        """Follow nobody, in `term`; no vote is given in it yet."""
        if term > self.term:
            self.set_term(term)
        self.leader_node = None
        self.set_state(FOLLOWER)
        self.election_deadline = self.clock.monotonic() + self.election_timeout()

    def _is_current(self, message: Message) -> bool:
        """Whether an answer is of this node's term; a higher term ends whatever this node is."""
        if message["term"] > self.term:
            self.step_down(message["term"])
        return bool(message["term"] == self.term)

    def take_work(self) -> Work | None:
        """Something for a thread, if there is any."""
        return self.sender.take_work() or self.receiver.take_work()

    def synced(self) -> None:
        super().synced()
        if self._marked:
            self._marker.clear()
            self._marked = False

    def checkpointed(self) -> None:
        """Cut the log behind the machine's checkpoint, less what slow followers and receivers of a snapshot may need."""
        super().checkpointed()
        log = self.log
        floor = min(self.machine.durable_index, log.index_before_bytes(self.sizes.tail_bytes))
        held = self._held_from(floor)
        if held < floor and held >= log.index_before_bytes(self.sizes.hold_bytes):
            floor = held
        if floor > log.first_index:
            log.compact_to(floor)

    def _held_from(self, floor: int) -> int:
        """Return from where on the log is held for a snapshot's receivers; `floor` if for nobody.

        A receiver needs what was written during the transfer until it has caught up, or it would need a snapshot again.
        """
        held = floor if self.sender.floor is None else min(floor, self.sender.floor)
        for progress in self.progress.values():
            progress.catching_up = progress.catching_up and progress.match < floor
            if progress.catching_up:
                held = min(held, progress.match)
        return held

    # -- follower -----------------------------------------------------------------------------------------------------

    def on_append(self, node: Node, message: Message) -> None:
        """Entries, a heartbeat or a probe of a leader."""
        if message["term"] < self.term:
            self._answer(node, message)
            return
        self._heard_leader(node, message["term"])
        self.cluster_clock.heard_leader(message["wall_ms"], round_trip_ms=message.get("round_trip_ms", 0))
        matched = self._append(message["prevLogIdx"], message["prevLogTerm"], message["entries"])
        if matched is None:
            rejected = message["prevLogIdx"]
            self._answer(node, message, reset=True, next_index=self.commit_index + 1, rejected=rejected)
            return
        self.leader_committed(min(message["commit_index"], matched))
        self._answer(node, message, success=True, next_index=matched + 1)

    def _heard_leader(self, node: Node, term: int) -> None:
        """Follow the leader of `term`, in pysyncobj's words: an empty message that can't raise the commit index."""
        if term == self.term and self.leads:
            raise InvariantBroken(f"{node.id} and this node both lead term {term}")
        self.stock_message(node, {"type": messages.APPEND, "term": term, "commit_index": 0})
        self.vote_for_first_leader(node)
        self.leader_seen_at = self.clock.monotonic()
        self.heard_leader = True
        space = self.space.report_due(node.id)
        if space is not None:
            told = {"free_bytes": space.free_bytes, "reserve_bytes": space.reserve_bytes, "low": space.is_low}
            self.transport.send(node, {"type": messages.DISK_SPACE, **told})

    def _append(self, previous: int, previous_term: int, entries: Sequence[Entry]) -> int | None:
        """Make the log hold `entries` after `previous`; return the last index known to match, None on a mismatch."""
        log = self.log
        first, last = log.first_index, log.last_index
        if previous > last:
            return None
        matched = previous + len(entries)
        if previous < first:
            # Our first entry and all before it are committed, so every leader's log holds the same there.
            entries = entries[first - previous :]
        elif log.term_at(previous) != previous_term:
            return None
        for position, (_, index, term) in enumerate(entries):
            if index > last or log.term_at(index) != term:
                self._replace_tail(entries[position:])
                break
        return matched

    def _replace_tail(self, entries: Sequence[Entry]) -> None:
        log = self.log
        start = entries[0][1]
        if start <= log.last_index:
            self._cut(start)
        for command, index, term in entries:
            if command[:1] not in _KINDS:
                raise InvariantBroken(f"the leader sent entry {index} of the unknown kind {command[:1]!r}")
            log.add(command, index, term)
            if command[:1] == CONFIGURATION:
                self.configuration_added(index, command[1:])

    def _cut(self, start: int) -> None:
        """Drop the entries from `start` on: they conflict with the leader's, so they were never committed."""
        if start <= self.commit_index:
            raise InvariantBroken(f"the leader's log differs from committed entry {start}")
        log = self.log
        log.deleteEntriesFrom(start - log.first_index)
        self.durable_index = min(self.durable_index, start - 1)
        self.configurations_cut(start)

    def _answer(
        self,
        node: Node,
        message: Message,
        *,
        success: bool = False,
        reset: bool = False,
        next_index: int = 0,
        rejected: int = 0,
    ) -> None:
        self.transport.send(
            node,
            {
                "type": messages.APPEND_ACK,
                "term": self.term,
                "success": success,
                "reset": reset,
                "next_node_idx": next_index,
                "rejected": rejected,
                "sent_us": message["sent_us"],
                "wall_ms": self.clock.wall_ms(),
            },
        )

    # -- follower: snapshots ------------------------------------------------------------------------------------------

    def on_chunk(self, node: Node, message: Message) -> None:
        """A piece of a snapshot."""
        if message["term"] < self.term:
            self._answer(node, message)
            return
        self._heard_leader(node, message["term"])
        self.cluster_clock.heard_leader(message["wall_ms"])
        if self._covers(message["index"], message["index_term"]):
            self._answer(node, message, success=True, next_index=message["index"] + 1)
            return
        offset = self.receiver.receive(message, self.leader_seen_at)
        if offset is None:
            return
        self.transport.send(
            node,
            {
                "type": messages.CHUNK_ACK,
                "term": self.term,
                "transfer": message["transfer"],
                "offset": offset,
                "sent_us": message["sent_us"],
                "wall_ms": self.clock.wall_ms(),
            },
        )

    def _covers(self, index: int, term: int) -> bool:
        """Whether this node has all that a snapshot as of (index, term) stands for: applied, or as a log that matches."""
        log = self.log
        return index <= self.applied_index or (index <= log.last_index and log.term_at(index) == term)

    def install_received(self) -> None:
        """Install a snapshot that came in whole, and tell the leader of the day up to where it brought us."""
        received = self.receiver.take_received()
        if received is None:
            return
        if self._covers(received.index, received.term):
            received.path.unlink()
        else:
            self._install(received)
        if self.leader_node is not None and not self.leads:
            no_contact: Message = {"sent_us": 0}
            self._answer(self.leader_node, no_contact, success=True, next_index=received.index + 1)

    def _install(self, received: Received) -> None:
        """The machine first, then the log; the marker explains at the next start if only the first came to be."""
        index, term = received.index, received.term
        self._marker.write(index, term)
        self._marked = True
        self.machine.install(received.path)
        if (self.machine.applied_index, self.machine.applied_term) != (index, term):
            raise InvariantBroken(f"the installed snapshot is at {self.machine.applied_index}, not at {index}")
        self.log.reset(index, term)
        self.applied_index = self.durable_index = index
        self.applied_bytes = 0
        self.leader_committed(index)
        self.proposals.skipped(index)
        self.snapshot_took_over()
        _log.info("snapshot_installed", index=index, term=term)

    # -- leader -------------------------------------------------------------------------------------------------------

    def start_leading(self) -> None:
        """Nothing is known of any follower; called when pysyncobj becomes leader, before its no-op."""
        self.record_incarnations()
        start = self.log.last_index + 1
        self.progress = {peer: Progress(node, start) for peer, node in sorted(self.nodes.items())}
        self.contact.forget()
        self.cluster_clock.start_leading()
        self.space.start_leading()

    def stop_leading(self, *, is_cut_off: bool) -> None:
        """End what a leader does; `is_cut_off` where a majority no longer answers."""
        self.progress = {}
        self.space.stop_leading()
        self.sender.stop_all()
        self.proposals.lost_leadership(self.clock.monotonic(), is_cut_off=is_cut_off)

    def replicate(self, *, heartbeat: bool) -> None:
        """Send each connected follower what it may get now; with `heartbeat`, something in any case."""
        now = self.clock.monotonic()
        if heartbeat:
            self.heartbeat_at = now + self.timing.heartbeat_seconds
        ready: dict[int, Message] = {}
        for progress in self.progress.values():
            if progress.node in self.connected_nodes:
                if heartbeat:
                    self._send_empty(progress, now)
                self._send_more(progress, ready, now)

    def _send_more(self, progress: Progress, ready: dict[int, Message], now: float) -> None:
        if progress.snapshotting:
            self._send_chunks(progress, now)
        elif not progress.probing:
            self._send_entries(progress, ready, now)

    def _send_entries(self, progress: Progress, ready: dict[int, Message], now: float) -> None:
        """Fill the window; followers that are equally far get the very same message, which is then encoded once."""
        log, node, in_flight = self.log, progress.node, progress.in_flight
        last = log.last_index
        while log.first_index < progress.next <= last and len(in_flight) < self.sizes.appends_in_flight:
            start = progress.next
            message = ready.get(start)
            if message is None:
                entries = log.entries(start, self.sizes.append_bytes)
                message = ready[start] = self._append_message(start - 1, entries, now)
            progress.next = message["entries"][-1][1] + 1
            in_flight.append(progress.next - 1)
            self.transport.send(node, message)

    def _send_empty(self, progress: Progress, now: float) -> None:
        """A heartbeat, which also asks whether the logs agree below `next`."""
        previous = max(progress.next - 1, self.log.first_index)
        self.transport.send(progress.node, self._append_message(previous, (), now))

    def _append_message(self, previous: int, entries: Sequence[Entry], now: float) -> Message:
        return {
            "type": messages.APPEND,
            "term": self.term,
            "commit_index": self.commit_index,
            "prevLogIdx": previous,
            "prevLogTerm": self.log.term_at(previous),
            "entries": entries,
            "sent_us": int(now * 1_000_000),
            "wall_ms": self.cluster_clock.told_ms(),
            "round_trip_ms": self.round_trips.longest_ms,
        }

    def on_append_ack(self, node: Node, message: Message) -> None:
        """A follower's answer to entries, a heartbeat, a probe or an installed snapshot."""
        if not self._is_current(message) or not self.leads:
            return
        progress = self.progress.get(node.id)
        if progress is None:
            return  # removed, and its links were dropped a moment ago
        self._heard_follower(node, message)
        if message["success"]:
            self._matched(progress, message["next_node_idx"] - 1)
        elif message["reset"]:
            self._refused(progress, message["rejected"], message["next_node_idx"])

    def on_disk_space(self, node: Node, message: Message) -> None:
        """A follower tells how full its disk is."""
        if self.leads and node.id in self.progress:
            self.space.heard(node.id, Space(message["free_bytes"], message["reserve_bytes"], is_low=message["low"]))

    def _heard_follower(self, node: Node, message: Message) -> None:
        """Count contact from when the message that is answered was sent (`lease.py`)."""
        sent_us = message["sent_us"]
        if not sent_us:
            return
        sent_at = sent_us / 1_000_000
        self.contact.answered(node.id, sent_at)
        self.measure_round_trip(node, sent_us)
        self.last_response[node] = max(self.last_response.get(node, sent_at), sent_at)
        self.cluster_clock.heard_peer(node.id, wall_ms=message["wall_ms"], sent_at=sent_at)

    def measure_round_trip(self, node: Node, sent_us: int) -> None:
        """A peer answered what this node sent at `sent_us`, 0 if that is not known."""
        if sent_us:
            now = self.clock.monotonic()
            self.round_trips.measured(str(node.id), now - sent_us / 1_000_000, now)

    def _matched(self, progress: Progress, index: int) -> None:
        if index > self.log.last_index:
            raise InvariantBroken(f"{progress.node.id} acknowledged entry {index}, which does not exist")
        progress.matched(index)
        self.match_index[progress.node] = progress.match
        if progress.snapshotting and progress.match >= self.log.first_index:
            progress.snapshotting, progress.catching_up = False, True
            self.sender.stop(progress.node.id)

    def _refused(self, progress: Progress, rejected: int, hint: int) -> None:
        """The follower's log differs at `rejected` and surely agrees below `hint`; stale refusals change nothing."""
        if progress.snapshotting or (progress.probing and rejected != max(progress.next - 1, self.log.first_index)):
            return
        if rejected <= progress.match:
            # It acknowledged this entry durably, and has it no more. Take back what is counted for it.
            _log.error("follower_lost_its_log", peer=progress.node.id, acknowledged=progress.match, lacks=rejected)
            progress.match = self.match_index[progress.node] = 0
        progress.probe(min(hint, rejected))
        now = self.clock.monotonic()
        if progress.next <= self.log.first_index:
            progress.snapshotting = True
            self.sender.start(progress.node.id, first_index=self.log.first_index, now=now)
        else:
            self._send_empty(progress, now)

    def agree_on_version(self) -> None:
        """As leader, write log entries in a later version from now on, if all who may get them can read it."""
        if self.versions.in_force >= self.versions.own:
            return
        linked = {str(node.id) for node in self.connected_nodes}
        others = (self.possible_members | linked) - {self.node_id}
        if self.versions.agree(others, self.contact.answered_at):
            _log.info("operations_upgraded", node=self.node_id, version=self.versions.in_force)
            self.members_changed()

    # -- leader: snapshots --------------------------------------------------------------------------------------------

    def _send_chunks(self, progress: Progress, now: float) -> None:
        peer = progress.node.id
        self.sender.start(peer, first_index=self.log.first_index, now=now)
        stamp = {"type": messages.CHUNK, "term": self.term, "sent_us": int(now * 1_000_000)}
        for chunk in self.sender.chunks(peer, now):
            self.transport.send(progress.node, {**chunk, **stamp, "wall_ms": self.cluster_clock.told_ms()})

    def on_chunk_ack(self, node: Node, message: Message) -> None:
        """A follower says how much of a snapshot it holds."""
        if not self._is_current(message) or not self.leads:
            return
        self._heard_follower(node, message)
        self.sender.acknowledged(node.id, message, self.clock.monotonic())
