"""Nodes that lost their disk, new clusters, and what an empty node waits for (case R13)."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.sim.engine.checker import Violation
from chaos.sim.engine.cluster import SimulatedCluster, SimulatedNode
from chaos.sim.engine.members import change, joining, leaving
from chaos.sim.planted.patches import engine as planted
from raftsched.consensus.journal.recovery import FormedMark
from raftsched.consensus.raft.membership.members import Member, Membership, encode_membership
from tests.consensus.clusters import engine, followers
from tests.consensus.subjects import MendedSubject


def with_data(cluster: SimulatedCluster) -> SimulatedNode:
    """A leader that has committed something on all nodes."""
    leader = cluster.elect()
    leader.propose(b"precious")
    cluster.run(1.0)
    return leader


# -- a new cluster -----------------------------------------------------------------------------------------------------


def test_a_new_cluster_records_the_disk_of_every_node(cluster: SimulatedCluster) -> None:
    with_data(cluster)
    for node in cluster.nodes.values():
        recorded = [member.incarnation for member in engine(node).configuration.membership.members]
        assert recorded == [f"{node_id}'s disk 1" for node_id in cluster.ids]


def test_a_new_cluster_forms_only_once_all_its_nodes_were_heard(cluster: SimulatedCluster) -> None:
    absent = cluster.nodes["n3"]
    absent.crash(power_loss=True)
    cluster.run(5.0)
    assert cluster.leader is None
    reasons = [engine(cluster.nodes[node_id]).idle_reason for node_id in ("n1", "n2")]
    assert all(reason.endswith("not heard yet: n3") for reason in reasons)
    absent.start()
    cluster.elect()
    cluster.run(1.0)
    assert [engine(node).idle_reason for node in cluster.nodes.values()] == ["", "", ""]


@pytest.mark.parametrize("seed", range(12))
def test_a_new_cluster_forms_whatever_crashes_meanwhile(seed: int) -> None:
    with SimulatedCluster(3, seed=seed) as cluster:
        cluster.start()
        for _ in range(30):
            cluster.run(0.3 * cluster.random.random())
            node = cluster.nodes[cluster.random.choice(cluster.ids)]
            node.crash(power_loss=cluster.random.random() < 0.5)
            if cluster.random.random() < 0.2:
                cluster.nodes[cluster.random.choice(cluster.ids)].crash(power_loss=True)
            cluster.run(0.1 * cluster.random.random())
            cluster.heal()
        cluster.elect()


def test_a_formed_node_takes_part_after_a_restart_though_it_is_still_empty(cluster: SimulatedCluster) -> None:
    nodes = list(cluster.nodes.values())
    cluster.run_until(lambda: all(engine(node).identity.takes_part for node in nodes))
    cluster.run_until(lambda: all(node.running and not node.running.journal.dirty for node in nodes))
    blank = [node for node in nodes if engine(node).identity.is_blank]
    assert blank
    for node in blank:
        node.crash(power_loss=True)
        node.start()
        assert engine(node).identity.takes_part


def test_the_mark_of_a_formed_node_means_nothing_without_its_journal(cluster: SimulatedCluster) -> None:
    with_data(cluster)
    victim = followers(cluster)[0]
    victim.wipe()
    victim.directory.mkdir()
    FormedMark(victim.directory).set()
    victim.start()
    assert not engine(victim).identity.takes_part


def test_a_node_begins_a_cluster_in_a_term_of_its_own(tmp_path: Path) -> None:
    """Whatever it voted for on an earlier disk was in another term."""
    node = Empty("b", tmp_path)
    node.identify("b", term=7)
    node.tick()
    assert node.engine.identity.takes_part
    assert node.term == 8


# -- a lost disk -------------------------------------------------------------------------------------------------------


def test_a_wiped_node_is_refused_under_its_old_id_and_welcome_under_a_new_one(cluster: SimulatedCluster) -> None:
    leader = with_data(cluster)
    wiped = followers(cluster)[0]
    wiped.wipe()
    wiped.start()
    cluster.run(5.0)
    assert engine(wiped).identity.is_blank
    assert "by another disk" in engine(wiped).idle_reason
    assert engine(leader).identity.other_disks == (wiped.id,)

    change(cluster, leaving(wiped.id))
    cluster.run_until(lambda: wiped.id in cluster.checker.membership.former)
    wiped.retire()
    node = cluster.new_node(cluster.checker.membership)
    node.start()
    change(cluster, joining(node))
    cluster.run_until(lambda: node.id in cluster.checker.membership.voters)
    cluster.run(1.0)
    cluster.checker.on_end()


@pytest.mark.parametrize("seed", range(8))
def test_a_node_of_which_only_the_name_is_left_never_stands_in_for_what_it_forgot(seed: int) -> None:
    """One follower is down, the leader's other follower keeps nothing but its node.json: two faults, and nothing is lost."""
    with SimulatedCluster(3, seed=seed) as cluster:
        cluster.start()
        leader = with_data(cluster)
        forgetful, away = followers(cluster)
        away.crash(power_loss=False)
        leader.propose(b"later")
        cluster.run(0.5)
        forgetful.wipe(keeps_name=True)
        forgetful.start()
        assert forgetful.running is None
        assert "must not come back under its old id" in forgetful.refusal
        leader.crash(power_loss=False)
        away.start()
        cluster.run(5.0)
        assert cluster.leader is None
        leader.start()
        cluster.elect()
        change(cluster, leaving(forgetful.id))
        cluster.run_until(lambda: forgetful.id in cluster.checker.membership.former)
        cluster.run(1.0)
        cluster.checker.on_end()


def two_wiped(cluster: SimulatedCluster) -> tuple[SimulatedNode, list[SimulatedNode]]:
    """The node that has its data, and the two that lost theirs; all run."""
    with_data(cluster)
    whole, *wiped = cluster.nodes.values()
    for node in cluster.nodes.values():
        node.crash(power_loss=True)
    for node in wiped:
        node.wipe()
    for node in cluster.nodes.values():
        node.start()
    return whole, wiped


def test_two_of_three_wiped_nodes_never_make_an_empty_cluster(cluster: SimulatedCluster) -> None:
    whole, wiped = two_wiped(cluster)
    before = len(cluster.checker.leaders)
    cluster.run(30.0)
    assert len(cluster.checker.leaders) == before
    assert engine(whole).identity.other_disks == tuple(node.id for node in wiped)
    assert not engine(whole).identity.is_blank
    assert all("by another disk" in engine(node).idle_reason for node in wiped)


def test_two_of_three_wiped_nodes_without_the_third_wait_for_it(cluster: SimulatedCluster) -> None:
    whole, wiped = two_wiped(cluster)
    whole.crash(power_loss=True)
    for node in wiped:
        node.crash(power_loss=True)
        node.start()
    cluster.run(10.0)
    assert cluster.leader is None
    assert all(engine(node).idle_reason.endswith(f"not heard yet: {whole.id}") for node in wiped)


def test_without_the_rule_two_wiped_nodes_forget_everything(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted.takes_part_with_an_empty_disk(monkeypatch)
    two_wiped(cluster)
    with pytest.raises(Violation):
        cluster.run(10.0)


def test_an_empty_node_takes_part_once_a_leader_has_sent_it_entries(tmp_path: Path) -> None:
    node = Empty("bc", tmp_path)
    node.identify("b", blank=False)
    node.tick()
    vote = {"type": "request_vote", "term": 5, "last_log_index": 9, "last_log_term": 4, "force": True}
    node.give("b", **vote)
    node.tick()
    assert not node.take("response_vote")
    assert "hold data" in node.engine.idle_reason

    node.give_append("b", 5, (1, 0), [(b"\x01", 2, 5)], commit=1)
    node.tick()
    assert node.engine.identity.takes_part
    node.identify("c", blank=False)
    node.give("c", **vote)
    node.tick()
    assert not node.take("response_vote"), "its vote of this term is the leader's, whatever an earlier life gave"


def test_nothing_of_a_peer_counts_before_it_has_greeted(tmp_path: Path) -> None:
    node = Empty("bc", tmp_path)
    node.give_append("b", 5, (1, 0), [(b"\x01", 2, 5)], commit=2)
    assert (node.last_index, node.term) == (1, 0)
    assert [message["asks"] for message in node.take("peer_identity", "b")][-1], "it is asked for its greeting"
    node.identify("b", blank=False)
    node.give_append("b", 5, (1, 0), [(b"\x01", 2, 5)], commit=2)
    assert (node.last_index, node.term) == (2, 5)


def test_a_member_with_another_disk_is_neither_heard_nor_written_to(tmp_path: Path) -> None:
    node = Empty("bc", tmp_path)
    node.identify("b", incarnation="b1", blank=False)
    known = Membership.of([Member("a", incarnation="mine"), Member("b", incarnation="b1"), Member("c")])
    node.give_append("b", 1, (1, 0), [(b"\x02" + encode_membership(known), 2, 1)], commit=1)
    node.transport._onNodeDisconnected(node.engine.configuration.nodes["b"])
    node.transport._onNodeConnected(node.engine.configuration.nodes["b"])
    node.identify("b", incarnation="b2", blank=True)
    assert node.engine.identity.other_disks == ("b",)
    assert not node.engine.is_connected("b")
    node.give_append("b", 2, (2, 1), [(b"\x01", 3, 2)], commit=1)
    assert (node.last_index, node.term) == (2, 1)
    node.identify("b", incarnation="b1", blank=False)
    assert node.engine.is_connected("b"), "the old disk was restored"


def test_a_wiped_node_is_refused_until_its_removal_is_committed(tmp_path: Path) -> None:
    """Seed 300168 of chaos.sim: it got the log once it was removed, and would have voted if that had been reverted."""
    node = Empty("bc", tmp_path)
    node.identify("b", incarnation="b1", blank=False)
    known = Membership.of(
        [Member("a", incarnation="mine"), Member("b", incarnation="b1"), Member("c", incarnation="c1")]
    )
    removed = (b"\x02" + encode_membership(known.without("c")), 3, 1)
    node.give_append("b", 1, (1, 0), [(b"\x02" + encode_membership(known), 2, 1), removed], commit=2)
    node.identify("c", incarnation="c2")
    assert not node.engine.is_connected("c")
    node.give_append("b", 1, (3, 1), [], commit=3)
    node.tick()
    node.identify("c", incarnation="c2")
    assert node.engine.is_connected("c"), "from now on it may learn that it was removed"


def test_a_leader_records_a_disk_before_it_sends_it_anything(tmp_path: Path) -> None:
    node = Empty("bc", tmp_path)
    node.identify("b")
    node.identify("c", incarnation="c1")
    node.tick()
    node.transport._onNodeDisconnected(node.engine.configuration.nodes["c"])
    node.stand()
    node.give("b", type="response_vote", term=node.term)
    node.tick()
    assert node.leads
    recorded = {member.id: member.incarnation for member in node.engine.configuration.membership.members}
    assert recorded == {"a": "mine", "b": "b's", "c": "c1"}
    node.transport._onNodeConnected(node.engine.configuration.nodes["c"])
    node.identify("c", incarnation="c2")
    assert node.engine.identity.other_disks == ("c",)
    node.tick()
    assert not node.take("append_entries", "c")


class Empty(MendedSubject):
    """A new node, "a", of a config file that names `others` too; nobody has greeted it."""

    def __init__(self, others: str, directory: Path) -> None:
        super().__init__(others, directory, incarnation="mine")

    def identify(self, peer: str, *, incarnation: str = "", term: int = 0, blank: bool = True) -> None:
        self.transport._onMessageReceived(
            self.engine.configuration.nodes[peer],
            {
                "type": "peer_identity",
                "incarnation": incarnation or f"{peer}'s",
                "term": term,
                "blank": blank,
                "asks": False,
                "members": encode_membership(Membership.of([])),
                "members_index": 0,
                "operations_read": 1,
                "operations_in_force": 1,
            },
        )
