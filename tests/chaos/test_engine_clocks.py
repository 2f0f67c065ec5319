"""A cluster whose clocks are wrong: what would be stamped, and who leads.

Every few milliseconds each node that would accept a proposal is asked for a stamp. Whatever happens to one clock, a
stamp is within the allowed skew of the clocks that are right (give or take what monotonic clocks of different rates
make of it), and it never runs backward.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from structlog.testing import capture_logs

from chaos.sim.engine.checker import Violation
from chaos.sim.engine.cluster import SimulatedCluster, SimulatedNode
from chaos.sim.engine.faults import Faults
from raftsched.consensus.raft.clocks.cluster_clock import FRESH_SECONDS, JUDGED_SECONDS, ClusterClock
from raftsched.consensus.raft.engine import RaftEngine
from raftsched.errors import Unavailable
from raftsched.limits import CLOCK_SKEW_MS
from tests.consensus.clusters import engine

HOUR_MS = 3_600_000
RATE_MS = round(0.03 * 1000 * (FRESH_SECONDS + JUDGED_SECONDS))
"""What a monotonic clock that is 3 % off adds, from the measurement of the clocks to the stamp."""
RIGHT_MS = 200
"""Clocks that are right differ from real time by no more."""


@pytest.fixture(autouse=True)
def _quiet() -> None:
    """Keep the lines of the log, in place of this directory's fixture: some tests look at them."""


class Stamps:
    """Asks for stamps all the time; raises `Violation`."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self.count = 0
        self.refused_count = 0
        self._ask()

    def _ask(self) -> None:
        for node in self._cluster.nodes.values():
            running = node.running
            if running is not None and running.engine.is_leading and not node.is_paused:
                self._check(node, running.engine)
        self._cluster.timeline.after(0.004, self._ask)

    def _check(self, node: SimulatedNode, engine: RaftEngine) -> None:
        try:
            stamp_ms = engine.measured.cluster_clock.stamp_ms()
        except Unavailable:
            self.refused_count += 1
            return
        self.count += 1
        if stamp_ms < self._cluster.stamped_ms:
            raise Violation(f"{node.id} stamps {stamp_ms} after {self._cluster.stamped_ms}")
        self._cluster.stamped_ms = stamp_ms
        error_ms = stamp_ms - true_ms(self._cluster)
        if abs(error_ms) > RIGHT_MS + CLOCK_SKEW_MS + RATE_MS:
            raise Violation(f"{node.id} stamps {error_ms} ms ahead of real time in term {engine.term}")


def true_ms(cluster: SimulatedCluster) -> int:
    return 1_700_000_000_000 + round(cluster.timeline.now * 1000)


def clock_of(node: SimulatedNode) -> ClusterClock:
    return engine(node).measured.cluster_clock


Wrong = Callable[[SimulatedCluster, SimulatedNode], None]


def ahead(_cluster: SimulatedCluster, node: SimulatedNode) -> None:
    node.wall.set(ahead_ms=HOUR_MS)


def behind(_cluster: SimulatedCluster, node: SimulatedNode) -> None:
    node.wall.set(ahead_ms=-HOUR_MS)


def drifting(_cluster: SimulatedCluster, node: SimulatedNode) -> None:
    node.wall.set(ahead_ms=0, drift=0.05)


def jumping(cluster: SimulatedCluster, node: SimulatedNode) -> None:
    node.wall.set(ahead_ms=cluster.random.choice((-HOUR_MS, -2_000, -600, 0, 600, 2_000, HOUR_MS)))
    cluster.timeline.after(cluster.random.uniform(0.01, 1.5), partial(jumping, cluster, node))


WRONGS = pytest.mark.parametrize("wrong", [ahead, behind, drifting, jumping])


@WRONGS
@pytest.mark.parametrize("seed", range(4))
def test_one_wrong_clock_moves_no_stamp_under_random_faults(wrong: Wrong, seed: int) -> None:
    with SimulatedCluster(3 if seed % 2 else 5, seed=seed) as cluster:
        wrong(cluster, cluster.nodes["n1"])
        cluster.start()
        cluster.run(1.5)  # before the first leader nobody can remember the time
        stamps = Stamps(cluster)
        Faults(cluster, seconds=8.0)
        cluster.run(8.0)
        cluster.heal()
        cluster.run(8.0)
        cluster.checker.on_end()
        assert stamps.count > 500
        assert stamps.refused_count < stamps.count / 5


@pytest.mark.parametrize("wrong", [ahead, behind])
def test_a_leader_whose_clock_jumps_transfers_and_does_not_come_back(wrong: Wrong) -> None:
    with SimulatedCluster(3, seed=11) as cluster, capture_logs() as logs:
        cluster.start()
        node = cluster.elect()
        stamps = Stamps(cluster)
        cluster.run(1.0)
        wrong(cluster, node)
        cluster.run_until(lambda: cluster.leader not in (None, node), seconds=3.0)
        term = engine(cluster.elect()).term
        cluster.run(20.0)
        assert engine(cluster.elect()).term == term
        assert clock_of(node).is_off
        assert stamps.refused_count == 0
        assert [line["node"] for line in logs if line["event"] == "leadership_transfer_began"] == [node.id]
        assert {line["event"] for line in logs} >= {"own_clock_off", "clock_off"}


@pytest.mark.parametrize("wrong", [ahead, behind])
def test_a_leader_that_is_wrong_from_the_start_stamps_nothing_wrong_and_transfers(wrong: Wrong) -> None:
    with SimulatedCluster(3, seed=12) as cluster:
        cluster.start()
        first = cluster.elect().id
    with SimulatedCluster(3, seed=12) as cluster:
        wrong(cluster, cluster.nodes[first])
        stamps = Stamps(cluster)
        cluster.start()
        assert cluster.elect().id == first
        cluster.run(5.0)
        assert cluster.elect().id != first
        assert stamps.refused_count == 0


def test_the_lead_goes_to_a_node_whose_clock_is_right() -> None:
    with SimulatedCluster(5, seed=13) as cluster:
        cluster.start()
        node = cluster.elect()
        others = [other for other in cluster.nodes.values() if other is not node]
        ahead(cluster, others[0])
        cluster.run(1.5)
        behind(cluster, node)
        cluster.run_until(lambda: cluster.leader not in (None, node), seconds=3.0)
        assert cluster.elect() in others[1:]


def test_a_leader_that_nobody_can_relieve_goes_on_with_the_right_time() -> None:
    """The other two are an hour off, each to its side: no majority agrees, and no node is better than another."""
    with SimulatedCluster(3, seed=14) as cluster:
        cluster.start()
        node = cluster.elect()
        cluster.run(1.0)
        stamps = Stamps(cluster)
        one, two = (other for other in cluster.nodes.values() if other is not node)
        ahead(cluster, one)
        behind(cluster, two)
        cluster.run(20.0)
        assert cluster.elect() is node
        assert stamps.refused_count == 0
        assert not clock_of(node).is_off


def test_a_node_whose_clock_is_off_lets_the_others_stand_first_and_stands_in_need() -> None:
    with SimulatedCluster(3, seed=15) as cluster:
        cluster.start()
        node = cluster.elect()
        cluster.run(1.0)
        one, two = (other for other in cluster.nodes.values() if other is not node)
        ahead(cluster, one)
        cluster.run(2.0)
        for _ in range(6):  # whoever leads of the other two dies
            leader = cluster.elect()
            assert leader is not one
            leader.crash(power_loss=True)
            cluster.run_until(lambda: cluster.leader is not None, seconds=3.0)
            leader.start()
            cluster.run(2.5)
        engine(two).start_transfer()
        cluster.run(0.5)
        for other in (node, two):
            other.crash(power_loss=True)
        two.start()
        cluster.run_until(lambda: cluster.leader is not None, seconds=3.0)


def test_the_time_outlives_the_majority_that_agreed_on_it() -> None:
    """One of three dies and one of the others is an hour ahead: both remember, and the one that is right leads."""
    with SimulatedCluster(3, seed=16) as cluster, capture_logs() as logs:
        cluster.start()
        node = cluster.elect()
        one, two = (other for other in cluster.nodes.values() if other is not node)
        ahead(cluster, one)
        cluster.run(2.0)
        stamps = Stamps(cluster)
        node.crash(power_loss=True)
        cluster.run(5.0)
        engine(cluster.elect()).start_transfer()
        cluster.run(5.0)
        assert cluster.elect() is two
        assert stamps.count > 1_000
        assert stamps.refused_count < 100
        assert "clocks_disagree" in {line["event"] for line in logs}


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
def test_a_jump_of_the_wall_clock_ends_no_contact_and_no_term(jump_ms: int) -> None:
    with SimulatedCluster(3, seed=17) as cluster:
        cluster.start()
        node = cluster.elect()
        cluster.run(1.0)
        term = engine(node).term
        for other in cluster.nodes.values():
            other.wall.set(ahead_ms=jump_ms)
        for _ in range(500):
            cluster.run(0.01)
            engine(node).check_fresh()
        assert engine(node).term == term
        assert not clock_of(node).is_off
