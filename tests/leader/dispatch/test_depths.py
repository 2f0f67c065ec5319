from __future__ import annotations

import pytest

from raftsched.core.records.job import AttemptEnd, Status
from raftsched.leader.dispatch import depths
from raftsched.leader.dispatch.depths import QueueDepth, QueueScale, queue_depths
from tests.leader.scene import Leader, World


def depths_of(world: World, tenant: str | None = None) -> dict[str, QueueDepth]:
    queues = world.state.used_queues(tenant)
    found = queue_depths(world.state, queues, world.now.cluster_ms, waiting_workers=lambda _: 0, tenant=tenant)
    return {depth.queue: depth for depth in found}


def test_depths_count_each_queue_by_status(world: World, leader: Leader) -> None:
    world.submit("mail", count=3)
    world.submit("pay", count=2)
    leader.lease("pay")
    found = depths_of(world)
    assert found["mail"].counts == {Status.QUEUED: 3}
    assert found["pay"].counts == {Status.QUEUED: 1, Status.RUNNING: 1}
    assert list(found) == ["mail", "pay"]


def test_depths_move_jobs_to_queued_when_their_time_has_come(world: World, leader: Leader) -> None:
    world.submit(delay_ms=1_000, count=2)
    world.submit(delay_ms=9_000)
    (job,) = leader.lease() or leader.lease_ids(world.submit())
    world.report(job, AttemptEnd.FAILED, delay_ms=1_000)
    assert depths_of(world)["mail"].counts == {Status.SCHEDULED: 3, Status.RETRYING: 1}
    world.clock.advance(1_000)
    depth = depths_of(world)["mail"]
    assert depth.counts == {Status.SCHEDULED: 1, Status.QUEUED: 3}
    assert depth.exact


def test_depths_say_that_they_are_not_exact_when_too_many_timers_are_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depths, "DUE_TIMERS_MAX", 10)
    world = World()
    world.submit("mail", delay_ms=1_000, count=15)
    world.submit("pay")
    world.clock.advance(1_000)
    found = depths_of(world)
    assert found["mail"].counts == {Status.QUEUED: 10, Status.SCHEDULED: 5}
    assert not found["mail"].exact
    assert found["pay"].exact


def test_depths_tell_how_long_the_oldest_due_job_has_waited(world: World) -> None:
    world.submit("mail", priority=1)
    world.submit("pay", delay_ms=60_000)
    world.clock.advance(7_000)
    world.submit("mail", priority=9)
    found = depths_of(world)
    assert found["mail"].oldest_wait_ms == 7_000
    assert found["pay"].oldest_wait_ms == 0


def test_depths_show_one_tenant_its_own_jobs_only(world: World) -> None:
    world.submit("mail", tenant="a", delay_ms=10, count=2)
    world.submit("mail", tenant="b", delay_ms=10, count=3)
    world.submit("secret", tenant="b")
    world.clock.advance(10)
    assert {queue: depth.counts for queue, depth in depths_of(world, "a").items()} == {"mail": {Status.QUEUED: 2}}
    assert depths_of(world)["mail"].counts == {Status.QUEUED: 5}


def test_depths_show_how_many_workers_wait(world: World, leader: Leader) -> None:
    leader.wait("mail", "pay")
    leader.wait("mail")
    world.submit("mail", delay_ms=1_000)
    now_ms = world.now.cluster_ms
    found = queue_depths(world.state, ["mail"], now_ms, waiting_workers=leader.duties.waiting_workers)
    assert [(depth.queue, depth.waiting_workers) for depth in found] == [("mail", 2)]


# -- scale ------------------------------------------------------------------------------------------------------------


def test_scale_says_how_many_workers_would_do_all_that_is_there(world: World, leader: Leader) -> None:
    for name in ("w1", "w2", "w3"):
        leader.take(worker=name, capacity=4)
    world.submit(count=21)
    leader.lease(worker="w1", capacity=4)
    world.submit(delay_ms=60_000, count=50)
    world.clock.advance(3_000)
    leader.wait("other")
    assert leader.duties.scale("mail", world.now) == QueueScale(
        queue="mail",
        ready_count=17,
        exact=True,
        running_count=4,
        delayed_count=50,
        oldest_wait_ms=3_000,
        waiting_workers=0,
        worker_count=2,
        worker_slots=4,
        wanted_workers=6,
    )


def test_scale_of_a_queue_nobody_uses_is_zero(world: World) -> None:
    scale = Leader(world).duties.scale("none", world.now)
    assert (scale.ready_count, scale.running_count, scale.wanted_workers, scale.worker_slots) == (0, 0, 0, 1)


def test_scale_wants_no_workers_beyond_what_the_queue_lets_run(world: World, leader: Leader) -> None:
    world.submit(count=20)
    world.configure(concurrency_max=3)
    assert leader.duties.scale("mail", world.now).wanted_workers == 3
    leader.lease()
    world.pause()
    scale = leader.duties.scale("mail", world.now)
    assert (scale.ready_count, scale.wanted_workers) == (19, 1)


def test_scale_leaves_out_jobs_that_wait_for_their_key(world: World, leader: Leader) -> None:
    leader.take()
    world.submit(count=10, concurrency_key="k")
    leader.lease(capacity=10)
    leader.run(1)
    scale = leader.duties.scale("mail", world.now)
    assert (scale.ready_count, scale.running_count, scale.exact) == (0, 1, True)


def test_scale_counts_jobs_that_became_due_by_time(world: World, leader: Leader) -> None:
    world.submit(delay_ms=1_000, count=5)
    assert leader.duties.scale("mail", world.now).wanted_workers == 0
    world.clock.advance(1_000)
    assert leader.duties.scale("mail", world.now).wanted_workers == 5
