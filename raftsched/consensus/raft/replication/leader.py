"""Replicate the log as leader: send messages to followers, and process their answers.

Replaces pysyncobj's half, each part with the defect of PYSYNCOBJ.md that it fixes:

    next_node_idx   4  stock's answers carry no term, so that one from an earlier term counts (five nodes); here they do,
                       and a higher term ends this leadership.
                    -  "nextidx": stock's answers move the next index back; here only a refusal that fits does.
    send loop       8  stock spins while no piece of a snapshot is ready; here each follower is visited once.
                    9  stock splits large entries wrongly; here none is split.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import structlog
from pysyncobj.node import Node

from raftsched.consensus.disk_space import Space
from raftsched.consensus.ports import Entry, NodeId
from raftsched.consensus.raft import messages
from raftsched.consensus.raft.clocks.measurements import Measurements
from raftsched.consensus.raft.engine_ports import EnginePorts
from raftsched.consensus.raft.log.commit_index import CommitIndex
from raftsched.consensus.raft.log.progress import Progress
from raftsched.consensus.raft.messages import Message
from raftsched.consensus.raft.replication.snapshots import SnapshotSender
from raftsched.errors import InvariantBroken

_log = structlog.get_logger()


class Leading(Protocol):
    """The term that this node is in, and what pysyncobj commits and checks for a quorum by."""

    heartbeat_at: float

    @property
    def other_nodes(self) -> set[Node]: ...
    @property
    def connected_nodes(self) -> set[Node]: ...
    @property
    def match_index(self) -> dict[Node, int]: ...
    @property
    def last_response(self) -> dict[Node, float]: ...
    @property
    def term(self) -> int: ...
    @property
    def leads(self) -> bool: ...
    def is_current(self, message: Message) -> bool: ...


class Replication:
    """Sends the log, and snapshots where the log no longer helps. Its progress is that of one term."""

    def __init__(
        self,
        ports: EnginePorts,
        *,
        measured: Measurements,
        sender: SnapshotSender,
        leading: Leading,
        commit: CommitIndex,
        nodes: dict[NodeId, Node],
    ) -> None:
        self._sizes = ports.sizes
        self._timing = ports.timing
        self._log = ports.log
        self._machine = ports.machine
        self._transport = ports.transport
        self._clock = ports.clock
        self._cluster_clock = measured.cluster_clock
        self._space = measured.space
        self._contact = measured.contact
        self._round_trips = measured.round_trips
        self._sender = sender
        self._leading = leading
        self._commit = commit
        self._nodes = nodes
        self.progress: dict[NodeId, Progress] = {}

    # -- the term -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a term, before its no-op: nothing is known of any follower."""
        start = self._log.last_index + 1
        self.progress = {peer: Progress(node, start) for peer, node in sorted(self._nodes.items())}

    def stop(self) -> None:
        """End what a leader does."""
        self.progress = {}
        self._sender.stop_all()

    def connected_followers(self) -> list[Node]:
        """Return the followers that can be talked to."""
        connected = self._leading.connected_nodes
        return [progress.node for progress in self.progress.values() if progress.node in connected]

    def members_changed(self) -> None:
        """Send to those who are linked to now."""
        if not self._leading.leads:
            return
        now = self._clock.monotonic()
        for peer, node in self._nodes.items():
            progress = self.progress.setdefault(peer, Progress(node, self._log.last_index + 1))
            self._leading.match_index[node] = progress.match
            self._leading.last_response.setdefault(node, now)

    def on_identified(self, node: Node) -> None:
        """Ask a peer that can be talked to again what it has."""
        progress = self.progress.get(node.id)
        if progress is not None:
            progress.linked_at = self._clock.monotonic()
            progress.probe(progress.match + 1)
            self._send_empty(progress, progress.linked_at)

    def on_lost(self, node: Node) -> None:
        """Send nothing more to a peer until it is identified again."""
        progress = self.progress.get(node.id)
        if progress is not None:
            progress.probe(progress.match + 1)

    def compact(self) -> None:
        """Cut the log behind the machine's checkpoint, less what slow followers and receivers of a snapshot may need."""
        log = self._log
        floor = min(self._machine.durable_index, log.index_before_bytes(self._sizes.tail_bytes))
        held = self._held_from(floor)
        if held < floor and held >= log.index_before_bytes(self._sizes.hold_bytes):
            floor = held
        if floor > log.first_index:
            log.compact_to(floor)

    def _held_from(self, floor: int) -> int:
        """Return the index from which the log is held for receivers of a snapshot; `floor` if there are none.

        A receiver needs what was written during the transfer until it has caught up, or it would need a snapshot again.
        """
        held = floor if self._sender.floor is None else min(floor, self._sender.floor)
        for progress in self.progress.values():
            progress.catching_up = progress.catching_up and progress.match < floor
            if progress.catching_up:
                held = min(held, progress.match)
        return held

    # -- entries ------------------------------------------------------------------------------------------------------

    def replicate(self, *, heartbeat: bool) -> None:
        """Send each connected follower what it may get now; with `heartbeat`, something in any case."""
        now = self._clock.monotonic()
        if heartbeat:
            self._leading.heartbeat_at = now + self._timing.heartbeat_seconds
        ready: dict[int, Message] = {}
        for progress in self.progress.values():
            if progress.node in self._leading.connected_nodes:
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
        log, node, in_flight = self._log, progress.node, progress.in_flight
        last = log.last_index
        while log.first_index < progress.next <= last and len(in_flight) < self._sizes.appends_in_flight:
            start = progress.next
            message = ready.get(start)
            if message is None:
                entries = log.entries(start, self._sizes.append_bytes)
                message = ready[start] = self._append_message(start - 1, entries, now)
            progress.next = message["entries"][-1][1] + 1
            in_flight.append(progress.next - 1)
            self._transport.send(node, message)

    def _send_empty(self, progress: Progress, now: float) -> None:
        """Send a heartbeat, which also asks whether the logs agree below `next`."""
        previous = max(progress.next - 1, self._log.first_index)
        self._transport.send(progress.node, self._append_message(previous, (), now))

    def _append_message(self, previous: int, entries: Sequence[Entry], now: float) -> Message:
        return {
            "type": messages.APPEND,
            "term": self._leading.term,
            "commit_index": self._commit.index,
            "prevLogIdx": previous,
            "prevLogTerm": self._log.term_at(previous),
            "entries": entries,
            "sent_us": int(now * 1_000_000),
            "wall_ms": self._cluster_clock.sent_ms(now),
            "round_trip_ms": self._round_trips.longest_ms,
        }

    def on_append_ack(self, node: Node, message: Message) -> None:
        """Take a follower's answer to entries, a heartbeat, a probe or an installed snapshot."""
        if not self._leading.is_current(message) or not self._leading.leads:
            return
        progress = self.progress.get(node.id)
        if progress is None:
            return  # removed, and its links were dropped a moment ago
        self._record_contact(node, message)
        if message["success"]:
            self._matched(progress, message["next_node_idx"] - 1)
        elif message["reset"]:
            self._refused(progress, message["rejected"], message["next_node_idx"])

    def may_act_on_answer(self, node: Node) -> bool:
        """Check whether more can be sent to this follower, or more be committed, after its answer."""
        progress = self.progress.get(node.id)
        if progress is None or progress.snapshotting or progress.next <= self._log.last_index:
            return True
        matched = sorted((self._leading.match_index[other] for other in self._leading.other_nodes), reverse=True)
        needed = (len(matched) + 1) // 2  # beside this node
        return bool(matched) and matched[needed - 1] > self._commit.index

    def on_disk_space(self, node: Node, message: Message) -> None:
        """Note how full a follower's disk is."""
        if self._leading.leads and node.id in self.progress:
            self._space.record(node.id, Space(message["free_bytes"], message["reserve_bytes"], is_low=message["low"]))

    def _record_contact(self, node: Node, message: Message) -> None:
        """Count contact from when the message that is answered was sent (`quorum_lease.py`)."""
        sent_us = message["sent_us"]
        if not sent_us:
            return
        sent_at, now = sent_us / 1_000_000, self._clock.monotonic()
        self._contact.answered(node.id, sent_at)
        self._round_trips.answered(node.id, sent_us, now)
        self._leading.last_response[node] = max(self._leading.last_response.get(node, sent_at), sent_at)
        self._cluster_clock.observe_peer(node.id, wall_ms=message["wall_ms"], sent_at=sent_at, now=now)

    def _matched(self, progress: Progress, index: int) -> None:
        if index > self._log.last_index:
            raise InvariantBroken(f"{progress.node.id} acknowledged entry {index}, which does not exist")
        progress.matched(index)
        self._leading.match_index[progress.node] = progress.match
        if progress.snapshotting and progress.match >= self._log.first_index:
            progress.snapshotting, progress.catching_up = False, True
            self._sender.stop(progress.node.id)
        if progress.match >= self._log.last_index:
            progress.catching_up = False

    def _refused(self, progress: Progress, rejected: int, hint: int) -> None:
        """Go back: the follower's log differs at `rejected`, and agrees below `hint`; stale refusals change nothing."""
        if progress.snapshotting or (progress.probing and rejected != max(progress.next - 1, self._log.first_index)):
            return
        if rejected <= progress.match:
            # It acknowledged this entry durably, and has it no more. Take back what is counted for it.
            _log.error("follower_lost_its_log", peer=progress.node.id, acknowledged=progress.match, lacks=rejected)
            progress.match = self._leading.match_index[progress.node] = 0
        progress.probe(min(hint, rejected))
        now = self._clock.monotonic()
        if progress.next <= self._log.first_index:
            progress.snapshotting = True
            self._sender.start(progress.node.id, first_index=self._log.first_index, now=now)
        else:
            self._send_empty(progress, now)

    # -- snapshots ----------------------------------------------------------------------------------------------------

    def _send_chunks(self, progress: Progress, now: float) -> None:
        peer = progress.node.id
        self._sender.start(peer, first_index=self._log.first_index, now=now)
        stamp = {"type": messages.CHUNK, "term": self._leading.term, "sent_us": int(now * 1_000_000)}
        for chunk in self._sender.chunks(peer, now):
            self._transport.send(progress.node, {**chunk, **stamp, "wall_ms": self._cluster_clock.sent_ms(now)})

    def on_chunk_ack(self, node: Node, message: Message) -> None:
        """Note how much of a snapshot a follower holds."""
        if not self._leading.is_current(message) or not self._leading.leads:
            return
        self._record_contact(node, message)
        self._sender.acknowledged(node.id, message, self._clock.monotonic())
