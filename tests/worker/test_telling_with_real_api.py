"""What handlers say and ask, and runs that begin at most once, against the real API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from raftsched.client import Client, JobFailed, LogLine
from raftsched.worker import Context, GiveUp, Worker
from tests.client.cluster import QUICK, WAIT_SECONDS
from tests.client.real import RealNode, real_node
from tests.worker.conftest import SETTINGS, serving

SETTINGS_QUICK = replace(SETTINGS, log_seconds=0.01, progress_seconds=0.01)


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
    return Worker(node.api_url, settings=SETTINGS_QUICK, queues=["default"], name="teller")


async def test_log_is_read_while_the_handler_runs_and_progress_is_kept(client: Client, worker: Worker) -> None:
    go = asyncio.Event()

    @worker.job("import")
    async def import_(ctx: Context, payload: object) -> None:
        ctx.log("begun\nreading")
        ctx.progress({"done": 1})
        await go.wait()
        ctx.log("ended")

    job = await client.submit("import", queue="default")
    async with serving(worker), asyncio.timeout(WAIT_SECONDS):
        texts = []
        async for line in job.logs(follow=True):
            texts.append(line.text)
            if line.text == "reading":
                go.set()
        await job.wait()
    assert texts == ["begun", "reading", "ended"]
    assert (await job.get()).progress == {"done": 1}
    assert [line async for line in job.logs(attempt=1)] == [LogLine(text, 1, 1) for text in texts]
    (run,) = (await job.runs()).runs
    assert [(attempt.end, attempt.log_bytes) for attempt in run.attempts] == [("completed", 20)]


async def test_log_is_followed_from_attempt_to_attempt_without_mixing_them(client: Client, worker: Worker) -> None:
    """Case W16."""

    @worker.job("flaky")
    async def flaky(ctx: Context, payload: object) -> None:
        for number in range(3):
            ctx.log(f"{ctx.attempt_number}.{number}")
        if ctx.attempt_number < 3:
            raise LookupError

    job = await client.submit("flaky", queue="default", retry_policy={"backoff": "fixed", "base_seconds": 0.05})
    async with serving(worker), asyncio.timeout(WAIT_SECONDS):
        await job.wait()
        first = [(line.attempt_number, line.text) async for line in job.logs(attempt=1, follow=True)]
        latest = [line.text async for line in job.logs()]
    assert first == [(1, "1.0"), (1, "1.1"), (1, "1.2")]
    assert latest == ["3.0", "3.1", "3.2"]


async def test_silent_handler_is_ended_and_one_that_gives_signs_goes_on(client: Client, worker: Worker) -> None:
    @worker.job("silent")
    async def silent(payload: object) -> None:
        await asyncio.Event().wait()

    @worker.job("lively")
    def lively(ctx: Context, payload: object) -> str:
        for _ in range(120):
            if ctx.cancelled.wait(0.01):
                return "stopped"
            ctx.heartbeat()
        return "done"

    options: Any = {"queue": "default", "heartbeat_timeout_seconds": 0.8, "max_attempts": 1}
    async with serving(worker):
        one, other = await client.submit("silent", **options), await client.submit("lively", **options)
        assert await other.wait(timeout=WAIT_SECONDS) == "done"
        with pytest.raises(JobFailed) as caught:
            await one.wait(timeout=WAIT_SECONDS)
    assert caught.value.job.failure_reason == "timeout"
    assert caught.value.job.error is not None
    assert caught.value.job.error.type == "HeartbeatTimeout"


async def test_run_that_may_begin_once_begins_once(client: Client, worker: Worker) -> None:
    begun: list[int] = []

    @worker.job("pay")
    async def pay(ctx: Context, payload: object) -> None:
        begun.append(ctx.attempt_number)
        raise LookupError("no account")

    job = await client.submit("pay", queue="default", start="at_most_once", max_attempts=5)
    async with serving(worker):
        with pytest.raises(JobFailed):
            await job.wait(timeout=WAIT_SECONDS)
    assert begun == [1]
    assert [letter.id async for letter in client.dead_letters.list(queue="default")] == [job.id]


async def test_run_that_may_begin_once_and_was_not_begun_is_leased_again(client: Client, node: RealNode) -> None:
    """One slot, and two jobs: the second is given back unstarted when the worker drains."""
    worker = Worker(node.api_url, settings=replace(SETTINGS, concurrency=1, prefetch_below_seconds=10), queues=["q"])
    other = Worker(node.api_url, settings=SETTINGS, queues=["q"])
    started, begun = asyncio.Event(), []

    @worker.job("pay")
    async def pay(ctx: Context, payload: int) -> int:
        begun.append(payload)
        started.set()
        await go.wait()
        return payload

    @other.job("pay")
    async def pay_too(payload: int) -> int:
        begun.append(payload)
        return payload

    go = asyncio.Event()
    jobs = [await client.submit("pay", n, queue="q", start="at_most_once") for n in range(2)]
    async with serving(worker), asyncio.timeout(WAIT_SECONDS):
        await started.wait()
        worker.drain()
        go.set()
    async with serving(other):
        assert [await job.wait(timeout=WAIT_SECONDS) for job in jobs] == [0, 1]
    assert begun == [0, 1]


async def test_dead_letters_are_requeued_by_their_reason(client: Client, worker: Worker) -> None:
    is_broken = True

    @worker.job("a")
    async def sometimes(payload: int) -> int:
        if is_broken:
            raise LookupError
        return payload

    jobs = [await client.submit("a", n, queue="default", max_attempts=1) for n in range(3)]
    async with serving(worker):
        for job in jobs:
            with pytest.raises(JobFailed):
                await job.wait(timeout=WAIT_SECONDS)
        is_broken = False
        assert (await client.dead_letters.requeue(reason="timeout")).matched == 0
        assert (await client.dead_letters.requeue(reason="attempts_exhausted")).done == 3
        assert [await job.wait(timeout=WAIT_SECONDS) for job in jobs] == [0, 1, 2]
    assert [letter async for letter in client.dead_letters.list()] == []


async def test_purged_dead_letter_is_gone(client: Client, worker: Worker) -> None:
    @worker.job("hopeless")
    async def hopeless(payload: object) -> None:
        raise GiveUp

    job = await client.submit("hopeless", queue="default")
    async with serving(worker):
        with pytest.raises(JobFailed):
            await job.wait(timeout=WAIT_SECONDS)
    assert (await client.dead_letters.purge(ids=[job.id], dry_run=True)).matched == 1
    assert (await client.dead_letters.purge(ids=[job.id])).done == 1
    assert [found async for found in client.list()] == []


async def test_run_of_a_schedule_is_told_its_instant_and_the_values_of_its_parameters(
    client: Client, worker: Worker
) -> None:
    @worker.job("report")
    async def report(ctx: Context, payload: object) -> Any:
        return [ctx.schedule_id, ctx.instant, ctx.parameters]

    region, token = {"name": "region", "default": "eu"}, {"name": "token", "type": "secret", "default": "shop"}
    job = {"name": "report", "queue": "default"}
    saved = await client.schedules.save("daily", job, cron="@daily", parameters=[region, token])
    firing = await client.schedules.trigger("daily", parameters={"region": "us"})
    assert firing.job_id is not None
    async with serving(worker):
        schedule_id, instant, parameters = await client.wait(firing.job_id, timeout=WAIT_SECONDS)
    assert schedule_id == saved.id
    assert instant.startswith(firing.instant.isoformat()[:19])
    assert parameters == {"region": "us", "token": {"secret": "shop"}}
