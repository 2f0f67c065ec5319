"""Who leads: elections, reads that are fresh, and proposals across leaders, over a simulated cluster."""

from __future__ import annotations

import pytest

from chaos.sim.engine.checker import Violation
from chaos.sim.engine.cluster import TIMING, SimulatedCluster, SimulatedNode
from chaos.sim.planted.patches.engine import (
    Plant,
    counts_contact_from_the_answer,
    forgets_its_promise_at_a_restart,
    reads_without_contact,
    serves_during_a_transfer,
    votes_against_its_promise,
)
from raftsched.consensus.raft import messages
from raftsched.consensus.raft.engine import RaftEngine
from raftsched.consensus.raft.peer_node import PeerNode
from raftsched.errors import NoMajority, NotLeader, Unavailable
from tests.consensus.clusters import engine, followers, part, settled_leader

# -- elections --------------------------------------------------------------------------------------------------------


def test_a_single_node_leads_at_once_and_commits_alone() -> None:
    with SimulatedCluster(1, seed=1) as cluster:
        cluster.start()
        cluster.run_until(lambda: cluster.leader is not None, seconds=0.1)
        cluster.nodes["n1"].propose(b"one")
        cluster.run_until(lambda: b"one" in cluster.checker.acknowledged, seconds=0.1)


def test_a_single_node_that_loses_power_keeps_what_it_acknowledged() -> None:
    with SimulatedCluster(1, seed=1) as cluster:
        node = cluster.nodes["n1"]
        for number in range(60):
            node.start()
            cluster.run_until(lambda: cluster.leader is not None)
            node.propose(b"%d" % number)
            cluster.run(cluster.random.uniform(0.0, 0.012))
            node.crash(power_loss=True)
        node.start()
        cluster.run(1.0)
        cluster.checker.on_end()
        assert len(cluster.checker.acknowledged) > 10


def test_a_crash_of_the_leader_is_over_within_two_timeouts(cluster: SimulatedCluster) -> None:
    for _ in range(10):
        leader = settled_leader(cluster)
        leader.crash(power_loss=True)
        cluster.run_until(lambda: cluster.leader is not None, seconds=2 * TIMING.election_max_seconds)
        assert cluster.leader is not leader
        leader.start()


def test_a_node_that_was_away_changes_no_leader_and_no_term(cluster: SimulatedCluster, leader: SimulatedNode) -> None:
    term = engine(leader).term
    away = followers(cluster)[0]
    for other in cluster.nodes.values():
        if other is not away:
            part(cluster, away, other)
    cluster.run(3.0)
    cluster.heal()
    cluster.run(3.0)
    assert cluster.leader is leader
    assert engine(leader).term == term == engine(away).term


def test_a_node_that_only_lost_the_leader_does_not_depose_it(cluster: SimulatedCluster, leader: SimulatedNode) -> None:
    term = engine(leader).term
    part(cluster, leader, followers(cluster)[0])
    cluster.run(3.0)
    assert cluster.leader is leader
    assert engine(leader).term == term


@pytest.mark.parametrize("is_heard", [False, True])
def test_a_leader_without_answers_of_a_majority_steps_down(
    cluster: SimulatedCluster, leader: SimulatedNode, is_heard: bool
) -> None:
    for follower in followers(cluster):
        cluster.network.cut(follower.id, leader.id)
        if not is_heard:
            cluster.network.cut(leader.id, follower.id)
    cluster.run(TIMING.election_max_seconds * 1.1)
    assert not engine(leader).leads


def seconds_without_a_leader(seed: int) -> float:
    """Return how long nobody leads after a leader that gets no answers, though its heartbeats arrive, has given up."""
    with SimulatedCluster(5, seed=seed) as cluster:
        cluster.start()
        leader = settled_leader(cluster)
        for follower in followers(cluster):
            cluster.network.cut(follower.id, leader.id)
        cluster.run_until(lambda: not engine(leader).leads)
        gave_up_at = cluster.timeline.now
        cluster.run_until(lambda: cluster.leader not in (None, leader))
        return cluster.timeline.now - gave_up_at


def test_a_leader_that_gives_up_is_replaced_before_an_election_timeout() -> None:
    gaps = {seed: seconds_without_a_leader(seed) for seed in range(20)}
    assert {seed: gap for seed, gap in gaps.items() if gap > TIMING.election_min_seconds} == {}


@pytest.mark.parametrize(("sender", "age"), [("leader", 1), ("follower", 0)])
def test_only_the_leader_itself_ends_its_lead_and_only_that_of_its_term(
    cluster: SimulatedCluster, leader: SimulatedNode, sender: str, age: int
) -> None:
    term, (follower, other) = engine(leader).term, followers(cluster)
    name = leader.id if sender == "leader" else other.id
    engine(follower).on_message(PeerNode(name), {"type": messages.LEAD_ENDED, "term": term - age})
    assert engine(follower).leader_id == leader.id
    cluster.run(TIMING.election_min_seconds)
    assert cluster.leader is leader
    assert engine(leader).term == term


def test_an_idle_cluster_sends_heartbeats_and_nothing_else(cluster: SimulatedCluster) -> None:
    settled_leader(cluster)
    cluster.run(2.0)

    def sent() -> int:
        return sum(node.running.transport.sent_count for node in cluster.nodes.values() if node.running)

    before = sent()
    cluster.run(10.0)
    heartbeats = 10.0 / TIMING.heartbeat_seconds * 2
    assert sent() - before <= heartbeats * 2 * 1.05


def test_an_idle_node_is_stepped_for_heartbeats_only(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled_leader(cluster)
    cluster.run(2.0)
    steps = 0
    original = RaftEngine.step

    def counted(self: RaftEngine) -> None:
        nonlocal steps
        steps += 1
        original(self)

    monkeypatch.setattr(RaftEngine, "step", counted)
    cluster.run(10.0)
    assert steps <= 10.0 / TIMING.heartbeat_seconds * 6


# -- fresh reads ------------------------------------------------------------------------------------------------------


def test_reads_are_served_by_the_leader_alone(cluster: SimulatedCluster, leader: SimulatedNode) -> None:
    engine(leader).check_fresh()
    for follower in followers(cluster):
        with pytest.raises(NotLeader) as refused:
            engine(follower).check_fresh()
        assert refused.value.leader == leader.id


def test_a_leader_just_elected_serves_nothing_before_its_first_entry_is_applied(cluster: SimulatedCluster) -> None:
    cluster.run_until(lambda: any(engine(node).leads for node in cluster.nodes.values()))
    leader = next(node for node in cluster.nodes.values() if engine(node).leads)
    assert engine(leader).applied_index < (engine(leader).core.no_op_index or 0)
    with pytest.raises(Unavailable, match="just elected"):
        engine(leader).check_fresh()


def paused_with_old_answers(cluster: SimulatedCluster) -> None:
    """The leader stops when it has asked, and wakes up to answers that are old, before it hears of its successor."""
    leader = settled_leader(cluster)
    others = followers(cluster)
    heartbeat_at = engine(leader).core.heartbeat_at
    while engine(leader).core.heartbeat_at == heartbeat_at:
        cluster.run(0.0002)
    leader.pause(60.0)
    cluster.run(0.02)
    for follower in others:
        cluster.network.cut(follower.id, leader.id)
    cluster.run_until(lambda: any(engine(follower).is_leading for follower in others))
    for follower in others:
        follower.propose(b"while it was stopped")
    cluster.run_until(lambda: cluster.checker.acknowledged)
    leader.resume()
    for _ in range(100):
        leader.read()
        cluster.run(0.001)


def deserted_one_by_one(cluster: SimulatedCluster, *, restart: bool) -> None:
    """One follower loses the leader and stands; the other is asked right after it answered the leader for the last time."""
    leader = settled_leader(cluster)
    voter, candidate = followers(cluster)
    part(cluster, leader, candidate)
    cluster.run_until(lambda: cluster.timeline.now >= _stands_at(candidate) - 0.03)
    cluster.network.cut(voter.id, leader.id)
    cluster.network.cut(leader.id, voter.id)
    if restart:
        voter.crash(power_loss=True)
        voter.start()
    for number in range(300):
        candidate.propose(b"%d" % number)
        leader.read()
        cluster.run(0.002)


def _stands_at(node: SimulatedNode) -> float:
    return node.clock.moment(engine(node).core.election_deadline)


def transferred_in_silence(cluster: SimulatedCluster) -> None:
    """The leader tells a follower to stand, and hears nothing any more."""
    leader = settled_leader(cluster)
    engine(leader).start_transfer()
    while not engine(leader).transfer.target:
        cluster.run(0.0002)
    for follower in cluster.nodes.values():
        if follower is not leader:
            cluster.network.cut(follower.id, leader.id)
    for number in range(300):
        for node in cluster.nodes.values():
            if node is not leader:
                node.propose(b"%d" % number)
        leader.read()
        cluster.run(0.002)


def deserted(cluster: SimulatedCluster) -> None:
    deserted_one_by_one(cluster, restart=False)


def deserted_by_a_restart(cluster: SimulatedCluster) -> None:
    deserted_one_by_one(cluster, restart=True)


@pytest.mark.parametrize(
    ("schedule", "plant"),
    [
        (paused_with_old_answers, counts_contact_from_the_answer),
        (paused_with_old_answers, reads_without_contact),
        (deserted, votes_against_its_promise),
        (deserted_by_a_restart, forgets_its_promise_at_a_restart),
        (transferred_in_silence, serves_during_a_transfer),
    ],
    ids=lambda value: value.__name__,
)
def test_a_read_is_never_stale(schedule: object, plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under each schedule no read is stale; with the fault planted that the schedule is about, one is."""
    assert callable(schedule)
    for seed in range(5):
        with SimulatedCluster(3, seed=seed) as cluster:
            cluster.start()
            schedule(cluster)
    plant(monkeypatch)
    with pytest.raises(Violation, match="serves a read"):
        for seed in range(5):
            with SimulatedCluster(3, seed=seed) as cluster:
                cluster.start()
                schedule(cluster)


# -- proposals across leaders -----------------------------------------------------------------------------------------


def test_a_proposal_that_the_next_leader_commits_is_a_success(cluster: SimulatedCluster, leader: SimulatedNode) -> None:
    leader.propose(b"kept")
    cluster.run(0.004)  # the entry has left, no answer is back
    leader.pause(1.2)
    cluster.run_until(lambda: cluster.leader is not leader, seconds=1.2)
    cluster.run(2.5)
    assert b"kept" in cluster.checker.acknowledged


def test_a_proposal_that_another_entry_replaces_is_certainly_refused(
    cluster: SimulatedCluster, leader: SimulatedNode
) -> None:
    """A leader that was paused hears of its successor, and of what is committed in the place of its entry."""
    for follower in followers(cluster):
        cluster.network.cut(leader.id, follower.id)
    leader.propose(b"replaced")
    cluster.run(0.2)
    leader.pause(2.0)
    cluster.run_until(lambda: cluster.leader not in (None, leader), seconds=2.0)
    cluster.heal()
    cluster.run(0.7)
    assert cluster.statistics["answer 3"] == 1


def test_a_proposal_that_nobody_decides_is_answered_unknown(cluster: SimulatedCluster, leader: SimulatedNode) -> None:
    for follower in followers(cluster):
        part(cluster, leader, follower)
    leader.propose(b"undecided")
    cluster.run(TIMING.election_max_seconds + 0.2)
    assert cluster.statistics["answer 7"] == 1


def test_leader_that_lost_its_majority_says_so_until_it_hears_the_next(
    cluster: SimulatedCluster, leader: SimulatedNode
) -> None:
    for follower in followers(cluster):
        part(cluster, leader, follower)
    parted_at = cluster.timeline.now
    cluster.run(TIMING.election_max_seconds + 0.2)
    assert type(engine(leader).not_leader()) is NoMajority
    age = engine(leader).leader_age_seconds()
    assert age is not None
    assert cluster.timeline.now - parted_at <= age <= cluster.timeline.now - parted_at + TIMING.heartbeat_seconds + 0.1
    cluster.elect()
    cluster.heal()
    cluster.run_until(lambda: engine(leader).leader_id, seconds=5.0)
    assert type(engine(leader).not_leader()) is NotLeader
