"""Tell what a node knows of itself and of the cluster: what serves, what does not, and what an operator should look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from raftsched.api.cluster.problems import Sightings, find
from raftsched.config import NodeConfig
from raftsched.consensus.disk_space import ClusterSpace
from raftsched.consensus.machine import ReplicatedState
from raftsched.consensus.raft.clocks.cluster_clock import ClusterClock
from raftsched.consensus.raft.membership.members import Member
from raftsched.consensus.replica import Replica
from raftsched.consensus.replica_status import PeerStatus, ReplicaStatus
from raftsched.encryption.cipher import Cipher
from raftsched.errors import DiskStalled, Unavailable
from raftsched.node.cluster_key import difference
from raftsched.node.facts import Expiry, facts_of
from raftsched.ports import Clock
from raftsched.wire.cluster import ClusterStatus, NodeFacts, NodeStatus


class StatusReader:
    """Reads the parts of one node; it changes nothing, but remembers since when there are problems."""

    def __init__(
        self,
        *,
        config: Callable[[], NodeConfig],
        machine: ReplicatedState,
        replica: Replica,
        cluster_clock: ClusterClock,
        space: ClusterSpace,
        cipher: Cipher,
        clock: Clock,
        expiries: Callable[[], Sequence[Expiry]],
    ) -> None:
        """`config` returns the present settings, `expiries` when the certificates of this node expire."""
        self._config: Final = config
        self._machine: Final = machine
        self._replica: Final = replica
        self._cluster_clock: Final = cluster_clock
        self._space: Final = space
        self._cipher: Final = cipher
        self._clock: Final = clock
        self._expiries: Final = expiries
        self._sightings = Sightings()
        self._started_ms = clock.wall_ms()
        self._started_at = clock.monotonic()
        self.is_stopping = False

    # -- the cluster --------------------------------------------------------------------------------------------------

    def cluster(self) -> ClusterStatus:
        """Return what this node sees of the cluster, with its problems and since when it has seen them."""
        seen = self._seen()
        return replace(seen, problems=self._sightings.look(find(seen), self._clock.wall_ms()))

    def _seen(self) -> ClusterStatus:
        """Return what this node sees of the cluster, unjudged but with its own facts."""
        status, config = self._replica.status(), self._config()
        peers = {peer.node_id: peer for peer in status.peers}
        nodes = [
            self._own_status(member, status, config)
            if member.id == config.node_id
            else _peer_status(member, config.url_of(member.api), peers[member.id], status)
            for member in self._replica.members
        ]
        differing = self._replica.differing
        nodes = [replace(node, state="differs") if node.id in differing else node for node in nodes]
        return ClusterStatus(
            status.leader_id,
            status.term,
            tuple(nodes),
            status.operation_version,
            warning=self._space.refusal,
            answered_by=config.node_id,
        )

    def _own_status(self, member: Member, status: ReplicaStatus, config: NodeConfig) -> NodeStatus:
        return NodeStatus(
            config.node_id,
            config.url_of(config.member.api),
            status.state,
            status.applied_index,
            0,
            raft=member.raft,
            voter=member.is_voter,
            operations_read=status.operations_read,
            disk_free_bytes=self._space.own().free_bytes,
            disk_low=self._space.own().is_low,
            lag=0 if status.leader_id == config.node_id else None,
            facts=self.facts(),
        )

    # -- this node ----------------------------------------------------------------------------------------------------

    def facts(self) -> NodeFacts:
        """Return what this node says of itself."""
        is_ready, reason = self.readiness()
        config = self._config()
        return facts_of(
            config.node_id,
            directory=config.directory,
            started_ms=self._started_ms,
            uptime_seconds=int(self._clock.monotonic() - self._started_at),
            warnings=self._warnings() if is_ready else {"not_ready": reason},
            encryption_key=self._cipher.key_id or None,
            expiries=self._expiries(),
            now_ms=self._clock.wall_ms(),
        )

    def readiness(self) -> tuple[bool, str]:
        """Return whether this node can serve, with the reason if it can't, else with a warning or ""."""
        if self.is_stopping:
            return False, "the node is stopping"
        if self._replica.is_stalled:
            return False, str(DiskStalled())
        status = self._replica.status()
        if status.incoming_snapshot_bytes is not None and status.leader_id:
            # Checked before the waits of an empty node: it may wait for this very snapshot.
            done, total = status.incoming_snapshot_bytes
            return False, f"a snapshot is on its way: {done:,} of {total:,} bytes"
        if reason := self._replica.idle_reason:
            return False, reason
        if not status.leader_id:
            reasons = ("no leader is known yet" + self._why_no_leader(status), self._replica.round_trip_warning)
            return False, "; ".join(filter(None, reasons))
        if self._replica.is_leading:
            try:
                self._replica.check_fresh()
            except Unavailable as error:
                return False, "; ".join(filter(None, (str(error), self._replica.round_trip_warning)))
        if self._machine.state.cluster_key is not None and not self._cipher:
            return False, self.encryption_warning()
        return True, "; ".join(self._warnings().values())

    def _warnings(self) -> dict[str, str]:
        """Return the conditions that an operator should look at although the node serves, by code."""
        found = {
            "encryption": self.encryption_warning(),
            "round_trip": self._replica.round_trip_warning,
            "clock": self._clock_warning(),
            "disk": self._disk_warning(),
            "state": self._replica.difference_warning,
        }
        return {code: text for code, text in found.items() if text}

    def encryption_warning(self) -> str:
        """Return how the keys of this node differ from the cluster's; "" if they don't."""
        return difference(self._machine.state.cluster_key, self._cipher.keys)

    def _clock_warning(self) -> str:
        offset_ms = self._cluster_clock.own_offset_ms() if self._cluster_clock.is_off else None
        return "" if offset_ms is None else f"this node's wall clock is off by {offset_ms:,} ms"

    def _disk_warning(self) -> str:
        space = self._space.own()
        return self._space.refusal or (f"this node's disk is nearly full: {space}" if space.is_low else "")

    def _why_no_leader(self, status: ReplicaStatus) -> str:
        """Return what an operator may have to do about it; "" while it looks like an election."""
        names = ", ".join(self._replica.other_disks)
        if names:
            return f"; not counted, because their disks are not those that they joined with: {names}"
        if status.peers and not any(peer.is_connected for peer in status.peers):
            return "; no other node is reached: it may be cut off, or was removed from the cluster while it was down"
        return ""


def _peer_status(member: Member, api_url: str, peer: PeerStatus, status: ReplicaStatus) -> NodeStatus:
    state = "down"
    if peer.is_connected:
        state = "leader" if member.id == status.leader_id else "follower"
    return NodeStatus(
        member.id,
        api_url,
        state,
        peer.match_index or None,
        peer.clock_offset_ms,
        peer.round_trip_ms,
        raft=member.raft,
        voter=member.is_voter,
        operations_read=peer.operations_read,
        disk_free_bytes=peer.space and peer.space.free_bytes,
        disk_low=peer.space and peer.space.is_low,
        lag=max(0, status.last_index - peer.match_index) if status.leader_id == status.node_id else None,
    )
