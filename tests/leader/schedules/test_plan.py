"""What is decided for the instants of a schedule that are due."""

from __future__ import annotations

import itertools
import random

import pytest
from msgspec.structs import replace

from raftsched import limits
from raftsched.core.operations.schedules import Decision, FireSchedule
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.retry import RetryPolicy
from raftsched.core.records.schedule import Misfire, Schedule, ScheduleId, Template, Timing
from raftsched.core.records.spec import JobSpec
from raftsched.leader.schedules.fire_times import fire_times_of
from raftsched.leader.schedules.plan import RandomSource, plan_firing

MINUTE = 60_000
HOUR = 60 * MINUTE
NOON = 1_800_000_000_000 - 1_800_000_000_000 % HOUR
TEMPLATE = Template(JobSpec("report", "report", 5, 3, 0, RetryPolicy()))


def draws() -> RandomSource:
    numbers = itertools.count(1)
    return RandomSource(lambda: JobId(next(numbers).to_bytes(16, "big")), lambda ms: ms // 2)


def every(period: str, *, next_at_ms: int, **fields: object) -> Schedule:
    timing = Timing(every=period, start_at_ms=TimeMs(NOON - 1_000 * HOUR))
    return scheduled(timing, next_at_ms=next_at_ms, **fields)


def scheduled(timing: Timing, *, next_at_ms: int, **fields: object) -> Schedule:
    known = Schedule(ScheduleId(bytes(16)), "default", "report", timing, TEMPLATE, next_at_ms=TimeMs(next_at_ms))
    return replace(known, **fields)


def plan(schedule: Schedule, now_ms: int) -> FireSchedule | None:
    return plan_firing(schedule, fire_times_of(schedule.timing, from_ms=1), now_ms, draws())


def carry_out(schedule: Schedule, now_ms: int) -> list[Decision]:
    """Plan until nothing is due; the decisions of all plans, as if each was applied."""
    decisions: list[Decision] = []
    while (firing := plan(schedule, now_ms)) is not None:
        assert firing.decisions[0].fire_time_ms == schedule.next_at_ms
        assert len(firing.decisions) <= limits.DECISIONS_MAX
        decisions += firing.decisions
        schedule = replace(schedule, next_at_ms=firing.next_at_ms)
    return decisions


def fired(decisions: list[Decision]) -> list[int]:
    return [decision.fire_time_ms for decision in decisions if decision.job_id]


def skipped(decisions: list[Decision]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for decision in decisions:
        if not decision.job_id:
            counts[decision.reason] = counts.get(decision.reason, 0) + decision.count
    return counts


def test_nothing_is_decided_before_its_fire_time() -> None:
    assert plan(every("1m", next_at_ms=NOON), NOON - 1) is None


def test_an_fire_time_that_has_come_fires_and_the_next_one_is_named() -> None:
    firing = plan(every("1m", next_at_ms=NOON), NOON)
    assert firing is not None
    assert [(d.fire_time_ms, d.due_at_ms) for d in firing.decisions] == [(NOON, NOON)]
    assert firing.next_at_ms == NOON + MINUTE


@pytest.mark.parametrize("misfire", Misfire)
def test_ordinary_lateness_is_no_misfire(misfire: Misfire) -> None:
    late_ms = NOON + limits.MISFIRE_GRACE_MS
    assert fired(carry_out(every("1m", next_at_ms=NOON, misfire=misfire), late_ms)) == [NOON]


def test_run_once_makes_up_for_the_latest_missed_fire_time_only() -> None:
    now_ms = NOON + 3 * HOUR + 45_000
    decisions = carry_out(every("1m", next_at_ms=NOON, misfire=Misfire.RUN_ONCE), now_ms)
    assert fired(decisions) == [NOON + 3 * HOUR]
    assert skipped(decisions) == {"misfire": 180}
    assert len(decisions) == 2, "what is skipped together is one line"


def test_skip_fires_none_of_the_missed_fire_times() -> None:
    decisions = carry_out(every("1m", next_at_ms=NOON, misfire=Misfire.SKIP), NOON + HOUR + 45_000)
    assert fired(decisions) == []
    assert skipped(decisions) == {"misfire": 61}


def test_run_all_fires_each_in_order() -> None:
    decisions = carry_out(every("1m", next_at_ms=NOON, misfire=Misfire.RUN_ALL), NOON + 5 * HOUR + 45_000)
    assert fired(decisions) == [NOON + minute * MINUTE for minute in range(301)]


def test_run_all_is_bounded_to_the_latest() -> None:
    now_ms = NOON + 20 * HOUR + 45_000
    decisions = carry_out(every("1m", next_at_ms=NOON, misfire=Misfire.RUN_ALL), now_ms)
    assert len(fired(decisions)) == limits.CATCHUP_RUNS_MAX
    assert fired(decisions)[-1] == NOON + 20 * HOUR
    assert skipped(decisions) == {"catchup_expired": 1_201 - limits.CATCHUP_RUNS_MAX}


def test_the_catch_up_window_cuts_off_what_is_too_old() -> None:
    schedule = every("1m", next_at_ms=NOON, misfire=Misfire.RUN_ALL, catchup_window_ms=10 * MINUTE)
    decisions = carry_out(schedule, NOON + HOUR + 45_000)
    assert fired(decisions) == [NOON + minute * MINUTE for minute in range(51, 61)]
    assert skipped(decisions) == {"catchup_expired": 51}


def test_a_pause_makes_even_fresh_fire_times_missed() -> None:
    """Resumed after five minutes: one make-up run with run_once, none with skip (case D12)."""
    now_ms = NOON + 5 * MINUTE + 10_000
    paused = every("1m", next_at_ms=NOON + MINUTE, resumed_at_ms=TimeMs(now_ms))
    decisions = carry_out(paused, now_ms)
    assert fired(decisions) == [NOON + 5 * MINUTE]
    assert skipped(decisions) == {"paused": 4}
    decisions = carry_out(replace(paused, misfire=Misfire.SKIP), now_ms)
    assert fired(decisions) == []
    assert skipped(decisions) == {"paused": 5}


def test_a_paused_schedule_decides_nothing() -> None:
    assert plan(every("1m", next_at_ms=NOON, paused=True), NOON + HOUR) is None


def test_jitter_moves_the_due_time_and_not_the_fire_time() -> None:
    timing = Timing(cron="* * * * *", jitter_ms=8_000)
    firing = plan(scheduled(timing, next_at_ms=NOON), NOON)
    assert firing is not None
    assert firing.decisions[0].fire_time_ms == NOON
    assert firing.decisions[0].due_at_ms == NOON + 4_000


def test_an_end_leaves_no_next_fire_time() -> None:
    timing = Timing(cron="* * * * *", end_at_ms=TimeMs(NOON + 30_000))
    firing = plan(scheduled(timing, next_at_ms=NOON), NOON)
    assert firing is not None
    assert firing.next_at_ms == 0


def test_a_one_time_schedule_fires_once() -> None:
    decisions = carry_out(scheduled(Timing(at_ms=TimeMs(NOON)), next_at_ms=NOON), NOON + 5)
    assert fired(decisions) == [NOON]


def test_a_year_of_seconds_is_skipped_in_bounded_work() -> None:
    year_ms = 365 * 24 * HOUR
    schedule = every("1s", next_at_ms=NOON, misfire=Misfire.RUN_ONCE, catchup_window_ms=HOUR)
    decisions = carry_out(schedule, NOON + year_ms)
    assert decisions[0].count == 0, "too many to be counted"
    assert decisions[0].last_fire_time_ms == NOON + year_ms - HOUR
    assert len(decisions) < 50
    assert skipped(decisions)["misfire"] + len(fired(decisions)) == 3_600


@pytest.mark.parametrize("seed", range(40))
def test_every_fire_time_is_decided_exactly_once_in_order(seed: int) -> None:
    """Whatever policy, period, lateness and interruptions: the ledger is the list of instants, without gap or repeat."""
    random_ = random.Random(seed)
    period_s = random_.choice((7, 60, 600, 5_000))
    schedule = every(
        f"{period_s}s",
        next_at_ms=NOON,
        misfire=random_.choice(list(Misfire)),
        catchup_window_ms=random_.choice((0, 10 * MINUTE, 2 * HOUR)),
    )
    fire_times = fire_times_of(schedule.timing, from_ms=1)
    first = fire_times.next_after(NOON - 1)
    assert first is not None
    schedule = replace(schedule, next_at_ms=TimeMs(first))
    now_ms, covered = NOON, 0
    for _ in range(6):
        now_ms += random_.choice((1_000, 50_000, 20 * MINUTE, 4 * HOUR))
        if random_.random() < 0.3:
            schedule = replace(schedule, resumed_at_ms=TimeMs(now_ms))
        while (firing := plan(schedule, now_ms)) is not None:
            assert firing.decisions[0].fire_time_ms == schedule.next_at_ms
            previous_ms = 0
            for decision in firing.decisions:
                assert previous_ms < decision.fire_time_ms <= now_ms
                covered += decision.count
                previous_ms = max(decision.fire_time_ms, decision.last_fire_time_ms)
            assert previous_ms < firing.next_at_ms
            schedule = replace(schedule, next_at_ms=firing.next_at_ms)
    due = fire_times_of(schedule.timing, from_ms=1)._recurrence.between(first - 1, now_ms, 100_000)
    assert covered == len(due)
    assert schedule.next_at_ms == fire_times.next_after(now_ms)
