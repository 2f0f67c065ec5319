"""Fill a cluster with jobs of every status, workflows, and schedules with a past, by the client that users have.

Of the jobs, three fifths are scheduled for a month ahead, a third wait in paused queues, and a twentieth is run by a
worker: most of these complete, others are dead-lettered for five reasons, or wait for another attempt. The rest are
cancelled, paused, or parts of workflows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final

from raftsched import Worker
from raftsched.client import Client, Workflow
from raftsched.client.records import JobInfo
from raftsched.errors import RaftschedError
from raftsched.worker import GiveUp, Retry

BATCH_JOBS: Final = 1_000
_IN_FLIGHT: Final = 4
_CALLS_AT_A_TIME: Final = 20
_PROGRESS_JOBS: Final = 100_000
_MONTH_SECONDS: Final = 30 * 86_400
_FLOWS: Final = 200
_SCHEDULES: Final = 1_200
_LEDGER_LINES: Final = 900
"""Runs of one schedule in the past; at most 1,000 of one may be unfinished."""
_SETTLED_SECONDS: Final = 3_600.0
_RUN: Final = ("noop", "charge", "refuse", "again", "stall")
"""Names of the jobs that the worker runs."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How many jobs and queues there are to be."""

    jobs: int
    queues: int

    @property
    def held_queues(self) -> int:
        """Return the count of the queues that are paused."""
        return self.queues // 10

    @property
    def run_queues(self) -> int:
        """Return the count of the queues that a worker serves."""
        return self.queues // 100

    def queue(self, number: int, part: float) -> str:
        """Return the queue of a job by its number, and by its part of all jobs."""
        if part < 0.6:
            return f"later-{number % (self.queues - self.held_queues - self.run_queues):05}"
        return f"held-{number % self.held_queues:05}" if part < 0.94 else f"run-{number % self.run_queues:05}"


def jobs_of(plan: Plan) -> Iterator[dict[str, Any]]:
    """Yield the jobs to submit, mixed, so that each range of ids has all kinds."""
    for number in range(plan.jobs):
        part = (number * 7_919 % plan.jobs) / plan.jobs
        job: dict[str, Any] = {
            "name": f"job-{number % 40:02}",
            "queue": plan.queue(number, part),
            "payload": {"order": number, "to": f"user{number}@example.org"},
            "priority": 2 + number % 3,
            "max_attempts": 1,
        }
        if number % 100 == 0:
            job["tenant"] = "acme"
        if number % 2 == 0:
            job["tags"] = ["often", *(["seldom"] if number % 20_000 == 0 else [])]
        yield job | _kind(number, part)


def _kind(number: int, part: float) -> dict[str, Any]:
    """Return what differs by the part of all jobs."""
    if part < 0.6:
        return {"delay_seconds": _MONTH_SECONDS + number % 86_400}
    if part < 0.61:
        return {"expires_in_seconds": 1.0}  # in a paused queue: a dead letter soon
    if part < 0.62:
        return {"paused": True}
    if part < 0.63:
        return {"tags": ["unwanted"]}
    if part < 0.94:
        return {}
    if part < 0.98:
        return {"name": "noop"}
    if part < 0.995:
        return {"name": "charge"}
    if part < 0.999:
        return {"name": "refuse"}
    return {"name": "again", "max_attempts": 3} if part < 0.9998 else {"name": "stall", "timeout_seconds": 1.0}


async def fill(client: Client, plan: Plan) -> None:
    """Submit everything, and return once `running_worker` has run its part."""
    began = time.monotonic()
    held = (f"held-{number:05}" for number in range(plan.held_queues))
    await _all(client.queue(name).pause(reason="the mail server moves") for name in held)
    _say(began, f"{plan.held_queues:,} queues paused")
    await _submit_all(client, plan, began)
    await _flows(client)
    await _schedules(client)
    _say(began, "workflows and schedules saved")
    done = await client.bulk("cancel", filter={"tag": "unwanted"})
    _say(began, f"{done.done:,} jobs cancelled")
    async with asyncio.timeout(_SETTLED_SECONDS):
        while await _is_busy(client):
            await asyncio.sleep(1.0)
    _say(began, f"the worker has run its jobs: {(await client.overview()).jobs}")


async def _all(calls: Iterable[Awaitable[Any]]) -> None:
    """Await all calls, some at a time."""
    left = iter(calls)

    async def await_next() -> None:
        for call in left:
            await call

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_CALLS_AT_A_TIME):
            tasks.create_task(await_next())


async def _is_busy(client: Client) -> bool:
    """Return whether the worker has jobs left."""
    for name in _RUN:
        query = {"name": name, "status": ["queued", "running"], "limit": 1}
        found, _ = await client.page(JobInfo, "/jobs", "jobs", query)
        if found:
            return True
    return False


async def _submit_all(client: Client, plan: Plan, began: float) -> None:
    room = asyncio.Semaphore(_IN_FLIGHT)
    count = 0

    async def submit(batch: tuple[dict[str, Any], ...]) -> None:
        nonlocal count
        try:
            for answer in await client.submit_many(batch):
                if isinstance(answer, RaftschedError):
                    raise answer
        finally:
            room.release()
        count += len(batch)
        if count % _PROGRESS_JOBS == 0:
            _say(began, f"{count:,} jobs submitted, {count / (time.monotonic() - began):,.0f} a second")

    async with asyncio.TaskGroup() as tasks:
        jobs = jobs_of(plan)
        while batch := tuple(islice(jobs, BATCH_JOBS)):
            await room.acquire()
            tasks.create_task(submit(batch))


async def _flows(client: Client) -> None:
    """Submit small workflows, some of which fail, and a large one; their last jobs wait in a paused queue."""
    await _all(client.workflows.submit(_flow(number)) for number in range(_FLOWS))
    large = Workflow("large")
    root = large.job("split", task="root", queue="held-00001")
    for number in range(5_000):
        large.job("part", task=f"part-{number}", queue="held-00002", after=[root])
    await client.workflows.submit(large)


def _flow(number: int) -> Workflow:
    flow = Workflow(f"close-{number % 7}")
    first = flow.job("charge" if number % 10 == 0 else "noop", number, queue="run-00000", max_attempts=1)
    flow.job("archive", task="then", queue="held-00000", after=[first], on_dependency_failure="fail")
    return flow


async def _schedules(client: Client) -> None:
    """Save schedules, and give one a ledger; its runs wait in a paused queue."""
    report = {"name": "report", "queue": "held-00003"}
    await _all(
        client.schedules.save(
            f"report-{number:04}",
            report,
            cron=f"{number % 60} 2 1 1 *",
            owner=f"team{number % 30}@example.org",
            labels={"team": f"t{number % 30}"},
        )
        for number in range(_SCHEDULES)
    )
    saved = await client.schedules.save("hourly", {"name": "sync", "queue": "held-00003"}, cron="0 * * * *")
    end = datetime.now(UTC) - timedelta(minutes=1)
    await client.schedules.backfill(saved.id, end - timedelta(hours=_LEDGER_LINES), end, overlap="allow")


@asynccontextmanager
async def running_worker(urls: list[str], token: str) -> AsyncIterator[None]:
    """A worker of the queues that are run."""
    worker = Worker(*urls, token=token, queues=["run-*"], concurrency=200, name="worker-1")

    @worker.job("noop")
    async def noop(payload: Any) -> Any:
        return payload

    @worker.job("charge")
    async def charge(payload: Any) -> None:
        raise ValueError(f"order {payload['order'] if isinstance(payload, dict) else payload}: card declined")

    @worker.job("refuse")
    async def refuse(payload: Any) -> None:
        raise GiveUp(f"the address {payload['to']} does not exist")

    @worker.job("stall")
    async def stall(_: Any) -> None:
        await asyncio.sleep(60.0)

    @worker.job("again")
    async def again(_: Any) -> None:
        raise Retry("the mail server is down", after=86_400.0)

    serving = asyncio.create_task(worker.serve())
    try:
        yield
    finally:
        worker.drain()
        await serving


def _say(began: float, text: str) -> None:
    print(f"{time.monotonic() - began:6.0f} s: {text}", flush=True)
