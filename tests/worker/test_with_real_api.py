from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from raftsched.client import Client, JobCancelled, JobFailed
from raftsched.errors import Invalid
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


async def test_jobs_of_a_region_are_run_by_its_workers_alone(client: Client, node: RealNode) -> None:
    workers = {
        region: Worker(node.api_url, settings=SETTINGS, queues=["default"], region=region)
        for region in ("eu", "us", None)
    }
    ran: dict[str | None, list[str]] = {region: [] for region in workers}
    for region, worker in workers.items():

        @worker.job("note")
        async def note(payload: str, region: str | None = region) -> None:
            ran[region].append(payload)

    async with serving(workers[None]), serving(workers["eu"]):
        jobs = [await client.submit("note", "eu", queue="default", region="eu") for _ in range(10)]
        late = await client.submit("note", "us", queue="default", region="us")
        await client.submit("note", "any", queue="default")
        for job in jobs:
            await job.wait(timeout=WAIT_SECONDS)
        async with serving(workers["us"]):
            await late.wait(timeout=WAIT_SECONDS)
    assert [job for job in ran["eu"] if job != "any"] == ["eu"] * 10
    assert [job for job in ran["us"] if job != "any"] == ["us"]
    assert set(ran[None]) <= {"any"}


@pytest.mark.parametrize("region", ["", "a b", "r" * 129])
def test_worker_refuses_what_is_no_name_of_a_region(region: str) -> None:
    with pytest.raises(Invalid, match="region"):
        Worker(region=region)
    worker = Worker(region="eu")
    with pytest.raises(Invalid, match="region"):
        worker.move_to(region)
    assert worker.region == "eu"


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


@pytest.mark.parametrize("options", [{}, {"start": "at_most_once"}, {"retry_on": ["ValueError"]}])
async def test_job_that_no_handler_knows_waits_for_a_worker_that_does(
    client: Client, node: RealNode, worker: Worker, options: dict[str, Any]
) -> None:
    newer = Worker(node.api_url, settings=SETTINGS, queues=["default"])

    @worker.job("charge")
    async def charge(payload: object) -> None: ...

    @newer.job("pay")
    async def pay(ctx: Context, payload: object) -> int:
        return ctx.attempt_number

    job = await client.submit("pay", queue="default", max_attempts=1, **options)
    async with serving(worker):
        await ended(client, "charge")
        (reason,) = (await job.explain()).reasons
        assert (reason.code, reason.text) == (
            "no_handler",
            "no worker with a handler for pay: 1 of its queue, default, have none",
        )
        async with serving(newer):
            assert await job.wait(timeout=WAIT_SECONDS) == 1


async def test_jobs_with_a_new_name_lose_no_attempt_while_a_release_rolls_out(client: Client, node: RealNode) -> None:
    """Old and new workers share a queue, and only the new one knows `refund`: each job completes at its first attempt."""
    old = Worker(node.api_url, settings=SETTINGS, queues=["payments"], concurrency=8)
    new = Worker(node.api_url, settings=SETTINGS, queues=["payments"], concurrency=2)
    ran: list[str] = []

    async def charge(payload: str) -> None: ...

    @new.job("refund")
    async def refund(ctx: Context, payload: str) -> int:
        ran.append(payload)
        return ctx.attempt_number

    for worker in (old, new):
        worker.job("charge")(charge)
    async with serving(old), serving(new):
        jobs = [
            await client.submit(name, f"{name}-{number}", queue="payments", max_attempts=2)
            for number in range(60)
            for name in ("charge", "refund")
        ]
        results = [await job.wait(timeout=WAIT_SECONDS) for job in jobs]
    assert results[1::2] == [1] * 60
    assert sorted(ran) == sorted(f"refund-{number}" for number in range(60))


async def test_worker_with_120_handlers_runs_a_job_of_each_and_one_by_pattern_those_of_new_queues(
    client: Client, node: RealNode
) -> None:
    """Case N05."""
    many = Worker(node.api_url, settings=SETTINGS)
    for number in range(120):

        @many.job(f"task_{number:03}")
        async def run(payload: int) -> int:
            return payload

    tenants = Worker(node.api_url, settings=SETTINGS, queues=["tenant-*"])

    @tenants.job("export")
    async def export(payload: object) -> str:
        return "exported"

    async with serving(many), serving(tenants):
        jobs = [await client.submit(f"task_{number:03}", number) for number in range(120)]
        late = await client.submit("export", queue="tenant-42")
        assert [await job.wait(timeout=WAIT_SECONDS) for job in jobs] == list(range(120))
        assert await late.wait(timeout=WAIT_SECONDS) == "exported"


async def test_delay_that_is_too_long_for_the_api_is_a_failure_that_says_so(client: Client, worker: Worker) -> None:
    @worker.job("later")
    async def later(payload: object) -> None:
        raise Snooze(20 * 366 * 86_400)

    async with serving(worker):
        with pytest.raises(JobFailed, match="Snooze: a delay of") as caught:
            await ended(client, "later")
    assert (caught.value.job.failure_reason, caught.value.job.attempt_number) == ("rejected", 1)
