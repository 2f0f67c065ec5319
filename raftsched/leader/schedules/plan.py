"""Decide the due fire times of a schedule: pure, for one schedule at one moment.

A fire time that is decided at most `limits.MISFIRE_GRACE_MS` late is on time. Later ones are *missed*, and so are those
that fell into a pause. The misfire policy decides about them:

    skip        none fires
    run_once    the latest one fires, the others are skipped
    run_all     all fire, the oldest first, but at most the latest `limits.CATCHUP_RUNS_MAX`

Missed fire times older than the catch-up window are skipped under every policy (`catchup_expired`). Fire times that are
skipped one after the other for the same reason make one line of the ledger.

Bounds. One plan looks at most `_WALK_MAX` fire times ahead and decides at most `_SLICE_MAX` of them; the next plan
continues behind it. If far more lie before the catch-up window than anybody would read, they become one line without a
count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from raftsched import limits
from raftsched.core.operations.schedules import Decision, FireSchedule
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.schedule import Misfire, Schedule

_SLICE_MAX: Final = 2_000
"""More than a day of fire times at every minute: such a schedule is on time again after one plan, some 10 ms of work.
"""
_WALK_MAX: Final = _SLICE_MAX + limits.CATCHUP_RUNS_MAX
_UNCOUNTED_MIN: Final = 100_000
"""From this number on, fire times before the catch-up window are not counted."""


class FireTimes(Protocol):
    """Fire times of a schedule, in milliseconds."""

    def next_after(self, after_ms: int) -> int | None:
        """Return the first fire time after `after_ms`; None if there is none."""

    def skipped_by_calendar(self, fire_time_ms: int) -> str:
        """Return the reason for which the calendar skips this fire time, or ""."""


class RandomSource(NamedTuple):
    """Inputs of a plan from outside: randomness and ids."""

    new_job_id: Callable[[], JobId]
    jitter: Callable[[int], int]
    """Draw a random number from 0 to the given number of milliseconds."""


def plan_firing(
    schedule: Schedule, fire_times: FireTimes, now_ms: int, random_source: RandomSource
) -> FireSchedule | None:
    """Return the next decisions of `schedule`; None if none is due."""
    first_ms = schedule.next_at_ms
    if schedule.paused or not 0 < first_ms <= now_ms:
        return None
    if (jump := _jump(schedule, fire_times, now_ms)) is not None:
        return jump
    walk, behind_ms = _walk(first_ms, fire_times, now_ms)
    verdicts = _verdicts(schedule, fire_times, walk, now_ms, is_whole=behind_ms is None or behind_ms > now_ms)
    decisions: list[Decision] = []
    count = 0
    for fire_time_ms, reason in verdicts:
        if len(decisions) == limits.DECISIONS_MAX and not _joins(decisions[-1], reason):
            break
        _add(decisions, schedule, fire_time_ms, reason, random_source)
        count += 1
    next_ms = walk[count] if count < len(walk) else behind_ms
    return FireSchedule(schedule.id, schedule.generation, tuple(decisions), TimeMs(next_ms or 0))


def _walk(first_ms: int, fire_times: FireTimes, now_ms: int) -> tuple[list[int], int | None]:
    """Return the due fire times from `first_ms` on, at most `_WALK_MAX`, and the one after them."""
    walk = [first_ms]
    following = fire_times.next_after(first_ms)
    while following is not None and following <= now_ms and len(walk) < _WALK_MAX:
        walk.append(following)
        following = fire_times.next_after(following)
    return walk, following


def _verdicts(
    schedule: Schedule, fire_times: FireTimes, walk: Sequence[int], now_ms: int, *, is_whole: bool
) -> list[tuple[int, str]]:
    """Return (fire time, reason to skip it or "") for the first of `walk`, which is all that is due if `is_whole`."""
    window_ms = schedule.catchup_window_ms or limits.CATCHUP_MS
    reasons = [fire_times.skipped_by_calendar(fire_time_ms) for fire_time_ms in walk]
    missed = [_is_missed(schedule, fire_time_ms, now_ms) for fire_time_ms in walk]
    later_count = sum(map(_is_open, missed, reasons)) if is_whole else 2 * _WALK_MAX
    verdicts = []
    for fire_time_ms, reason, is_missed in zip(walk[:_SLICE_MAX], reasons, missed, strict=False):
        if not _is_open(is_missed, reason):
            verdicts.append((fire_time_ms, reason))
            continue
        later_count -= 1
        expired = now_ms - fire_time_ms > window_ms
        verdicts.append((fire_time_ms, _missed_reason(schedule, fire_time_ms, later_count, expired=expired)))
    return verdicts


def _is_open(is_missed: bool, calendar_reason: str) -> bool:
    """Return whether the misfire policy decides about this fire time."""
    return is_missed and not calendar_reason


def _is_missed(schedule: Schedule, fire_time_ms: int, now_ms: int) -> bool:
    return fire_time_ms <= schedule.resumed_at_ms or now_ms - fire_time_ms > limits.MISFIRE_GRACE_MS


def _missed_reason(schedule: Schedule, fire_time_ms: int, later_count: int, *, expired: bool) -> str:
    """Return the reason to skip a missed fire time, or ""; `later_count` missed ones come after it."""
    if expired or (schedule.misfire is Misfire.RUN_ALL and later_count >= limits.CATCHUP_RUNS_MAX):
        return "catchup_expired"
    fires = schedule.misfire is Misfire.RUN_ALL or (schedule.misfire is Misfire.RUN_ONCE and not later_count)
    if fires:
        return ""
    return "paused" if fire_time_ms <= schedule.resumed_at_ms else "misfire"


def _joins(last: Decision, reason: str) -> bool:
    return bool(reason) and last.reason == reason


def _add(
    decisions: list[Decision], schedule: Schedule, fire_time_ms: int, reason: str, random_source: RandomSource
) -> None:
    fire_time = TimeMs(fire_time_ms)
    if not reason:
        jitter_ms = schedule.timing.jitter_ms
        due_at_ms = TimeMs(
            min(fire_time_ms + (random_source.jitter(jitter_ms) if jitter_ms else 0), limits.MOMENT_MS_MAX)
        )
        decisions.append(Decision(fire_time, random_source.new_job_id(), due_at_ms))
    elif decisions and _joins(decisions[-1], reason):
        last = decisions[-1]
        decisions[-1] = Decision(last.fire_time_ms, reason=reason, count=last.count + 1, last_fire_time_ms=fire_time)
    else:
        decisions.append(Decision(fire_time, reason=reason))


def _jump(schedule: Schedule, fire_times: FireTimes, now_ms: int) -> FireSchedule | None:
    """Skip everything before the catch-up window in one step, if it is too much to count."""
    window_start_ms = now_ms - (schedule.catchup_window_ms or limits.CATCHUP_MS)
    second_ms = fire_times.next_after(schedule.next_at_ms)
    if second_ms is None or window_start_ms <= second_ms:
        return None
    if (window_start_ms - schedule.next_at_ms) // (second_ms - schedule.next_at_ms) < _UNCOUNTED_MIN:
        return None
    # The next fire time is computed first, so that the line ends where the next one begins.
    next_ms = fire_times.next_after(window_start_ms)
    line = Decision(schedule.next_at_ms, reason="catchup_expired", count=0, last_fire_time_ms=TimeMs(window_start_ms))
    return FireSchedule(schedule.id, schedule.generation, (line,), TimeMs(next_ms or 0))
