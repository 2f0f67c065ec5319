from __future__ import annotations

from raftsched import limits
from raftsched.core.job import Status
from raftsched.core.operations import PurgeJobs
from raftsched.leader.settings import LeaderSettings
from tests.leader.scene import TTL_MS, Leader, World

SETTINGS = LeaderSettings(lease_ttl_ms=TTL_MS, retention_ms=60_000, retention_every_ms=5_000)


def purges(world: World) -> list[PurgeJobs]:
    return [operation for operation in world.log if isinstance(operation, PurgeJobs)]


def test_finished_job_is_kept_for_its_retention_and_removed_soon_after() -> None:
    world = World()
    leader = Leader(world, SETTINGS)
    job_id = world.submit_one()
    world.cancel(job_id)
    leader.run(SETTINGS.retention_ms)
    assert world.status(job_id) is Status.CANCELLED
    leader.run(SETTINGS.retention_every_ms)
    assert world.state.job(job_id) is None


def test_unfinished_jobs_are_never_removed() -> None:
    world = World()
    leader = Leader(world, SETTINGS)
    queued, later = world.submit_one(), world.submit_one(delay_ms=3_600_000)
    leader.run(10 * SETTINGS.retention_ms)
    assert world.status(queued) is Status.QUEUED
    assert world.status(later) is Status.SCHEDULED
    assert purges(world) == []


def test_many_old_jobs_are_removed_in_bounded_steps_without_waiting_for_the_next_round() -> None:
    world = World()
    count = 2 * limits.PURGE_JOBS_MAX + 7
    for job_id in world.submit(count=count):
        world.cancel(job_id)
    world.clock.advance(SETTINGS.retention_ms + 1)
    leader = Leader(world, SETTINGS)
    leader.run(1_000)
    assert [len(purge.job_ids) for purge in purges(world)] == [limits.PURGE_JOBS_MAX, limits.PURGE_JOBS_MAX, 7]
    assert not list(world.state.all_jobs())


def test_failed_purge_is_tried_again() -> None:
    world = World()
    world.cancel(world.submit_one())
    world.clock.advance(SETTINGS.retention_ms + 1)
    leader = Leader(world, SETTINGS)
    (order,) = leader.duties.step(world.now)
    leader.duties.settled(order, None, world.now)
    leader.run(SETTINGS.retention_every_ms)
    assert not list(world.state.all_jobs())
