"""A release with other zone rules: stored next instants follow them, once, in bounded steps, and only forward."""

from __future__ import annotations

from msgspec.structs import replace

from raftsched.core.cron import zones
from raftsched.core.operations.base import Operation
from raftsched.core.operations.control import DeadlineKind
from raftsched.core.operations.schedules import AdoptZoneRules, Decision, FireSchedule, SaveSchedule
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.retry import RetryPolicy
from raftsched.core.records.schedule import Misfire, Overlap, Schedule, Template, Timing
from raftsched.core.records.spec import JobSpec
from raftsched.core.state.results import Fired, ScheduleSaved
from raftsched.leader.schedules.fire_times import fire_times_of
from raftsched.leader.schedules.plan import FireTimes
from raftsched.leader.schedules.zone_rules import SCHEDULES_PER_STEP, ZoneRules
from tests.leader.scene import START_MS, World

HOUR_MS = 3_600_000
OLD, NEW = "2026f", "2027a"


class Shifted:
    """Instants by rules of which the zone's clock is an hour behind what it was."""

    def __init__(self, fire_times: FireTimes) -> None:
        self._fire_times = fire_times

    def next_after(self, after_ms: int) -> int | None:
        found = self._fire_times.next_after(after_ms - HOUR_MS)
        return None if found is None else found + HOUR_MS

    def skipped_by_calendar(self, fire_time_ms: int) -> str:
        return self._fire_times.skipped_by_calendar(fire_time_ms - HOUR_MS)


def old_rules(timing: Timing, from_ms: int) -> FireTimes:
    return fire_times_of(timing, from_ms=from_ms)


def new_rules(timing: Timing, from_ms: int) -> FireTimes:
    fire_times = fire_times_of(timing, from_ms=from_ms)
    return Shifted(fire_times) if timing.timezone == "Asia/Almaty" else fire_times


def save(world: World, name: str, **timing: object) -> Schedule:
    wanted = Timing(**{"cron": "0 9 * * *", "timezone": "Asia/Almaty"} | timing)  # type: ignore[arg-type]
    now_ms = world.now.cluster_ms
    found = fire_times_of(wanted, from_ms=now_ms).next_after(now_ms)
    operation = SaveSchedule(
        world.new_job_id(),  # type: ignore[arg-type]
        "default", name, wanted, Template(JobSpec("n", "q", 5, 3, 0, RetryPolicy())), Overlap.SKIP, Misfire.RUN_ONCE, 0,
        TimeMs(found or 0), name.encode() + wanted.cron.encode(),
    )  # fmt: skip
    (saved,) = world.apply(operation)
    assert isinstance(saved, ScheduleSaved)
    return saved.schedule


def lead(world: World, version: str, *, steps: int = 1_000) -> list[Operation]:
    """A leader with these rules takes over, and serves for so many steps."""
    service = ZoneRules(world.state, version, new_rules if version == NEW else old_rules)
    done: list[Operation] = []
    for _ in range(steps):
        world.clock.advance(100)
        if service.next_call_ms(world.now) > world.now.monotonic_ms:
            break
        for operation in service.step(world.now):
            (result,) = world.apply(operation)
            service.on_result(operation, result, world.now)
            done.append(operation)
    return done


def schedule_now(world: World, schedule: Schedule) -> Schedule:
    now = world.state.schedule(schedule.id)
    assert now is not None
    return now


def test_the_run_at_the_old_time_does_not_happen(world: World) -> None:
    daily = save(world, "daily")
    grid = save(world, "grid", cron="", every="1h", anchor_ms=START_MS)
    once = save(world, "once", cron="", at_ms=TimeMs(START_MS + 5 * HOUR_MS))
    elsewhere = save(world, "elsewhere", timezone="Europe/Berlin")
    lead(world, OLD)
    assert world.state.zone_rules == OLD
    assert schedule_now(world, daily) == daily, "the same rules change nothing"
    lead(world, NEW)
    moved = schedule_now(world, daily)
    assert moved.next_at_ms == daily.next_at_ms + HOUR_MS
    assert [schedule_now(world, each) for each in (grid, once, elsewhere)] == [grid, once, elsewhere]
    assert world.state.zone_rules == NEW
    (line,) = [line for line in world.state.oldest_audit(limit=99) if line.action == "schedule.rezone"]
    assert (line.subject, line.actor) == ("schedule:daily", "zone rules")
    assert line.detail.endswith(f"; zone rules {NEW}")
    stale = FireSchedule(daily.id, 1, (Decision(daily.next_at_ms, JobId(b"j" * 16), daily.next_at_ms),), TimeMs(0))
    assert not isinstance(world.apply(stale)[0], Fired), "a decision for the old time is refused"
    due = world.state.deadlines_due(DeadlineKind.SCHEDULE, moved.next_at_ms, limit=9)
    assert (due[-1].subject, due[-1].at_ms) == (daily.id, moved.next_at_ms)


def test_the_walk_goes_in_bounded_steps_and_from_the_start_where_the_lead_was_lost(world: World) -> None:
    schedules = [save(world, f"s{number:03}") for number in range(2 * SCHEDULES_PER_STEP + 10)]
    lead(world, OLD)
    first = lead(world, NEW, steps=1)
    assert [len(step.changes) for step in first if isinstance(step, AdoptZoneRules)] == [SCHEDULES_PER_STEP]
    assert world.state.zone_rules == OLD, "another newer leader must walk again"
    rest = [step for step in lead(world, NEW) if isinstance(step, AdoptZoneRules)]
    assert [(len(step.changes), step.is_last) for step in rest] == [(0, False), (SCHEDULES_PER_STEP, False), (10, True)]
    assert all(schedule_now(world, each).next_at_ms == each.next_at_ms + HOUR_MS for each in schedules)
    assert lead(world, NEW) == [], "once is enough"


def test_two_versions_whose_leaders_alternate_do_not_undo_each_other(world: World) -> None:
    daily = save(world, "daily")
    lead(world, NEW)
    moved = schedule_now(world, daily)
    for _ in range(5):
        assert [step.changes for step in lead(world, OLD) if isinstance(step, AdoptZoneRules)] == [()]
        assert schedule_now(world, daily) == moved, "an older version moves nothing"
        assert world.state.zone_rules == OLD
        later = save(world, "later")
        lead(world, NEW)
        assert schedule_now(world, daily) == moved
        assert schedule_now(world, later).next_at_ms == moved.next_at_ms, "what the older one computed is put right"
    lines = [line.subject for line in world.state.oldest_audit(limit=99) if line.action == "schedule.rezone"]
    assert lines == ["schedule:daily", "schedule:later"]


def test_a_change_is_made_only_where_the_schedule_still_stands(world: World) -> None:
    daily = save(world, "daily")
    lead(world, OLD)
    service = ZoneRules(world.state, NEW, new_rules)
    (operation,) = service.step(world.now)
    changed = save(world, "daily", cron="0 17 * * *")
    world.apply(operation)
    assert schedule_now(world, daily) == changed
    assert isinstance(operation, AdoptZoneRules)
    repeated = replace(operation, changes=operation.changes * 2)
    assert world.apply(repeated)


def test_what_is_due_and_a_cluster_without_schedules_are_left_alone(world: World) -> None:
    assert lead(world, NEW) == []
    daily = save(world, "daily")
    world.clock.advance(daily.next_at_ms - world.now.cluster_ms + 1)
    lead(world, NEW)
    assert schedule_now(world, daily) == daily, "it is decided as it stands"


def test_rules_survive_a_restart_and_own_version_sorts(world: World) -> None:
    save(world, "daily")
    lead(world, NEW)
    world.state.checkpoint()
    assert type(world.state)(world.state._store).zone_rules == NEW
    assert zones.RULES_VERSION >= "2025a"
    assert zones.RULES_VERSION[:4].isdigit()
