"""The instants of a timing: where a grid begins, and what limits them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from raftsched.core.records.ids import TimeMs
from raftsched.core.records.schedule import Timing
from raftsched.leader.schedules.fire_times import fire_times_of

ANCHOR_MS = 1_900_000_000_123


@pytest.mark.parametrize("written", [Timing(every="10s"), Timing(cron="@every 10s")])
def test_a_grid_begins_at_its_anchor_whatever_else_is_known(written: Timing) -> None:
    """Case C47: what is found at one moment is on the grid of every later one."""
    timing = replace(written, anchor_ms=TimeMs(ANCHOR_MS))
    for from_ms in (0, ANCHOR_MS + 3, ANCHOR_MS + 77_777):
        fire_times = fire_times_of(timing, from_ms=from_ms)
        found = ANCHOR_MS
        for k in range(1, 101):
            following = fire_times.next_after(found)
            assert following == ANCHOR_MS + 10_000 * k
            found = following


def test_a_start_of_its_own_goes_before_the_anchor() -> None:
    timing = Timing(every="10s", start_at_ms=TimeMs(5_000), anchor_ms=TimeMs(7_000))
    assert fire_times_of(timing, from_ms=0).next_after(0) == 5_000


def test_start_and_end_are_included() -> None:
    timing = Timing(cron="* * * * *", start_at_ms=TimeMs(60_000), end_at_ms=TimeMs(120_000))
    fire_times = fire_times_of(timing, from_ms=0)
    assert fire_times.next_after(0) == 60_000
    assert fire_times.next_after(60_000) == 120_000
    assert fire_times.next_after(120_000) is None
