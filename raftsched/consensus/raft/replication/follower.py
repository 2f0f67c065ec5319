"""The follower's half of replication: what a node does with a leader's entries and snapshots.

Replaces pysyncobj's half, each part with the defect of PYSYNCOBJ.md that it fixes:

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
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import structlog
from pysyncobj.node import Node

from raftsched.consensus.journal.recovery import InstallMarker
from raftsched.consensus.ports import CONFIGURATION, KINDS, Entry
from raftsched.consensus.raft import messages
from raftsched.consensus.raft.clocks.cluster_clock import ClusterClock
from raftsched.consensus.raft.clocks.round_trips import RoundTrips
from raftsched.consensus.raft.engine_ports import EnginePorts
from raftsched.consensus.raft.log.apply_queue import ApplyQueue
from raftsched.consensus.raft.log.commit_index import CommitIndex
from raftsched.consensus.raft.membership.configuration import Configuration
from raftsched.consensus.raft.messages import Message
from raftsched.consensus.raft.replication.snapshots import Received, SnapshotReceiver
from raftsched.errors import InvariantBroken

_log = structlog.get_logger()


class Following(Protocol):
    """The term that this node is in, and whom it follows."""

    @property
    def leader_node(self) -> Node | None: ...
    @property
    def term(self) -> int: ...
    @property
    def leads(self) -> bool: ...


class Follower:
    """Takes entries and snapshots of the leader of the term, and answers it.

    `follow` is called with the sender and the term of each message of a leader that is not of an older term.
    `on_installed` is called after the machine and the log were replaced by a snapshot.
    """

    def __init__(
        self,
        ports: EnginePorts,
        *,
        cluster_clock: ClusterClock,
        round_trips: RoundTrips,
        receiver: SnapshotReceiver,
        marker: InstallMarker,
        following: Following,
        commit: CommitIndex,
        queue: ApplyQueue,
        configuration: Configuration,
        follow: Callable[[Node, int], None],
        on_installed: Callable[[], None],
    ) -> None:
        self._log = ports.log
        self._machine = ports.machine
        self._transport = ports.transport
        self._clock = ports.clock
        self._cluster_clock = cluster_clock
        self._round_trips = round_trips
        self._receiver = receiver
        self._marker = marker
        self._following = following
        self._commit = commit
        self._queue = queue
        self._configuration = configuration
        self._follow = follow
        self._on_installed = on_installed
        self._is_marked = True
        """The marker of an installation may be on disk."""

    # -- entries ------------------------------------------------------------------------------------------------------

    def on_append(self, node: Node, message: Message) -> None:
        """Take entries, a heartbeat or a probe of a leader."""
        if message["term"] < self._following.term:
            self._answer(node, message)
            return
        self._follow(node, message["term"])
        self._round_trips.leaders_ms = round_trip_ms = message.get("round_trip_ms", 0)
        self._cluster_clock.observe_leader(message["wall_ms"], now=self._clock.monotonic(), round_trip_ms=round_trip_ms)
        matched = self._append(message["prevLogIdx"], message["prevLogTerm"], message["entries"])
        if matched is None:
            rejected = message["prevLogIdx"]
            self._answer(node, message, reset=True, next_index=self._commit.index + 1, rejected=rejected)
            return
        self._commit.leader_committed(min(message["commit_index"], matched))
        self._answer(node, message, success=True, next_index=matched + 1)

    def _append(self, previous: int, previous_term: int, entries: Sequence[Entry]) -> int | None:
        """Make the log hold `entries` after `previous`; return the last index known to match, None on a mismatch."""
        log = self._log
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
        log = self._log
        start = entries[0][1]
        if start <= log.last_index:
            self._cut(start)
        for command, index, term in entries:
            if command[:1] not in KINDS:
                raise InvariantBroken(f"the leader sent entry {index} of the unknown kind {command[:1]!r}")
            log.add(command, index, term)
            if command[:1] == CONFIGURATION:
                self._configuration.added(index, command[1:])

    def _cut(self, start: int) -> None:
        """Drop the entries from `start` on: they conflict with the leader's, so they were never committed."""
        if start <= self._commit.index:
            raise InvariantBroken(f"the leader's log differs from committed entry {start}")
        self._log.deleteEntriesFrom(start - self._log.first_index)
        self._commit.cut(start)
        self._configuration.cut(start)

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
        self._transport.send(
            node,
            {
                "type": messages.APPEND_ACK,
                "term": self._following.term,
                "success": success,
                "reset": reset,
                "next_node_idx": next_index,
                "rejected": rejected,
                "sent_us": message["sent_us"],
                "wall_ms": self._clock.wall_ms(),
            },
        )

    # -- snapshots ----------------------------------------------------------------------------------------------------

    def on_chunk(self, node: Node, message: Message) -> None:
        """Take a piece of a snapshot."""
        if message["term"] < self._following.term:
            self._answer(node, message)
            return
        self._follow(node, message["term"])
        self._cluster_clock.observe_leader(message["wall_ms"], now=self._clock.monotonic())
        if self._covers(message["index"], message["index_term"]):
            self._answer(node, message, success=True, next_index=message["index"] + 1)
            return
        offset = self._receiver.receive(message, self._clock.monotonic())
        if offset is None:
            return
        self._transport.send(
            node,
            {
                "type": messages.CHUNK_ACK,
                "term": self._following.term,
                "transfer": message["transfer"],
                "offset": offset,
                "sent_us": message["sent_us"],
                "wall_ms": self._clock.wall_ms(),
            },
        )

    def _covers(self, index: int, term: int) -> bool:
        """Check whether this node has all that a snapshot as of (index, term) holds: applied, or as a log that matches."""
        log = self._log
        return index <= self._queue.applied_index or (index <= log.last_index and log.term_at(index) == term)

    def install_received(self) -> None:
        """Install a snapshot that came in whole, and tell the present leader up to where it brought us."""
        received = self._receiver.take_received()
        if received is None:
            return
        if self._covers(received.index, received.term):
            received.path.unlink()
        else:
            self._install(received)
        if self._following.leader_node is not None and not self._following.leads:
            no_contact: Message = {"sent_us": 0}
            self._answer(self._following.leader_node, no_contact, success=True, next_index=received.index + 1)

    def _install(self, received: Received) -> None:
        """Replace the machine, then the log; if only the first is on disk, the marker explains it at the next start."""
        index, term = received.index, received.term
        self._marker.write(index, term)
        self._is_marked = True
        self._machine.install(received.path)
        if (self._machine.applied_index, self._machine.applied_term) != (index, term):
            raise InvariantBroken(f"the installed snapshot is at {self._machine.applied_index}, not at {index}")
        self._log.reset(index, term)
        self._commit.installed(index)
        self._queue.installed(index)
        self._on_installed()
        _log.info("snapshot_installed", index=index, term=term)

    def synced(self) -> None:
        """Remove the marker of an installation: the log on disk says the same now."""
        if self._is_marked:
            self._marker.clear()
            self._is_marked = False
