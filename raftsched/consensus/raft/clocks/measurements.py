"""Everything that a node measures of itself and its peers: clocks, disks, contact, round trips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raftsched.consensus.disk_space import ClusterSpace
from raftsched.consensus.ports import NodeId
from raftsched.consensus.raft.clocks.cluster_clock import ClusterClock
from raftsched.consensus.raft.clocks.quorum_lease import QuorumContact
from raftsched.consensus.raft.clocks.round_trips import RoundTrips


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """The measurements of one node; they are fed with messages, and send nothing."""

    cluster_clock: ClusterClock
    space: ClusterSpace
    contact: QuorumContact
    round_trips: RoundTrips

    def set_voters(self, others: Sequence[NodeId], *, counts_self: bool) -> None:
        """Count these peers from now on, and this node if it votes."""
        self.contact.set_voters(others, counts_self=counts_self)
        self.cluster_clock.set_peers(others)
        self.round_trips.keep(set(others))
        self.space.set_voters(others, counts_self=counts_self)

    def start_leading(self) -> None:
        """Begin a term: nobody has answered yet."""
        self.contact.forget()
        self.cluster_clock.start_leading()
        self.space.start_leading()
