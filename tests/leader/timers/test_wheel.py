from __future__ import annotations

import random
from bisect import insort

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftsched.leader.timers.wheel import Timer, Wheel

_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(-50, 20_000_000)),
        st.tuples(st.just("add"), st.integers(0, 200)),
        st.tuples(st.just("cancel"), st.integers(0, 1_000)),
        st.tuples(st.just("advance"), st.integers(0, 100_000)),
        st.tuples(st.just("advance"), st.integers(0, 20)),
    ),
    max_size=80,
)


class _SortedList:
    """What a wheel must do, done the plain way."""

    def __init__(self) -> None:
        self.pending: list[tuple[int, int]] = []

    def advance(self, now_ms: int) -> list[int]:
        due = [item for due_ms, item in self.pending if due_ms <= now_ms]
        del self.pending[: len(due)]
        return due

    def next_due(self) -> int | None:
        return self.pending[0][0] if self.pending else None


@given(_STEPS)
def test_wheel_does_what_a_sorted_list_does(steps: list[tuple[str, int]]) -> None:
    wheel: Wheel[int] = Wheel()
    plain = _SortedList()
    timers: list[Timer[int]] = []
    now_ms = 0
    for number, (what, value) in enumerate(steps):
        if what == "add":
            timers.append(wheel.add(now_ms + value, number))
            insort(plain.pending, (now_ms + value, number))
        elif what == "cancel" and timers:
            timer = timers[value % len(timers)]
            entry = (timer.due_ms, timer.item)
            assert wheel.cancel(timer) == (entry in plain.pending)
            plain.pending = [other for other in plain.pending if other != entry]
        elif what == "advance":
            now_ms += value
            assert wheel.advance(now_ms) == plain.advance(now_ms)
        if value % 3:  # asking changes how the wheel lies, so it must not matter whether one asks
            assert wheel.next_due() == plain.next_due()
        assert _is_no_later(wheel.next_call(), plain.next_due())
        assert len(wheel) == len(plain.pending)
    assert wheel.advance(1 << 62) == plain.advance(1 << 62)
    assert wheel.next_due() is None


def _is_no_later(call_ms: int | None, due_ms: int | None) -> bool:
    return due_ms is None or (call_ms is not None and call_ms <= due_ms)


def test_wheel_fires_neither_early_nor_late_by_a_millisecond() -> None:
    wheel: Wheel[str] = Wheel()
    wheel.add(262_144 + 64 + 1, "job")
    assert wheel.advance(262_144 + 64) == []
    assert wheel.next_due() == 262_144 + 65
    assert wheel.advance(262_144 + 65) == ["job"]


@pytest.mark.parametrize("due_ms", [10_000, 128, 8_192, 1 << 20])  # powers of two begin slots of several levels
def test_wheel_keeps_the_order_of_adding_within_a_millisecond_across_levels(due_ms: int) -> None:
    wheel: Wheel[str] = Wheel()
    wheel.add(due_ms, "from afar")
    wheel.advance(due_ms - 10)
    wheel.add(due_ms, "from nearby")
    assert wheel.advance(due_ms) == ["from afar", "from nearby"]


def test_wheel_puts_a_timer_on_the_level_that_fits_its_distance() -> None:
    levels = {-1: 0, 0: 0, 1: 0, 63: 0, 64: 1, 4_095: 1, 4_096: 2, 262_143: 2, 262_144: 3, 1 << 40: 3}
    for now_ms in (0, 1_000):
        found = {}
        for distance_ms in levels:
            wheel: Wheel[str] = Wheel()
            wheel.advance(now_ms)
            wheel.add(now_ms + distance_ms, "job")
            found[distance_ms] = next(level for level, slots in enumerate(wheel._levels) if slots)
        assert found == levels, f"at {now_ms} ms"


def test_wheel_fires_past_times_at_the_next_advance() -> None:
    wheel: Wheel[str] = Wheel()
    wheel.advance(5_000)
    wheel.add(-7, "long ago")
    assert wheel.next_due() == -7
    assert wheel.advance(5_000) == ["long ago"]


def test_wheel_forgets_a_cancelled_timer_once() -> None:
    wheel: Wheel[str] = Wheel()
    timer = wheel.add(100, "gone")
    wheel.add(200, "stays")
    assert wheel.cancel(timer)
    assert not wheel.cancel(timer)
    assert wheel.next_due() == 200
    assert wheel.advance(1_000) == ["stays"]


def test_wheel_refuses_to_cancel_what_was_due() -> None:
    wheel: Wheel[str] = Wheel()
    timer = wheel.add(100, "done")
    wheel.advance(100)
    assert not wheel.cancel(timer)
    assert len(wheel) == 0


def test_wheel_keeps_few_slots_where_most_timers_are_cancelled() -> None:
    wheel: Wheel[int] = Wheel()
    rng = random.Random(3)
    for now_ms in range(0, 200_000, 4):
        wheel.advance(now_ms)
        wheel.cancel(wheel.add(now_ms + rng.randrange(1, 60_000), now_ms))
    assert len(wheel) == 0
    assert sum(len(slots) for slots in wheel._levels) < 256
