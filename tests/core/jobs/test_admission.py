"""What a queue's limits let through: leases under pause, rate, concurrency and keys, and jobs that are held."""

from __future__ import annotations

import pytest

from raftsched import limits
from raftsched.core.operations.codec import LeaseJobs, RejectCode
from raftsched.core.operations.control import BackgroundKind, BlockJobs, DoBackgroundStep
from raftsched.core.records.job import AttemptEnd, Job, Status
from raftsched.core.state.results import Counted, Leased
from raftsched.core.state.writes import PutQueue
from tests.core.control_scene import QUEUE, ControlScene, changed, options
from tests.core.scene import TTL_MS, code_of, job_id, token_of

KEYED = options(concurrency_key="customer-7")


def granted(scene: ControlScene, *jobs: Job) -> list[Job]:
    return [grant.job for grant in scene.lease(*jobs).grants]


# -- pause and concurrency


def test_paused_queue_gives_no_lease_and_other_queues_do(scene: ControlScene) -> None:
    job, other = scene.submit(), scene.submit(queue="other")
    running = scene.running()
    scene.pause_queue()
    assert [one.id for one in granted(scene, job, other)] == [other.id]
    scene.complete(running)
    assert scene.status(running) is Status.COMPLETED, "what runs goes on"
    scene.pause_queue(paused=False)
    assert scene.run(job).attempt_number == 1


def test_concurrency_limit_holds_within_one_operation_and_over_several(scene: ControlScene) -> None:
    scene.configure(concurrency_max=3)
    jobs = [scene.submit() for _ in range(5)]
    assert len(granted(scene, jobs[0], jobs[1])) == 2
    assert len(granted(scene, *jobs[2:])) == 1
    assert granted(scene, *jobs[3:]) == []
    scene.complete(scene.now(jobs[0]))
    assert len(granted(scene, *jobs[3:])) == 1


def test_limits_are_of_the_queue_and_not_of_a_tenant_or_another_queue(scene: ControlScene) -> None:
    scene.configure(concurrency_max=1)
    first, second = scene.submit(tenant="a"), scene.submit(tenant="b")
    elsewhere = [scene.submit(queue="other") for _ in range(3)]
    assert [job.id for job in granted(scene, first, second, *elsewhere)] == [first.id, *(job.id for job in elsewhere)]


@pytest.mark.parametrize("how", ["complete", "fail", "lost", "cancel", "force", "deadline", "snooze", "timeout"])
def test_every_end_of_an_attempt_frees_its_place(scene: ControlScene, how: str) -> None:
    """Cases D37 and D40."""
    scene.configure(concurrency_max=1)
    job = scene.running(timeout_ms=50, options=options(concurrency_key="k", deadline_ms=scene.now_ms + 10**6))
    other = scene.submit(options=options(concurrency_key="k"))
    assert granted(scene, other) == []
    if how == "complete":
        scene.complete(job)
    elif how == "fail":
        scene.fail(job)
    elif how == "snooze":
        scene.snooze(job, 10)
    elif how == "lost":
        scene.lose_worker(job)
    elif how == "timeout":
        scene.wait(50)
        scene.expire(job, AttemptEnd.TIMEOUT)
    elif how == "cancel":
        scene.cancel(job)
        assert granted(scene, other) == [], "a job that is told to stop has its place until it has stopped"
        scene.expire(job, AttemptEnd.CANCELLED)
    elif how == "force":
        scene.force_cancel(job)
    else:
        scene.wait(10**6)
        scene.ring(job)
    assert len(granted(scene, other)) == 1
    assert scene.state.running_count(QUEUE) == 1


def test_cancel_of_all_in_mixed_order_leaves_no_place_taken(scene: ControlScene) -> None:
    """Case D37."""
    scene.configure(concurrency_max=2)
    jobs = [scene.submit(options=KEYED if number % 2 else None) for number in range(7)]
    running = granted(scene, *jobs)
    assert len(running) == 2
    for job in reversed(jobs):
        scene.cancel(job)
    for job in running:
        scene.complete(job)
    assert scene.state.running_count(QUEUE) == 0
    assert len(granted(scene, scene.submit(), scene.submit(), scene.submit())) == 2


def test_lowered_limit_takes_nothing_from_what_runs_and_gives_nothing_new(scene: ControlScene) -> None:
    running = [scene.running() for _ in range(3)]
    scene.configure(concurrency_max=2)
    job = scene.submit()
    scene.complete(running[0])
    assert granted(scene, job) == []
    scene.complete(running[1])
    assert len(granted(scene, job)) == 1


# -- rate


def test_rate_gives_a_burst_and_then_what_comes_in(scene: ControlScene) -> None:
    scene.configure(rate_count=2, rate_period_ms=1_000)
    jobs = [scene.submit() for _ in range(6)]
    assert len(granted(scene, *jobs)) == 2
    assert granted(scene, *jobs[2:]) == []
    scene.wait(499)
    assert granted(scene, *jobs[2:]) == []
    scene.wait(1)
    assert len(granted(scene, *jobs[2:])) == 1
    scene.wait(10_000)
    assert len(granted(scene, *jobs[3:])) == 2


def test_rate_is_not_given_back_by_a_failure(scene: ControlScene) -> None:
    scene.configure(rate_count=1, rate_period_ms=1_000)
    job = scene.running()
    scene.snooze(job, 0)
    assert granted(scene, job) == []


def test_bucket_is_written_once_for_all_grants_and_only_where_there_are_some(scene: ControlScene) -> None:
    scene.configure(rate_count=5, rate_period_ms=1_000)
    before = scene.state.queue(QUEUE)
    granted(scene, scene.submit(), scene.submit())
    (write,) = [write for write in scene.last.writes if isinstance(write, PutQueue)]
    assert (write.old, write.new.bucket_milli) == (before, 3_000)
    assert before is not None
    assert write.new.revision == before.revision, "a lease changes nothing that an operator said"
    granted(scene, scene.submit(queue="other"))
    assert not [write for write in scene.last.writes if isinstance(write, PutQueue)]


def test_job_that_a_limit_keeps_back_takes_nothing_from_the_rate(scene: ControlScene) -> None:
    scene.configure(rate_count=2, rate_period_ms=10**6)
    first, second = scene.submit(options=KEYED), scene.submit(options=KEYED)
    assert len(granted(scene, first, second)) == 1
    assert len(granted(scene, scene.submit())) == 1


# -- keys


def test_jobs_of_one_key_run_one_at_a_time_unless_the_queue_says_otherwise(scene: ControlScene) -> None:
    jobs = [scene.submit(options=KEYED) for _ in range(4)]
    assert len(granted(scene, *jobs)) == 1
    scene.configure(key_concurrency_max=3)
    assert len(granted(scene, *jobs)) == 2


def test_keys_are_counted_apart_and_by_queue(scene: ControlScene) -> None:
    jobs = [
        scene.submit(options=options(concurrency_key="a")),
        scene.submit(options=options(concurrency_key="b")),
        scene.submit(options=options(concurrency_key="a"), queue="other"),
        scene.submit(),
    ]
    assert len(granted(scene, *jobs)) == 4


def test_the_same_key_of_another_tenant_is_another_key(scene: ControlScene) -> None:
    jobs = [scene.submit(tenant=tenant, options=KEYED) for tenant in ("default", "acme", "acme", "globex")]
    running = granted(scene, *jobs)
    assert [job.tenant for job in running] == ["default", "acme", "globex"]
    scene.hold(jobs[2])
    assert scene.now(jobs[2]).blocked
    scene.complete(running[0])
    assert scene.now(jobs[2]).blocked, "the place of another tenant"
    scene.complete(running[1])
    assert not scene.now(jobs[2]).blocked


def test_hold_takes_jobs_whose_key_is_at_its_limit_out_of_the_ready_index(scene: ControlScene) -> None:
    first, second, third = (scene.submit(options=KEYED) for _ in range(3))
    scene.run(first)
    assert scene.hold(second, third) == Counted(2)
    assert (scene.now(second).blocked, scene.now(second).status) == (True, Status.QUEUED)
    assert list(scene.state.all_waiting()) == []
    assert scene.lease(second).missed == (second.id,)
    scene.complete(scene.now(first))
    assert (scene.now(second).blocked, scene.now(third).blocked) == (False, True)
    assert len(granted(scene, second)) == 1


def test_hold_leaves_what_may_run_what_is_not_due_and_what_has_no_key(scene: ControlScene) -> None:
    free = scene.submit(options=KEYED)
    assert scene.hold(free) == Counted(0)
    running = scene.run(free)
    later = scene.submit(options=KEYED, due_at_ms=scene.now_ms + 5)
    keyless, paused = scene.submit(), scene.submit(options=KEYED, paused=True)
    assert scene.hold(later, keyless, paused, running) == Counted(0)
    scene.wait(5)
    assert scene.hold(later, later) == Counted(1)
    assert not scene.now(later).timed
    assert scene.hold(later) == Counted(0), "held once"


def test_hold_of_unknown_jobs_does_nothing_and_of_too_many_is_refused(scene: ControlScene) -> None:
    assert scene.apply(BlockJobs((job_id(404),))) == Counted(0)
    assert code_of(scene.apply(BlockJobs((job_id(404),) * (limits.BLOCK_JOBS_MAX + 1)))) is RejectCode.INVALID


def test_blocked_job_is_not_leased_before_the_background_step_that_offers_it_again_has_come_to_it(
    scene: ControlScene,
) -> None:
    job = blocked(scene)
    scene.configure(key_concurrency_max=2)
    assert scene.lease(job).missed == (job.id,)
    scene.apply(DoBackgroundStep(BackgroundKind.RELEASE_BLOCKED, QUEUE.encode()))
    assert len(granted(scene, job)) == 1


def blocked(scene: ControlScene, **fields: object) -> Job:
    """A job that waits for another of its key."""
    scene.running(options=KEYED, **fields)
    job = scene.submit(options=KEYED)
    scene.hold(job)
    assert scene.now(job).blocked
    return scene.now(job)


def test_blocked_job_can_be_paused_cancelled_put_off_and_expired(scene: ControlScene) -> None:
    paused = changed(scene.pause(blocked(scene)))
    assert (paused.blocked, paused.status) == (False, Status.PAUSED)
    scene = ControlScene()
    cancelled = blocked(scene)
    scene.cancel(cancelled)
    assert (scene.now(cancelled).blocked, scene.status(cancelled)) == (False, Status.CANCELLED)
    scene = ControlScene()
    later = changed(scene.amend(blocked(scene), due_at_ms=scene.now_ms + 10))
    assert (later.blocked, later.timed) == (False, True)
    scene = ControlScene()
    doomed = blocked(scene)
    scene.amend(doomed, expires_at_ms=scene.now_ms + 10)
    assert scene.now(doomed).blocked
    scene.wait(10)
    scene.ring(doomed)
    assert (scene.now(doomed).blocked, scene.status(doomed)) == (False, Status.DEAD_LETTER)


def test_blocked_job_keeps_waiting_with_another_priority_and_is_offered_in_another_queue(scene: ControlScene) -> None:
    job = changed(scene.amend(blocked(scene), priority=9))
    assert (job.blocked, job.spec.priority) == (True, 9)
    moved = changed(scene.amend(job, queue="other"))
    assert not moved.blocked
    assert len(granted(scene, moved)) == 1


def test_released_is_the_blocked_job_that_comes_first(scene: ControlScene) -> None:
    running = scene.running(options=KEYED)
    low, high = scene.submit(options=KEYED, priority=1), scene.submit(options=KEYED, priority=8)
    scene.hold(low, high)
    scene.complete(running)
    assert (scene.now(low).blocked, scene.now(high).blocked) == (True, False)


def test_lease_stays_as_it_was_for_jobs_without_options_in_queues_without_settings(scene: ControlScene) -> None:
    job = scene.submit()
    result = scene.apply(LeaseJobs("w1", TTL_MS, (job.id,)))
    assert isinstance(result, Leased)
    assert token_of(result.grants[0].job) == 1
    assert not [write for write in scene.last.writes if isinstance(write, PutQueue)]
