"""Membership changes over a `SimulatedCluster`: asked for one by one, or at random among random faults.

An operator adds nodes, removes some, leaders included, and replaces the disk of one at a time, which comes back empty under
its old id; it then removes that id and adds a node under a new one. Requests go to whoever leads and may be refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from chaos.sim.engine.checker import Violation
from chaos.sim.engine.cluster import SimulatedCluster, SimulatedNode, simulated_member
from chaos.sim.engine.faults import Faults
from raftsched.consensus.ports import NodeId
from raftsched.consensus.raft.membership.configuration import Change
from raftsched.consensus.raft.membership.members import Membership

NODES_MAX = 6
OnAnswer = Callable[[object, int], None]


def change(cluster: SimulatedCluster, wanted: Change, answer: OnAnswer = lambda _result, _reason: None) -> None:
    """Ask the leader for a change of the members, if there is one that can be asked."""
    leader = cluster.leader
    if leader is not None and leader.running is not None and not leader.is_paused and not leader.running.syncing:
        leader.running.engine.request_change(wanted, answer)
        leader.wake()


def joining(node: SimulatedNode) -> Change:
    return lambda membership: membership.with_joining(simulated_member(node.id))


def leaving(node_id: NodeId) -> Change:
    return lambda membership: membership.without(node_id)


def known_membership(cluster: SimulatedCluster) -> Membership | None:
    """The configuration of the leader; None while there is none."""
    leader = cluster.leader
    return leader.running.engine.configuration.membership if leader is not None and leader.running is not None else None


class MemberFaults(Faults):
    """`Faults`, and an operator at work meanwhile."""

    def __init__(self, cluster: SimulatedCluster, *, seconds: float) -> None:
        super().__init__(cluster, seconds=seconds)
        self._wiped: NodeId = ""
        self._added: list[NodeId] = []
        self._timeline.after(1.0, self._operate)
        self._timeline.after(0.5, self._look_after)

    def _operate(self) -> None:
        if self._timeline.now >= self._stop_at:
            return
        self._random.choices((self._add, self._remove, self._replace), (10, 8, 4))[0]()
        pause = self._random.choice((0.02, 0.3, 0.8))  # now and then one request right after the other
        self._timeline.after(self._random.expovariate(1 / pause), self._operate)

    def _add(self) -> None:
        cluster = self._cluster
        membership = known_membership(cluster)
        if membership is None or membership.joining or len(membership.members) >= NODES_MAX:
            return
        unused = [node_id for node_id in self._added if node_id not in (*membership.ids, *membership.former)]
        node = cluster.nodes[unused[0]] if unused else cluster.new_node(membership)
        if not unused:
            self._added.append(node.id)
        if self._random.random() < 0.8:
            node.start()
        else:
            self._timeline.after(2.0 * self._random.random(), node.start)
        cluster.count("asked_to_add")
        change(cluster, joining(node), partial(self._answered, "add"))

    def _remove(self) -> None:
        membership = known_membership(self._cluster)
        if membership is None or (len(membership.voters) <= 2 and self._random.random() < 0.8):
            return
        node_id = self._random.choice(membership.ids)
        if self._wiped and node_id != self._wiped:
            return  # what is left must be able to replace it
        self._cluster.count("asked_to_remove_leader" if node_id == self._leader_id() else "asked_to_remove")
        change(self._cluster, leaving(node_id), partial(self._answered, "remove"))

    def _leader_id(self) -> NodeId:
        leader = self._cluster.leader
        return leader.id if leader is not None else ""

    def _replace(self) -> None:
        """Empty the disk of a member, unless there is one such already, or too few others."""
        membership = known_membership(self._cluster)
        if membership is None or self._wiped or len(membership.voters) < 3:
            return
        self._wiped = self._random.choice(sorted(membership.voters))
        node = self._cluster.nodes[self._wiped]
        node.wipe()
        # An old config file of a cluster that was small then would let it begin a cluster of its own.
        node.members = Membership.of(map(simulated_member, membership.ids))
        self._timeline.after(self._random.random(), node.start)

    def _answered(self, what: str, _result: object, reason: int) -> None:
        self._cluster.count(f"{what} answer {reason}")

    def _look_after(self) -> None:
        """Do what an operator does for as long as the run lasts."""
        former = self._cluster.checker.membership.former  # by what is committed: the rest may be reverted
        if self._wiped in former:
            self._wiped = ""
        elif self._wiped and self._random.random() < 0.5:
            change(self._cluster, leaving(self._wiped), partial(self._answered, "remove wiped"))
        for node_id in former:
            self._stop_for_good(self._cluster.nodes[node_id])
        self._timeline.after(0.4, self._look_after)

    def _stop_for_good(self, node: SimulatedNode) -> None:
        """Mostly some time after it was removed, while it may still disturb."""
        if not node.is_retired and self._random.random() < 0.1:
            node.retire()


def has_lost_its_majority(cluster: SimulatedCluster) -> bool:
    """Whether a removal that was under way met the loss of a disk: two are left of which one is empty, and rightly wait.

    Nobody may lead then.
    """
    engines = [node.running.engine for node in cluster.nodes.values() if node.running is not None]
    latest = max(engines, key=lambda engine: engine.configuration.index).configuration.membership
    whole = [member.id for member in latest.members if cluster.nodes[member.id].incarnation == member.incarnation]
    if latest.is_majority(whole):
        return False
    if cluster.leader is not None:
        raise Violation(f"{cluster.leader.id} leads {latest} with an empty disk")
    return True
