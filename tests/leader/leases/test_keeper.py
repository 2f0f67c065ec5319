from __future__ import annotations

from typing import Any

from raftsched import limits
from raftsched.core.jobs.attempts import HEARTBEAT_ERROR
from raftsched.core.operations.codec import ExpireLeases
from raftsched.core.operations.control import Progress, ReportProgress, StartRun
from raftsched.core.records.job import AttemptEnd, Job, Status
from raftsched.leader.duties import PAUSE_MS
from raftsched.leader.leases.keeper import RETRY_MS, HeartbeatAnswer
from raftsched.leader.settings import LeaderSettings
from tests.leader.scene import TTL_MS, Leader, World, token_of

VALID = HeartbeatAnswer(valid=True, cancel_requested=False)
OVER = HeartbeatAnswer(valid=False, cancel_requested=False)
CANCEL = HeartbeatAnswer(valid=True, cancel_requested=True)


def causes(leader: Leader) -> list[AttemptEnd]:
    return [lease.cause for operation in leader.expiries for lease in operation.leases]


# -- silence ----------------------------------------------------------------------------------------------------------


def test_lease_of_a_silent_worker_ends_after_one_term_and_the_job_runs_elsewhere(
    world: World, leader: Leader, job: Job
) -> None:
    leader.run(TTL_MS - 1)
    assert world.status(job.id) is Status.RUNNING
    leader.run(1)
    assert causes(leader) == [AttemptEnd.WORKER_LOST]
    (again,) = leader.lease(worker="w2")
    assert again.id == job.id
    assert token_of(again) > token_of(job)


def test_heartbeat_renews_for_a_full_term_from_now(world: World, leader: Leader, job: Job) -> None:
    for _ in range(20):
        leader.run(TTL_MS - 1)
        assert leader.heartbeat(job) == [VALID]
    leader.run(TTL_MS - 1)
    assert world.status(job.id) is Status.RUNNING
    leader.run(1)
    assert world.status(job.id) is Status.QUEUED


def test_heartbeat_renews_only_the_runs_it_names(world: World, leader: Leader) -> None:
    """Case W11: a new instance under an old name cannot keep its predecessor's leases alive by asking for work."""
    world.submit(count=2)
    old, new = leader.lease(capacity=2, worker="w1")
    for _ in range(4):
        leader.run(TTL_MS // 4)
        leader.lease(worker="w1", capacity=5)
        leader.heartbeat(new, worker="w1")
    assert world.status(old.id) is not Status.RUNNING or token_of(world.job(old.id)) > token_of(old)
    assert world.status(new.id) is Status.RUNNING
    assert leader.heartbeat(old) == [OVER]


def test_heartbeat_is_refused_for_a_lease_that_is_not_the_current_one(world: World, leader: Leader, job: Job) -> None:
    runs = [(job.id, 1, token_of(job))]
    assert leader.duties.heartbeat("another worker", runs, world.now) == [OVER]
    leader.run(TTL_MS)
    (again,) = leader.lease(worker="w1")
    assert leader.heartbeat(job, again) == [OVER, VALID]
    world.complete(again)
    assert leader.heartbeat(again) == [OVER]


# -- the race of heartbeat and expiry (case W17) -----------------------------------------------------------------------


def test_heartbeat_before_the_expiry_is_proposed_wins(world: World, leader: Leader, job: Job) -> None:
    world.clock.advance(TTL_MS)  # the deadline is reached, but the leader has not stepped yet
    assert leader.heartbeat(job) == [VALID]
    leader.run(TTL_MS - 1)
    assert leader.expiries == []
    assert world.status(job.id) is Status.RUNNING


def test_heartbeat_after_the_expiry_is_proposed_is_refused_for_ever(world: World, leader: Leader, job: Job) -> None:
    orders = leader.hold(for_ms=TTL_MS)
    assert leader.heartbeat(job) == [OVER]
    leader.settle(orders.popleft())
    assert leader.heartbeat(job) == [OVER]
    assert world.status(job.id) is Status.QUEUED


def test_kept_lease_lives_on_if_its_worker_was_not_told_otherwise(world: World, leader: Leader, job: Job) -> None:
    world.clock.wall_offset_ms -= 5  # by cluster time, the term is not over when the monotonic clock says so
    leader.run(TTL_MS)
    assert len(leader.expiries) == 1
    assert world.status(job.id) is Status.RUNNING
    assert leader.heartbeat(job) == [VALID]
    leader.run(TTL_MS - 1)
    assert len(leader.expiries) == 1
    leader.run(1)
    assert world.status(job.id) is Status.QUEUED


def test_kept_lease_is_expired_again_if_its_worker_was_told_that_it_is_over(
    world: World, leader: Leader, job: Job
) -> None:
    world.clock.wall_offset_ms -= 5
    orders = leader.hold(for_ms=TTL_MS)
    assert leader.heartbeat(job) == [OVER]
    leader.settle_all(orders)
    assert world.status(job.id) is Status.RUNNING
    assert leader.heartbeat(job) == [OVER]
    leader.run(RETRY_MS)
    assert world.status(job.id) is Status.QUEUED


def test_completion_before_the_expiry_is_applied_stands(world: World, leader: Leader, job: Job) -> None:
    """Case D18."""
    orders = leader.hold(for_ms=TTL_MS)
    world.complete(job)
    leader.settle(orders.popleft())
    assert world.status(job.id) is Status.COMPLETED
    leader.held = None
    leader.run(10 * TTL_MS)
    assert len(leader.expiries) == 1


def test_old_expiry_leaves_a_newer_lease_of_the_job_alone(world: World, leader: Leader, job: Job) -> None:
    """Case D18, second order."""
    orders = leader.hold(for_ms=TTL_MS)
    world.report(job, AttemptEnd.SNOOZED, delay_ms=0)
    (again,) = leader.lease(worker="w2")
    leader.settle(orders.popleft())
    assert world.job(job.id).lease == again.lease
    assert leader.heartbeat(again, worker="w2") == [VALID]
    world.complete(again)
    assert len(leader.duties._keeper._wheel) == 0


def test_failed_expiry_is_tried_again_and_its_worker_stays_refused(world: World, leader: Leader, job: Job) -> None:
    orders = leader.hold(for_ms=TTL_MS)
    leader.duties.on_result(orders.popleft(), None, world.now)
    assert leader.heartbeat(job) == [OVER]
    leader.held = None
    leader.run(PAUSE_MS)
    assert world.status(job.id) is Status.QUEUED


# -- timeouts ---------------------------------------------------------------------------------------------------------


def test_run_is_ended_at_its_timeout_though_its_worker_is_alive(world: World, leader: Leader) -> None:
    world.submit(timeout_ms=25_000, max_attempts=1)
    (job,) = leader.lease()
    for _ in range(4):
        leader.run(6_000)
        assert leader.heartbeat(job) == [VALID]
    leader.run(999)
    assert world.status(job.id) is Status.RUNNING
    leader.run(1)
    assert causes(leader) == [AttemptEnd.TIMEOUT]
    assert world.status(job.id) is Status.DEAD_LETTER
    assert leader.heartbeat(job) == [OVER]


def test_timeout_goes_on_from_the_grant_under_a_new_leader(world: World) -> None:
    job_id = world.submit_one(timeout_ms=25_000)
    world.lease(job_id)
    world.clock.advance(20_000)
    leader = Leader(world)
    leader.run(4_999)
    assert world.status(job_id) is Status.RUNNING
    leader.run(1)
    assert causes(leader) == [AttemptEnd.TIMEOUT]


# -- cancellation -----------------------------------------------------------------------------------------------------


def test_cancelled_run_is_told_by_its_heartbeats_and_ended_after_the_grace(world: World) -> None:
    leader = Leader(world, LeaderSettings(lease_ttl_ms=TTL_MS, cancel_grace_ms=5_000))
    world.submit()
    (job,) = leader.lease()
    world.cancel(job.id)
    assert leader.heartbeat(job) == [CANCEL]
    leader.run(4_999)
    assert leader.heartbeat(job) == [CANCEL]
    assert world.status(job.id) is Status.CANCELLING
    leader.run(1)
    assert causes(leader) == [AttemptEnd.CANCELLED]
    assert world.status(job.id) is Status.CANCELLED
    assert leader.heartbeat(job) == [OVER]


def test_cancelling_twice_does_not_prolong_the_grace(world: World) -> None:
    leader = Leader(world, LeaderSettings(lease_ttl_ms=TTL_MS, cancel_grace_ms=5_000))
    world.submit()
    (job,) = leader.lease()
    world.cancel(job.id)
    leader.run(4_000)
    world.cancel(job.id)
    leader.duties._keeper.leased(world.job(job.id), world.now)  # as any later write of the record would tell it
    leader.run(1_000)
    assert world.status(job.id) is Status.CANCELLED


def test_cancelled_run_of_a_silent_worker_ends_with_its_term(world: World) -> None:
    leader = Leader(world, LeaderSettings(lease_ttl_ms=TTL_MS, cancel_grace_ms=50_000))
    world.submit()
    (job,) = leader.lease()
    world.cancel(job.id)
    leader.run(TTL_MS)
    assert world.status(job.id) is Status.CANCELLED


def test_cancel_while_the_expiry_is_on_its_way_ends_as_cancelled(world: World, leader: Leader, job: Job) -> None:
    orders = leader.hold(for_ms=TTL_MS)
    world.cancel(job.id)
    leader.settle_all(orders)
    assert world.status(job.id) is Status.CANCELLED


def test_grace_goes_on_under_a_new_leader_but_leaves_a_term_to_tell_the_worker(world: World) -> None:
    settings = LeaderSettings(lease_ttl_ms=TTL_MS, cancel_grace_ms=15_000)
    early, late = world.submit(count=2)
    world.lease(early)
    world.lease(late)
    world.cancel(early)
    world.clock.advance(13_000)
    world.cancel(late)
    leader = Leader(world, settings)
    jobs = world.job(early), world.job(late)
    leader.run(TTL_MS - 1)
    assert leader.heartbeat(*jobs) == [CANCEL, CANCEL]
    leader.run(1)
    assert leader.heartbeat(*jobs) == [OVER, CANCEL]
    assert world.status(early) is Status.CANCELLED


# -- new leaders and large numbers -------------------------------------------------------------------------------------


def test_new_leader_gives_every_lease_one_full_term_from_its_own_start(world: World) -> None:
    job_ids = world.submit(count=3)
    for job_id in job_ids:
        world.lease(job_id)
    world.clock.advance(TTL_MS * 3)
    leader = Leader(world)
    leader.run(TTL_MS - 1)
    assert leader.heartbeat(world.job(job_ids[0])) == [VALID]
    leader.run(1)
    assert [world.status(job_id) for job_id in job_ids] == [Status.RUNNING, Status.QUEUED, Status.QUEUED]


def test_nothing_stays_running_when_all_workers_are_gone(world: World, leader: Leader) -> None:
    """Cases D03 and D20."""
    world.submit(count=50, timeout_ms=86_400_000)
    for job in leader.lease(capacity=25):
        world.cancel(job.id)
    leader.lease(capacity=25)
    leader.run(TTL_MS)
    assert world.state.leased_jobs() == []


def test_expiries_are_split_into_bounded_operations(world: World, leader: Leader) -> None:
    count = limits.EXPIRE_LEASES_MAX * 2 + 1
    world.submit(count=count)
    while leader.lease(capacity=400):
        pass
    leader.run(TTL_MS)
    sizes = [len(operation.leases) for operation in leader.expiries]
    assert sizes == [limits.EXPIRE_LEASES_MAX, limits.EXPIRE_LEASES_MAX, 1]
    assert world.state.leased_jobs() == []


def test_lease_that_ends_while_others_expire_first_is_not_asked_for(world: World, leader: Leader) -> None:
    world.submit(count=limits.EXPIRE_LEASES_MAX + 1)
    *_, last = leader.lease(capacity=limits.EXPIRE_LEASES_MAX + 1)
    orders = leader.hold(for_ms=TTL_MS)
    world.complete(last)
    leader.settle_all(orders)
    leader.run(TTL_MS)
    assert [len(operation.leases) for operation in leader.expiries] == [limits.EXPIRE_LEASES_MAX]


def test_one_expiry_is_on_its_way_at_a_time(world: World, leader: Leader) -> None:
    world.submit(count=2)
    leader.lease()
    leader.run(10)
    (second,) = leader.lease()
    orders = leader.hold(for_ms=TTL_MS)
    assert [type(order.operation) for order in orders] == [ExpireLeases]
    assert leader.heartbeat(second) == [VALID]


def test_ended_leases_leave_nothing_behind(world: World, leader: Leader) -> None:
    world.submit(count=100)
    for job in leader.lease(capacity=100):
        world.complete(job)
    assert leader.duties.lease_count == 0
    assert len(leader.duties._keeper._wheel) == 0


# -- silence of the handler -------------------------------------------------------------------------------------------

HANDLER_MS = 3_000


def with_handler_timeout(world: World, leader: Leader, *, handler_ms: int = HANDLER_MS, **fields: Any) -> Job:
    world.submit(heartbeat_timeout_ms=handler_ms, **fields)
    (job,) = leader.lease()
    return job


def beat(leader: Leader, job: Job, *, for_ms: int, alive: bool) -> list[HeartbeatAnswer]:
    """Let the worker send a heartbeat every second; return what it heard."""
    answers = []
    for _ in range(for_ms // 1_000):
        leader.run(1_000)
        answers += leader.heartbeat(job, alive=[job] if alive else [])
    return answers


def test_silent_handler_ends_by_timeout_though_its_worker_lives(world: World, leader: Leader) -> None:
    """Case W03."""
    job = with_handler_timeout(world, leader)
    assert beat(leader, job, for_ms=HANDLER_MS, alive=False) == [VALID, VALID, OVER]
    assert causes(leader) == [AttemptEnd.TIMEOUT]
    ended = world.job(job.id)
    assert (ended.status, ended.failure_count, ended.lost_count) == (Status.RETRYING, 1, 0)
    assert ended.attempts[-1].error is not None
    assert ended.attempts[-1].error.type == HEARTBEAT_ERROR


def test_handler_that_gives_signs_of_life_runs_on(world: World, leader: Leader) -> None:
    job = with_handler_timeout(world, leader)
    assert set(beat(leader, job, for_ms=60_000, alive=True)) == {VALID}
    leader.run(HANDLER_MS - 1)
    assert world.status(job.id) is Status.RUNNING
    leader.run(1)
    assert causes(leader) == [AttemptEnd.TIMEOUT]


def test_reported_progress_and_a_committed_start_are_signs_of_life(world: World, leader: Leader) -> None:
    job = with_handler_timeout(world, leader, at_most_once=True)
    leader.run(2_000)
    world.apply(StartRun(job.id, job.run_number, token_of(job)))
    leader.run(2_000)
    world.apply(ReportProgress((Progress(job.id, job.run_number, token_of(job), b"50"),)))
    leader.run(HANDLER_MS - 1)
    assert world.status(job.id) is Status.RUNNING
    leader.run(1)
    assert len(leader.expiries) == 1
    assert causes(leader) == [AttemptEnd.TIMEOUT]


def test_signs_of_life_of_a_handler_do_not_help_its_neighbour(world: World, leader: Leader) -> None:
    silent, lively = with_handler_timeout(world, leader), with_handler_timeout(world, leader)
    for _ in range(HANDLER_MS // 1_000):
        leader.run(1_000)
        leader.heartbeat(silent, lively, alive=[lively])
    assert world.status(silent.id) is Status.RETRYING
    assert world.status(lively.id) is Status.RUNNING


def test_dead_worker_is_lost_though_its_handler_is_silent_as_long(world: World, leader: Leader) -> None:
    job = with_handler_timeout(world, leader, handler_ms=TTL_MS)
    leader.run(TTL_MS)
    assert causes(leader) == [AttemptEnd.WORKER_LOST]
    assert world.job(job.id).failure_count == 0


def test_new_leader_gives_the_handler_a_full_term_from_its_workers_first_heartbeat(world: World) -> None:
    """Until then nothing could be heard of it: the worker had to find the new leader."""
    job = with_handler_timeout(world, Leader(world))
    world.clock.advance(HANDLER_MS - 1)
    second = Leader(world)
    second.run(TTL_MS - 1)
    assert second.heartbeat(job) == [VALID]
    second.run(HANDLER_MS - 1)
    assert second.heartbeat(job) == [VALID]
    second.run(1)
    assert causes(second) == [AttemptEnd.TIMEOUT]


def test_what_the_log_tells_of_a_handler_starts_the_count_of_a_new_leader_too(world: World) -> None:
    job = with_handler_timeout(world, Leader(world))
    second = Leader(world)
    world.apply(ReportProgress((Progress(job.id, job.run_number, token_of(job), b"50"),)))
    second.run(HANDLER_MS - 1)
    assert second.heartbeat(job) == [VALID]
    second.run(1)
    assert causes(second) == [AttemptEnd.TIMEOUT]


def test_new_leader_that_never_hears_the_worker_loses_it_and_blames_no_handler(world: World) -> None:
    job = with_handler_timeout(world, Leader(world))
    second = Leader(world)
    second.run(TTL_MS)
    assert causes(second) == [AttemptEnd.WORKER_LOST]
    assert world.job(job.id).failure_count == 0


def test_silence_does_not_hurry_a_cancelled_handler(world: World, leader: Leader) -> None:
    job = with_handler_timeout(world, leader, handler_ms=60_000)
    world.cancel(job.id)
    assert beat(leader, job, for_ms=29_000, alive=False) == [CANCEL] * 29
    leader.run(1_000)
    assert causes(leader) == [AttemptEnd.CANCELLED]


def test_job_that_does_not_ask_for_it_may_be_silent(leader: Leader, job: Job) -> None:
    assert set(beat(leader, job, for_ms=100_000, alive=False)) == {VALID}
