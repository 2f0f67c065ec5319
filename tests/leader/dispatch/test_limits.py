"""What queues' limits let the leader hand out: pauses, rates, concurrency, concurrency keys."""

from __future__ import annotations

import random

import pytest

from raftsched import limits
from raftsched.core.checks.invariants import check
from raftsched.core.operations.codec import LeaseJobs
from raftsched.core.operations.control import BlockJobs, HandleDeadlines
from raftsched.core.records.ids import JobId
from raftsched.core.records.job import LEASED, WAITING, AttemptEnd, Job, Status
from raftsched.leader.dispatch.due_jobs import RETRY_MS
from tests.leader.scene import Leader, World


def proposed(world: World, kind: type) -> int:
    return sum(isinstance(operation, kind) for operation in world.log)


# -- pauses -----------------------------------------------------------------------------------------------------------


def test_paused_queue_hands_out_nothing_until_it_is_resumed(world: World, leader: Leader) -> None:
    world.pause()
    waiter = leader.wait("mail")
    job_id = world.submit_one()
    leader.run(10_000)
    assert not waiter.jobs.done()
    world.resume()
    leader.run(1)
    assert waiter.jobs.result() == [job_id]


def test_paused_queue_wakes_up_exactly_when_its_pause_ends(world: World, leader: Leader) -> None:
    world.pause(for_ms=5_000)
    waiter = leader.wait("mail")
    job_id = world.submit_one()
    leader.run(4_999)
    assert not waiter.jobs.done()
    leader.run(2)
    assert proposed(world, HandleDeadlines) == 1
    assert waiter.jobs.result() == [job_id]


def test_pause_that_comes_while_a_lease_is_on_its_way_costs_one_try(world: World, leader: Leader) -> None:
    world.submit(count=3)
    taken = leader.take(capacity=3)
    world.pause()
    assert leader.lease_ids(taken) == []
    leader.run(60_000)
    assert leader.take(capacity=3) == []
    world.resume()
    assert [job.id for job in leader.lease(capacity=3)] == taken


def test_paused_queue_does_not_keep_a_worker_from_its_other_queues(world: World, leader: Leader) -> None:
    world.pause("mail")
    world.submit("mail", count=5)
    pay = world.submit("pay", count=5)
    assert sorted(leader.take("mail", "pay", capacity=8)) == sorted(pay)


# -- rates ------------------------------------------------------------------------------------------------------------


def test_rate_hands_out_a_full_bucket_and_then_each_job_exactly_when_its_lease_is_there(
    world: World, leader: Leader
) -> None:
    world.configure(rate_count=3, rate_period_ms=3_000)
    world.submit(count=6)
    assert len(leader.lease(capacity=10)) == 3
    for _ in range(3):
        waiter = leader.wait("mail", capacity=10)
        leader.run(999)
        assert not waiter.jobs.done()
        leader.run(1)
        assert len(leader.lease_ids(waiter.jobs.result())) == 1
    assert check(world.state) == []


def test_empty_bucket_has_nothing_proposed_and_nobody_woken_in_vain(world: World, leader: Leader) -> None:
    world.configure(rate_count=1, rate_period_ms=60_000)
    world.submit(count=100)
    assert len(leader.lease(capacity=10)) == 1
    leader.wait("mail", capacity=10, wait_ms=50_000)
    before = proposed(world, LeaseJobs)
    calls = []
    while (now := world.now).monotonic_ms < 9_000:
        calls.append(leader.duties.next_call_ms(now))
        world.clock.advance(max(1, calls[-1] - now.monotonic_ms))
        leader.step()
    assert proposed(world, LeaseJobs) == before
    assert len(calls) < 100


def test_rate_counts_what_is_on_its_way(world: World, leader: Leader) -> None:
    world.configure(rate_count=3, rate_period_ms=60_000)
    world.submit(count=10)
    first = leader.take(capacity=2)
    second = leader.take(capacity=5)
    assert (len(first), len(second), leader.take()) == (2, 1, [])
    assert len(leader.lease_ids(second)) == 1
    assert len(leader.lease_ids(first)) == 2


def test_rate_gives_again_what_was_taken_for_a_caller_that_went_away(world: World, leader: Leader) -> None:
    world.configure(rate_count=1, rate_period_ms=60_000)
    gone, waiter = leader.wait("mail"), leader.wait("mail")
    (job_id,) = world.submit()
    assert gone.jobs.result() == [job_id]
    leader.duties.leave(gone, world.now)
    assert waiter.jobs.result() == [job_id]


def test_rate_that_is_taken_away_lets_everything_through_at_once(world: World, leader: Leader) -> None:
    world.configure(rate_count=1, rate_period_ms=60_000)
    world.submit(count=5)
    leader.lease()
    waiter = leader.wait("mail", capacity=10)
    world.configure(rate_count=0)
    leader.run(1)
    assert len(waiter.jobs.result()) == 4


def test_rate_holds_under_any_load(world: World, leader: Leader) -> None:
    """In no span are more leases given than a full bucket and what flows in."""
    rng = random.Random(5)
    world.configure(rate_count=10, rate_period_ms=1_000)
    granted: list[int] = []
    while len(granted) < 200:
        world.submit(count=rng.randrange(4))
        granted += [world.now.cluster_ms] * len(leader.lease(capacity=rng.randrange(1, 30)))
        leader.run(rng.choice([1, 7, 150, 1_300]))
    for index, start_ms in enumerate(granted):
        for count, at_ms in enumerate(granted[index:], start=1):
            assert count <= 10 + (at_ms - start_ms) // 100 + 1


# -- concurrency ------------------------------------------------------------------------------------------------------


def test_concurrency_counts_what_runs_and_what_is_on_its_way(world: World, leader: Leader) -> None:
    world.configure(concurrency_max=5)
    world.submit(count=20)
    running = leader.lease(capacity=2)
    taken = leader.take(capacity=2)
    assert len(leader.take(capacity=9)) == 1
    assert leader.take(capacity=9) == []
    assert len(leader.lease_ids(taken)) == 2
    world.complete(running[0])
    assert len(leader.take(capacity=9)) == 1


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled", "lost"])
def test_place_is_given_to_who_waits_for_it_however_the_job_ended(end: str, world: World, leader: Leader) -> None:
    """Case D37."""
    world.configure(concurrency_max=1)
    job_id, next_id = world.submit(count=2)
    (job,) = leader.lease()
    waiter = leader.wait("mail", wait_ms=60_000)
    leader.run(1_000)
    assert not waiter.jobs.done()
    if end == "completed":
        world.complete(job)
    elif end == "failed":
        world.report(job, AttemptEnd.FAILED, delay_ms=60_000)
    elif end == "cancelled":
        world.cancel(job_id)
        assert not waiter.jobs.done()
        world.complete(job)
    else:
        leader.run(leader.settings.lease_ttl_ms)
    assert waiter.jobs.result() in ([next_id], [job_id])
    assert len(leader.lease_ids(waiter.jobs.result())) == 1


def test_concurrency_of_one_queue_does_not_hold_up_another(world: World, leader: Leader) -> None:
    world.configure("mail", concurrency_max=1)
    world.submit("mail", count=5)
    world.submit("pay", count=5)
    taken = [world.job(job_id).spec.queue for job_id in leader.take("mail", "pay", capacity=6)]
    assert (taken.count("mail"), taken.count("pay")) == (1, 5)


def test_raised_concurrency_is_used_at_once(world: World, leader: Leader) -> None:
    world.configure(concurrency_max=1)
    world.submit(count=5)
    leader.lease()
    waiter = leader.wait("mail", capacity=9)
    world.configure(concurrency_max=3)
    leader.run(1)
    assert len(waiter.jobs.result()) == 2


# -- concurrency keys -------------------------------------------------------------------------------------------------


def test_job_whose_key_is_taken_is_held_and_those_behind_it_pass(world: World, leader: Leader) -> None:
    leader.take()
    first, second = world.submit(count=2, concurrency_key="k")
    (other,) = world.submit()
    granted = leader.lease(capacity=3)
    assert [job.id for job in granted] == [first, other]
    leader.run(1)
    assert world.job(second).blocked
    assert leader.duties._ready.buffered_count == 0
    assert leader.take() == []
    world.complete(granted[0])
    assert [job.id for job in leader.lease()] == [second]
    assert check(world.state) == []


def test_job_that_was_held_goes_to_its_own_region_and_keeps_no_other_back(world: World, leader: Leader) -> None:
    leader.take()
    first, eu = world.submit_one(concurrency_key="k"), world.submit_one(concurrency_key="k", region="eu")
    plain = world.submit_one(concurrency_key="k")
    (running,) = leader.lease(capacity=3)
    assert (running.id, leader.lease(capacity=3, region="eu")) == (first, [])
    leader.run(1)
    assert [world.job(job_id).blocked for job_id in (eu, plain)] == [True, True]
    world.complete(running)
    (running,) = leader.lease(capacity=3)
    assert running.id == plain
    leader.run(1)
    world.complete(running)
    assert leader.lease(capacity=3) == []
    assert [job.id for job in leader.lease(capacity=3, region="eu")] == [eu]
    assert check(world.state) == []


def test_new_leader_that_knows_no_keys_learns_them_by_one_lease_that_was_missed(world: World) -> None:
    first, *behind = world.submit(count=20, concurrency_key="k")
    leader = Leader(world)
    taken = leader.take(capacity=10)
    assert [job.id for job in leader.lease_ids(taken)] == [first]
    leader.run(1)
    assert all(world.job(job_id).blocked for job_id in behind[:9])
    assert leader.take(capacity=10) == []
    leader.run(1)
    assert all(world.job(job_id).blocked for job_id in behind)
    assert proposed(world, LeaseJobs) == 1


def test_backlog_of_one_key_is_held_in_bounded_steps_and_others_pass(world: World) -> None:
    count = 2 * limits.BLOCK_JOBS_MAX + 50
    leader = Leader(world)
    leader.take()
    world.submit(count=count, concurrency_key="k")
    (free,) = world.submit()
    (first,) = leader.lease(capacity=1)
    waiter = leader.wait("mail")
    leader.run(10)
    assert waiter.jobs.result() == [free]
    holds = [operation for operation in world.log if isinstance(operation, BlockJobs)]
    assert all(len(hold.job_ids) <= limits.BLOCK_JOBS_MAX for hold in holds)
    assert sum(len(hold.job_ids) for hold in holds) == count - 1
    assert first.status is Status.RUNNING


def test_key_that_was_only_on_its_way_is_offered_again_when_its_caller_goes(world: World, leader: Leader) -> None:
    leader.take()
    first, second = world.submit(count=2, concurrency_key="k")
    gone = leader.wait("mail")
    assert gone.jobs.result() == [first]
    waiter = leader.wait("mail")
    assert not waiter.jobs.done()
    leader.run(1)
    assert not world.job(second).blocked
    leader.duties.leave(gone, world.now)
    assert waiter.jobs.result() in ([first], [second])
    leader.lease_ids(waiter.jobs.result())
    leader.run(RETRY_MS + 1)
    assert leader.take() == []
    leader.run(1)
    assert sum(world.job(job_id).blocked for job_id in (first, second)) == 1


def test_key_has_as_many_places_as_its_queue_says(world: World, leader: Leader) -> None:
    world.configure(key_concurrency_max=3)
    world.submit(count=10, concurrency_key="k")
    assert len(leader.lease(capacity=10)) == 3
    leader.run(1)
    world.configure(key_concurrency_max=5)
    leader.run(100)
    assert len(leader.lease(capacity=10)) == 2


def test_hold_that_nobody_knows_about_is_tried_again(world: World, leader: Leader) -> None:
    leader.take()
    _, second = world.submit(count=2, concurrency_key="k")
    assert len(leader.lease(capacity=2)) == 1
    orders = leader.hold()
    leader.step()
    (order,) = (order for order in orders if isinstance(order.operation, BlockJobs))
    leader.held = None
    leader.duties.on_result(order, None, world.now)
    leader.run(1_000)
    assert world.job(second).blocked


def test_expired_job_is_not_offered_and_those_behind_it_pass(world: World, leader: Leader) -> None:
    leader.take()
    world.submit_one(expires_at_ms=world.now.cluster_ms + 1_000)
    free = world.submit_one()
    world.clock.advance(1_000)
    assert leader.take(capacity=2) == [free]


# -- all of them together ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_limits_hold_and_all_jobs_run_in_the_end_whatever_happens(seed: int) -> None:
    _Mill(seed).check()


class _Mill:
    """Workers, submissions and operators at random; what is proposed is granted, and nothing is stuck or spins."""

    QUEUES = ("mail", "pay")

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(seed=seed)
        self.leader = Leader(self.world)
        self.running: list[Job] = []
        self.leader.take(*self.QUEUES)  # from now on the leader hears of every key

    def check(self) -> None:
        events = [
            self.submit,
            self.submit,
            self.work,
            self.work,
            self.work,
            self.end,
            self.end,
            self.operate,
            self.rest,
        ]
        for _ in range(150):
            self.rng.choice(events)()
            self.leader.step()
        for queue in self.QUEUES:
            self.world.resume(queue)
            self.world.configure(queue, rate_count=0)
        self.finish()
        assert check(self.world.state) == []

    def finish(self) -> None:
        for _ in range(2_000):
            self.work()
            self.end(all_of_them=True)
            self.leader.run(50)
            if not any(job.status not in (Status.COMPLETED, Status.CANCELLED) for job in self.world.state.all_jobs()):
                return
        raise AssertionError("some jobs never ran")

    def submit(self) -> None:
        key = self.rng.choice(["", "", "k", "l"])
        options = {"concurrency_key": key} if key else {}
        count = self.rng.choice([1, 5, 30])
        tenant = self.rng.choice(["default", "other"])
        delay_ms = self.rng.choice([0, 0, 20])
        queue = self.rng.choice(self.QUEUES)
        self.world.submit(queue, count=count, tenant=tenant, delay_ms=delay_ms, **options)

    def work(self) -> None:
        capacity = self.rng.choice([1, 4, 20])
        job_ids: list[JobId] = self.leader.take(*self.QUEUES, capacity=capacity)
        if job_ids and self.rng.random() < 0.1:
            self.leader.duties.on_lease_result(job_ids, None, self.world.now)  # the log refused it
        elif job_ids:
            granted = self.leader.lease_ids(job_ids)
            missed = {*job_ids} - {job.id for job in granted}
            # A job that was offered again, taken and ended in the meantime may be offered once more.
            assert not any(self.world.status(job_id) in WAITING for job_id in missed), "a lease was proposed in vain"
            self.running += granted

    def end(self, *, all_of_them: bool = False) -> None:
        self.rng.shuffle(self.running)
        count = len(self.running) if all_of_them else self.rng.randrange(len(self.running) + 1)
        ended, self.running = self.running[:count], self.running[count:]
        for job in ended:
            self.world.complete(job)

    def operate(self) -> None:
        queue = self.rng.choice(self.QUEUES)
        match self.rng.randrange(6):
            case 0:
                self.world.pause(queue, for_ms=self.rng.choice([0, 100]))
            case 1:
                self.world.resume(queue)
            case 2:
                self.world.configure(queue, rate_count=self.rng.choice([0, 1, 5]), rate_period_ms=200)
            case 3:
                self.world.configure(queue, concurrency_max=self.rng.choice([0, 2, 10]))
            case 4:
                self.world.configure(queue, key_concurrency_max=self.rng.choice([0, 1, 3]))
            case _:
                self.leader.duties._ready.doubt()

    def rest(self) -> None:
        before = len(self.world.log)
        self.leader.run(self.rng.choice([1, 30, 400]))
        assert len(self.world.log) - before < 100, "it spins"
        self.running = [job for job in self.running if self.world.status(job.id) in LEASED]
