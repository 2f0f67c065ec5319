"""What follows for others: places of a concurrency key, lists of a schedule's runs, and what stays untouched."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from raftsched import limits
from raftsched.core.apply import apply
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import OPERATIONS, CancelJob, ExpiredLease, ExpireLeases, LeaseJobs, RecordOutcome
from raftsched.core.operations.control import (
    AmendJob,
    BlockJobs,
    HandleDeadlines,
    PauseJob,
    RequeueJob,
    ResumeJob,
)
from raftsched.core.operations.queues import ConfigureQueue
from raftsched.core.operations.schedules import Decision, RunSchedule, SaveSchedule
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.job import LEASED, WAITING, AttemptEnd, Job, Status
from raftsched.core.records.retry import RetryPolicy
from raftsched.core.records.schedule import FiringKind, Misfire, Overlap, ScheduleId, Template, Timing
from raftsched.core.records.spec import JobSpec, Options, SpecChanges
from raftsched.core.state.handlers import HANDLERS
from raftsched.core.state.results import Applied, Context, Fired, Submitted
from raftsched.core.workflows.cascade import with_cascade
from tests.core.relations_scene import RelationsScene, needs
from tests.core.scene import submit_operation, token_of

KEYED = Options(concurrency_key="k")


def test_every_operation_has_a_handler() -> None:
    assert HANDLERS.keys() == set(OPERATIONS)


def test_nothing_follows_from_a_job_that_hangs_together_with_nothing(relations: RelationsScene) -> None:
    applied = apply(relations.state, submit_operation(1), Context(TimeMs(1), 1))
    assert with_cascade(relations.state, applied, Context(TimeMs(1), 1)) is applied


# -- concurrency keys


def blocked(relations: RelationsScene, count: int) -> tuple[Job, list[Job]]:
    """One job that runs, and `count` that wait for its key."""
    running = relations.start(relations.submit(options=KEYED))[0]
    waiting = [relations.submit(options=KEYED) for _ in range(count)]
    relations.apply(BlockJobs(tuple(job.id for job in waiting)))
    assert [relations.now(job).blocked for job in waiting] == [True] * count
    return running, waiting


@pytest.mark.parametrize("way", ["complete", "fail", "retry", "snooze", "lose", "force"])
def test_place_is_free_again_however_the_lease_ends(relations: RelationsScene, way: str) -> None:
    running, (first, second) = blocked(relations, 2)
    outcome = RecordOutcome(running.id, 1, token_of(running), AttemptEnd.FAILED)
    operations: dict[str, Operation] = {
        "complete": replace(outcome, end=AttemptEnd.COMPLETED),
        "fail": replace(outcome, retryable=False),
        "retry": outcome,
        "snooze": replace(outcome, end=AttemptEnd.SNOOZED, delay_ms=5_000),
        "lose": ExpireLeases((ExpiredLease(running.id, token_of(running), AttemptEnd.WORKER_LOST),)),
        "force": CancelJob(running.id, "default", force=True),
    }
    relations.now_ms += 10_000
    relations.apply(operations[way])
    assert [relations.now(job).blocked for job in (first, second)] == [False, True]


def test_cancelled_job_that_was_offered_passes_the_place_on(relations: RelationsScene) -> None:
    running, (first, second, third) = blocked(relations, 3)
    relations.end(running)
    relations.end(first, Status.CANCELLED)
    assert [relations.now(job).blocked for job in (second, third)] == [False, True]


def test_offered_job_that_is_put_off_or_moved_away_passes_the_place_on(relations: RelationsScene) -> None:
    running, (first, second, third) = blocked(relations, 3)
    relations.end(running)
    relations.apply(AmendJob(first.id, "default", due_at_ms=relations.now_ms + 60_000))
    assert [relations.now(job).blocked for job in (second, third)] == [False, True]
    relations.apply(AmendJob(second.id, "default", changes=SpecChanges(queue="elsewhere")))
    assert not relations.now(third).blocked


def test_offered_job_that_stays_offered_keeps_its_place(relations: RelationsScene) -> None:
    running, (first, second) = blocked(relations, 2)
    relations.end(running)
    relations.apply(AmendJob(first.id, "default", changes=SpecChanges(priority=1)))
    assert [relations.now(job).blocked for job in (first, second)] == [False, True]


def test_higher_priority_is_offered_first(relations: RelationsScene) -> None:
    running = relations.start(relations.submit(options=KEYED))[0]
    low, high = relations.submit(options=KEYED), relations.submit(options=KEYED, priority=9)
    relations.apply(BlockJobs((low.id, high.id)))
    relations.end(running)
    assert [relations.now(job).blocked for job in (low, high)] == [True, False]


def test_free_place_is_offered_to_each_region_since_others_may_have_no_worker(relations: RelationsScene) -> None:
    (running,) = relations.start(relations.submit(options=KEYED))
    regions = ("eu", "eu", "", "us", "us", "")
    waiting = [relations.submit(options=KEYED, region=region) for region in regions]
    relations.apply(BlockJobs(tuple(job.id for job in waiting)))
    relations.end(running)
    assert [relations.now(job).blocked for job in waiting] == [False, True, False, False, True, True]
    relations.start(waiting[3])
    relations.apply(BlockJobs((waiting[0].id, waiting[2].id)))
    relations.end(waiting[3])
    assert [relations.now(job).blocked for job in waiting if job.id != waiting[3].id] == [
        False,
        True,
        False,
        False,
        True,
    ]


def test_raised_limit_offers_as_many_to_each_region(relations: RelationsScene) -> None:
    relations.start(relations.submit(options=KEYED))
    waiting = [relations.submit(options=KEYED, region=region) for region in ("eu", "", "eu", "", "", "eu")]
    relations.apply(BlockJobs(tuple(job.id for job in waiting)))
    relations.apply(ConfigureQueue("send_email", key_concurrency_max=3))
    relations.drain()
    assert [relations.now(job).blocked for job in waiting] == [False] * 4 + [True] * 2


def test_leases_that_end_together_offer_as_many_as_places_are_free(relations: RelationsScene) -> None:
    relations.apply(ConfigureQueue("send_email", key_concurrency_max=3))
    running = relations.start(*(relations.submit(options=KEYED) for _ in range(3)))
    waiting = [relations.submit(options=KEYED) for _ in range(5)]
    relations.apply(BlockJobs(tuple(job.id for job in waiting)))
    relations.now_ms += 10_000
    lost = (ExpiredLease(job.id, token_of(job), AttemptEnd.WORKER_LOST) for job in running)
    relations.apply(ExpireLeases(tuple(lost)))
    assert [relations.now(job).blocked for job in waiting] == [False] * 3 + [True] * 2


def test_raised_limit_offers_blocked_jobs_in_steps(relations: RelationsScene) -> None:
    running, waiting = blocked(relations, limits.BACKGROUND_STEP_ITEMS_MAX + 10)
    other = Options(concurrency_key="other")
    relations.start(relations.submit(options=other))
    kept = relations.submit(options=other)
    relations.apply(BlockJobs((kept.id,)))
    relations.apply(ConfigureQueue("send_email", key_concurrency_max=1_000))
    relations.apply(ConfigureQueue("send_email", key_concurrency_max=5))
    assert relations.background_work()
    relations.drain()
    offered = [job for job in waiting if not relations.now(job).blocked]
    assert len(offered) >= 4
    assert not relations.now(kept).blocked
    assert relations.status(running) is Status.RUNNING


# -- schedules


def schedule(relations: RelationsScene, overlap: Overlap = Overlap.ALLOW) -> ScheduleId:
    template = Template(JobSpec("n", "q", 5, 3, 0, RetryPolicy()))
    timing = Timing(cron="* * * * *")
    save = SaveSchedule(
        ScheduleId(b"s" * 16),
        "default",
        "nightly",
        timing,
        template,
        overlap,
        Misfire.RUN_ONCE,
        0,
        TimeMs(relations.now_ms + 60_000),
        b"f",
    )
    relations.apply(save)
    return save.id


def run_by_hand(
    relations: RelationsScene,
    schedule_id: ScheduleId,
    *numbers: int,
    overlap: Overlap = Overlap.ALLOW,
    kind: FiringKind = FiringKind.MANUAL,
) -> list[JobId]:
    ids = [JobId(number.to_bytes(16, "big")) for number in numbers]
    fire_times = range(relations.now_ms, relations.now_ms + len(ids))
    decisions = tuple(
        Decision(TimeMs(at), job_id, TimeMs(relations.now_ms)) for at, job_id in zip(fire_times, ids, strict=True)
    )
    result = relations.apply(RunSchedule(schedule_id, "default", kind, decisions, overlap))
    assert isinstance(result, Fired)
    assert all(line.job_id for line in result.firings)
    return ids


def unfinished(relations: RelationsScene, schedule_id: ScheduleId, kind: FiringKind) -> list[JobId]:
    found = relations.state.schedule(schedule_id)
    assert found is not None
    return [*(found.backfilling if kind is FiringKind.BACKFILL else found.active)]


@pytest.mark.parametrize("kind", [FiringKind.MANUAL, FiringKind.BACKFILL])
def test_schedule_forgets_a_run_that_ended_and_remembers_one_that_was_requeued(
    relations: RelationsScene, kind: FiringKind
) -> None:
    known = schedule(relations)
    other_kind = FiringKind.BACKFILL if kind is FiringKind.MANUAL else FiringKind.MANUAL
    [other] = run_by_hand(relations, known, 900, kind=other_kind)
    a, b, c = run_by_hand(relations, known, 901, 902, 903, kind=kind)
    before = relations.state.schedule(known)
    relations.end(a)
    relations.end(b, Status.DEAD_LETTER)
    relations.end(c, Status.CANCELLED)
    assert unfinished(relations, known, kind) == []
    after = relations.state.schedule(known)
    assert before is not None
    assert after is not None
    assert after.revision == before.revision, "it is still what the user saved"
    relations.requeue(b)
    assert unfinished(relations, known, kind) == [b]
    relations.end(b)
    assert unfinished(relations, known, kind) == []
    assert unfinished(relations, known, other_kind) == [other]


def test_buffered_runs_of_a_schedule_follow_each_other_however_they_end(relations: RelationsScene) -> None:
    known = schedule(relations)
    a, b, c = run_by_hand(relations, known, 901, 902, 903, overlap=Overlap.BUFFER_ALL)
    assert relations.statuses(a, b, c) == [Status.QUEUED, Status.WAITING_DEPENDENCIES, Status.WAITING_DEPENDENCIES]
    relations.end(a, Status.DEAD_LETTER)
    assert relations.statuses(b, c) == [Status.QUEUED, Status.WAITING_DEPENDENCIES]
    relations.end(b, Status.CANCELLED)
    relations.end(c)
    assert unfinished(relations, known, FiringKind.MANUAL) == []


def test_several_ends_in_one_operation_are_written_once_for_what_they_share(relations: RelationsScene) -> None:
    known = schedule(relations)
    ids = run_by_hand(relations, known, 901, 902, 903)
    leased = relations.start(*ids)
    relations.now_ms += 10_000
    lost = tuple(ExpiredLease(job.id, token_of(job), AttemptEnd.WORKER_LOST) for job in leased)
    for _ in range(limits.LOST_WORKERS_DEFAULT - 1):
        relations.apply(ExpireLeases(lost))
        relations.now_ms += 1_000_000
        lost = tuple(ExpiredLease(job.id, token_of(job), AttemptEnd.WORKER_LOST) for job in relations.start(*ids))
        relations.now_ms += 10_000
    applied: Applied = apply(relations.state, ExpireLeases(lost), Context(TimeMs(relations.now_ms), 9_999))
    assert [type(write).__name__ for write in applied.writes].count("PutSchedule") == 1
    relations.apply(ExpireLeases(lost))
    assert unfinished(relations, known, FiringKind.MANUAL) == []


def test_deadline_that_ends_a_waiting_parent_tells_its_dependants(relations: RelationsScene) -> None:
    result = relations.try_submit(options=Options(expires_at_ms=TimeMs(relations.now_ms + 5)))
    assert isinstance(result, Submitted)
    parent = result.job
    child = relations.submit(depends_on=needs(parent))
    relations.now_ms += 5
    (deadline,) = [entry for entry in relations.state.all_deadlines() if entry.subject == parent.id]
    relations.apply(HandleDeadlines(((deadline.kind, deadline.subject),)))
    assert relations.statuses(parent, child) == [Status.DEAD_LETTER, Status.SKIPPED]


def test_cancelled_jobs_free_their_places_in_whatever_status_they_were(relations: RelationsScene) -> None:
    """Case D37: a limit of 2, 2 running and 5 waiting, all cancelled in mixed order, then 2 more."""
    relations.apply(ConfigureQueue("send_email", concurrency_max=2, key_concurrency_max=2))
    running = relations.start(relations.submit(options=KEYED), relations.submit(options=KEYED))
    waiting = [relations.submit(options=KEYED) for _ in range(5)]
    relations.apply(BlockJobs(tuple(job.id for job in waiting[:4])))
    for job in (waiting[1], running[0], waiting[4], waiting[0], running[1], waiting[3], waiting[2]):
        relations.end(job, Status.CANCELLED)
    assert relations.state.running_count("send_email") == 0
    assert relations.state.key_running_count("send_email", "k") == 0
    assert relations.state.blocked_jobs("send_email", limit=10) == []
    assert len(relations.start(relations.submit(options=KEYED), relations.submit(options=KEYED))) == 2


def test_some_job_of_a_key_is_offered_as_long_as_a_place_is_free(relations: RelationsScene) -> None:
    """Whatever is done to jobs of a key, none is held while its key has a place and nobody is offered it."""
    rng = random.Random(1)
    relations.apply(ConfigureQueue("send_email", key_concurrency_max=2))
    for _ in range(300):
        jobs = [job for job in relations.state.all_jobs() if job.status in WAITING | LEASED | {Status.PAUSED}]
        job = rng.choice(jobs) if len(jobs) > 6 else relations.submit(options=KEYED)
        step_with_key(relations, rng, job)
        place = ("send_email", "k")
        blocked = relations.state.blocked_jobs("send_email", limit=100)
        offered = [
            one for one in relations.state.all_jobs() if one.status in WAITING and not one.blocked and not one.timed
        ]
        assert not blocked or offered or relations.state.key_running_count(*place) >= 2


def step_with_key(relations: RelationsScene, rng: random.Random, job: Job) -> None:
    """Do something at random to a job that has a key."""
    now_ms = relations.now_ms
    if job.lease is not None:
        end = rng.choice([AttemptEnd.COMPLETED, AttemptEnd.FAILED, AttemptEnd.SNOOZED])
        relations.apply(RecordOutcome(job.id, job.run_number, token_of(job), end, delay_ms=rng.choice([0, 5_000])))
        return
    operations: list[Operation] = [
        LeaseJobs("w", 1_000, (job.id,)),
        LeaseJobs("w", 1_000, (job.id,)),
        BlockJobs((job.id,)),
        BlockJobs((job.id,)),
        PauseJob(job.id, "default"),
        ResumeJob(job.id, "default"),
        CancelJob(job.id, "default"),
        AmendJob(job.id, "default", due_at_ms=rng.choice([0, now_ms + 60_000])),
        AmendJob(job.id, "default", changes=SpecChanges(priority=rng.randint(0, 9))),
        RequeueJob(job.id, "default"),
    ]
    relations.apply(rng.choice(operations))
