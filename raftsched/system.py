"""The real clock and randomness of this machine."""

from __future__ import annotations

import random
import time
from typing import Final

_SINCE_BOOT: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""On Linux it runs while the machine is suspended, and CLOCK_MONOTONIC does not. On macOS CLOCK_MONOTONIC does."""


class SystemClock:
    """`raftsched.ports.Clock` over the operating system's clocks.

    Code that safety depends on must use this clock. The event loop's own time is CLOCK_MONOTONIC, fit for timers only.
    """

    def monotonic(self) -> float:
        return time.clock_gettime_ns(_SINCE_BOOT) / 1e9

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


def system_randomness() -> random.Random:
    """A generator seeded by the operating system, so that no two nodes draw alike."""
    return random.Random()  # noqa: S311  # jitter, ids and election timeouts are no secrets
