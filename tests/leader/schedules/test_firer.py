"""What the leader decides about schedules together, and in which order, above all after an outage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from raftsched import limits
from raftsched.core.maintenance.new_cluster import NewCluster, entries
from raftsched.core.operations.base import Operation
from raftsched.core.operations.schedules import ControlSchedule, FireSchedule, ScheduleAction
from raftsched.core.records.ids import FencingToken, JobId, TimeMs
from raftsched.core.records.notices import Health, Notice, NoticeEvent, NoticeForm, Watch
from raftsched.core.records.retry import RetryPolicy
from raftsched.core.records.schedule import Misfire, Overlap, Schedule, ScheduleId, Template, Timing
from raftsched.core.records.spec import Hook, JobSpec
from raftsched.core.state.results import Context
from raftsched.core.state.writes import PutSchedule
from raftsched.leader.schedules.firer import COST_PER_STEP, REST_MS_MAX, Firing
from raftsched.leader.schedules.plan import RandomSource
from tests.leader.scene import START_MS, World

MINUTE = 60_000
DAY = 24 * 60 * MINUTE
TEMPLATE = Template(JobSpec("report", "report", 5, 3, 0, RetryPolicy()))
NEWEST_MS = START_MS - START_MS % MINUTE
"""The latest instant of every-minute schedules."""


def save(world: World, name: str, *, next_at_ms: int = NEWEST_MS - DAY, **fields: object) -> ScheduleId:
    """Store an every-minute schedule whose next instant is that of a day ago, unless it is said."""
    schedule_id = ScheduleId(name.encode().ljust(16))
    known = Schedule(
        schedule_id,
        "default",
        name,
        Timing(cron="* * * * *"),
        TEMPLATE,
        overlap=Overlap.ALLOW,
        next_at_ms=TimeMs(next_at_ms),
        created_at_ms=TimeMs(NEWEST_MS - 2 * DAY),
        **fields,  # type: ignore[arg-type]  # a test's own words
    )
    world.state.execute([PutSchedule(None, known)])
    return schedule_id


def firing_of(world: World) -> Firing:
    return Firing(world.state, RandomSource(world.new_job_id, lambda _ms: 0))


def settle(firing: Firing, world: World, operations: Sequence[Operation]) -> None:
    """Apply what was proposed together, as one entry."""
    for operation, result in zip(operations, world.apply(*operations), strict=True):
        firing.on_result(operation, result, world.now)


def fired_ids(operations: Sequence[Operation]) -> list[ScheduleId]:
    return [operation.id for operation in operations if isinstance(operation, FireSchedule)]


def decision_count(operations: Sequence[Operation]) -> int:
    return sum(len(operation.decisions) for operation in operations if isinstance(operation, FireSchedule))


def next_at(world: World, schedule_id: ScheduleId) -> int:
    schedule = world.state.schedule(schedule_id)
    assert schedule is not None
    return schedule.next_at_ms


@pytest.mark.parametrize("misfire", Misfire)
def test_firing_makes_up_for_an_outage_in_steps_that_are_short_for_the_log_and_for_the_leader(
    misfire: Misfire, world: World
) -> None:
    """Case D11: a leader that planned all at once would lose its lead, and the next one would do the same."""
    schedules = [save(world, f"s{number}", misfire=misfire) for number in range(3)]
    firing = firing_of(world)
    step_count = 0
    while operations := firing.step(world.now):
        assert len(operations) == 1, "a day of instants is all that a step has time for"
        assert decision_count(operations) <= limits.DECISIONS_MAX
        settle(firing, world, operations)
        step_count += 1
    assert step_count >= len(schedules)
    assert {next_at(world, schedule_id) for schedule_id in schedules} == {NEWEST_MS + MINUTE}


@pytest.mark.parametrize("pauses", [True, False])
def test_schedules_of_an_old_backup_follow_their_misfire_policy_and_flood_nobody(pauses: bool, world: World) -> None:
    """Case D42: the state is two days old; with `pauses` a user resumes the schedules."""
    made = {misfire: save(world, misfire.name, misfire=misfire, next_at_ms=NEWEST_MS - 2 * DAY) for misfire in Misfire}
    world.apply()
    new = NewCluster("c2", "restore", "restored", FencingToken(START_MS * 1_000), pauses)
    first = Context(TimeMs(world.clock.wall_ms()), world.state.applied_index + 1)
    for context, writes in entries(world.state, new, first):
        world.state.execute(writes)
        world.state.advance(index=context.index, term=1, now_ms=context.now_ms)
    assert not pauses or not firing_of(world).step(world.now)
    for schedule_id in made.values() if pauses else ():
        world.apply(ControlSchedule(schedule_id, "default", ScheduleAction.RESUME))
    firing = firing_of(world)
    while operations := firing.step(world.now):
        settle(firing, world, operations)
    runs = Counter(job.spec.options.schedule_id for job in world.state.all_jobs() if job.spec.options is not None)
    on_time = 0 if pauses else 1
    at_most = limits.SCHEDULE_ACTIVE_MAX
    expected = {Misfire.RUN_ONCE: on_time + 1, Misfire.SKIP: on_time, Misfire.RUN_ALL: at_most}
    assert {misfire: runs[schedule_id] for misfire, schedule_id in made.items()} == expected


def test_firing_decides_many_schedules_of_one_fire_time_together(world: World) -> None:
    due = [save(world, f"s{number:03}", next_at_ms=NEWEST_MS) for number in range(COST_PER_STEP + 1)]
    firing = firing_of(world)
    first = firing.step(world.now)
    assert fired_ids(first) == due[:COST_PER_STEP]
    settle(firing, world, first)
    assert firing.next_call_ms(world.now) <= world.now.monotonic_ms, "the others follow at once"
    assert fired_ids(firing.step(world.now)) == due[COST_PER_STEP:]


def test_firing_lets_what_is_on_time_wait_for_nothing_that_is_late(world: World) -> None:
    late = [save(world, f"late{number}", misfire=Misfire.RUN_ALL) for number in range(3)]
    on_time = save(world, "on-time", next_at_ms=NEWEST_MS)
    assert fired_ids(firing_of(world).step(world.now)) == [on_time, late[0]]


def test_firing_makes_up_for_outages_however_much_is_on_time(world: World) -> None:
    for number in range(3 * COST_PER_STEP):
        save(world, f"s{number}", next_at_ms=NEWEST_MS)
    late = save(world, "late")
    assert late in fired_ids(firing_of(world).step(world.now))


def test_firing_counts_the_unfinished_runs_that_an_operation_reads(world: World) -> None:
    active = tuple(JobId(number.to_bytes(16, "big")) for number in range(limits.SCHEDULE_ACTIVE_MAX))
    busy = [save(world, f"s{number}", next_at_ms=NEWEST_MS, active=active) for number in range(3)]
    assert fired_ids(firing_of(world).step(world.now)) == busy[:1]


@pytest.mark.parametrize(("took_ms", "rest_ms"), [(0, 0), (40, 40), (10 * REST_MS_MAX, REST_MS_MAX)])
def test_firing_rests_after_late_work_as_long_as_that_took(took_ms: int, rest_ms: int, world: World) -> None:
    save(world, "late", misfire=Misfire.RUN_ALL)
    firing = firing_of(world)
    operations = firing.step(world.now)
    world.clock.advance(took_ms)
    settle(firing, world, operations)
    assert firing.next_call_ms(world.now) == world.now.monotonic_ms + rest_ms


def test_firing_does_not_rest_after_work_that_is_on_time(world: World) -> None:
    for number in range(COST_PER_STEP + 1):
        save(world, f"s{number}", next_at_ms=NEWEST_MS)
    firing = firing_of(world)
    operations = firing.step(world.now)
    world.clock.advance(40)
    settle(firing, world, operations)
    assert firing.next_call_ms(world.now) == world.now.monotonic_ms


# -- no success for too long ------------------------------------------------------------------------------------------

TOLD = Notice((NoticeEvent.MISSED,), NoticeForm.WEBHOOK, Hook(JobSpec("tell", "tell", 5, 1, 0, RetryPolicy())))
SUCCESS_BY_MS = START_MS + 10 * MINUTE


def save_watched(world: World, **fields: object) -> ScheduleId:
    """Store a schedule that fires in a day and of which a run must succeed in ten minutes."""
    watch, health = Watch(MINUTE, 0, (TOLD,)), Health(TimeMs(SUCCESS_BY_MS - MINUTE))
    return save(world, "watched", next_at_ms=NEWEST_MS + DAY, watch=watch, health=health, **fields)


def told_count(world: World) -> int:
    return sum(1 for job in world.state.all_jobs() if job.spec.name == "tell")


def test_alarm_is_proposed_at_its_time_and_told_once_by_however_many_leaders(world: World) -> None:
    save_watched(world)
    first, second = firing_of(world), firing_of(world)
    for leader in (first, second):
        assert not leader.step(world.now)
        assert leader.next_call_ms(world.now) == world.now.monotonic_at(SUCCESS_BY_MS)
    world.clock.advance(SUCCESS_BY_MS - START_MS)
    proposed = [(leader, leader.step(world.now)) for leader in (first, second)]
    assert all(len(operations) == 1 for _, operations in proposed), "neither knows of the other"
    for leader, operations in proposed:
        settle(leader, world, operations)
        assert told_count(world) == 1
    third = firing_of(world)
    for leader in (first, second, third):
        world.clock.advance(MINUTE)
        assert not leader.step(world.now)
        assert leader.next_call_ms(world.now) == world.now.monotonic_at(NEWEST_MS + DAY)


def test_alarm_of_a_schedule_whose_fire_times_nobody_can_compute_is_proposed(world: World) -> None:
    schedule_id = save_watched(world)
    schedule = world.state.schedule(schedule_id)
    assert schedule is not None
    unknown = replace(schedule, timing=Timing(cron="* * * * *", timezone="Mars/Olympus"), next_at_ms=TimeMs(NEWEST_MS))
    world.state.execute([PutSchedule(schedule, unknown)])
    firing = firing_of(world)
    assert not firing.step(world.now)
    world.clock.advance(SUCCESS_BY_MS - START_MS)
    settle(firing, world, firing.step(world.now))
    assert told_count(world) == 1


@pytest.mark.parametrize("pause_until_ms", [0, NEWEST_MS + 2 * DAY])
def test_no_alarm_is_proposed_in_a_pause(pause_until_ms: int, world: World) -> None:
    save_watched(world, paused=True, paused_at_ms=TimeMs(START_MS), pause_until_ms=TimeMs(pause_until_ms))
    world.clock.advance(DAY)
    assert not firing_of(world).step(world.now)
