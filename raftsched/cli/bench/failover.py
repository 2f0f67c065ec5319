"""Measure the time without writes after the leader is killed: from SIGKILL to the next accepted write."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from raftsched.cli.bench import PAYLOAD
from raftsched.cli.local.cluster import LocalCluster
from raftsched.client import Client

QUEUE = "failover"
_SETTLE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Failover:
    """Seconds without a leader, one for each kill."""

    kills: int
    seconds: list[float]
    median_seconds: float
    max_seconds: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


async def measure(
    cluster: LocalCluster, kills: int, on_kill: Callable[[int, float], None], *, token: str | None = None
) -> Failover:
    """Kill the leader `kills` times, each time after the cluster has settled; `on_kill` is called for each."""
    gaps: list[float] = []
    async with Client(*cluster.urls, token=token) as client:
        for number in range(1, kills + 1):
            leader = await asyncio.to_thread(cluster.wait_for_leader)
            await client.submit("ping", PAYLOAD, queue=QUEUE, delay_seconds=3600)
            await asyncio.sleep(_SETTLE_SECONDS)
            leader.kill()
            start = time.monotonic()
            await client.submit("ping", PAYLOAD, queue=QUEUE, delay_seconds=3600)
            gaps.append(round(time.monotonic() - start, 3))
            on_kill(number, gaps[-1])
            cluster.start_node(leader)
            await asyncio.to_thread(cluster.wait_until_ready, leader)
    return Failover(kills, gaps, round(statistics.median(gaps), 3), max(gaps))
