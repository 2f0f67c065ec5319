"""FireSchedule, RunSchedule and TrimLedger: one decision for each instant, and what becomes of earlier runs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from raftsched import limits
from raftsched.core.firing import OVERLAP_LIMIT
from raftsched.core.ids import JobId, TimeMs
from raftsched.core.job import FINISHED, Status
from raftsched.core.operations import RejectCode
from raftsched.core.schedule import FiringKind, Overlap
from raftsched.core.schedule_operations import Decision, FireSchedule, RunSchedule, ScheduleAction, TrimLedger
from raftsched.core.view import Counted, Fired, Refused
from tests.core.scene import START_MS
from tests.core.schedule_scene import MINUTE, OWN_ID, TIMING, ScheduleScene

FIRST = START_MS + MINUTE


def code(result: object) -> RejectCode | None:
    return result.code if isinstance(result, Refused) else None


@pytest.fixture
def scene() -> ScheduleScene:
    scene = ScheduleScene()
    scene.save()
    return scene


def test_an_instant_makes_a_job_of_the_template(scene: ScheduleScene) -> None:
    (firing,) = scene.fire(FIRST).firings
    job = scene.job_of(firing)
    assert (job.name, job.queue, job.status) == ("report", "reports", Status.QUEUED)
    assert job.options is not None
    assert (job.options.schedule_id, job.options.instant_ms) == (OWN_ID, FIRST)
    assert scene.state.payload(job.id) == b'{"n":1}'
    assert scene.schedule.next_at_ms == FIRST + MINUTE
    assert scene.schedule.active == (job.id,)


def test_an_instant_is_decided_once(scene: ScheduleScene) -> None:
    """Two leaders propose the same instant; the second is refused and writes nothing (case D01)."""
    scene.fire(FIRST)
    assert code(scene.try_fire(FIRST)) is RejectCode.STALE_DECISION
    assert [line.instant_ms for line in scene.ledger] == [FIRST]


def test_no_instant_is_left_out(scene: ScheduleScene) -> None:
    assert code(scene.try_fire(FIRST + MINUTE)) is RejectCode.STALE_DECISION


def test_no_instant_is_decided_before_its_time(scene: ScheduleScene) -> None:
    decision = Decision(TimeMs(FIRST), scene.new_job_id(), TimeMs(FIRST))
    early = FireSchedule(OWN_ID, 1, (decision,), TimeMs(FIRST + MINUTE))
    scene.now_ms = FIRST - 1
    assert code(scene.apply(early)) is RejectCode.STALE_DECISION
    scene.now_ms = FIRST
    assert isinstance(scene.apply(early), Fired)


def test_a_decision_of_an_older_timing_is_refused(scene: ScheduleScene) -> None:
    scene.save(timing=replace(TIMING, cron="*/5 * * * *"), fingerprint=b"second", next_at_ms=TimeMs(FIRST))
    assert code(scene.try_fire(FIRST, generation=1)) is RejectCode.STALE_DECISION
    assert isinstance(scene.try_fire(FIRST, generation=2), Fired)


def test_a_paused_schedule_decides_nothing(scene: ScheduleScene) -> None:
    scene.control(ScheduleAction.PAUSE)
    assert code(scene.try_fire(FIRST)) is RejectCode.PAUSED


def test_skipped_instants_stand_in_the_ledger_with_their_reason(scene: ScheduleScene) -> None:
    scene.now_ms = FIRST + 10 * MINUTE
    skip = Decision(TimeMs(FIRST), reason="misfire", count=10, last_instant_ms=TimeMs(FIRST + 9 * MINUTE))
    scene.apply(FireSchedule(OWN_ID, 1, (skip,), TimeMs(FIRST + 10 * MINUTE)))
    (line,) = scene.ledger
    assert (line.reason, line.count, line.last_instant_ms) == ("misfire", 10, FIRST + 9 * MINUTE)
    assert (scene.schedule.fired_count, scene.schedule.skipped_count) == (0, 10)


# -- overlap ----------------------------------------------------------------------------------------------------------


def reasons(scene: ScheduleScene) -> list[str]:
    return [line.reason for line in scene.ledger]


def overlapping(overlap: Overlap) -> ScheduleScene:
    """A schedule whose first run is running."""
    scene = ScheduleScene()
    scene.save(overlap=overlap)
    (firing,) = scene.fire(FIRST).firings
    scene.start(scene.job_of(firing))
    return scene


def test_skip_skips_while_an_earlier_run_is_unfinished() -> None:
    scene = overlapping(Overlap.SKIP)
    scene.fire(FIRST + MINUTE)
    assert reasons(scene) == ["", "overlap"]


def test_skip_fires_again_once_the_run_is_over(scene: ScheduleScene) -> None:
    (firing,) = scene.fire(FIRST).firings
    scene.finish(scene.job_of(firing))
    assert scene.schedule.active == ()
    scene.fire(FIRST + MINUTE)
    assert reasons(scene) == ["", ""]


def test_a_lost_worker_does_not_block_the_schedule_for_ever(scene: ScheduleScene) -> None:
    """Case D03: the dead run ends by its lease, is tried again, and the overlap check agrees with what runs."""
    (firing,) = scene.fire(FIRST).firings
    for _ in range(limits.LOST_ATTEMPTS_MAX):
        job = scene.job_of(firing)
        scene.now_ms = max(scene.now_ms, job.due_at_ms)
        scene.lose_worker(scene.start(job))
    assert scene.job_of(firing).status is Status.DEAD_LETTER
    assert scene.schedule.active == ()


def test_buffer_one_lets_one_wait_and_skips_the_rest() -> None:
    scene = overlapping(Overlap.BUFFER_ONE)
    scene.fire(FIRST + MINUTE)
    scene.fire(FIRST + 2 * MINUTE)
    first, second, _ = scene.ledger
    assert reasons(scene) == ["", "", "overlap"]
    assert scene.job_of(second).status is Status.WAITING_DEPENDENCIES
    running = scene.job_of(first)
    scene.complete(running)
    assert scene.job_of(second).status is Status.QUEUED


def test_buffer_all_runs_one_after_the_other() -> None:
    scene = overlapping(Overlap.BUFFER_ALL)
    scene.fire(FIRST + MINUTE)
    scene.fire(FIRST + 2 * MINUTE)
    first, second, third = scene.ledger
    scene.complete(scene.job_of(first))
    assert [scene.job_of(line).status for line in (second, third)] == [Status.QUEUED, Status.WAITING_DEPENDENCIES]
    scene.cancel(scene.job_of(second))
    assert scene.job_of(third).status is Status.QUEUED, "the end counts, in whatever way it came"


def test_allow_lets_all_run() -> None:
    scene = overlapping(Overlap.ALLOW)
    scene.fire(FIRST + MINUTE)
    assert len(scene.schedule.active) == 2
    assert scene.job_of(scene.ledger[1]).status is Status.QUEUED


def test_cancel_previous_starts_when_the_earlier_run_has_stopped() -> None:
    scene = overlapping(Overlap.CANCEL_PREVIOUS)
    scene.fire(FIRST + MINUTE)
    first, second = scene.ledger
    stopping = scene.job_of(first)
    assert stopping.status is Status.CANCELLING
    assert scene.job_of(second).status is Status.WAITING_DEPENDENCIES
    scene.complete(stopping)
    assert scene.job_of(first).status is Status.CANCELLED
    assert scene.job_of(second).status is Status.QUEUED
    assert scene.schedule.active == (second.job_id,)


def test_cancel_previous_takes_away_what_only_waits(scene: ScheduleScene) -> None:
    scene.save(overlap=Overlap.CANCEL_PREVIOUS, fingerprint=b"second")
    scene.fire(FIRST)
    scene.fire(FIRST + MINUTE)
    first, second = scene.ledger
    assert scene.job_of(first).status is Status.CANCELLED
    assert scene.job_of(second).status is Status.QUEUED


def test_terminate_previous_ends_the_lease_at_once() -> None:
    scene = overlapping(Overlap.TERMINATE_PREVIOUS)
    first = scene.ledger[0]
    running = scene.job_of(first)
    scene.fire(FIRST + MINUTE)
    assert scene.job_of(first).status is Status.CANCELLED
    assert code(scene.complete(running)) is RejectCode.CANCELLED
    assert scene.job_of(scene.ledger[1]).status is Status.QUEUED


def test_decisions_of_one_operation_see_each_other(scene: ScheduleScene) -> None:
    scene.fire(FIRST, FIRST + MINUTE, FIRST + 2 * MINUTE)
    assert reasons(scene) == ["", "overlap", "overlap"]


def test_max_firings_ends_the_schedule(scene: ScheduleScene) -> None:
    scene.save(timing=replace(TIMING, max_firings=2), overlap=Overlap.ALLOW, fingerprint=b"second", next_at_ms=FIRST)
    scene.fire(FIRST, FIRST + MINUTE, FIRST + 2 * MINUTE)
    assert reasons(scene) == ["", "", "max_firings"]
    assert scene.schedule.next_at_ms == 0


def test_unfinished_runs_are_bounded(scene: ScheduleScene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCHEDULE_ACTIVE_MAX", 2)
    scene.save(overlap=Overlap.ALLOW, fingerprint=b"second")
    scene.fire(FIRST, FIRST + MINUTE, FIRST + 2 * MINUTE)
    assert reasons(scene) == ["", "", "overlap_limit"]


# -- by hand ----------------------------------------------------------------------------------------------------------


def test_a_trigger_leaves_the_planned_instants_alone(scene: ScheduleScene) -> None:
    scene.now_ms = START_MS + 5_000
    fired = scene.run_by_hand(scene.now_ms, kind=FiringKind.MANUAL, overlap=Overlap.SKIP)
    assert fired.firings[0].kind is FiringKind.MANUAL
    assert scene.schedule.next_at_ms == FIRST
    assert scene.schedule.fired_count == 0


def test_a_trigger_obeys_the_overlap_that_it_names() -> None:
    scene = overlapping(Overlap.SKIP)
    skipped = scene.run_by_hand(FIRST + 1, kind=FiringKind.MANUAL, overlap=Overlap.SKIP)
    assert skipped.firings[0].reason == "overlap"
    beside = scene.run_by_hand(FIRST + 2, kind=FiringKind.MANUAL, overlap=Overlap.ALLOW)
    assert beside.firings[0].job_id


def test_a_backfill_runs_one_after_the_other_and_is_not_repeated(scene: ScheduleScene) -> None:
    past = [START_MS - hours * 60 * MINUTE for hours in (3, 2, 1)]
    fired = scene.run_by_hand(*past, kind=FiringKind.BACKFILL, overlap=Overlap.BUFFER_ALL)
    assert [scene.job_of(line).status for line in fired.firings] == [
        Status.QUEUED,
        Status.WAITING_DEPENDENCIES,
        Status.WAITING_DEPENDENCIES,
    ]
    again = scene.run_by_hand(*past, kind=FiringKind.BACKFILL, overlap=Overlap.BUFFER_ALL)
    assert again.firings == fired.firings
    for line in fired.firings:
        scene.finish(scene.job_of(line))
    assert all(scene.job_of(line).status in FINISHED for line in fired.firings)


def test_a_backfill_may_begin_with_the_latest(scene: ScheduleScene) -> None:
    past = [START_MS - k * MINUTE for k in (1, 2, 3)]
    fired = scene.run_by_hand(*past, kind=FiringKind.BACKFILL, overlap=Overlap.BUFFER_ALL)
    assert [firing.instant_ms for firing in fired.firings] == past
    first, second, third = (scene.job_of(firing) for firing in fired.firings)
    assert (first.status, second.status, third.status) == (
        Status.QUEUED,
        Status.WAITING_DEPENDENCIES,
        Status.WAITING_DEPENDENCIES,
    )
    assert scene.state.dependencies(third.id)[0].parent == second.id
    twice = tuple(Decision(TimeMs(past[0]), scene.new_job_id(), TimeMs(past[0])) for _ in range(2))
    refused = scene.apply(RunSchedule(OWN_ID, "default", FiringKind.BACKFILL, twice, Overlap.ALLOW))
    assert code(refused) is RejectCode.INVALID


def test_a_backfill_goes_on_with_what_there_was_no_room_for(
    scene: ScheduleScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SCHEDULE_ACTIVE_MAX", 2)
    past = [START_MS - k * MINUTE for k in (3, 2, 1)]
    first = scene.run_by_hand(*past, kind=FiringKind.BACKFILL, overlap=Overlap.ALLOW)
    assert [firing.reason for firing in first.firings] == ["", "", OVERLAP_LIMIT]
    scene.finish(scene.job_of(first.firings[0]))
    second = scene.run_by_hand(*past, kind=FiringKind.BACKFILL, overlap=Overlap.ALLOW)
    assert [firing.reason for firing in second.firings] == ["", "", ""]
    assert second.firings[:2] == first.firings[:2]
    assert scene.ledger == list(second.firings)


# -- the ledger -------------------------------------------------------------------------------------------------------


def test_trimming_removes_the_oldest_lines_only(scene: ScheduleScene) -> None:
    scene.save(overlap=Overlap.ALLOW, fingerprint=b"second")
    scene.fire(FIRST, FIRST + MINUTE, FIRST + 2 * MINUTE)
    assert scene.apply(TrimLedger(OWN_ID, TimeMs(FIRST + 2 * MINUTE))) == Counted(2)
    assert [line.instant_ms for line in scene.ledger] == [FIRST + 2 * MINUTE]


@pytest.mark.parametrize(
    ("decisions", "field"),
    [
        ((), "decisions"),
        ((Decision(TimeMs(2), JobId(b"x")),), "job_id"),
        ((Decision(TimeMs(2)),), "reason"),
        ((Decision(TimeMs(2), reason="r"), Decision(TimeMs(2), reason="r")), "decisions"),
        ((Decision(TimeMs(-1), reason="r"),), "instant_ms"),
        ((Decision(TimeMs(9), reason="r", count=4, last_instant_ms=TimeMs(3)),), "last_instant_ms"),
        ((Decision(TimeMs(9), reason="r" * 9_999),), "reason"),
    ],
)
def test_impossible_decisions_are_refused_by_name(
    scene: ScheduleScene, decisions: tuple[Decision, ...], field: str
) -> None:
    result = scene.apply(FireSchedule(OWN_ID, 1, decisions, TimeMs(0)))
    assert isinstance(result, Refused)
    assert result.code is RejectCode.INVALID
    assert result.message.startswith(field)
