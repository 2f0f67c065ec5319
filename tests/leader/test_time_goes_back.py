"""A leader whose estimate of cluster time goes back, since clocks were corrected or set: it passes over no job."""

from __future__ import annotations

import random

from raftsched import limits
from raftsched.core.records.ids import JobId, TimeMs
from tests.leader.scene import START_MS, Leader, World


def test_a_job_that_was_due_before_time_went_back_is_found_when_it_is_due_again(world: World, leader: Leader) -> None:
    job_id = world.submit_one(delay_ms=300)
    leader.run(500)  # nobody has asked for the queue yet: the index must show the job
    world.clock.wall_offset_ms -= 400
    assert leader.lease() == []
    leader.run(200)
    assert [job.id for job in leader.lease()] == [job_id]


def test_a_leader_that_began_ahead_finds_what_becomes_due_once_time_is_corrected(world: World) -> None:
    """Seed 102 of five nodes: the reading fell by 667 ms, and a retry that was due in between was never offered."""
    job_id = world.submit_one(delay_ms=300)
    world.clock.wall_offset_ms += 500
    leader = Leader(world)
    world.clock.wall_offset_ms -= 500
    assert leader.lease() == []
    leader.run(300)
    assert [job.id for job in leader.lease()] == [job_id]


def test_a_backlog_that_is_read_to_its_end_after_time_went_back_loses_nothing(world: World, leader: Leader) -> None:
    assert leader.lease() == []
    count = limits.READY_BUFFER_JOBS_MAX + 1
    job_ids = [job_id for start in range(0, count, 1_000) for job_id in world.submit(delay_ms=300, count=1_000)]
    leader.run(300)
    world.clock.wall_offset_ms -= 100
    taken = leader.take(capacity=1_000)
    leader.run(100)
    while ids := leader.take(capacity=1_000):
        taken += ids
    assert sorted(taken) == sorted(job_ids)


def test_a_job_that_had_expired_before_time_went_back_is_given_while_it_has_not(world: World, leader: Leader) -> None:
    assert leader.take() == []  # from now on each job with options is looked at before it is given
    job_id = world.submit_one(expires_at_ms=TimeMs(START_MS + 1_000))
    world.clock.advance(1_000)
    assert leader.take() == []
    world.clock.wall_offset_ms -= 500
    assert [job.id for job in leader.lease()] == [job_id]


def test_every_job_is_given_however_often_time_goes_back_and_forth() -> None:
    assert [seed for seed in range(60) if passed_over(seed)] == []


def passed_over(seed: int) -> set[JobId]:
    """Return the jobs that no worker got, although they were due and nothing kept them back."""
    chance = random.Random(seed)
    world = World(seed=seed)
    leader = Leader(world)
    queues = ("mail", "other")
    left: set[JobId] = set()
    for _ in range(200):
        queue = chance.choice(queues)
        match chance.randrange(6):
            case 0:
                delay_ms = chance.choice((0, 1, 50, 1_000, limits.WHEEL_HORIZON_MS))
                left.update(world.submit(queue, delay_ms=delay_ms, count=chance.randint(1, 3)))
            case 1:
                ahead_ms = chance.choice((0, 1, 700, 2_000))  # of the last stamp, behind which time does not go
                to_ms = max(world.state.cluster_time_ms, START_MS) + ahead_ms
                world.clock.wall_offset_ms += to_ms - world.clock.wall_ms()
            case 2:
                leader.run(chance.choice((1, 20, 700)))
            case 3:
                leader = Leader(world)
            case 4:
                leader.duties.leave(leader.wait(queue, capacity=chance.randint(1, 3), wait_ms=0), world.now)
            case _:
                for job in leader.lease(queue, capacity=2):
                    world.complete(job)
                    left.discard(job.id)
    leader.run(max([world.job(job_id).due_at_ms - world.clock.wall_ms() for job_id in left] or [0]))
    while jobs := leader.lease(*queues, capacity=100):
        left.difference_update(job.id for job in jobs)
    return left
