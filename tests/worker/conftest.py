from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from raftsched.worker import Worker, WorkerSettings
from tests.client.cluster import QUICK, WAIT_SECONDS, Cluster, running_cluster

SETTINGS = WorkerSettings(
    concurrency=4, wait_seconds=0.05, drain_seconds=WAIT_SECONDS, stop_grace_seconds=WAIT_SECONDS, client=QUICK
)
"""Graces so long that a test which needs one to end it fails."""
Serving = Callable[[Worker], AbstractAsyncContextManager[None]]


class SetClock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """A cluster of one node."""
    async with running_cluster() as running:
        yield running


def worker_of(cluster: Cluster, **options: Any) -> Worker:
    """A worker of `cluster`; `options` replace those of `SETTINGS` and of `Worker`."""
    return Worker(*(node.url for node in cluster.nodes), **({"settings": SETTINGS} | options))


@asynccontextmanager
async def serving(worker: Worker) -> AsyncIterator[asyncio.Task[None]]:
    """Let `worker` serve; at the end it drains, and what `serve` raises is raised."""
    task = asyncio.create_task(worker.serve())
    try:
        yield task
    finally:
        worker.drain()
        async with asyncio.timeout(WAIT_SECONDS):
            await task


@pytest.fixture
def logs() -> Any:
    """The log events of the test."""
    with capture_logs() as events:
        yield events
