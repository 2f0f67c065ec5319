"""Answers that are not the cluster's: a real proxy before a real API (case N07, outcomes, leases and heartbeats)."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from raftsched.client import Client, Job, JobFailed
from raftsched.worker import Context, Worker
from tests.client.cluster import QUICK, WAIT_SECONDS
from tests.client.proxy import larger_than, proxy_before
from tests.client.real import real_node
from tests.client.test_proxies import first
from tests.worker.conftest import SETTINGS, serving

OUTCOMES = "/leases/outcomes"


async def attempts(jobs: list[Job]) -> list[tuple[str, int]]:
    """The status and the attempt number of each job at its end."""
    for job in jobs:
        await job.wait(timeout=WAIT_SECONDS)
    infos = [await job.get() for job in jobs]
    return [(info.status, info.attempt_number) for info in infos]


async def test_outcomes_that_are_too_large_together_are_recorded_apart() -> None:
    """Part (a): 40 handlers end in the same moment with 10 kB each, and a request may have 100 kB."""
    ran: Counter[int] = Counter()
    at_once = asyncio.Barrier(40)
    async with (
        real_node(lease_seconds=5.0) as node,
        proxy_before(node.api_url, larger_than(100_000)) as proxy,
        Client(node.api_url, settings=QUICK) as client,
    ):
        worker = Worker(proxy.url, settings=replace(SETTINGS, concurrency=40))

        @worker.job("a")
        async def handler(payload: int) -> str:
            ran[payload] += 1
            await at_once.wait()
            return "x" * 10_000

        jobs = [await client.submit("a", number) for number in range(40)]
        async with serving(worker):
            assert await attempts(jobs) == [("completed", 1)] * 40
        assert set(ran.values()) == {1}
        assert OUTCOMES in {path for path, _ in proxy.refused}


async def test_result_that_is_too_large_for_a_proxy_fails_the_job_without_a_second_run() -> None:
    """Part (b)."""
    ran: list[int] = []
    async with (
        real_node() as node,
        proxy_before(node.api_url, larger_than(100_000)) as proxy,
        Client(node.api_url, settings=QUICK) as client,
    ):
        worker = Worker(proxy.url, settings=SETTINGS)

        @worker.job("a")
        async def handler(ctx: Context, payload: object) -> str:
            ran.append(ctx.attempt_number)
            return "x" * 150_000

        job = await client.submit("a", max_attempts=2)
        async with serving(worker):
            with pytest.raises(JobFailed) as caught:
                await job.wait(timeout=WAIT_SECONDS)
        info = caught.value.job
        assert (ran, info.status, info.failure_reason) == ([1], "dead_letter", "rejected")
        assert info.error is not None
        assert info.error.type == "ResultRefused"
        assert "413" in info.error.message


@pytest.mark.parametrize("status", [302, 403, 404, 405, 502])
async def test_refusals_of_a_proxy_settle_no_outcome(status: int, logs: list[Any]) -> None:
    """Part (c)."""
    ran: list[int] = []
    async with (
        real_node() as node,
        proxy_before(node.api_url, first(8, status, OUTCOMES)) as proxy,
        Client(node.api_url, settings=QUICK) as client,
    ):
        worker = Worker(proxy.url, settings=replace(SETTINGS, concurrency=10))

        @worker.job("a")
        async def handler(payload: int) -> int:
            ran.append(payload)
            return payload

        jobs = [await client.submit("a", number) for number in range(10)]
        async with serving(worker):
            assert await attempts(jobs) == [("completed", 1)] * 10
        assert sorted(ran) == list(range(10))
        assert len(proxy.refused) == 8
    assert {event["event"] for event in logs} >= {"outcome_not_recorded_yet"}


@pytest.mark.parametrize("status", [403, 404, 413, 502])
async def test_refusals_of_a_proxy_end_no_worker(status: int) -> None:
    async with (
        real_node() as node,
        proxy_before(node.api_url, first(3, status, "/leases")) as proxy,
        Client(node.api_url, settings=QUICK) as client,
    ):
        worker = Worker(proxy.url, settings=SETTINGS)
        worker.job("a")(_nothing)
        async with serving(worker):
            await (await client.submit("a")).wait(timeout=WAIT_SECONDS)
        assert len(proxy.refused) == 3


async def test_heartbeats_that_are_too_large_together_are_sent_apart(logs: list[Any]) -> None:
    """Four runs that say much of themselves, each a little too much, outlive their first lease."""
    async with (
        real_node(lease_seconds=1.0) as node,
        proxy_before(node.api_url, lambda path, body: 413 * ("heartbeat" in path and len(body) > 3_000)) as proxy,
        Client(node.api_url, settings=QUICK) as client,
    ):
        worker = Worker(proxy.url, settings=replace(SETTINGS, progress_seconds=0.1))

        @worker.job("a")
        def handler(ctx: Context, payload: int) -> bool:
            ctx.progress({"said": "x" * payload})
            return ctx.cancelled.wait(1.5)

        jobs = [await client.submit("a", byte_count) for byte_count in (1_500, 1_500, 1_500, 3_500)]
        async with serving(worker):
            assert await attempts(jobs) == [("completed", 1)] * 4
        assert [(await job.get()).result for job in jobs] == [False] * 4
        assert {path for path, _ in proxy.refused} == {"/leases/heartbeat"}
    assert "run_stopped" not in {event["event"] for event in logs}


async def _nothing(payload: object) -> None: ...
