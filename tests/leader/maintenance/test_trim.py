from __future__ import annotations

import random

import pytest

from raftsched import limits
from raftsched.core.operations.base import Operation
from raftsched.core.operations.queues import TrimAudit
from raftsched.core.operations.schedules import TrimLedger
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.schedule import Firing, FiringKind, ScheduleId
from raftsched.core.state.writes import PutFiring
from raftsched.leader.maintenance.trim import AUDIT_EVERY_MS, LOOK_EVERY, LOOK_EVERY_CALL, Trimming
from tests.leader.scene import Leader, World

SCHEDULE = ScheduleId(JobId(b"s" * 16))
PLANNED = Firing(TimeMs(0))


def write_lines(world: World, *fire_times: int, kind: FiringKind = FiringKind.PLANNED) -> None:
    now_ms = TimeMs(world.now.cluster_ms)
    world.state.execute(
        [PutFiring(SCHEDULE, Firing(TimeMs(at_ms), kind, decided_at_ms=now_ms)) for at_ms in fire_times]
    )
    world.state.advance(index=world.state.applied_index + 1, term=1, now_ms=now_ms)


def ledger(world: World) -> list[int]:
    return [line.fire_time_ms for line in world.state.firings(SCHEDULE, after=None, until_ms=None, limit=100_000)]


def carry_out(world: World, trimming: Trimming) -> list[Operation]:
    """Let the service do all it wants to do soon."""
    done: list[Operation] = []
    world.clock.advance(100)
    while trimming.next_call_ms(world.now) <= world.now.monotonic_ms:
        operations = trimming.step(world.now)
        for operation in operations:
            (result,) = world.apply(operation)
            trimming.on_result(operation, result, world.now)
        done += operations
        world.clock.advance(100)
    return done


def trimming_of(world: World) -> Trimming:
    """One that looks at a ledger after every line."""
    trimming = Trimming(world.state, lambda _: 0)
    carry_out(world, trimming)
    return trimming


def test_ledger_keeps_its_latest_lines_and_loses_the_others_in_bounded_steps(world: World) -> None:
    trimming = trimming_of(world)
    excess = 2 * limits.BACKGROUND_STEP_ITEMS_MAX + 50
    write_lines(world, *range(excess + limits.LEDGER_LINES_KEPT))
    trimming.line_written(SCHEDULE, PLANNED)
    assert [type(operation) for operation in carry_out(world, trimming)] == [TrimLedger] * 3
    assert ledger(world) == list(range(excess, excess + limits.LEDGER_LINES_KEPT))


def test_ledger_that_is_not_too_long_is_left_alone(world: World) -> None:
    trimming = trimming_of(world)
    write_lines(world, *range(limits.LEDGER_LINES_KEPT))
    trimming.line_written(SCHEDULE, PLANNED)
    assert carry_out(world, trimming) == []


def test_lines_of_one_fire_time_stay_together(world: World) -> None:
    trimming = trimming_of(world)
    write_lines(world, *range(limits.LEDGER_LINES_KEPT))
    write_lines(world, 0, 1, kind=FiringKind.MANUAL)
    trimming.line_written(SCHEDULE, PLANNED)
    carry_out(world, trimming)
    assert ledger(world) == [1, 1, *range(2, limits.LEDGER_LINES_KEPT)]


def test_lines_of_calls_by_hand_stay_for_their_time_and_hide_no_others(world: World) -> None:
    trimming = trimming_of(world)
    called = range(3 * limits.BACKGROUND_STEP_ITEMS_MAX)
    write_lines(world, *called, kind=FiringKind.BACKFILL)
    planned = range(len(called), len(called) + 50 + limits.LEDGER_LINES_KEPT)
    write_lines(world, *planned)
    trimming.line_written(SCHEDULE, PLANNED)
    (operation,) = carry_out(world, trimming)
    assert isinstance(operation, TrimLedger)
    assert ledger(world) == [*called, *planned[50:]]
    world.clock.advance(limits.LEDGER_CALLS_KEPT_MS)
    trimming.line_written(SCHEDULE, PLANNED)
    assert len([each for each in carry_out(world, trimming) if isinstance(each, TrimLedger)]) == 3
    assert ledger(world) == [*planned[50:]]


def test_lines_of_calls_by_hand_ask_for_a_look_more_seldom() -> None:
    asked: list[int] = []

    def draw(count: int) -> int:
        asked.append(count)
        return 1

    trimming = Trimming(World().state, draw)
    for kind in FiringKind:
        trimming.line_written(SCHEDULE, Firing(TimeMs(0), kind))
    assert asked == [LOOK_EVERY, LOOK_EVERY, LOOK_EVERY_CALL]


def test_look_whose_outcome_nobody_knows_is_made_again(world: World) -> None:
    trimming = trimming_of(world)
    write_lines(world, *range(limits.LEDGER_LINES_KEPT + 1))
    trimming.line_written(SCHEDULE, PLANNED)
    (operation,) = trimming.step(world.now)
    trimming.on_result(operation, None, world.now)
    assert carry_out(world, trimming) == [operation]


def test_ledgers_stay_short_by_chance_alone(world: World) -> None:
    rng = random.Random(3)
    trimming = Trimming(world.state, lambda count: rng.randint(0, count - 1))
    longest = 0
    for fire_time in range(4_000):
        write_lines(world, fire_time)
        trimming.line_written(SCHEDULE, PLANNED)
        if fire_time % 20 == 0:
            world.clock.advance(100)
            carry_out(world, trimming)
            longest = max(longest, len(ledger(world)))
    assert limits.LEDGER_LINES_KEPT < longest < limits.LEDGER_LINES_KEPT + 10 * LOOK_EVERY


def test_audit_trail_is_cut_at_its_age_within_the_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AUDIT_KEPT_MS", 10 * AUDIT_EVERY_MS)
    world = World()
    leader = Leader(world)
    for number in range(450):
        world.configure(key_concurrency_max=number + 1)
    leader.run(10 * AUDIT_EVERY_MS)
    world.configure(key_concurrency_max=1)
    assert len(world.state.oldest_audit(limit=1_000)) == 451
    leader.run(AUDIT_EVERY_MS + 1_000)
    (kept,) = world.state.oldest_audit(limit=1_000)
    assert kept.revision == max(entry.revision for entry in world.state.oldest_audit(limit=1_000))
    assert sum(isinstance(operation, TrimAudit) for operation in world.log) == 3
