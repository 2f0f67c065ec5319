"""The clock that promises rest on counts the time for which a machine is suspended, and nothing goes round it."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

import raftsched
from raftsched.system import SystemClock

PACKAGE = Path(raftsched.__file__).parent
PROMISING = ("consensus", "leader", "storage", "core")
"""What keeps promises between nodes, or gives leases."""
OTHER_CLOCKS = re.compile(
    r"\btime\.(monotonic|perf_counter|clock_gettime)|\bloop\.time\(\)|get_running_loop\(\)\.time\(\)"
)
NO_PROMISES = {
    "consensus/net/transport.py": "how long an unknown caller may stay on its own connection",
    "consensus/net/throttled_log.py": "how often a complaint is logged",
}


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="not an operating system with this clock")
def test_the_monotonic_clock_counts_the_time_of_a_suspension(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = {time.CLOCK_MONOTONIC: 5_000_000_000, time.CLOCK_BOOTTIME: 65_000_000_000}  # suspended for a minute
    monkeypatch.setattr(time, "clock_gettime_ns", readings.__getitem__)
    monkeypatch.setattr(time, "monotonic", lambda: 5.0)
    assert SystemClock().monotonic() == 65.0


def test_no_promise_rests_on_another_clock() -> None:
    found = {
        str(path.relative_to(PACKAGE))
        for part in PROMISING
        for path in (PACKAGE / part).rglob("*.py")
        if OTHER_CLOCKS.search(path.read_text(encoding="utf-8"))
    }
    assert found == set(NO_PROMISES)
