"""SaveSchedule and ControlSchedule."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from raftsched import limits
from raftsched.core.operations.codec import RejectCode
from raftsched.core.operations.control import BackgroundKind, DoBackgroundStep
from raftsched.core.operations.schedules import ScheduleAction
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.job import Status
from raftsched.core.records.parameters import Parameter
from raftsched.core.records.schedule import FiringKind, Overlap, ScheduleId, Timing
from raftsched.core.records.spec import Options
from raftsched.core.state.results import Refused, ScheduleSaved
from tests.core.scene import START_MS, with_fields
from tests.core.schedule_scene import MINUTE, OWN_ID, TEMPLATE, TIMING, ScheduleScene

FIRST = START_MS + MINUTE
OTHER_ID = ScheduleId(b"\x0a" * 16)


@pytest.fixture
def scene() -> ScheduleScene:
    return ScheduleScene()


def test_the_same_name_saved_again_is_the_same_schedule(scene: ScheduleScene) -> None:
    """Registered at every deployment (case D24)."""
    assert scene.save().created
    again = scene.save(id=OTHER_ID)
    assert (again.created, again.changed) == (False, False)
    assert again.schedule.id == OWN_ID
    assert scene.state.schedule(OTHER_ID) is None


def test_schedules_of_other_names_are_others(scene: ScheduleScene) -> None:
    scene.save("a")
    assert scene.save("b", id=OTHER_ID).created


def test_a_change_beside_the_timing_leaves_the_fire_times_alone(scene: ScheduleScene) -> None:
    """Case D41."""
    scene.save()
    (firing,) = scene.fire(FIRST).firings
    changed = scene.save(
        template=with_fields(TEMPLATE, timeout_ms=7_000),
        payload=b'{"n":2}',
        fingerprint=b"second",
        next_at_ms=TimeMs(1),
    )
    assert changed.schedule.next_at_ms == FIRST + MINUTE
    assert changed.schedule.generation == 1
    assert scene.job_of(firing).spec.timeout_ms == 0, "what it has made is not touched"
    scene.finish(scene.job_of(firing))
    (firing,) = scene.fire(FIRST + MINUTE).firings
    assert scene.job_of(firing).spec.timeout_ms == 7_000
    assert scene.state.payload(firing.job_id) == b'{"n":2}'


def test_a_new_timing_counts_from_the_change(scene: ScheduleScene) -> None:
    """Case D07; what was undecided of the old timing stands in the ledger."""
    scene.save()
    scene.now_ms = FIRST + 5
    changed = scene.save(
        timing=Timing(cron="0 5 * * *"), fingerprint=b"second", next_at_ms=TimeMs(FIRST + 999), passed_count=1
    )
    assert changed.schedule.next_at_ms == FIRST + 999
    assert changed.schedule.generation == 2
    assert [(line.fire_time_ms, line.reason, line.count) for line in scene.ledger] == [(FIRST, "changed", 1)]


def test_a_change_can_ask_for_the_revision_it_saw(scene: ScheduleScene) -> None:
    seen = scene.save().schedule.revision
    scene.save(fingerprint=b"second")
    stale = scene.try_save(fingerprint=b"third", if_revision=seen)
    assert isinstance(stale, Refused)
    assert stale.code is RejectCode.STALE_REVISION


@pytest.mark.parametrize("fired", [True, False], ids=["fired", "undecided"])
def test_a_save_that_comes_too_late_decides_no_fire_time_twice(scene: ScheduleScene, fired: bool) -> None:
    """The first instant of its timing was still to come when it was made, and the old timing has had it by now."""
    scene.save()
    if fired:
        scene.fire(FIRST)
    scene.now_ms = FIRST + 5
    before = scene.schedule
    late = scene.try_save(timing=Timing(cron="*/5 * * * *"), fingerprint=b"second", next_at_ms=TimeMs(FIRST))
    assert isinstance(late, Refused)
    assert late.code is RejectCode.STALE_DECISION
    assert scene.schedule == before
    assert scene.save(timing=Timing(cron="*/5 * * * *"), fingerprint=b"second", next_at_ms=TimeMs(FIRST + 6)).changed


def test_changed_revision_rises_with_what_somebody_does(scene: ScheduleScene) -> None:
    later = TimeMs(START_MS + 10 * MINUTE)
    changes: list[Callable[[], object]] = [
        scene.save,
        lambda: scene.save(fingerprint=b"second"),
        lambda: scene.control(ScheduleAction.PAUSE),
        lambda: scene.control(ScheduleAction.RESUME),
        lambda: scene.save(fingerprint=b"second", pause_until_ms=later),
        lambda: scene.save(fingerprint=b"third", timing=Timing(every="5m"), next_at_ms=later),
    ]
    for number, change in enumerate(changes, start=1):
        change()
        assert scene.schedule.changed_revision == scene.schedule.revision == scene.state.index == number


def test_changed_revision_stays_where_nobody_changes_the_schedule(scene: ScheduleScene) -> None:
    changed = scene.save(overlap=Overlap.ALLOW).schedule.changed_revision
    (firing,) = scene.fire(FIRST).firings
    scene.run_by_hand(FIRST + 1, kind=FiringKind.MANUAL, overlap=Overlap.ALLOW)
    scene.run_by_hand(START_MS - MINUTE, kind=FiringKind.BACKFILL, overlap=Overlap.ALLOW)
    scene.finish(scene.job_of(firing))
    assert not scene.save(overlap=Overlap.ALLOW).changed
    assert scene.schedule.changed_revision == changed
    assert scene.schedule.revision > changed


def test_a_pause_that_time_ends_is_a_change_only_when_it_begins(scene: ScheduleScene) -> None:
    scene.save()
    scene.control(ScheduleAction.PAUSE, until_ms=TimeMs(scene.now_ms + 100))
    paused = scene.schedule
    scene.wait(100)
    scene.control(ScheduleAction.END_PAUSE)
    assert not scene.schedule.paused
    assert scene.schedule.revision > paused.revision
    assert scene.schedule.changed_revision == paused.changed_revision


def test_creation_only_refuses_another_schedule_of_the_name(scene: ScheduleScene) -> None:
    scene.save()
    refused = scene.try_save(fingerprint=b"second", create_only=True)
    assert isinstance(refused, Refused)
    assert refused.code is RejectCode.EXISTS
    assert not scene.save(create_only=True).changed, "the same one again is no other"


def test_a_pause_and_its_end_are_idempotent(scene: ScheduleScene) -> None:
    """Case D12."""
    scene.save()
    assert isinstance(scene.control(ScheduleAction.PAUSE, reason="audit"), ScheduleSaved)
    since_ms = scene.schedule.paused_at_ms
    scene.wait(10)
    scene.control(ScheduleAction.PAUSE, reason="audit")
    assert scene.schedule.paused_at_ms == since_ms
    scene.control(ScheduleAction.RESUME)
    resumed_ms = scene.schedule.resumed_at_ms
    assert resumed_ms == scene.now_ms
    scene.wait(10)
    scene.control(ScheduleAction.RESUME)
    assert scene.schedule.resumed_at_ms == resumed_ms


def test_the_end_of_a_pause_by_time_leaves_a_newer_pause_alone(scene: ScheduleScene) -> None:
    scene.save()
    scene.control(ScheduleAction.PAUSE, until_ms=TimeMs(scene.now_ms + 100))
    scene.control(ScheduleAction.PAUSE, until_ms=TimeMs(scene.now_ms + 9_000))
    scene.wait(100)
    scene.control(ScheduleAction.END_PAUSE)
    assert scene.schedule.paused
    scene.wait(9_000)
    scene.control(ScheduleAction.END_PAUSE)
    assert not scene.schedule.paused


def test_a_deleted_schedule_is_gone_with_its_ledger_and_its_run_goes_on(scene: ScheduleScene) -> None:
    """Case D08."""
    scene.save()
    (firing,) = scene.fire(FIRST).firings
    running = scene.start(scene.job_of(firing))
    scene.control(ScheduleAction.DELETE)
    assert scene.state.schedule(OWN_ID) is None
    assert isinstance(scene.control(ScheduleAction.RESUME), Refused)
    assert isinstance(scene.try_fire(FIRST + MINUTE, generation=1), Refused)
    scene.complete(running)
    assert scene.job_of(firing).status is Status.COMPLETED
    while scene.state.background_cursor(BackgroundKind.DROP_LEDGER, OWN_ID) is not None:
        scene.apply(DoBackgroundStep(BackgroundKind.DROP_LEDGER, OWN_ID))
    assert scene.ledger == []
    assert scene.save(fingerprint=b"new", id=OTHER_ID).created


def test_schedules_are_bounded(scene: ScheduleScene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCHEDULES_MAX", 1)
    scene.save("a")
    refused = scene.try_save("b", id=OTHER_ID)
    assert isinstance(refused, Refused)
    assert refused.code is RejectCode.LIMIT_REACHED
    scene.control(ScheduleAction.DELETE)
    scene.save("b", id=OTHER_ID)


def test_another_tenants_schedule_is_not_there(scene: ScheduleScene) -> None:
    scene.save()
    scene.save("report", id=OTHER_ID, tenant="other")
    assert scene.schedule.tenant == "default"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": ""}, "name"),
        ({"id": b"x"}, "id"),
        ({"timing": Timing()}, "timing"),
        ({"timing": Timing(cron="x", every="1m")}, "timing"),
        ({"timing": replace(TIMING, jitter_ms=-1)}, "jitter_ms"),
        ({"template": with_fields(TEMPLATE, priority=10)}, "priority"),
        ({"template": with_fields(TEMPLATE, options=Options(deadline_ms=TimeMs(5)))}, "template.options"),
        ({"payload": b"x" * 300_000}, "payload"),
        ({"next_at_ms": TimeMs(-1)}, "next_at_ms"),
        ({"fingerprint": b""}, "fingerprint"),
    ],
)
def test_what_the_state_cannot_hold_is_refused_by_name(
    scene: ScheduleScene, fields: dict[str, object], field: str
) -> None:
    result = scene.try_save(**fields)  # type: ignore[arg-type]  # a test's own words
    assert isinstance(result, Refused)
    assert result.code is RejectCode.INVALID
    assert result.message.startswith(field)


def test_a_grid_that_is_saved_again_stays_where_it_began(scene: ScheduleScene) -> None:
    grid = Timing(every="10s", anchor_ms=TimeMs(FIRST))
    scene.save(timing=grid)
    later = replace(grid, anchor_ms=TimeMs(FIRST + 3_000))
    known = scene.save(timing=later, fingerprint=b"second", next_at_ms=TimeMs(FIRST + 13_000)).schedule
    assert (known.timing, known.generation, known.next_at_ms) == (grid, 1, FIRST)
    other = replace(later, every="20s")
    assert scene.save(timing=other, fingerprint=b"third").schedule.timing == other


def test_a_pause_can_come_with_the_schedule(scene: ScheduleScene) -> None:
    until_ms = TimeMs(scene.now_ms + 1_000)
    paused = scene.save(pause_until_ms=until_ms).schedule
    assert (paused.paused, paused.paused_at_ms, paused.pause_until_ms) == (True, scene.now_ms, until_ms)
    again = scene.save(pause_until_ms=until_ms)
    assert not again.changed
    longer = scene.save(pause_until_ms=TimeMs(until_ms + 5))
    assert (longer.changed, longer.schedule.pause_until_ms) == (True, until_ms + 5)
    scene.control(ScheduleAction.RESUME)
    assert not scene.save().changed, "without a pause of its own it leaves the pause as it is"
    changed = scene.save(fingerprint=b"second", pause_until_ms=TimeMs(scene.now_ms + 7)).schedule
    assert (changed.paused, changed.pause_until_ms) == (True, scene.now_ms + 7)


def test_a_pause_that_is_over_when_it_comes_is_none(scene: ScheduleScene) -> None:
    assert not scene.save(pause_until_ms=TimeMs(scene.now_ms)).schedule.paused


def test_a_schedule_has_no_timing_if_its_runs_must_be_given_a_value(scene: ScheduleScene) -> None:
    must = (Parameter("region", required=True),)
    for fields in ({"parameters": must}, {"timing": Timing()}, {"timing": Timing(), "parameters": (Parameter("a"),)}):
        refused = scene.try_save(**fields, next_at_ms=TimeMs(0))
        assert isinstance(refused, Refused)
        assert (refused.code, refused.message.partition(":")[0]) == (RejectCode.INVALID, "timing")
    assert scene.save(timing=Timing(), parameters=must, next_at_ms=TimeMs(0)).created
