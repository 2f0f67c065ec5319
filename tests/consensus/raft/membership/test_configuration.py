"""Who counts while members change: one leader or follower by hand, and whole clusters where a schedule needs them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pysyncobj.node import Node

from chaos.sim.engine.checker import Violation
from chaos.sim.engine.cluster import SimulatedCluster
from chaos.sim.engine.members import change, joining, leaving
from chaos.sim.planted.patches import engine as planted
from raftsched.consensus.ports import CONFIGURATION
from raftsched.consensus.raft.log.proposals import REFUSED, SUCCESS
from raftsched.consensus.raft.membership.configuration import Change
from raftsched.consensus.raft.membership.members import Member, Membership, encode_membership
from raftsched.errors import ChangeUnderWay, Rejected, Unavailable
from tests.consensus.subjects import TIMING, MendedSubject

Answers = list[tuple[Any, int]]


def member(node_id: str) -> Member:
    return Member(node_id, f"{node_id}:1", f"{node_id}:2")


def entry(index: int, term: int, ids: str, *, former: tuple[str, ...] = ()) -> tuple[bytes, int, int]:
    membership = Membership(Membership.of(map(member, ids)).members, former)
    return CONFIGURATION + encode_membership(membership), index, term


class Leading(MendedSubject):
    """A leader whose changes and acknowledgements are given by hand; everybody is connected."""

    def __init__(self, others: str, directory: Path, *, settled: bool = True) -> None:
        super().__init__(others, directory)
        self.lead()
        if settled:
            self.acknowledge(others)
            assert self.engine.is_leading

    def acknowledge(self, peers: str) -> None:
        """These peers have the whole log."""
        for peer in peers:
            self.give_ack(peer, self.last_index)
        self.tick()

    def change(self, wanted: Change) -> Answers:
        answers: Answers = []
        self.engine.request_change(wanted, lambda result, reason: answers.append((result, reason)))
        self.tick()
        return answers

    def join(self, node_id: str, acknowledging: str) -> None:
        """Let a node join; once these peers have acknowledged that, and it has the log, it is made a voter."""
        answers = self.change(lambda members: members.with_joining(member(node_id)))
        self.acknowledge(acknowledging)
        assert answers[0][1] == SUCCESS
        self.transport._onNodeConnected(Node(node_id))
        self.acknowledge(node_id)
        assert node_id in self.voters

    def remove(self, node_id: str) -> Answers:
        return self.change(lambda members: members.without(node_id))

    @property
    def voters(self) -> str:
        return "".join(sorted(self.engine.configuration.membership.voters))

    def commits_with(self, peers: str) -> bool:
        """Whether all that the log holds is committed once these have acknowledged it."""
        self.acknowledge(peers)
        return self.commit == self.last_index


@pytest.fixture
def leader(tmp_path: Path) -> Leading:
    return Leading("bc", tmp_path)


def start_campaign(node: MendedSubject) -> None:
    """Let the time pass after which a node stands, and the turn that it lets pass because of its clock."""
    for _ in range(2):
        node.clock.now += 5.0
        node.tick()


# -- quorums -----------------------------------------------------------------------------------------------------------


def test_the_majority_follows_every_change_from_three_to_five_and_back(leader: Leading) -> None:
    leader.join("d", "b")
    assert leader.voters == "abcd"
    assert not leader.commits_with("b"), "2 of 4"
    assert leader.commits_with("c"), "3 of 4, for the change itself"
    leader.join("e", "bc")
    assert leader.voters == "abcde"
    assert not leader.commits_with("b")
    assert leader.commits_with("d"), "3 of 5"
    leader.remove("e")
    assert leader.voters == "abcd"
    assert not leader.commits_with("be"), "the removed one does not count"
    assert leader.commits_with("c")
    leader.remove("d")
    assert leader.voters == "abc"
    assert leader.commits_with("b"), "2 of 3"


def test_a_node_that_joins_counts_nowhere(leader: Leading) -> None:
    leader.change(lambda members: members.with_joining(member("d")))
    leader.transport._onNodeConnected(Node("d"))
    last = leader.last_index
    leader.acknowledge("d")
    assert (leader.commit, leader.voters) == (last - 1, "abc")
    leader.acknowledge("b")
    assert leader.commit == last


def test_a_node_that_is_far_behind_is_not_made_a_voter(leader: Leading) -> None:
    leader.change(lambda members: members.with_joining(member("d")))
    for number in range(100):
        leader.propose(b"%d" % number)
    leader.tick()
    leader.acknowledge("b")
    leader.transport._onNodeConnected(Node("d"))
    leader.give_ack("d", leader.last_index - 70)
    leader.tick()
    assert leader.voters == "abc"
    leader.give_ack("d", leader.last_index - 60)
    leader.tick()
    assert leader.voters == "abcd"


def test_a_node_that_has_nothing_yet_is_not_made_a_voter(leader: Leading) -> None:
    """Seed 402477 of chaos.sim: the log was short, the newcomer empty, and a voter that is empty gives no vote."""
    leader.change(lambda members: members.with_joining(member("d")))
    leader.acknowledge("b")
    leader.transport._onNodeConnected(Node("d"))
    leader.give_ack("d", leader.engine.configuration.index - 1)
    leader.tick()
    assert leader.voters == "abc"
    leader.give_ack("d", leader.engine.configuration.index)
    leader.tick()
    assert leader.voters == "abcd"


def test_reads_need_contact_with_a_majority_of_the_new_voters(leader: Leading) -> None:
    leader.join("d", "b")
    leader.acknowledge("bcd")
    leader.clock.now += 2 * TIMING.election_min_seconds
    sent_us = int(leader.clock.now * 1_000_000)
    give = {"type": "next_node_idx", "term": leader.term, "success": True, "reset": False, "rejected": 0}
    give |= {"next_node_idx": leader.last_index + 1, "sent_us": sent_us, "wall_ms": 1}
    leader.give("b", **give)
    with pytest.raises(Unavailable):
        leader.engine.check_fresh()
    leader.give("d", **give)
    leader.engine.check_fresh()


def test_only_votes_of_voters_elect(tmp_path: Path) -> None:
    node = MendedSubject("bcde", tmp_path)
    node.give_append("b", 1, (1, 0), [entry(2, 1, "abc")], commit=2)
    node.clock.now += 5.0
    node.stand()
    for stranger in "de":
        node.give(stranger, type="response_vote", term=node.term)
    assert not node.leads
    node.give("c", type="response_vote", term=node.term)
    assert node.leads


def test_only_pre_votes_of_voters_count(tmp_path: Path) -> None:
    node = MendedSubject("bcde", tmp_path)
    node.give_append("b", 1, (1, 0), [entry(2, 1, "abc")], commit=2)
    start_campaign(node)
    asked = node.take("pre_vote")
    assert len(asked) == 2, "nobody else is asked"
    for stranger in "de":
        node.give(stranger, type="pre_vote_ok", term=asked[0]["term"])
    node.tick()
    assert not node.take("request_vote")
    node.give("c", type="pre_vote_ok", term=asked[0]["term"])
    node.tick()
    assert len(node.take("request_vote")) == 2


# -- the rule ----------------------------------------------------------------------------------------------------------


def test_a_second_change_is_refused_while_the_first_is_not_committed(tmp_path: Path) -> None:
    leader = Leading("bcde", tmp_path)
    first = leader.remove("e")
    [(error, reason)] = leader.remove("d")
    assert reason == REFUSED
    assert isinstance(error, ChangeUnderWay)
    assert leader.voters == "abcd"
    assert first == []
    leader.acknowledge("bc")
    assert [reason for _, reason in first] == [SUCCESS]
    assert leader.remove("d") == []
    assert leader.voters == "abc"


def test_no_change_is_taken_before_an_entry_of_the_own_term_is_committed(tmp_path: Path) -> None:
    leader = Leading("bc", tmp_path, settled=False)
    [(error, reason)] = leader.remove("c")
    assert reason == REFUSED
    assert isinstance(error, Unavailable)
    leader.acknowledge("b")
    assert leader.remove("c") == []


def test_a_node_that_joins_is_not_promoted_while_another_change_is_open(tmp_path: Path) -> None:
    leader = Leading("bcde", tmp_path)
    leader.change(lambda members: members.with_joining(member("f")))
    leader.acknowledge("bc")
    leader.transport._onNodeConnected(Node("f"))
    leader.remove("e")
    leader.acknowledge("f")
    assert leader.voters == "abcd"
    leader.acknowledge("bc")
    assert leader.voters == "abcdf"


def test_a_change_that_would_leave_no_majority_behind_is_refused(leader: Leading) -> None:
    leader.transport._onNodeDisconnected(Node("c"))
    [(error, reason)] = leader.remove("b")
    assert reason == REFUSED
    assert isinstance(error, Rejected)
    assert (error.code, "start or remove c first" in str(error)) == ("majority_lost", True)
    assert leader.remove("c") == []


def test_a_refused_change_changes_nothing(leader: Leading) -> None:
    last = leader.last_index
    [(error, reason)] = leader.change(lambda members: members.with_joining(member("b")))
    assert (reason, getattr(error, "code", "")) == (REFUSED, "already_member")
    assert (leader.last_index, leader.voters) == (last, "abc")


def test_a_configuration_that_is_cut_from_the_log_is_not_in_effect_any_more(node: MendedSubject) -> None:
    node.give_append("b", 1, (1, 0), [entry(2, 1, "abcd")])
    assert node.engine.configuration.membership.voters == {"a", "b", "c", "d"}
    node.give_append("c", 2, (1, 0), [(b"\x01", 2, 2)])
    assert node.engine.configuration.membership.voters == {"a", "b", "c"}
    assert {other.id for other in node.engine.core.other_nodes} == {"b", "c"}


def test_a_change_of_a_leader_that_was_deposed_is_answered_by_what_is_committed_in_its_place(leader: Leading) -> None:
    last = leader.last_index
    answers = leader.change(lambda members: members.with_joining(member("d")))
    leader.give_append("b", leader.term + 1, (last, leader.term), [(b"\x01", last + 1, leader.term + 1)], last + 1)
    leader.tick()
    assert [reason != SUCCESS for _, reason in answers] == [True]
    assert leader.engine.configuration.membership.ids == ("a", "b", "c")


# -- leaving -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("others", ["bc", "bcd"])
def test_a_leader_that_removes_itself_leads_on_without_counting_itself_and_steps_down_when_that_is_committed(
    tmp_path: Path, others: str
) -> None:
    leader = Leading(others, tmp_path)
    answers = leader.remove("a")
    assert leader.leads
    leader.acknowledge("b")
    assert leader.leads, "1 of 2 or 3, without itself"
    assert answers == []
    leader.acknowledge("c")
    assert not leader.leads
    assert [reason for _, reason in answers] == [SUCCESS]
    assert "removed" in leader.engine.idle_reason
    with pytest.raises(Unavailable, match="removed"):
        leader.engine.check_fresh()


def test_a_removed_node_stands_only_while_it_does_not_know_that_its_removal_is_committed(tmp_path: Path) -> None:
    node = MendedSubject("bcd", tmp_path)
    node.give_append("b", 1, (1, 0), [(b"\x01", 2, 1), entry(3, 1, "bcd", former=("a",))], commit=2)
    start_campaign(node)
    [first, *_] = node.take("pre_vote")
    for peer in "bc":
        node.give(peer, type="pre_vote_ok", term=first["term"])
    node.tick()
    assert node.take("request_vote"), "its log may be the one that is needed"
    node.give("b", type="response_vote", term=node.term)
    assert not node.leads, "1 of 3 without itself"

    node.give_append("b", node.term, (3, 1), [(b"\x01", 4, node.term)], commit=4)
    node.tick()
    start_campaign(node)
    assert not node.take("pre_vote")
    assert node.engine.next_deadline() > node.clock.now


def test_links_to_a_removed_node_stay_until_it_can_know(leader: Leading) -> None:
    dropped: list[str] = []
    leader.transport.dropNode = lambda node: dropped.append(node.id)
    leader.remove("c")
    leader.acknowledge("b")
    leader.take("append_entries")
    leader.clock.now += TIMING.heartbeat_seconds * 1.1
    leader.give_ack("b", leader.last_index)
    leader.tick()
    assert [message["commit_index"] for message in leader.take("append_entries", "c")] == [leader.commit]
    leader.clock.now += 10 * TIMING.election_max_seconds
    leader.tick()
    assert dropped == ["c"]


def test_the_last_voter_stands_alone_whoever_is_connected(tmp_path: Path) -> None:
    """It asks nobody, so it waits for nobody's answer (members seeds 1002 and 1253)."""
    node = MendedSubject("b", tmp_path)
    node.give_append("b", 1, (1, 0), [(b"\x01", 2, 1), entry(3, 1, "a", former=("b",))], commit=2)
    start_campaign(node)
    assert node.leads


# -- restarts (R08) ----------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    with SimulatedCluster(3, seed=3) as made:
        made.start()
        made.elect()
        made.run(1.0)
        yield made


def let_join(cluster: SimulatedCluster, node_id: str = "") -> str:
    """Add a node and return its id once it votes."""
    node = cluster.new_node(cluster.founders, node_id)
    node.start()
    change(cluster, joining(node))
    cluster.run_until(lambda: node.id in cluster.checker.membership.voters)
    return node.id


def voters_of(cluster: SimulatedCluster, node_id: str) -> set[str]:
    running = cluster.nodes[node_id].running
    assert running is not None
    return set(running.engine.configuration.membership.voters)


@pytest.mark.parametrize("applied", [False, True])
def test_a_restarted_node_goes_by_the_log_and_the_state_not_by_its_config_file(
    cluster: SimulatedCluster, *, applied: bool
) -> None:
    let_join(cluster)
    if applied:
        cluster.run(1.0)  # long enough for a checkpoint, behind which the log no longer counts
    for node in cluster.nodes.values():
        node.crash(power_loss=True)
    for node in cluster.nodes.values():
        node.start()
        assert voters_of(cluster, node.id) == {"n1", "n2", "n3", "n4"}
    cluster.elect()


def test_a_snapshot_carries_the_configuration(cluster: SimulatedCluster) -> None:
    leader = cluster.elect()
    behind = next(node for node in cluster.nodes.values() if node is not leader)
    behind.crash(power_loss=True)
    let_join(cluster)
    for number in range(60):
        leader.propose(b"%d" % number + b"." * 80)
    cluster.run(3.0)
    behind.start()
    cluster.run_until(lambda: behind.running is not None and behind.running.machine.installed_count == 1)
    assert voters_of(cluster, behind.id) == {"n1", "n2", "n3", "n4"}


def test_a_node_that_is_behind_hears_of_members_it_does_not_know_and_elects_one(cluster: SimulatedCluster) -> None:
    leader = cluster.elect()
    other, behind = [node for node in cluster.nodes.values() if node is not leader]
    for peer in (leader, other):
        cluster.network.cut(peer.id, behind.id)
        cluster.network.cut(behind.id, peer.id)
        cluster.network.break_link(peer.id, behind.id)
    new_id = let_join(cluster)
    cluster.network.cut(leader.id, other.id)
    leader.propose(b"only the new one gets this")
    cluster.run(0.1)
    assert voters_of(cluster, behind.id) == {"n1", "n2", "n3"}
    leader.crash(power_loss=True)
    cluster.network.heal_all()
    assert cluster.elect().id == new_id, "nobody else has its log, and 3 of 4 must vote for it"


def test_a_last_voter_that_restarts_keeps_the_promise_of_its_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    with SimulatedCluster(2, seed=5) as cluster:
        cluster.start()
        restart_under_a_leader_that_leaves(cluster)
    planted.stands_at_once_where_it_is_the_last_voter(monkeypatch)
    with SimulatedCluster(2, seed=5) as cluster, pytest.raises(Violation, match="serves a read"):
        cluster.start()
        restart_under_a_leader_that_leaves(cluster)


def restart_under_a_leader_that_leaves(cluster: SimulatedCluster) -> None:
    """The leader of two removes itself; the other one has that, restarts, and takes a write while the first serves."""
    leader = cluster.elect()
    cluster.run(1.0)
    other = next(node for node in cluster.nodes.values() if node is not leader)
    cluster.network.cut(other.id, leader.id)
    change(cluster, leaving(leader.id))
    cluster.run_until(lambda: voters_of(cluster, other.id) == {other.id})
    other.crash(power_loss=False)
    other.start()
    for _ in range(40):
        other.propose(b"a write")
        cluster.run(0.005)
        leader.read()


@pytest.mark.parametrize("new_id", ["n4", "n0"], ids=["dials", "knocks"])
def test_a_node_that_knows_nobody_of_those_who_are_left_hears_of_them(cluster: SimulatedCluster, new_id: str) -> None:
    """Seed 300168 of chaos.sim: down while n4 joined and another left, and then the third one lost its disk."""
    leader = cluster.elect()
    other, behind = [node for node in cluster.nodes.values() if node is not leader]
    behind.crash(power_loss=True)
    assert let_join(cluster, new_id) == new_id
    change(cluster, leaving(other.id))
    cluster.run_until(lambda: other.id in cluster.checker.membership.former)
    other.retire()
    cluster.nodes[leader.id].wipe()
    behind.start()
    cluster.elect()
    assert cluster.network.counts["hello: unknown caller linked"] == 1
    cluster.run(1.0)
    assert voters_of(cluster, behind.id) == {leader.id, behind.id, new_id}
