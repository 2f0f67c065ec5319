from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from raftsched.client import Client, JobCancelled, JobFailed
from raftsched.worker import Context, GiveUp, Retry, Snooze, Worker
from tests.client.cluster import QUICK, WAIT_SECONDS
from tests.client.real import RealNode, real_node
from tests.worker.conftest import SETTINGS, serving


@pytest.fixture
async def node() -> AsyncIterator[RealNode]:
    async with real_node(lease_seconds=0.6) as running:
        yield running


@pytest.fixture
async def client(node: RealNode) -> AsyncIterator[Client]:
    async with Client(node.api_url, settings=QUICK) as opened:
        yield opened


@pytest.fixture
def worker(node: RealNode) -> Worker:
    return Worker(node.api_url, settings=SETTINGS, queues=["default"], name="mailer")


async def ended(client: Client, name: str, payload: Any = None, **options: Any) -> Any:
    """Submit a job, wait for its end, and return its result."""
    job = await client.submit(name, payload, queue="default", **options)
    return await job.wait(timeout=WAIT_SECONDS)


async def test_job_is_run_and_its_result_is_recorded(client: Client, worker: Worker) -> None:
    @worker.job("sum")
    async def total(ctx: Context, payload: dict[str, int]) -> list[Any]:
        return [payload["a"] + payload["b"], ctx.run_id, ctx.attempt_number]

    async with serving(worker):
        job = await client.submit("sum", {"a": 1, "b": 2}, queue="default")
        assert await job.wait(timeout=WAIT_SECONDS) == [3, f"{job.id}.1", 1]
    assert (await job.get()).status == "completed"


async def test_failed_attempt_is_retried_after_the_handlers_own_delay(client: Client, worker: Worker) -> None:
    @worker.job("flaky")
    async def flaky(ctx: Context, payload: object) -> int:
        if ctx.attempt_number < 3:
            raise Retry("busy", after=0.01)
        return ctx.attempt_number

    async with serving(worker):
        assert await ended(client, "flaky") == 3


async def test_snoozed_job_uses_no_attempt(client: Client, worker: Worker) -> None:
    @worker.job("later")
    async def later(ctx: Context, payload: object) -> int:
        if ctx.attempt_number < 3:
            raise Snooze(0.01)
        return ctx.attempt_number

    async with serving(worker):
        assert await ended(client, "later", max_attempts=1) == 3


@pytest.mark.parametrize(
    ("error", "reason"), [(GiveUp("no such user"), "rejected"), (ValueError("no such user"), "attempts_exhausted")]
)
async def test_job_that_fails_for_good_says_why(client: Client, worker: Worker, error: Exception, reason: str) -> None:
    @worker.job("bad")
    async def bad(payload: object) -> None:
        raise error

    async with serving(worker):
        with pytest.raises(JobFailed, match="no such user") as caught:
            await ended(client, "bad", max_attempts=1)
    assert (caught.value.job.status, caught.value.job.failure_reason) == ("dead_letter", reason)
    assert caught.value.job.error is not None
    assert type(error).__name__ in caught.value.job.error.trace or reason == "rejected"


async def test_cancelled_job_stops_its_handler_and_ends_at_once(client: Client, worker: Worker) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    @worker.job("long")
    async def long(payload: object) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    job = await client.submit("long", queue="default")
    async with serving(worker), asyncio.timeout(WAIT_SECONDS):
        await started.wait()
        assert (await job.cancel()).status == "cancelling"
        await stopped.wait()
        with pytest.raises(JobCancelled):
            await job.wait()


async def test_handler_that_outlasts_its_lease_keeps_it(client: Client, worker: Worker, node: RealNode) -> None:
    @worker.job("long")
    def long(ctx: Context, payload: object) -> int:
        ctx.cancelled.wait(0.9)  # more than one lease
        return ctx.attempt_number

    async with serving(worker):
        assert await ended(client, "long") == 1
        (seen,) = await client.workers()
        assert (seen["name"], seen["queues"]) == (worker.name, ["default"])


async def test_timeout_of_the_job_is_recorded_by_the_cluster(client: Client, worker: Worker) -> None:
    @worker.job("slow")
    async def slow(payload: object) -> None:
        await asyncio.Event().wait()

    async with serving(worker):
        with pytest.raises(JobFailed) as caught:
            await ended(client, "slow", timeout_seconds=0.1, max_attempts=1)
    assert caught.value.job.failure_reason == "timeout"


async def test_run_of_a_worker_that_drains_is_offered_again_at_once(client: Client, node: RealNode) -> None:
    settings = replace(SETTINGS, drain_seconds=0.01)
    first, second = (Worker(node.api_url, settings=settings) for _ in range(2))
    started = asyncio.Event()

    @first.job("a")
    async def wait(payload: object) -> None:
        started.set()
        await asyncio.Event().wait()

    @second.job("a")
    async def finish(ctx: Context, payload: object) -> int:
        return ctx.attempt_number

    job = await client.submit("a", max_attempts=1)
    async with serving(first), asyncio.timeout(WAIT_SECONDS):
        await started.wait()
    assert (await job.get()).status == "queued"
    async with serving(second):
        assert await job.wait(timeout=WAIT_SECONDS) == 2


async def test_many_jobs_each_run_once(client: Client, worker: Worker) -> None:
    ran: list[int] = []

    @worker.job("tick")
    async def tick(payload: int) -> None:
        ran.append(payload)

    jobs = await client.submit_many({"name": "tick", "queue": "default", "payload": n} for n in range(500))
    async with serving(worker):
        for job in jobs:
            assert not isinstance(job, Exception)
            await job.wait(timeout=WAIT_SECONDS)
    assert sorted(ran) == list(range(500))
