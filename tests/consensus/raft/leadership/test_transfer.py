"""The transfer of leadership, over a simulated cluster."""

from __future__ import annotations

import pytest

from chaos.sim.engine.cluster import TIMING, SimulatedCluster, SimulatedNode
from raftsched.consensus.raft.pysyncobj_adapter import CANDIDATE
from raftsched.errors import NotLeader
from tests.consensus.clusters import engine, followers, part, settled_leader


def test_leadership_is_transferred_without_a_timeout(cluster: SimulatedCluster, leader: SimulatedNode) -> None:
    assert engine(leader).start_transfer()
    with pytest.raises(NotLeader):
        engine(leader).check_fresh()
    cluster.run_until(lambda: cluster.leader not in (None, leader), seconds=TIMING.election_min_seconds / 2)
    assert not engine(leader).leads


def test_leadership_is_transferred_to_the_named_voter_and_to_no_other(
    cluster: SimulatedCluster, leader: SimulatedNode
) -> None:
    assert not engine(leader).start_transfer("nobody")
    for named in (*followers(cluster), leader):
        before = cluster.leader
        assert before is not None
        assert engine(before).start_transfer(named.id)
        cluster.run_until(lambda before=before: cluster.leader not in (None, before))  # type: ignore[misc]
        assert cluster.leader is named


def test_leadership_goes_to_nobody_who_has_just_started_and_lacks_other_links(
    cluster: SimulatedCluster, leader: SimulatedNode
) -> None:
    for started, other in (followers(cluster), followers(cluster)[::-1]):
        part(cluster, started, other)
        started.crash(power_loss=False)
        cluster.run(0.1)
        started.start()
        cluster.run(1.0)
        assert cluster.elect() is leader
        assert engine(leader).is_connected(started.id)
        engine(leader).start_transfer()
        cluster.run_until(lambda: cluster.leader not in (None, leader), seconds=TIMING.election_min_seconds)
        assert cluster.leader is other
        cluster.heal()
        cluster.run(6.0)
        engine(other).start_transfer(leader.id)
        cluster.run_until(lambda: cluster.leader is leader)


def test_what_was_proposed_before_a_transfer_is_applied(cluster: SimulatedCluster, leader: SimulatedNode) -> None:
    for number in range(20):
        leader.propose(b"%d" % number)
    engine(leader).start_transfer()
    cluster.run_until(lambda: cluster.leader not in (None, leader))
    cluster.run(0.5)
    assert len(cluster.checker.acknowledged) == 20
    assert cluster.statistics["answer 0"] == 20


def test_a_proposal_during_a_transfer_is_refused(cluster: SimulatedCluster, leader: SimulatedNode) -> None:
    engine(leader).start_transfer()
    leader.propose(b"late")
    cluster.run(1.0)
    assert cluster.statistics["proposed"] == 0
    assert b"late" not in cluster.checker.acknowledged


def test_a_leader_whose_successor_is_silent_never_serves_in_that_term_again(
    cluster: SimulatedCluster, leader: SimulatedNode
) -> None:
    term = engine(leader).term
    for follower in followers(cluster):
        cluster.network.cut(leader.id, follower.id)
    engine(leader).start_transfer()
    cluster.run(0.1)
    for _ in range(300):
        cluster.run(0.01)
        assert not (engine(leader).is_leading and engine(leader).term == term)


def test_a_transfer_that_nobody_can_take_leaves_the_leader_leading() -> None:
    with SimulatedCluster(3, seed=3) as cluster:
        cluster.start()
        leader = settled_leader(cluster)
        term = engine(leader).term
        for follower in followers(cluster):  # acknowledgements are missing, heartbeats arrive
            cluster.network.slow_until[follower.id, leader.id] = cluster.timeline.now + 60.0
        leader.propose(b"not acknowledged in time")
        assert engine(leader).start_transfer()
        cluster.run(0.05)
        assert engine(leader).transfer.is_under_way
        cluster.heal()
        cluster.network.slow_until.clear()
        cluster.run(2.0)
        assert cluster.leader is not None
        assert engine(leader).term >= term


def test_a_node_alone_or_a_follower_hands_nothing_over(cluster: SimulatedCluster) -> None:
    settled_leader(cluster)
    assert not engine(followers(cluster)[0]).start_transfer()
    with SimulatedCluster(1, seed=1) as alone:
        alone.start()
        assert not engine(alone.elect()).start_transfer()


def test_a_node_that_stops_is_elected_neither_by_transfer_nor_by_timeout(cluster: SimulatedCluster) -> None:
    leader = settled_leader(cluster)
    retiring, other = followers(cluster)
    engine(retiring).elections.retire()
    engine(leader).start_transfer(retiring.id)
    cluster.run(2 * TIMING.election_max_seconds)
    assert cluster.leader in (leader, other)
    for _ in range(3):
        cluster.elect().crash(power_loss=False)
        cluster.run_until(lambda: cluster.leader is not None, seconds=3 * TIMING.election_max_seconds)
        assert cluster.leader is not retiring
        for node in (leader, other):
            if node.running is None:
                node.start()
        cluster.run(1.0)


def test_a_leader_that_stops_leads_until_it_has_transferred(cluster: SimulatedCluster) -> None:
    leader = settled_leader(cluster)
    engine(leader).elections.retire()
    cluster.run(2 * TIMING.election_max_seconds)
    assert cluster.leader is leader
    engine(leader).start_transfer()
    cluster.run_until(lambda: cluster.leader not in (None, leader))
    assert not engine(leader).leads


def test_a_candidate_that_stops_counts_no_votes(cluster: SimulatedCluster, leader: SimulatedNode) -> None:
    (candidate, _), term = followers(cluster), engine(leader).term
    engine(leader).start_transfer(candidate.id)
    cluster.run_until(lambda: engine(candidate).core.state == CANDIDATE)
    engine(candidate).elections.retire()
    cluster.run_until(lambda: any(engine(each).leads and engine(each).term > term for each in cluster.nodes.values()))
    assert not engine(candidate).leads


def test_leader_that_transfers_has_led_until_then(cluster: SimulatedCluster, leader: SimulatedNode) -> None:
    engine(leader).start_transfer()
    cluster.run_until(lambda: cluster.leader not in (None, leader), seconds=5.0)
    assert type(engine(leader).not_leader()) is NotLeader
    assert (engine(leader).leader_age_seconds() or 0.0) <= TIMING.election_max_seconds
