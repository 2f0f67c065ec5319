from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from raftsched.worker import Worker, WorkerSettings
from tests.client.cluster import QUICK, WAIT_SECONDS, Cluster, StoredJob, running_cluster

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
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """A cluster of one node, or the one that `with_cluster` asks for."""
    async with running_cluster(**getattr(request, "param", {})) as running:
        yield running


def with_cluster(node_count: int = 1, **options: Any) -> pytest.MarkDecorator:
    """Give a test another `cluster`."""
    return pytest.mark.parametrize("cluster", [{"node_count": node_count, **options}], indirect=True, ids=[""])


@pytest.fixture
def worker(cluster: Cluster) -> Worker:
    return worker_of(cluster)


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


async def run(cluster: Cluster, worker: Worker, *jobs: StoredJob) -> None:
    """Let `worker` serve until each of `jobs` has an outcome."""
    async with serving(worker):
        await cluster.finished(*jobs)


async def run_job(cluster: Cluster, worker: Worker, name: str, payload: Any = None, **fields: Any) -> StoredJob:
    """Add a job, and let `worker` serve until it has an outcome."""
    job = await cluster.add_job(name, payload, **fields)
    await run(cluster, worker, job)
    return job


def held(worker: Worker) -> asyncio.Event:
    """Let the handler of `a` return "done" once the event is set."""
    go = asyncio.Event()

    @worker.job("a")
    async def wait(payload: object) -> str:
        await go.wait()
        return "done"

    return go


def endless(worker: Worker, on_begin: Callable[[], object] = lambda: None) -> asyncio.Event:
    """Let the handler of `a` go on until it is stopped; then the event is set."""
    stopped = asyncio.Event()

    @worker.job("a")
    async def wait(payload: object) -> None:
        on_begin()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    return stopped


@pytest.fixture
def logs() -> Any:
    """The log events of the test."""
    with capture_logs() as events:
        yield events
