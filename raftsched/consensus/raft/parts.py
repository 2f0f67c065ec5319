"""Builds the parts of one engine, and gives each what it needs of the others.

    core            pysyncobj: terms, votes, the commit rule, the check for a quorum (`pysyncobj_adapter.py`)
    elections       pre-votes, votes, the promise to a leader
    transfer        the transfer of leadership
    queue, commit   queue -> log -> commit -> machine -> answer
    configuration   who belongs to the cluster, and how that changes
    identity        who the peers are, disk included; what an empty node may do
    replication     leader -> followers: entries, snapshots
    follower        what a follower does with them
    comparison      whether this node's state is the one that the others have
    reads           the lead confirmed by a majority, for reads that rest on no clock

Each part takes the shared ports, and other parts by a `Protocol` or as callables: it can be read and tested alone. Only this
module and the engine know all of them. What happens here is construction: nothing is read from the network or sent.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from pysyncobj.node import Node

from raftsched.consensus.disk_space import ClusterSpace
from raftsched.consensus.journal.recovery import DifferenceMark, FormedMark, InstallMarker, align
from raftsched.consensus.raft import messages
from raftsched.consensus.raft.clocks.cluster_clock import ClusterClock
from raftsched.consensus.raft.clocks.measurements import Measurements
from raftsched.consensus.raft.clocks.quorum_lease import QuorumContact
from raftsched.consensus.raft.clocks.round_trips import RoundTrips
from raftsched.consensus.raft.engine_ports import EnginePorts
from raftsched.consensus.raft.leadership.elections import Elections
from raftsched.consensus.raft.leadership.quorum_reads import Lead, QuorumReads
from raftsched.consensus.raft.leadership.transfer import LeadershipTransfer
from raftsched.consensus.raft.log.apply_queue import ApplyQueue
from raftsched.consensus.raft.log.commit_index import CommitIndex
from raftsched.consensus.raft.log.entry_versions import OperationVersions
from raftsched.consensus.raft.log.proposals import Proposals
from raftsched.consensus.raft.membership.configuration import Configuration, OnMembers
from raftsched.consensus.raft.membership.members import Membership
from raftsched.consensus.raft.membership.peer_identity import PeerIdentity
from raftsched.consensus.raft.messages import Handler
from raftsched.consensus.raft.pysyncobj_adapter import RaftCore
from raftsched.consensus.raft.replication.follower import Follower
from raftsched.consensus.raft.replication.leader import Replication
from raftsched.consensus.raft.replication.snapshots import SnapshotReceiver, SnapshotSender, remove_leftovers
from raftsched.consensus.raft.replication.state_comparison import StateComparison


class Whole(Lead, Protocol):
    """The engine, as its parts see it: what they can only learn from all of them, and what concerns several."""

    @property
    def idle_reason(self) -> str: ...
    def follow(self, node: Node, term: int) -> None: ...
    def members_changed(self) -> None: ...
    def installed(self) -> None: ...


class Parts:
    """The parts of one engine; `whole` is not called before this is built."""

    def __init__(
        self,
        ports: EnginePorts,
        members: Membership,
        *,
        whole: Whole,
        snapshot_directory: Path,
        cluster_clock: ClusterClock,
        space: ClusterSpace | None,
        incarnation: str,
        on_members: OnMembers,
    ) -> None:
        node_id, machine, timing = ports.node_id, ports.machine, ports.timing
        remove_leftovers(snapshot_directory)
        marker = InstallMarker(snapshot_directory)
        align(ports.log, machine, marker)
        # What is measured and noted, and asks nobody.
        self.measured = Measurements(
            cluster_clock=cluster_clock,
            space=space or ClusterSpace(node_id, ports.clock),
            contact=QuorumContact((), promise_seconds=timing.election_min_seconds),
            round_trips=RoundTrips(timing),
        )
        self.versions = OperationVersions(machine)
        self.sender = SnapshotSender(
            snapshot_directory,
            machine,
            ports.randomness,
            ports.sizes,
            patience_seconds=timing.election_min_seconds / 2,
        )
        self.receiver = SnapshotReceiver(snapshot_directory, machine)
        self.comparison = StateComparison(node_id, machine, DifferenceMark(snapshot_directory))
        self.proposals = Proposals(timing)
        self.commit = CommitIndex(applied=machine.applied_index, last=ports.log.last_index)
        self.core = core = RaftCore(ports, sorted(members.voters - {node_id}))
        self.configuration = Configuration(
            ports,
            members=members,
            voting=core,
            commit=self.commit,
            proposals=self.proposals,
            takes_proposals=lambda: whole.takes_proposals,
            on_members=on_members,
            members_changed=whole.members_changed,
        )
        self.queue = ApplyQueue(
            ports,
            current=core,
            commit=self.commit,
            proposals=self.proposals,
            takes_proposals=lambda: whole.takes_proposals,
            configure=self.configuration.apply,
            on_applied=self.comparison.applied,
        )
        self.replication = Replication(
            ports,
            measured=self.measured,
            sender=self.sender,
            leading=core,
            commit=self.commit,
            nodes=self.configuration.nodes,
        )
        self.identity = PeerIdentity(
            ports,
            incarnation=incarnation,
            formed=FormedMark(snapshot_directory),
            voter=core,
            configuration=self.configuration,
            versions=self.versions,
            leader_seen_at=lambda: self.elections.leader_seen_at,
            on_identified=self.replication.on_identified,
            on_lost=self.replication.on_lost,
        )
        self.elections = Elections(
            ports,
            core=core,
            configuration=self.configuration,
            identity=self.identity,
            measured=self.measured,
            is_sound=lambda: not self.comparison.difference,
            idle_reason=lambda: whole.idle_reason,
        )
        self.follower = Follower(
            ports,
            cluster_clock=cluster_clock,
            round_trips=self.measured.round_trips,
            receiver=self.receiver,
            marker=marker,
            following=core,
            commit=self.commit,
            queue=self.queue,
            configuration=self.configuration,
            follow=whole.follow,
            on_installed=whole.installed,
        )
        self.transfer = LeadershipTransfer(
            ports, leader=core, measured=self.measured, followers=lambda: self.replication.progress
        )
        self.reads = QuorumReads(
            ports,
            lead=whole,
            followers=self.replication.connected_followers,
            is_majority=self.configuration.is_majority,
            is_current=core.is_current,
            follow=whole.follow,
        )
        self.handlers = self._handlers(identified=bool(incarnation))

    def _handlers(self, *, identified: bool) -> dict[str, Handler]:
        """Return who handles which message; `identified` nodes tell each other which disk they have."""
        handlers: dict[str, Handler] = {
            messages.APPEND: self.follower.on_append,
            messages.APPEND_ACK: self.replication.on_append_ack,
            messages.CHUNK: self.follower.on_chunk,
            messages.CHUNK_ACK: self.replication.on_chunk_ack,
            messages.PRE_VOTE: self.elections.on_pre_vote,
            messages.PRE_VOTE_OK: self.elections.on_pre_vote_ok,
            messages.PRE_VOTE_NO: self.elections.on_pre_vote_no,
            messages.VOTE_REQUEST: self.elections.on_vote_request,
            messages.VOTE: self.elections.on_vote,
            messages.TIMEOUT_NOW: self.elections.on_timeout_now,
            messages.LEAD_ENDED: self.elections.on_lead_ended,
            messages.DIGEST: self.comparison.on_digest,
            messages.READ_ROUND: self.reads.on_read_round,
            messages.READ_ROUND_OK: self.reads.on_read_round_ok,
            messages.DISK_SPACE: self.replication.on_disk_space,
        }
        if identified:
            handlers[messages.PEER_IDENTITY] = self.identity.on_peer_identity
        return handlers
