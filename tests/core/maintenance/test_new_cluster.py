"""A state becomes the first of a new cluster: whatever was going on, no old lease counts, and nothing finished changes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from raftsched import limits
from raftsched.core.checks.invariants import check
from raftsched.core.maintenance.new_cluster import NewCluster, entries, first_fence
from raftsched.core.operations.codec import RecordOutcome, RejectCode
from raftsched.core.operations.schedules import ScheduleAction
from raftsched.core.records.ids import FencingToken, TimeMs
from raftsched.core.records.job import AttemptEnd, Status
from raftsched.core.records.spec import Options
from raftsched.core.state.results import Context
from raftsched.core.state.writes import PutFence, PutJob, PutSchedule, Write
from raftsched.errors import Invalid
from tests.core.control_scene import ControlScene
from tests.core.plain_state import PlainState
from tests.core.scene import START_MS, Scene, code_of, token_of
from tests.core.schedule_scene import ScheduleScene
from tests.for_each import for_each

TWO_DAYS_MS = 2 * 86_400_000
LATER_TOKENS = 10**9
"""Leases of the old cluster after the backup: more than two days of 5,000 a second."""

Planted = Callable[[Write], bool]


def begin(state: PlainState, now_ms: int, *, pauses: bool = True, forgets: Planted = lambda _: False) -> NewCluster:
    """Turn `state` into that of a new cluster; `forgets` plants a bug: these writes are not executed."""
    new = NewCluster("c2", "restore", "restored", first_fence(state.fence, state.cluster_time_ms, now_ms), pauses)
    state.pass_time(now_ms)
    for context, writes in entries(state, new, Context(TimeMs(now_ms), state.index)):
        assert context.index == state.index
        state.execute(write for write in writes if not forgets(write))
        state.pass_time(now_ms)
    return new


def test_every_lease_ends_as_that_of_a_lost_worker(scene: ControlScene) -> None:
    retried, at_last, stopping = (scene.submit() for _ in range(3))
    once = scene.submit(options=Options(at_most_once=True))
    for _ in range(2):
        scene.lose_worker(scene.run(scene.now(at_last)))
        scene.wait(limits.DELAY_MS_MAX // 1_000)
    held = [scene.run(scene.now(job)) for job in (retried, at_last, stopping, once)]
    scene.start(once_held := held[3])
    scene.cancel(stopping)

    scene.wait(1_000)
    new = begin(scene.state, scene.now_ms)

    assert check(scene.state) == []
    assert any(line.action == "cluster.restore" for _, line in scene.state.audit)
    assert [scene.status(job) for job in held] == [
        *(Status.QUEUED, Status.DEAD_LETTER),
        *(Status.CANCELLED, Status.DEAD_LETTER),
    ]
    assert [scene.now(job).attempts[-1].end for job in held] == [
        *(AttemptEnd.WORKER_LOST, AttemptEnd.WORKER_LOST),
        *(AttemptEnd.CANCELLED, AttemptEnd.WORKER_LOST),
    ]
    assert "once" in scene.now(once_held).failure_reason
    again = scene.run(scene.now(retried), worker="w2")
    assert token_of(again) == new.fence + 1


def test_reports_of_old_workers_are_rejected_also_of_leases_that_the_state_does_not_know(scene: ControlScene) -> None:
    known, waiting = scene.running(), scene.submit()
    scene.wait(TWO_DAYS_MS)
    begin(scene.state, scene.now_ms)
    assert code_of(scene.complete(known)) is RejectCode.LEASE_LOST
    for token in (token_of(known) + 1, token_of(known) + LATER_TOKENS):
        report = RecordOutcome(waiting.id, waiting.run_number, FencingToken(token), AttemptEnd.COMPLETED)
        assert code_of(scene.apply(report)) is RejectCode.LEASE_LOST
        scene.run(scene.now(waiting))
        assert code_of(scene.apply(report)) is RejectCode.LEASE_LOST, "though it is leased"
        scene.lose_worker(scene.now(waiting))


def test_schedules_are_paused_for_good_and_say_why() -> None:
    scene = ScheduleScene()
    scene.save()
    begin(scene.state, scene.now_ms)
    assert (scene.schedule.paused, scene.schedule.pause_until_ms, scene.schedule.pause_reason) == (True, 0, "restored")

    for until_ms, reason in ((0, "holiday"), (START_MS + 10**9, "restored; before, it was paused until")):
        scene = ScheduleScene()
        scene.save()
        scene.control(ScheduleAction.PAUSE, until_ms=TimeMs(until_ms), reason="holiday")
        begin(scene.state, scene.now_ms)
        assert scene.schedule.paused
        assert scene.schedule.pause_until_ms == 0
        assert scene.schedule.pause_reason.startswith(reason)
        assert scene.schedule.pause_reason.endswith("holiday")


def test_schedules_go_on_if_that_is_wanted() -> None:
    scene = ScheduleScene()
    saved = scene.save().schedule
    begin(scene.state, scene.now_ms, pauses=False)
    assert scene.schedule == saved


def test_a_token_is_above_all_that_clusters_of_the_same_backup_have_issued() -> None:
    backup = FencingToken(12_345)
    first = first_fence(backup, START_MS, START_MS + 60_000)
    second = first_fence(backup, START_MS, START_MS + 120_000)
    from_second = first_fence(FencingToken(second + 1_000), START_MS + 180_000, START_MS + 180_001)
    leases_a_second = 20_000
    assert backup < first
    assert first + 60 * leases_a_second < second
    assert second + 60 * leases_a_second < from_second
    for fence, now_ms in ((backup, START_MS - 1), (FencingToken(START_MS * 1_000), START_MS)):
        with pytest.raises(Invalid, match="the clock of this machine"):
            first_fence(fence, START_MS, now_ms)


# -- any state, and planted bugs --------------------------------------------------------------------------------------


def random_scene(seed: int) -> ScheduleScene:
    """A state after random operations, with jobs in every status that these lead to, and a schedule."""
    drawn = random.Random(seed)
    scene = ScheduleScene()
    scene.save()
    for _ in range(60):
        scene.wait(drawn.randrange(5_000))
        jobs = list(scene.state.all_jobs())
        if not jobs or drawn.random() < 0.4:
            scene.submit(max_attempts=drawn.randint(1, 3))
            continue
        job = drawn.choice(jobs)
        match drawn.choice(("lease", "lease", "complete", "fail", "cancel", "lose")):
            case "lease":
                scene.lease(job)
            case "cancel":
                scene.cancel(job)
            case "complete" if job.lease is not None:
                scene.complete(job, result=b"1")
            case "fail" if job.lease is not None:
                scene.fail(job)
            case "lose" if job.lease is not None:
                scene.lose_worker(job)
    return scene


def faults(seed: int, forgets: Planted = lambda _: False) -> Iterator[str]:
    """Yield what is wrong with the first state of a new cluster."""
    scene = random_scene(seed)
    before = {job.id: job for job in scene.state.all_jobs()}
    last_token = scene.state.fence
    scene.wait(TWO_DAYS_MS)
    begin(scene.state, scene.now_ms, forgets=forgets)
    after = {job.id: job for job in scene.state.all_jobs()}
    if before.keys() != after.keys():
        yield "jobs were lost, or made"
    for job in after.values():
        old = before[job.id]
        if job.lease is not None:
            yield f"{job.id.hex()} is still leased"
        if old.lease is None and job != old:
            yield f"{job.id.hex()} was {old.status.label}, and changed"
        if old.lease is not None and job.attempts[-1:] and job.attempts[-1].token != old.lease.token:
            yield f"{job.id.hex()}: the record of its last attempt is missing"
    if not scene.schedule.paused:
        yield "the schedule goes on"
    yield from map(str, check(scene.state))
    yield from next_tokens_are_used(scene, last_token)


def next_tokens_are_used(scene: Scene, last_token: FencingToken) -> Iterator[str]:
    token = token_of(scene.run(scene.submit()))
    if token <= last_token + LATER_TOKENS:
        yield f"the old cluster may have issued {token}"


@for_each("seed", range(40))
def test_any_state_becomes_a_sound_first_state(seed: int) -> None:
    assert list(faults(seed)) == []


@pytest.mark.parametrize("kind", [PutFence, PutJob, PutSchedule])
def test_a_kind_of_write_that_is_forgotten_is_found(kind: type[Write]) -> None:
    assert any(list(faults(seed, forgets=lambda write: isinstance(write, kind))) for seed in range(10))
