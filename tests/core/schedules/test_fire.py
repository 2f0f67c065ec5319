"""FireSchedule, RunSchedule and TrimLedger: one decision for each instant, and what becomes of earlier runs."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from raftsched import limits
from raftsched.core.operations.codec import RejectCode
from raftsched.core.operations.schedules import (
    Decision,
    FireSchedule,
    RunSchedule,
    ScheduleAction,
    TrimLedger,
)
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.job import FINISHED, Job, Status
from raftsched.core.records.parameters import Parameter, ParameterType
from raftsched.core.records.schedule import FiringKind, Overlap
from raftsched.core.schedules.fire import OVERLAP_LIMIT
from raftsched.core.state.results import Counted, Fired, Refused, Result
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


def test_an_fire_time_makes_a_job_of_the_template(scene: ScheduleScene) -> None:
    (firing,) = scene.fire(FIRST).firings
    job = scene.job_of(firing)
    assert (job.spec.name, job.spec.queue, job.status) == ("report", "reports", Status.QUEUED)
    assert job.spec.options is not None
    assert (job.spec.options.schedule_id, job.spec.options.fire_time_ms) == (OWN_ID, FIRST)
    assert scene.state.payload(job.id) == b'{"n":1}'
    assert scene.schedule.next_at_ms == FIRST + MINUTE
    assert scene.schedule.active == (job.id,)


def test_an_fire_time_is_decided_once(scene: ScheduleScene) -> None:
    """Two leaders propose the same instant; the second is refused and writes nothing (case D01)."""
    scene.fire(FIRST)
    assert code(scene.try_fire(FIRST)) is RejectCode.STALE_DECISION
    assert [line.fire_time_ms for line in scene.ledger] == [FIRST]


def test_no_fire_time_is_left_out(scene: ScheduleScene) -> None:
    assert code(scene.try_fire(FIRST + MINUTE)) is RejectCode.STALE_DECISION


def test_no_fire_time_is_decided_before_its_time(scene: ScheduleScene) -> None:
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


def test_skipped_fire_times_stand_in_the_ledger_with_their_reason(scene: ScheduleScene) -> None:
    scene.now_ms = FIRST + 10 * MINUTE
    skip = Decision(TimeMs(FIRST), reason="misfire", count=10, last_fire_time_ms=TimeMs(FIRST + 9 * MINUTE))
    scene.apply(FireSchedule(OWN_ID, 1, (skip,), TimeMs(FIRST + 10 * MINUTE)))
    (line,) = scene.ledger
    assert (line.reason, line.count, line.last_fire_time_ms) == ("misfire", 10, FIRST + 9 * MINUTE)
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
    for _ in range(limits.LOST_WORKERS_DEFAULT):
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


def test_a_trigger_leaves_the_planned_fire_times_alone(scene: ScheduleScene) -> None:
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
    assert [firing.fire_time_ms for firing in fired.firings] == past
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


# -- backfills beside what is planned ---------------------------------------------------------------------------------


def backfilled(scene: ScheduleScene) -> list[Job]:
    """The chain of a backfill of three instants; its first run is running."""
    past = [START_MS - k * MINUTE for k in (3, 2, 1)]
    firings = scene.run_by_hand(*past, kind=FiringKind.BACKFILL, overlap=Overlap.BUFFER_ALL).firings
    scene.start(scene.job_of(firings[0]))
    return [scene.job_of(line) for line in firings if line.job_id]


@pytest.mark.parametrize("kind", [FiringKind.PLANNED, FiringKind.MANUAL])
@pytest.mark.parametrize("overlap", Overlap)
def test_fire_times_and_triggers_take_no_notice_of_a_backfill(overlap: Overlap, kind: FiringKind) -> None:
    """It may run for days: until it ends no instant would fire, or the first one would cancel all of it."""
    scene = ScheduleScene()
    scene.save(overlap=overlap)
    chain = backfilled(scene)
    planned = kind is FiringKind.PLANNED
    fired = scene.fire(FIRST) if planned else scene.run_by_hand(scene.now_ms, kind=kind, overlap=overlap)
    assert scene.job_of(fired.firings[0]).status is Status.QUEUED
    assert [scene.now(run) for run in chain] == chain
    assert scene.schedule.backfilling == tuple(run.id for run in chain)


def test_a_backfill_takes_no_notice_of_other_runs() -> None:
    scene = overlapping(Overlap.SKIP)
    first, second, _ = backfilled(scene)
    assert (first.status, second.status) == (Status.RUNNING, Status.WAITING_DEPENDENCIES)
    assert scene.schedule.active == (scene.ledger[-1].job_id,)


def test_a_later_backfill_goes_on_behind_an_earlier_one(scene: ScheduleScene) -> None:
    chain = backfilled(scene)
    later = scene.run_by_hand(START_MS - 9 * MINUTE, kind=FiringKind.BACKFILL, overlap=Overlap.BUFFER_ALL)
    (following,) = scene.state.dependencies(later.firings[0].job_id)
    assert following.parent == chain[-1].id


def test_a_backfill_leaves_room_for_the_fire_times(scene: ScheduleScene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCHEDULE_ACTIVE_MAX", 2)
    backfilled(scene)
    assert reasons(scene) == ["", "", OVERLAP_LIMIT]
    assert scene.fire(FIRST).firings[0].job_id


# -- calls that come again --------------------------------------------------------------------------------------------


def triggered(
    scene: ScheduleScene, fire_time_ms: int, key: str = "", call: bytes = b"call", **fields: object
) -> Result:
    return scene.try_by_hand(fire_time_ms, kind=FiringKind.MANUAL, overlap=Overlap.ALLOW, key=key, call=call, **fields)


def run_of(result: Result) -> tuple[int, JobId]:
    assert isinstance(result, Fired), result
    (line,) = result.firings
    return line.fire_time_ms, line.job_id


def test_triggers_for_no_fire_time_in_particular_are_each_a_run_of_its_own(scene: ScheduleScene) -> None:
    runs = [run_of(triggered(scene, FIRST, f"key {n}", any_fire_time=True)) for n in range(3)]
    assert [fire_time_ms for fire_time_ms, _ in runs] == [FIRST, FIRST + 1, FIRST + 2]
    assert len({job_id for _, job_id in runs}) == 3


def test_a_trigger_with_the_same_key_finds_its_run_as_long_as_the_job_is_there(scene: ScheduleScene) -> None:
    scene.now_ms = FIRST
    first = triggered(scene, FIRST, "key", any_fire_time=True)
    assert isinstance(first, Fired)
    scene.finish(scene.job_of(first.firings[0]))
    before = scene.schedule
    again = triggered(scene, FIRST + MINUTE, "key", any_fire_time=True)
    assert isinstance(again, Fired)
    assert again.firings == first.firings
    assert scene.schedule == before
    scene.apply(TrimLedger(OWN_ID, ((TimeMs(FIRST), FiringKind.MANUAL),)))
    assert scene.ledger == []
    assert run_of(triggered(scene, FIRST + MINUTE, "key", any_fire_time=True)) == run_of(first)


@pytest.mark.parametrize(
    ("fire_time_ms", "fields", "field"),
    [
        (FIRST, {"key": "key", "call": b"another"}, "idempotency_key"),
        (FIRST + 1, {"key": "key"}, "idempotency_key"),
        (FIRST + 1, {"key": "key", "call": b"another", "any_fire_time": True}, "idempotency_key"),
        (FIRST, {"key": "another", "call": b"another"}, "instant"),
        (FIRST, {"call": b"another"}, "instant"),
    ],
)
def test_a_key_or_an_fire_time_that_belongs_to_another_trigger_is_refused(
    scene: ScheduleScene, fire_time_ms: int, fields: dict[str, Any], field: str
) -> None:
    triggered(scene, FIRST, "key")
    result = triggered(scene, fire_time_ms, **fields)
    assert isinstance(result, Refused)
    assert (result.code, result.message.partition(":")[0]) == (RejectCode.IDEMPOTENCY_MISMATCH, field)
    assert len(scene.ledger) == 1


def test_a_trigger_for_the_fire_time_of_another_one_that_asks_the_same_finds_its_run(scene: ScheduleScene) -> None:
    assert run_of(triggered(scene, FIRST, "one")) == run_of(triggered(scene, FIRST, "two"))


def test_too_many_triggers_in_one_moment_are_refused(scene: ScheduleScene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRIGGERS_PER_MOMENT_MAX", 2)
    results = [triggered(scene, FIRST, any_fire_time=True) for _ in range(3)]
    assert list(map(code, results)) == [None, None, RejectCode.LIMIT_REACHED]


def test_lines_of_backfills_say_which_call_made_them(scene: ScheduleScene) -> None:
    by = {"kind": FiringKind.BACKFILL, "overlap": Overlap.ALLOW}
    past = [START_MS - k * MINUTE for k in (4, 3, 2, 1)]
    scene.run_by_hand(past[0], past[2], call=b"one", **by)  # type: ignore[arg-type]
    both = scene.run_by_hand(*past, call=b"two", **by)  # type: ignore[arg-type]
    assert [line.call for line in both.firings] == [b"one", b"two", b"one", b"two"]
    assert len({line.job_id for line in both.firings}) == 4


@pytest.mark.parametrize("fields", [{"key": "k"}, {"any_fire_time": True}])
def test_only_a_single_trigger_has_a_key_or_any_fire_time(scene: ScheduleScene, fields: dict[str, object]) -> None:
    for kind, fire_times in ((FiringKind.BACKFILL, [START_MS]), (FiringKind.MANUAL, [START_MS, FIRST])):
        assert code(scene.try_by_hand(*fire_times, kind=kind, overlap=Overlap.ALLOW, **fields)) is RejectCode.INVALID


# -- the ledger -------------------------------------------------------------------------------------------------------


def test_trimming_removes_the_lines_it_names(scene: ScheduleScene) -> None:
    scene.save(overlap=Overlap.ALLOW, fingerprint=b"second")
    scene.fire(FIRST, FIRST + MINUTE, FIRST + 2 * MINUTE)
    named = tuple((TimeMs(FIRST + k * MINUTE), FiringKind.PLANNED) for k in (0, 1, 7))
    assert scene.apply(TrimLedger(OWN_ID, named)) == Counted(2)
    assert [line.fire_time_ms for line in scene.ledger] == [FIRST + 2 * MINUTE]
    assert scene.apply(TrimLedger(OWN_ID, named)) == Counted(0)


def test_trimming_leaves_what_keeps_a_call_from_repeating_until_its_time_is_over(scene: ScheduleScene) -> None:
    """A backfill that lost the lines of its instants ran them again, up to 71 times."""
    past = START_MS - MINUTE
    first = scene.run_by_hand(past, kind=FiringKind.BACKFILL, overlap=Overlap.ALLOW)
    triggered(scene, FIRST)
    triggered(scene, FIRST + 1, any_fire_time=True)
    manual = FiringKind.MANUAL
    trim = TrimLedger(
        OWN_ID, ((TimeMs(past), FiringKind.BACKFILL), (TimeMs(FIRST), manual), (TimeMs(FIRST + 1), manual))
    )
    scene.now_ms += limits.LEDGER_CALLS_KEPT_MS - 1
    assert scene.apply(trim) == Counted(1)
    again = scene.run_by_hand(past, kind=FiringKind.BACKFILL, overlap=Overlap.ALLOW)
    assert again.firings == first.firings
    scene.now_ms += 1
    assert scene.apply(trim) == Counted(2)


@pytest.mark.parametrize("lines", [(), ((TimeMs(-1), FiringKind.PLANNED),), ((TimeMs(1), FiringKind.PLANNED),) * 201])
def test_trimming_that_cannot_be_is_refused(scene: ScheduleScene, lines: tuple[tuple[TimeMs, FiringKind], ...]) -> None:
    assert code(scene.apply(TrimLedger(OWN_ID, lines))) is RejectCode.INVALID


@pytest.mark.parametrize(
    ("decisions", "field"),
    [
        ((), "decisions"),
        ((Decision(TimeMs(2), JobId(b"x")),), "job_id"),
        ((Decision(TimeMs(2)),), "reason"),
        ((Decision(TimeMs(2), reason="r"), Decision(TimeMs(2), reason="r")), "decisions"),
        ((Decision(TimeMs(-1), reason="r"),), "fire_time_ms"),
        ((Decision(TimeMs(9), reason="r", count=4, last_fire_time_ms=TimeMs(3)),), "last_fire_time_ms"),
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


# -- parameters -------------------------------------------------------------------------------------------------------


def test_runs_have_the_values_of_their_parameters(scene: ScheduleScene) -> None:
    rows = Parameter("rows", ParameterType.INTEGER, default=b"10")
    scene.save(parameters=(rows,), fingerprint=b"with rows")
    (planned,) = scene.fire(FIRST).firings
    (past,) = scene.run_by_hand(FIRST - MINUTE, kind=FiringKind.BACKFILL, overlap=Overlap.ALLOW).firings
    (given,) = scene.run_by_hand(FIRST, kind=FiringKind.MANUAL, overlap=Overlap.ALLOW, parameters=b'{"rows":3}').firings
    scene.save(parameters=(), fingerprint=b"second")
    (none,) = scene.run_by_hand(FIRST + 1, kind=FiringKind.MANUAL, overlap=Overlap.ALLOW).firings
    stored = [
        options.parameters for each in (planned, past, given, none) if (options := scene.job_of(each).spec.options)
    ]
    assert stored == [b'{"rows":10}', b'{"rows":10}', b'{"rows":3}', b""]


def test_a_run_with_faulty_values_is_refused_whole(scene: ScheduleScene) -> None:
    scene.save(parameters=(Parameter("rows", ParameterType.INTEGER),), fingerprint=b"with rows")
    before = scene.schedule
    for parameters, field in (
        (b'{"rows":"3"}', "parameters.rows"),
        (b"[", "parameters"),
        (b'"%b"' % (b"x" * 99_999), "parameters bytes"),
    ):
        refused = scene.try_by_hand(FIRST, kind=FiringKind.MANUAL, overlap=Overlap.ALLOW, parameters=parameters)
        assert isinstance(refused, Refused)
        assert (refused.code, refused.message.partition(":")[0]) == (RejectCode.INVALID, field)
        assert "no such" not in refused.message
    assert (scene.schedule, scene.ledger) == (before, [])
