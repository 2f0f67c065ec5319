"""The real clock and randomness of this machine."""

from __future__ import annotations

import random
import time


class SystemClock:
    """`raftsched.ports.Clock` over the operating system's clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


def system_randomness() -> random.Random:
    """A generator seeded by the operating system, so that no two nodes draw alike."""
    return random.Random()  # noqa: S311  # jitter, ids and election timeouts are no secrets
