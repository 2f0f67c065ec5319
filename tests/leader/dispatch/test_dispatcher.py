from __future__ import annotations

import pytest

from raftsched import limits
from raftsched.errors import NotLeader, Unavailable
from raftsched.leader.dispatch import dispatcher
from tests.leader.scene import Leader, World


def test_waiter_is_handed_a_job_by_the_entry_that_brings_it(world: World, leader: Leader) -> None:
    waiter = leader.wait("mail")
    job_id = world.submit_one("mail")
    assert waiter.jobs.result() == [job_id]


def test_waiter_is_handed_a_delayed_job_exactly_at_its_time(world: World, leader: Leader) -> None:
    leader.lease("mail")
    waiter = leader.wait("mail")
    job_id = world.submit_one("mail", delay_ms=5_000)
    leader.run(4_999)
    assert not waiter.jobs.done()
    leader.run(1)
    assert waiter.jobs.result() == [job_id]


def test_waiters_are_served_in_the_order_they_came(world: World, leader: Leader) -> None:
    first, second = leader.wait("mail"), leader.wait("mail")
    one = world.submit_one()
    assert first.jobs.result() == [one]
    assert not second.jobs.done()
    two = world.submit_one()
    assert second.jobs.result() == [two]


def test_no_job_is_handed_to_two_waiters(world: World, leader: Leader) -> None:
    waiters = [leader.wait("mail", "pay", capacity=3) for _ in range(5)]
    job_ids = world.submit("mail", count=4) + world.submit("pay", count=4)
    handed = [job_id for waiter in waiters if waiter.jobs.done() for job_id in waiter.jobs.result()]
    assert len(handed) >= 5
    assert sorted(handed + leader.take("mail", "pay", capacity=9)) == sorted(job_ids)


def test_burst_is_spread_evenly_over_the_waiters(world: World, leader: Leader) -> None:
    waiters = [leader.wait("mail", capacity=32) for _ in range(4)]
    world.submit("mail", count=20)
    assert [len(waiter.jobs.result()) for waiter in waiters] == [5, 5, 5, 5]


def test_waiter_gets_no_more_than_its_capacity(world: World, leader: Leader) -> None:
    waiter = leader.wait("mail", capacity=2)
    job_ids = world.submit("mail", count=5)
    assert waiter.jobs.result() == job_ids[:2]
    assert [job.id for job in leader.lease("mail", capacity=9)] == job_ids[2:]


def test_waiter_is_left_alone_by_jobs_of_other_queues(world: World, leader: Leader) -> None:
    waiter = leader.wait("mail")
    world.submit("pay")
    assert not waiter.jobs.done()


def test_waiters_of_a_region_get_its_jobs_and_those_of_none(world: World, leader: Leader) -> None:
    nowhere, eu, us = (leader.wait("mail", region=region, capacity=5) for region in ("", "eu", "us"))
    (for_us,) = world.submit(region="us")
    assert us.jobs.result() == [for_us]
    assert leader.duties.waiting_workers("mail") == 2
    plain = world.submit()
    assert nowhere.jobs.result() == plain
    more = [world.submit_one(region="us"), world.submit_one()]
    assert eu.jobs.result() == more[1:]
    assert leader.duties.waiting_workers("mail") == 0
    assert [job.id for job in leader.lease(region="us", capacity=5)] == more[:1]


def test_waiters_of_several_regions_are_served_in_the_order_they_came(world: World, leader: Leader) -> None:
    waiters = [leader.wait("mail", region=region) for region in ("eu", "", "us", "eu", "")]
    for waiter in waiters:
        job_ids = world.submit()
        assert waiter.jobs.result() == job_ids


def test_timed_jobs_of_a_region_go_to_it_when_their_time_comes(world: World, leader: Leader) -> None:
    nowhere, eu = leader.wait("mail"), leader.wait("mail", region="eu")
    job_id = world.submit_one(delay_ms=5_000, region="eu")
    leader.run(5_000)
    assert eu.jobs.result() == [job_id]
    assert not nowhere.jobs.done()


def test_waiters_of_a_region_hear_of_its_jobs_after_the_leader_doubted_what_it_knew(
    world: World, leader: Leader
) -> None:
    waiter = leader.wait("mail", region="eu")
    leader.duties._ready.doubt()
    job_id = world.submit_one(region="eu")
    assert waiter.jobs.result() == [job_id]


def test_waiters_of_a_tenant_get_its_jobs_alone_and_nobody_waits_behind_them(world: World, leader: Leader) -> None:
    a, b, by_pattern = (leader.wait(queue, tenant=tenant, capacity=5) for queue, tenant in _BOUND)
    anybody = leader.wait("mail", capacity=5)
    assert [leader.duties.waiting_workers("mail", tenant) for tenant in (None, "a", "b", "c")] == [4, 2, 3, 1]
    for_c = world.submit(tenant="c")
    assert anybody.jobs.result() == for_c
    for_b = [*world.submit(tenant="b"), *world.submit(tenant="b", count=2)]
    assert [*b.jobs.result(), *by_pattern.jobs.result()] == for_b[:2]
    assert not a.jobs.done()
    assert leader.take("mail", capacity=9) == for_b[2:]


_BOUND = (("mail", "a"), ("mail", "b"), ("*", "b"))


def test_leader_counts_depth_and_scale_for_each_tenant(world: World, leader: Leader) -> None:
    leader.wait("mail", tenant="a", worker="a/w1", capacity=4, wait_ms=0)
    world.submit(tenant="a", count=9)
    world.clock.advance(1_000)
    world.submit(tenant="b", count=3)
    now = world.now
    scales = {tenant: leader.duties.scale("mail", now, tenant) for tenant in (None, "a", "b")}
    told = {t: (s.ready_count, s.oldest_wait_ms, s.worker_slots, s.wanted_workers) for t, s in scales.items()}
    assert told == {None: (12, 1_000, 4, 3), "a": (9, 1_000, 4, 3), "b": (3, 0, 1, 3)}


def test_waiters_get_only_jobs_that_they_have_a_handler_for(world: World, leader: Leader) -> None:
    old = leader.wait("mail", names=["charge"], capacity=5)
    new = leader.wait("mail", names=["charge", "refund"], capacity=5)
    raw = leader.wait("mail", capacity=5)
    refund = world.submit_one(name="refund")
    assert (old.jobs.done(), new.jobs.result(), raw.jobs.done()) == (False, [refund], False)
    charges = world.submit(name="charge", count=2)
    assert [old.jobs.result(), raw.jobs.result()] == [[charges[0]], [charges[1]]]
    late = world.submit_one(name="refund")
    assert leader.take("mail", names=["charge"], capacity=9) == []
    assert leader.take("mail", names=["refund"]) == [late]


def test_waiter_by_pattern_is_handed_jobs_of_queues_that_are_made_later(world: World, leader: Leader) -> None:
    """Case N05."""
    tenants = leader.wait("tenant-*", wait_ms=60_000)
    elsewhere = leader.wait("other*", wait_ms=60_000)
    anything = leader.wait("*", "mail", wait_ms=60_000, region="eu")
    assert leader.duties.waiting_workers("tenant-42") == 2
    job_id = world.submit_one("tenant-42")
    assert tenants.jobs.result() == [job_id]
    assert not anything.jobs.done()
    timed = world.submit_one("quite-new", delay_ms=5_000, region="eu")
    leader.run(5_000)
    assert anything.jobs.result() == [timed]
    assert not elsewhere.jobs.done()
    assert leader.duties.waiting_workers("otherwise") == 1


def test_waiters_by_name_and_by_pattern_are_served_in_the_order_they_came(world: World, leader: Leader) -> None:
    waiters = [leader.wait(queue) for queue in ("*", "mail", "ma*", "mail")]
    jobs = [world.submit_one("mail") for _ in waiters]
    assert [waiter.jobs.result() for waiter in waiters] == [[job_id] for job_id in jobs]
    assert len(leader.duties._dispatcher) == 0
    assert leader.duties.waiting_workers("mail") == 0


def test_waiter_by_pattern_gets_what_a_limit_kept_back(world: World) -> None:
    world.configure("pay", concurrency_max=1)
    leader = Leader(world)
    world.submit("pay", count=2)
    (first,) = leader.lease("*", capacity=5)
    waiter = leader.wait("*", capacity=5)
    assert not waiter.jobs.done()
    world.complete(first)
    assert len(waiter.jobs.result()) == 1


def test_queues_met_by_pattern_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "READY_QUEUES_MAX", 10)
    world = World()
    leader = Leader(world)
    leader.duties._dispatcher._ready_queues_max = 10
    leader.wait("none*")
    for number in range(200):
        job_id = world.submit_one(f"q{number}")
        assert leader.take("*") == [job_id]
        world.lease(job_id)
    assert leader.duties._ready.queue_count <= 30


def test_wait_ends_with_nothing_when_its_time_is_over(leader: Leader) -> None:
    waiter = leader.wait("mail", wait_ms=2_000)
    leader.run(1_999)
    assert not waiter.jobs.done()
    leader.run(1)
    assert waiter.jobs.result() == []
    assert leader.duties.waiting_workers("mail") == 0


def test_cancelled_waiter_takes_nothing(world: World, leader: Leader) -> None:
    gone, waiter = leader.wait("mail"), leader.wait("mail")
    gone.jobs.cancel()
    job_id = world.submit_one("mail")
    assert waiter.jobs.result() == [job_id]


def test_job_handed_to_a_caller_that_went_away_goes_to_the_next_waiter(world: World, leader: Leader) -> None:
    gone, waiter = leader.wait("mail"), leader.wait("mail")
    job_id = world.submit_one("mail")
    assert gone.jobs.result() == [job_id]
    leader.duties.leave(gone, world.now)
    assert waiter.jobs.result() == [job_id]


def test_leaving_twice_does_no_harm(world: World, leader: Leader) -> None:
    waiter = leader.wait("mail")
    leader.duties.leave(waiter, world.now)
    leader.duties.leave(waiter, world.now)
    assert leader.duties.waiting_workers("mail") == 0


def test_wait_is_refused_when_too_many_workers_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WAITING_WORKERS_MAX", 2)
    world = World()
    leader = Leader(world)
    leader.wait("mail")
    leader.wait("mail")
    with pytest.raises(Unavailable):
        leader.wait("mail")
    assert leader.duties.waiting_workers("mail") == 2


def test_close_ends_all_waits_with_the_error(leader: Leader) -> None:
    waiters = [leader.wait("mail"), leader.wait("pay", "mail")]
    leader.duties.close(NotLeader())
    assert all(isinstance(waiter.jobs.exception(), NotLeader) for waiter in waiters)


def test_names_of_queues_asked_for_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "READY_QUEUES_MAX", 20)
    world = World()
    leader = Leader(world)
    waiter = leader.wait("mail")
    for number in range(500):
        leader.lease(f"queue-{number}")
        assert leader.duties._ready.queue_count <= 42
    job_id = world.submit_one("mail")
    assert waiter.jobs.result() == [job_id]


def test_job_cancelled_while_it_is_queued_is_not_offered(world: World, leader: Leader) -> None:
    leader.take()
    cancelled, kept = world.submit(count=2)
    world.cancel(cancelled)
    assert leader.take(capacity=9) == [kept]


def test_missed_job_that_still_waits_is_offered_again(world: World, leader: Leader) -> None:
    job_id = world.submit_one(delay_ms=10_000)
    leader.run(10_000)
    taken = leader.take()
    world.clock.wall_offset_ms -= 400  # the log's stamp is behind what the leader saw
    world.state.cluster_time_ms = world.now.wall_ms  # type: ignore[assignment]  # as if nothing had been applied since
    assert leader.lease_ids(taken) == []
    leader.run(399)
    assert leader.lease() == []
    leader.run(1)
    assert [job.id for job in leader.lease()] == [job_id]


def test_job_of_a_lease_nobody_knows_about_is_offered_again_unless_it_was_granted(world: World, leader: Leader) -> None:
    first, second = world.submit(count=2)
    taken = leader.take(capacity=2)
    world.lease(first, "w1")
    assert leader.duties.on_lease_result(taken, None, world.now) == []
    leader.run(1_000)
    assert [job.id for job in leader.lease(capacity=9)] == [second]
