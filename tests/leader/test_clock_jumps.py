"""The leader's services by a wall clock that jumps, in a cluster of three whose other clocks are right (R25, R26)."""

from __future__ import annotations

import pytest

from raftsched.consensus.raft.clocks.cluster_clock import ClusterClock
from raftsched.core.operations.codec import ExpireLeases
from raftsched.core.records.job import Status
from tests.leader.scene import START_MS, TTL_MS, HandClock, Leader, World

HOUR_MS = 3_600_000
JUMPS = pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])


class DisciplinedClock(HandClock):
    """Cluster time of a leader; `wall` is its own wall clock, and heartbeats go on while time passes."""

    def __init__(self, *, peer_count: int = 2) -> None:
        super().__init__()
        self.wall = HandClock()
        self.peers_ahead_ms = 0
        self.cluster = ClusterClock(self.wall, floor_ms=lambda: self.floor_ms)
        self.floor_ms = 0
        self._peers = [f"n{number}" for number in range(peer_count)]
        self.cluster.set_peers(self._peers)
        self.cluster.start_leading()
        self.advance(0)

    def wall_ms(self) -> int:
        return self.cluster.stamp_ms()

    def advance(self, ms: int) -> None:
        super().advance(ms)
        self.wall.advance(ms)
        for peer in self._peers:
            true_ms = START_MS + self.passed_ms
            self.cluster.observe_peer(
                peer, wall_ms=true_ms + self.peers_ahead_ms, sent_at=self.monotonic(), now=self.monotonic()
            )

    def jump(self, ms: int) -> None:
        """Set the own wall clock."""
        self.wall.wall_offset_ms = START_MS + ms
        self.advance(0)


class DisciplinedWorld(World):
    def __init__(self, *, peer_count: int = 2) -> None:
        self.disciplined = DisciplinedClock(peer_count=peer_count)
        super().__init__(clock=self.disciplined)

    def run(self, leader: Leader, ms: int) -> None:
        """Let time pass, and heartbeats with it."""
        for _ in range(ms // 50):
            leader.run(50)
            self.disciplined.floor_ms = self.state.cluster_time_ms


@JUMPS
def test_a_jump_of_the_leaders_clock_makes_no_timed_job_early_or_late(jump_ms: int) -> None:
    world = DisciplinedWorld()
    leader = Leader(world)
    job_id = world.submit_one(delay_ms=60_000)
    world.run(leader, 10_000)
    world.disciplined.jump(jump_ms)
    world.run(leader, 49_900)
    assert leader.lease("mail") == []
    world.run(leader, 150)
    assert [job.id for job in leader.lease("mail")] == [job_id]


@JUMPS
def test_a_jump_of_the_leaders_clock_ends_no_lease_of_a_worker_that_lives(jump_ms: int) -> None:
    world = DisciplinedWorld()
    leader = Leader(world)
    world.submit(count=2)
    alive, dead = leader.lease("mail", capacity=2)
    world.run(leader, TTL_MS // 2)
    world.disciplined.jump(jump_ms)
    for _ in range(4):
        assert [answer.valid for answer in leader.heartbeat(alive)] == [True]
        world.run(leader, TTL_MS // 2)
    assert world.status(alive.id) is Status.RUNNING
    assert world.status(dead.id) is not Status.RUNNING
    expired = [suspect.job_id for operation in leader.expiries for suspect in operation.leases]
    assert expired == [dead.id]


@JUMPS
def test_a_leader_with_a_wrong_clock_takes_over_without_an_early_end(jump_ms: int) -> None:
    world = DisciplinedWorld()
    before = Leader(world)
    world.submit_one(timeout_ms=30_000)
    (job,) = before.lease("mail")
    world.run(before, 5_000)
    world.disciplined.jump(jump_ms)
    world.disciplined.cluster.start_leading()
    world.disciplined.advance(0)
    after = Leader(world)
    for _ in range(6):
        assert [answer.valid for answer in after.heartbeat(job)] == [True]
        world.run(after, 4_000)
    assert world.status(job.id) is Status.RUNNING
    world.run(after, 1_500)
    assert world.status(job.id) is not Status.RUNNING


def test_leases_end_and_timed_jobs_come_due_late_but_surely_when_all_clocks_are_set_back() -> None:
    world = DisciplinedWorld()
    leader = Leader(world)
    world.submit_one("mail")
    (job,) = leader.lease("mail")
    timed = world.submit_one("later", delay_ms=20_000)
    world.disciplined.peers_ahead_ms = -HOUR_MS
    world.disciplined.jump(-HOUR_MS)
    world.run(leader, 2 * TTL_MS + 500)
    assert world.status(job.id) is not Status.RUNNING
    assert leader.lease("later") == []
    world.run(leader, 21_000)
    assert [leased.id for leased in leader.lease("later")] == [timed]


def test_a_node_alone_whose_clock_was_set_back_goes_on() -> None:
    world = DisciplinedWorld(peer_count=0)
    leader = Leader(world)
    world.submit_one("mail")
    (job,) = leader.lease("mail")
    world.disciplined.jump(-2 * HOUR_MS)
    world.run(leader, 2 * TTL_MS + 500)
    assert world.status(job.id) is not Status.RUNNING
    assert any(isinstance(operation, ExpireLeases) for operation in world.log)
