from __future__ import annotations

import pytest

from raftsched import limits
from raftsched.core.operations.control import AmendJob
from raftsched.core.records.ids import JobId
from raftsched.core.records.job import AttemptEnd, Job
from raftsched.core.records.spec import SpecChanges
from raftsched.leader.dispatch import due_jobs as timers
from raftsched.leader.dispatch.due_jobs import TimerHorizon
from raftsched.leader.dispatch.ready import ReadyJobs
from tests.leader.scene import Leader, World


def test_delayed_job_is_not_leased_a_millisecond_early_and_is_leased_at_its_time(world: World, leader: Leader) -> None:
    job_id = world.submit_one(delay_ms=20_000)
    leader.run(19_999)
    assert leader.lease() == []
    leader.run(1)
    assert [job.id for job in leader.lease()] == [job_id]


def test_step_is_wanted_exactly_when_the_next_job_is_due(world: World, leader: Leader) -> None:
    world.submit(delay_ms=777)
    assert leader.duties._timers.next_call_ms(world.now) == world.now.monotonic_ms + 777


def test_job_with_a_past_time_is_ready_at_once(world: World, leader: Leader) -> None:
    job_id = world.submit_one(delay_ms=-3_600_000)
    assert [job.id for job in leader.lease()] == [job_id]


def test_delayed_jobs_become_ready_in_order_of_their_times(world: World, leader: Leader) -> None:
    leader.lease("mail")
    delays = [300, 100, 200, 100]
    by_time = [job_id for _, job_id in sorted((ms, world.submit_one(delay_ms=ms)) for ms in delays)]
    leader.run(300)
    assert [job.id for job in leader.lease(capacity=10)] == by_time


def test_job_beyond_the_horizon_is_read_when_its_time_comes_near(world: World, leader: Leader) -> None:
    leader.lease("mail")
    job_id = world.submit_one(delay_ms=3 * limits.WHEEL_HORIZON_MS)
    assert len(leader.duties._timers) == 0
    leader.run(3 * limits.WHEEL_HORIZON_MS - 1)
    assert leader.lease() == []
    leader.run(1)
    assert [job.id for job in leader.lease()] == [job_id]


def test_new_leader_takes_over_timers_it_never_saw_submitted(world: World) -> None:
    due_before, due_later = world.submit_one(delay_ms=1_000), world.submit_one(delay_ms=5_000)
    world.clock.advance(2_000)
    leader = Leader(world)
    assert [job.id for job in leader.lease(capacity=9)] == [due_before]
    leader.run(3_000)
    assert [job.id for job in leader.lease(capacity=9)] == [due_later]


def test_new_leader_reads_a_bounded_number_of_timers(world: World) -> None:
    for second in range(1, 11):
        world.submit(delay_ms=1_000 * second, count=1_000)
    horizon = TimerHorizon(world.state, ReadyJobs(world.state, ageing_ms=300_000))
    horizon.start(world.now)
    assert len(horizon) == timers._READ_TIMERS


def test_many_timers_in_one_moment_all_become_ready_with_few_in_memory(world: World, leader: Leader) -> None:
    leader.lease("mail")
    world.on_changes, hear = None, world.on_changes
    job_ids = [job_id for _ in range(5) for job_id in world.submit(delay_ms=90_000, count=1_000)]
    world.on_changes = hear
    held = 0
    for _ in range(95):
        leader.run(1_000)
        held = max(held, len(leader.duties._timers))
    assert 0 < held <= 3 * timers._READ_TIMERS
    leased = [job.id for _ in range(5) for job in leader.lease(capacity=1_000)]
    assert leased == job_ids


def test_wheel_starts_over_when_arrivals_fill_it_and_loses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WHEEL_TIMERS_MAX", 3_000)
    world = World()
    leader = Leader(world)
    leader.lease("mail")
    job_ids: list[JobId] = []
    while len(job_ids) <= limits.WHEEL_TIMERS_MAX:
        job_ids += world.submit(delay_ms=30_000, count=100)
        assert len(leader.duties._timers) <= limits.WHEEL_TIMERS_MAX
    assert len(leader.duties._timers) <= 2 * timers._READ_TIMERS
    leader.run(31_000)
    assert [job.id for job in leader.lease(capacity=1_000)] == job_ids[:1_000]


def test_due_jobs_are_found_within_a_second_when_the_wall_clock_is_set_forward(world: World, leader: Leader) -> None:
    leader.lease("mail")
    job_id = world.submit_one(delay_ms=3_600_000)
    world.clock.wall_offset_ms += 3_600_000
    leader.run(timers.CLOCK_CHECK_MS)
    assert [job.id for job in leader.lease()] == [job_id]


def test_leader_that_fell_behind_catches_up_in_one_step(world: World, leader: Leader) -> None:
    leader.take()
    for hours in range(1, 6):
        world.submit(delay_ms=3_600_000 * hours, count=1_000)
    world.clock.wall_offset_ms += 10 * 3_600_000
    leader.step()
    assert leader.duties._timers.next_call_ms(world.now) > world.now.monotonic_ms
    assert len(leader.take(capacity=1_000)) == 1_000


def test_steps_stay_rare_while_the_wall_clock_is_behind_the_cluster_time(world: World, leader: Leader) -> None:
    world.submit(delay_ms=50)
    world.clock.wall_offset_ms -= 3_600_000
    assert leader.duties._timers.next_call_ms(world.now) == world.now.monotonic_ms + timers.CLOCK_CHECK_MS


def test_cancelled_timer_gives_no_job(world: World, leader: Leader) -> None:
    leader.lease("mail")
    cancelled, kept = world.submit(delay_ms=1_000, count=2)
    world.cancel(cancelled)
    leader.run(1_000)
    assert [job.id for job in leader.lease(capacity=9)] == [kept]


def test_job_that_left_its_queue_before_it_was_due_is_found_in_the_new_one(world: World, leader: Leader) -> None:
    """Seed 179: the timer of the old place put it back into the queue that it had left, and nobody else got it."""
    leader.lease("mail", "other")
    job_id = world.submit_one(delay_ms=300)
    due_at_ms = world.job(job_id).due_at_ms + 400
    world.apply(AmendJob(job_id, "default", changes=SpecChanges(queue="other"), due_at_ms=due_at_ms))
    leader.run(700)
    assert [job.id for job in leader.lease("other")] == [job_id]


def test_retry_waits_for_its_backoff_and_comes_back(world: World, leader: Leader, job: Job) -> None:
    world.report(job, AttemptEnd.FAILED)
    delay_ms = world.job(job.id).due_at_ms - world.now.cluster_ms
    assert delay_ms > 0
    leader.run(delay_ms - 1)
    assert leader.lease() == []
    leader.run(1)
    assert [again.id for again in leader.lease()] == [job.id]
