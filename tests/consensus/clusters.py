"""A simulated cluster of engines: who leads it, and who does not."""

from __future__ import annotations

from chaos.sim.engine.cluster import SimulatedCluster, SimulatedNode
from raftsched.consensus.raft.engine import RaftEngine


def engine(node: SimulatedNode) -> RaftEngine:
    assert node.running is not None
    return node.running.engine


def settled_leader(cluster: SimulatedCluster) -> SimulatedNode:
    """A leader that everybody follows."""
    cluster.elect()
    cluster.run(1.0)
    return cluster.elect()


def followers(cluster: SimulatedCluster) -> list[SimulatedNode]:
    return [node for node in cluster.nodes.values() if node is not cluster.leader]


def part(cluster: SimulatedCluster, one: SimulatedNode, other: SimulatedNode) -> None:
    cluster.network.cut(one.id, other.id)
    cluster.network.cut(other.id, one.id)
