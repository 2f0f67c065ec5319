"""What follows for others: places of a concurrency key, lists of a schedule's runs, and what stays untouched."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from raftsched import limits
from raftsched.core.apply import HANDLERS, apply
from raftsched.core.checks.invariants import check
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import OPERATIONS, CancelJob, ExpiredLease, ExpireLeases, LeaseJobs, RecordOutcome
from raftsched.core.operations.control import (
    AmendJob,
    HoldJobs,
    PauseJob,
    RequeueJob,
    ResumeJob,
    RingAlarms,
)
from raftsched.core.operations.queues import ConfigureQueue
from raftsched.core.operations.schedules import Decision, RunSchedule, SaveSchedule
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.job import LEASED, WAITING, AttemptEnd, Job, Status
from raftsched.core.records.retry import RetryPolicy
from raftsched.core.records.schedule import FiringKind, Misfire, Overlap, ScheduleId, Template, Timing
from raftsched.core.records.spec import JobSpec, Options, SpecChanges
from raftsched.core.state.results import Applied, Context, Fired, Submitted
from raftsched.core.workflows.cascade import with_consequences
from tests.core.relations_scene import TiesScene, needs
from tests.core.scene import submit_operation, token_of

KEYED = Options(concurrency_key="k")


@pytest.fixture
def ties() -> Iterator[TiesScene]:
    """A scene that must be sound in the end."""
    scene = TiesScene()
    yield scene
    assert check(scene.state) == []


def test_every_operation_has_a_handler() -> None:
    assert HANDLERS.keys() == set(OPERATIONS)


def test_nothing_follows_from_a_job_that_hangs_together_with_nothing(ties: TiesScene) -> None:
    applied = apply(ties.state, submit_operation(1), Context(TimeMs(1), 1))
    assert with_consequences(ties.state, applied, Context(TimeMs(1), 1)) is applied


# -- concurrency keys


def held(ties: TiesScene, count: int) -> tuple[Job, list[Job]]:
    """One job that runs, and `count` that wait for its key."""
    running = ties.start(ties.submit(options=KEYED))[0]
    waiting = [ties.submit(options=KEYED) for _ in range(count)]
    ties.apply(HoldJobs(tuple(job.id for job in waiting)))
    assert [ties.now(job).held for job in waiting] == [True] * count
    return running, waiting


@pytest.mark.parametrize("way", ["complete", "fail", "retry", "snooze", "lose", "force"])
def test_place_is_free_again_however_the_lease_ends(ties: TiesScene, way: str) -> None:
    running, (first, second) = held(ties, 2)
    outcome = RecordOutcome(running.id, 1, token_of(running), AttemptEnd.FAILED)
    operations: dict[str, Operation] = {
        "complete": replace(outcome, end=AttemptEnd.COMPLETED),
        "fail": replace(outcome, retryable=False),
        "retry": outcome,
        "snooze": replace(outcome, end=AttemptEnd.SNOOZED, delay_ms=5_000),
        "lose": ExpireLeases((ExpiredLease(running.id, token_of(running), AttemptEnd.WORKER_LOST),)),
        "force": CancelJob(running.id, "default", force=True),
    }
    ties.now_ms += 10_000
    ties.apply(operations[way])
    assert [ties.now(job).held for job in (first, second)] == [False, True]


def test_cancelled_job_that_was_offered_passes_the_place_on(ties: TiesScene) -> None:
    running, (first, second, third) = held(ties, 3)
    ties.end(running)
    ties.end(first, Status.CANCELLED)
    assert [ties.now(job).held for job in (second, third)] == [False, True]


def test_offered_job_that_is_put_off_or_moved_away_passes_the_place_on(ties: TiesScene) -> None:
    running, (first, second, third) = held(ties, 3)
    ties.end(running)
    ties.apply(AmendJob(first.id, "default", due_at_ms=ties.now_ms + 60_000))
    assert [ties.now(job).held for job in (second, third)] == [False, True]
    ties.apply(AmendJob(second.id, "default", changes=SpecChanges(queue="elsewhere")))
    assert not ties.now(third).held


def test_offered_job_that_stays_offered_keeps_its_place(ties: TiesScene) -> None:
    running, (first, second) = held(ties, 2)
    ties.end(running)
    ties.apply(AmendJob(first.id, "default", changes=SpecChanges(priority=1)))
    assert [ties.now(job).held for job in (first, second)] == [False, True]


def test_higher_priority_is_offered_first(ties: TiesScene) -> None:
    running = ties.start(ties.submit(options=KEYED))[0]
    low, high = ties.submit(options=KEYED), ties.submit(options=KEYED, priority=9)
    ties.apply(HoldJobs((low.id, high.id)))
    ties.end(running)
    assert [ties.now(job).held for job in (low, high)] == [True, False]


def test_free_place_is_offered_to_each_region_since_others_may_have_no_worker(ties: TiesScene) -> None:
    (running,) = ties.start(ties.submit(options=KEYED))
    regions = ("eu", "eu", "", "us", "us", "")
    waiting = [ties.submit(options=KEYED, region=region) for region in regions]
    ties.apply(HoldJobs(tuple(job.id for job in waiting)))
    ties.end(running)
    assert [ties.now(job).held for job in waiting] == [False, True, False, False, True, True]
    ties.start(waiting[3])
    ties.apply(HoldJobs((waiting[0].id, waiting[2].id)))
    ties.end(waiting[3])
    assert [ties.now(job).held for job in waiting if job.id != waiting[3].id] == [False, True, False, False, True]


def test_raised_limit_offers_as_many_to_each_region(ties: TiesScene) -> None:
    ties.start(ties.submit(options=KEYED))
    waiting = [ties.submit(options=KEYED, region=region) for region in ("eu", "", "eu", "", "", "eu")]
    ties.apply(HoldJobs(tuple(job.id for job in waiting)))
    ties.apply(ConfigureQueue("send_email", key_concurrency_max=3))
    ties.drain()
    assert [ties.now(job).held for job in waiting] == [False] * 4 + [True] * 2


def test_leases_that_end_together_offer_as_many_as_places_are_free(ties: TiesScene) -> None:
    ties.apply(ConfigureQueue("send_email", key_concurrency_max=3))
    running = ties.start(*(ties.submit(options=KEYED) for _ in range(3)))
    waiting = [ties.submit(options=KEYED) for _ in range(5)]
    ties.apply(HoldJobs(tuple(job.id for job in waiting)))
    ties.now_ms += 10_000
    lost = (ExpiredLease(job.id, token_of(job), AttemptEnd.WORKER_LOST) for job in running)
    ties.apply(ExpireLeases(tuple(lost)))
    assert [ties.now(job).held for job in waiting] == [False] * 3 + [True] * 2


def test_raised_limit_offers_held_jobs_in_steps(ties: TiesScene) -> None:
    running, waiting = held(ties, limits.CHORE_STEPS_MAX + 10)
    other = Options(concurrency_key="other")
    ties.start(ties.submit(options=other))
    kept = ties.submit(options=other)
    ties.apply(HoldJobs((kept.id,)))
    ties.apply(ConfigureQueue("send_email", key_concurrency_max=1_000))
    ties.apply(ConfigureQueue("send_email", key_concurrency_max=5))
    assert ties.chores()
    ties.drain()
    offered = [job for job in waiting if not ties.now(job).held]
    assert len(offered) >= 4
    assert not ties.now(kept).held
    assert ties.status(running) is Status.RUNNING


# -- schedules


def schedule(ties: TiesScene, overlap: Overlap = Overlap.ALLOW) -> ScheduleId:
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
        TimeMs(ties.now_ms + 60_000),
        b"f",
    )
    ties.apply(save)
    return save.id


def run_by_hand(
    ties: TiesScene,
    schedule_id: ScheduleId,
    *numbers: int,
    overlap: Overlap = Overlap.ALLOW,
    kind: FiringKind = FiringKind.MANUAL,
) -> list[JobId]:
    ids = [JobId(number.to_bytes(16, "big")) for number in numbers]
    instants = range(ties.now_ms, ties.now_ms + len(ids))
    decisions = tuple(
        Decision(TimeMs(at), job_id, TimeMs(ties.now_ms)) for at, job_id in zip(instants, ids, strict=True)
    )
    result = ties.apply(RunSchedule(schedule_id, "default", kind, decisions, overlap))
    assert isinstance(result, Fired)
    assert all(line.job_id for line in result.firings)
    return ids


def unfinished(ties: TiesScene, schedule_id: ScheduleId, kind: FiringKind) -> list[JobId]:
    found = ties.state.schedule(schedule_id)
    assert found is not None
    return [*(found.backfilling if kind is FiringKind.BACKFILL else found.active)]


@pytest.mark.parametrize("kind", [FiringKind.MANUAL, FiringKind.BACKFILL])
def test_schedule_forgets_a_run_that_ended_and_remembers_one_that_was_requeued(
    ties: TiesScene, kind: FiringKind
) -> None:
    known = schedule(ties)
    other_kind = FiringKind.BACKFILL if kind is FiringKind.MANUAL else FiringKind.MANUAL
    [other] = run_by_hand(ties, known, 900, kind=other_kind)
    a, b, c = run_by_hand(ties, known, 901, 902, 903, kind=kind)
    before = ties.state.schedule(known)
    ties.end(a)
    ties.end(b, Status.DEAD_LETTER)
    ties.end(c, Status.CANCELLED)
    assert unfinished(ties, known, kind) == []
    after = ties.state.schedule(known)
    assert before is not None
    assert after is not None
    assert after.revision == before.revision, "it is still what the user saved"
    ties.requeue(b)
    assert unfinished(ties, known, kind) == [b]
    ties.end(b)
    assert unfinished(ties, known, kind) == []
    assert unfinished(ties, known, other_kind) == [other]


def test_buffered_runs_of_a_schedule_follow_each_other_however_they_end(ties: TiesScene) -> None:
    known = schedule(ties)
    a, b, c = run_by_hand(ties, known, 901, 902, 903, overlap=Overlap.BUFFER_ALL)
    assert ties.statuses(a, b, c) == [Status.QUEUED, Status.WAITING_DEPENDENCIES, Status.WAITING_DEPENDENCIES]
    ties.end(a, Status.DEAD_LETTER)
    assert ties.statuses(b, c) == [Status.QUEUED, Status.WAITING_DEPENDENCIES]
    ties.end(b, Status.CANCELLED)
    ties.end(c)
    assert unfinished(ties, known, FiringKind.MANUAL) == []


def test_several_ends_in_one_operation_are_written_once_for_what_they_share(ties: TiesScene) -> None:
    known = schedule(ties)
    ids = run_by_hand(ties, known, 901, 902, 903)
    leased = ties.start(*ids)
    ties.now_ms += 10_000
    lost = tuple(ExpiredLease(job.id, token_of(job), AttemptEnd.WORKER_LOST) for job in leased)
    for _ in range(limits.LOST_WORKERS_DEFAULT - 1):
        ties.apply(ExpireLeases(lost))
        ties.now_ms += 1_000_000
        lost = tuple(ExpiredLease(job.id, token_of(job), AttemptEnd.WORKER_LOST) for job in ties.start(*ids))
        ties.now_ms += 10_000
    applied: Applied = apply(ties.state, ExpireLeases(lost), Context(TimeMs(ties.now_ms), 9_999))
    assert [type(write).__name__ for write in applied.writes].count("PutSchedule") == 1
    ties.apply(ExpireLeases(lost))
    assert unfinished(ties, known, FiringKind.MANUAL) == []


def test_alarm_that_ends_a_waiting_parent_tells_its_dependants(ties: TiesScene) -> None:
    result = ties.try_submit(options=Options(expires_at_ms=TimeMs(ties.now_ms + 5)))
    assert isinstance(result, Submitted)
    parent = result.job
    child = ties.submit(depends_on=needs(parent))
    ties.now_ms += 5
    (alarm,) = [entry for entry in ties.state.all_alarms() if entry.subject == parent.id]
    ties.apply(RingAlarms(((alarm.kind, alarm.subject),)))
    assert ties.statuses(parent, child) == [Status.DEAD_LETTER, Status.SKIPPED]


def test_cancelled_jobs_free_their_places_in_whatever_status_they_were(ties: TiesScene) -> None:
    """Case D37: a limit of 2, 2 running and 5 waiting, all cancelled in mixed order, then 2 more."""
    ties.apply(ConfigureQueue("send_email", concurrency_max=2, key_concurrency_max=2))
    running = ties.start(ties.submit(options=KEYED), ties.submit(options=KEYED))
    waiting = [ties.submit(options=KEYED) for _ in range(5)]
    ties.apply(HoldJobs(tuple(job.id for job in waiting[:4])))
    for job in (waiting[1], running[0], waiting[4], waiting[0], running[1], waiting[3], waiting[2]):
        ties.end(job, Status.CANCELLED)
    assert ties.state.running_count("send_email") == 0
    assert ties.state.key_running_count("send_email", "k") == 0
    assert ties.state.held_jobs("send_email", limit=10) == []
    assert len(ties.start(ties.submit(options=KEYED), ties.submit(options=KEYED))) == 2


def test_some_job_of_a_key_is_offered_as_long_as_a_place_is_free(ties: TiesScene) -> None:
    """Whatever is done to jobs of a key, none is held while its key has a place and nobody is offered it."""
    rng = random.Random(1)
    ties.apply(ConfigureQueue("send_email", key_concurrency_max=2))
    for _ in range(300):
        jobs = [job for job in ties.state.all_jobs() if job.status in WAITING | LEASED | {Status.PAUSED}]
        job = rng.choice(jobs) if len(jobs) > 6 else ties.submit(options=KEYED)
        step_with_key(ties, rng, job)
        place = ("send_email", "k")
        held = ties.state.held_jobs("send_email", limit=100)
        offered = [one for one in ties.state.all_jobs() if one.status in WAITING and not one.held and not one.timed]
        assert not held or offered or ties.state.key_running_count(*place) >= 2


def step_with_key(ties: TiesScene, rng: random.Random, job: Job) -> None:
    """Do something at random to a job that has a key."""
    now_ms = ties.now_ms
    if job.lease is not None:
        end = rng.choice([AttemptEnd.COMPLETED, AttemptEnd.FAILED, AttemptEnd.SNOOZED])
        ties.apply(RecordOutcome(job.id, job.run_number, token_of(job), end, delay_ms=rng.choice([0, 5_000])))
        return
    operations: list[Operation] = [
        LeaseJobs("w", 1_000, (job.id,)),
        LeaseJobs("w", 1_000, (job.id,)),
        HoldJobs((job.id,)),
        HoldJobs((job.id,)),
        PauseJob(job.id, "default"),
        ResumeJob(job.id, "default"),
        CancelJob(job.id, "default"),
        AmendJob(job.id, "default", due_at_ms=rng.choice([0, now_ms + 60_000])),
        AmendJob(job.id, "default", changes=SpecChanges(priority=rng.randint(0, 9))),
        RequeueJob(job.id, "default"),
    ]
    ties.apply(rng.choice(operations))
