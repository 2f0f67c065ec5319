from __future__ import annotations

from raftsched.leader.now import Now
from tests.leader.scene import START_MS, HandClock


def test_cluster_time_is_never_behind_what_was_applied_nor_behind_the_wall() -> None:
    clock = HandClock()
    assert Now.of(clock, START_MS + 5).cluster_ms == START_MS + 5
    assert Now.of(clock, START_MS - 5).cluster_ms == START_MS


def test_due_time_is_reached_when_the_wall_clock_reaches_it() -> None:
    clock = HandClock()
    clock.advance(1_000)
    now = Now.of(clock, START_MS + 3_000)
    assert now.monotonic_at(START_MS + 4_000) == 4_000
    assert now.monotonic_at(START_MS - 4_000) == 1_000
