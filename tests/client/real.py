"""The real API over the real `apply` and leadership: for the tests that clients and API mean the same."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from raftsched.leader.leadership import LeaderSettings, Leadership
from tests.api.node import SimulatedNode, StillClock, serving


class RunningClock(StillClock):
    """The real clock, in the form that the simulated node reads."""

    @property
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    @now_ms.setter
    def now_ms(self, value: int) -> None:
        """What the standing clock starts at is of no interest here."""

    def monotonic(self) -> float:
        return time.monotonic()


class RealNode(SimulatedNode):
    """A node that leads, with leases as short as a test wants them."""

    def __init__(self, lease_seconds: float) -> None:
        super().__init__()
        self.clock = RunningClock()
        self._lease_ms = round(lease_seconds * 1000)

    async def start(self) -> None:
        self._leadership = Leadership(
            state=self.state,
            propose=self.propose,
            clock=self.clock,
            randomness=random.Random(1),
            new_job_id=self.new_job_id,
            settings=LeaderSettings(lease_ttl_ms=self._lease_ms, cancel_grace_ms=60_000),
        )
        self._leadership.start()


@asynccontextmanager
async def real_node(*, lease_seconds: float = 10.0) -> AsyncIterator[RealNode]:
    """A node that serves the API; `api_url` says where."""
    node = RealNode(lease_seconds)
    async with serving(node):
        yield node
