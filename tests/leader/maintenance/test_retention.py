from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from raftsched import limits
from raftsched.core.checks.invariants import check
from raftsched.core.maintenance import retention as upkeep
from raftsched.core.operations.codec import PurgeJobs
from raftsched.core.operations.control import RequeueJob
from raftsched.core.records.ids import JobId
from raftsched.core.records.job import Dependency, Status
from raftsched.leader.settings import LeaderSettings
from tests.leader.scene import TTL_MS, HandClock, Leader, World

SETTINGS = LeaderSettings(lease_ttl_ms=TTL_MS, retention_ms=60_000, retention_every_ms=5_000)


@pytest.fixture
def leader(world: World) -> Leader:
    return Leader(world, SETTINGS)


def purges(world: World) -> list[PurgeJobs]:
    return [operation for operation in world.log if isinstance(operation, PurgeJobs)]


def test_finished_job_is_kept_for_its_retention_and_removed_soon_after(world: World, leader: Leader) -> None:
    job_id = world.submit_one()
    world.cancel(job_id)
    leader.run(SETTINGS.retention_ms)
    assert world.status(job_id) is Status.CANCELLED
    leader.run(SETTINGS.retention_every_ms)
    assert world.state.job(job_id) is None


def test_leader_that_does_not_know_the_time_yet_removes_nothing_and_goes_on() -> None:
    """Simulator seed 7, 3 nodes: a new leader's cluster time was less than the retention."""
    clock = HandClock()
    clock.wall_offset_ms = 1_000
    world = World(clock=clock)
    leader = Leader(world, SETTINGS)
    leader.run(SETTINGS.retention_every_ms)
    assert purges(world) == []


def test_unfinished_jobs_are_never_removed(world: World, leader: Leader) -> None:
    queued, later = world.submit_one(), world.submit_one(delay_ms=3_600_000)
    leader.run(10 * SETTINGS.retention_ms)
    assert world.status(queued) is Status.QUEUED
    assert world.status(later) is Status.SCHEDULED
    assert purges(world) == []


def test_many_old_jobs_are_removed_in_bounded_steps_without_waiting_for_the_next_round(world: World) -> None:
    count = 2 * limits.PURGE_JOBS_MAX + 7
    for job_id in world.submit(count=count):
        world.cancel(job_id)
    world.clock.advance(SETTINGS.retention_ms + 1)
    leader = Leader(world, SETTINGS)
    leader.run(1_000)
    assert [len(purge.job_ids) for purge in purges(world)] == [limits.PURGE_JOBS_MAX, limits.PURGE_JOBS_MAX, 7]
    assert not list(world.state.all_jobs())


def test_failed_purge_is_tried_again(world: World) -> None:
    world.cancel(world.submit_one())
    world.clock.advance(SETTINGS.retention_ms + 1)
    leader = Leader(world, SETTINGS)
    (order,) = leader.duties.step(world.now)
    leader.duties.on_result(order, None, world.now)
    leader.run(SETTINGS.retention_every_ms)
    assert not list(world.state.all_jobs())


# -- of queues and jobs -----------------------------------------------------------------------------------------------


def finish(world: World, *job_ids: JobId) -> None:
    for job_id in job_ids:
        world.cancel(job_id)


def left(world: World) -> set[JobId]:
    return {job.id for job in world.state.all_jobs()}


def test_queue_keeps_its_jobs_as_long_as_it_says(world: World, leader: Leader) -> None:
    world.configure("short", retention_ms=20_000)
    world.configure("long", retention_ms=300_000)
    short, plain, long = (world.submit_one(queue) for queue in ("short", "plain", "long"))
    finish(world, short, plain, long)
    leader.run(20_000)
    assert left(world) == {short, plain, long}
    leader.run(5_001)
    assert left(world) == {plain, long}
    leader.run(SETTINGS.retention_ms)
    assert left(world) == {long}
    leader.run(200_000)
    assert left(world) == {long}
    leader.run(50_000)
    assert left(world) == set()


@pytest.mark.parametrize("kept_ms", [1_500, 200_000])
def test_job_with_a_retention_of_its_own_goes_exactly_then(kept_ms: int, world: World, leader: Leader) -> None:
    world.configure(retention_ms=20_000)
    job_id, plain = world.submit_one(retention_ms=kept_ms), world.submit_one()
    finish(world, job_id, plain)
    leader.run(kept_ms - 1)
    assert job_id in left(world)
    leader.run(2)
    assert job_id not in left(world)
    assert check(world.state) == []


def test_new_leader_goes_on_with_all_retentions(world: World) -> None:
    world.configure("short", retention_ms=20_000)
    jobs = [world.submit_one("short"), world.submit_one(), world.submit_one(retention_ms=40_000)]
    finish(world, *jobs)
    world.clock.advance(50_000)
    leader = Leader(world, SETTINGS)
    leader.run(1_000)
    assert left(world) == {jobs[1]}
    leader.run(20_000)
    assert left(world) == set()


def test_changed_retention_of_a_queue_holds_for_jobs_that_were_passed_over(world: World, leader: Leader) -> None:
    world.configure("long", retention_ms=10_000_000)
    long, requeued = world.submit("long", count=2)
    finish(world, long, requeued)
    leader.run(1_000_000)
    world.apply(RequeueJob(requeued, "default"))
    assert left(world) == {long, requeued}
    world.configure("long", retention_ms=0)
    leader.run(1_000)
    assert left(world) == {requeued}


def test_finished_jobs_that_stay_are_looked_at_once(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    world.configure("long", retention_ms=10_000_000)
    count = 3 * limits.PURGE_JOBS_MAX
    finish(world, *world.submit("long", count=count))
    world.clock.advance(SETTINGS.retention_ms + 1)
    leader = Leader(world, SETTINGS)
    looked_at = 0
    find = world.state.finished_between

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal looked_at
        places = find(*args, **kwargs)
        looked_at += len(places)
        return places

    monkeypatch.setattr(world.state, "finished_between", counted)
    leader.run(600_000)
    assert looked_at == count
    assert purges(world) == []


def test_short_retention_is_not_held_up_by_many_jobs_that_stay(world: World) -> None:
    world.configure("short", retention_ms=20_000)
    finish(world, *world.submit("mail", count=4 * limits.PURGE_JOBS_MAX))
    (job_id,) = world.submit("short")
    finish(world, job_id)
    world.clock.advance(20_001)
    leader = Leader(world, SETTINGS)
    leader.run(1_000)
    assert job_id not in left(world)


def test_job_that_can_not_be_purged_yet_is_purged_later(
    monkeypatch: pytest.MonkeyPatch, world: World, leader: Leader
) -> None:
    job_ids = world.submit(count=3)
    finish(world, *job_ids)
    with monkeypatch.context() as patch:
        patch.setattr(upkeep, "may_have_dependants", lambda job: job.id == job_ids[1])
        patch.setattr(upkeep, "is_resolving", lambda *_: True)
        leader.run(SETTINGS.retention_ms + SETTINGS.retention_every_ms)
        assert left(world) == {job_ids[1]}
        before = len(purges(world))
        leader.run(10 * SETTINGS.retention_every_ms)
        assert len(purges(world)) - before <= 10
    leader.run(SETTINGS.retention_every_ms)
    assert left(world) == set()


def test_many_different_retentions_share_the_work(world: World) -> None:
    for number in range(1, 200):
        world.configure(f"q{number}", retention_ms=number * 1_000)
        finish(world, world.submit_one(f"q{number}"))
    leader = Leader(world, SETTINGS)
    leader.run(100_000)
    gone = 200 - 1 - len(left(world))
    assert 90 <= gone <= 100
    leader.run(110_000)
    assert left(world) == set()


# -- what is needed longer


def pair(world: World, **options: Any) -> tuple[JobId, JobId]:
    """A parent that is completed, and a child that waits for another, too."""
    parent, other = world.submission(**options), world.submission("other")
    child = replace(world.submission("other"), depends_on=(Dependency(parent.id), Dependency(other.id)))
    world.apply(parent, other, child)
    world.lease(parent.id)
    world.complete(world.job(parent.id))
    return parent.id, child.id


@pytest.mark.parametrize("options", [{}, {"retention_ms": 1_000}])
def test_parent_is_kept_for_its_child_and_goes_soon_after_it_has_ended(
    options: dict[str, int], world: World, leader: Leader
) -> None:
    parent, child = pair(world, **options)
    leader.run(3 * upkeep.KEPT_AGAIN_MS)
    assert parent in left(world)
    assert len(purges(world)) <= 4, "nobody asks again and again"
    finish(world, child)
    leader.run(upkeep.KEPT_AGAIN_MS)
    assert parent not in left(world)
    assert check(world.state) == []


def test_parents_that_are_kept_do_not_hold_up_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PURGE_JOBS_MAX", 2)
    monkeypatch.setattr(limits, "HANDLE_DEADLINES_MAX", 2)
    world = World()
    leader = Leader(world, SETTINGS)
    kept = {pair(world, retention_ms=1_000 * (number % 2))[0] for number in range(8)}
    plain, own = world.submit_one(), world.submit_one(retention_ms=2_000)
    finish(world, plain, own)
    leader.run(SETTINGS.retention_ms + SETTINGS.retention_every_ms)
    assert not {plain, own} & left(world)
    assert kept < left(world)


def test_job_is_kept_for_its_idempotency_key_and_goes_when_that_no_longer_counts(world: World, leader: Leader) -> None:
    until_ms = world.now.cluster_ms + 300_000
    operation = replace(world.submission(idempotency_until_ms=until_ms), idempotency_key="k")
    world.apply(operation)
    finish(world, operation.id)
    leader.run(until_ms - world.now.cluster_ms - 1)
    assert operation.id in left(world)
    leader.run(1_000)
    assert operation.id not in left(world)
