"""What a tenant that floods the cluster costs a quiet one.

    python -m tests.bench.tenants [--seconds 10] [--rounds 3] [--batch 1] [--quota 50]

Three nodes, one worker of all tenants with 32 slots, one queue. The quiet tenant submits 20 jobs a second, one by one,
each of which runs for 200 to 400 ms. The other tenant has a backlog of 20,000 jobs of the same kind, and submits more
over 64 connections, each as soon as the reply to the one before has come, whatever that says. Rounds of the quiet tenant
take turns, so that a machine that other programs use, too, does not favour one of them: alone; beside a polite tenant,
which has the same backlog and submits at the rate of the quota; beside the loud one without quotas; and beside the loud
one with a quota of submissions. Printed: p50 and p99 of the quiet tenant's submissions and of the delay between due and
started. Their ratio to those alone is what sharing the machine costs; that to those beside the polite one is what the
flood costs.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp
import msgspec

from raftsched import Worker
from raftsched.cli.local.children import lifeline
from raftsched.cli.local.cluster import LocalCluster
from raftsched.client import Client

QUEUE, QUIET, LOUD = "shared", "quiet", "loud"
RATE = 20.0
CONNECTIONS = 64
BACKLOG = 20_000
SLOTS = 32
_RUN_SECONDS = (0.2, 0.4)
"""Least and longest time; equal ones would let all slots end, and begin, at the same moments."""
_BATCH_JOBS_MAX = 1_000
_SETTLE_SECONDS = 2.0


class Round(NamedTuple):
    """What the quiet tenant saw, in milliseconds."""

    submits: list[float]
    delays: list[float]


# -- the processes ----------------------------------------------------------------------------------------------------


def work(urls: list[str]) -> None:
    """Run the jobs of all tenants, until the process is killed."""
    worker = Worker(*urls, queues=[QUEUE], concurrency=SLOTS, name="shared-worker")

    @worker.job("nap", queue=QUEUE)
    async def nap(payload: object) -> None:
        del payload
        await asyncio.sleep(random.uniform(*_RUN_SECONDS))

    worker.run()


async def flood(url: str, batch: int, rate: float) -> None:
    """Submit without an end, over `CONNECTIONS` connections; prints a count of the accepted and the refused jobs.

    With a `rate`, all of them together submit as many jobs a second.
    """
    job = {"name": "nap", "queue": QUEUE, "tenant": LOUD}
    path, document = ("/jobs", job) if batch == 1 else ("/jobs/batch", {"jobs": [job] * batch})
    body, headers = msgspec.json.encode(document), {"Content-Type": "application/json"}
    counts = {True: 0, False: 0}

    async def one(session: aiohttp.ClientSession) -> None:
        while True:
            if rate:
                await asyncio.sleep(CONNECTIONS * batch / rate)
            async with session.post(f"{url}/api/v1{path}", data=body, headers=headers) as reply:
                content = await reply.read()
                statuses = (
                    [reply.status]
                    if batch == 1 or reply.status != 200
                    else [each["status"] for each in msgspec.json.decode(content)["results"]]
                )
                for status in statuses:
                    counts[status == 201] += 1

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        tasks = []
        for _ in range(CONNECTIONS):
            tasks.append(asyncio.create_task(one(session)))
            await asyncio.sleep(batch / rate if rate else 0.0)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    print(f"{counts[True]} {counts[False]}", flush=True)


@contextmanager
def _started(*arguments: str, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (directory / "processes.log").open("ab") as log:
        command = [sys.executable, "-m", "tests.bench.tenants", *arguments]
        process = subprocess.Popen(command, stdin=lifeline(), stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def _flooding(url: str, batch: int, rate: float, totals: list[int]) -> Iterator[None]:
    command = [sys.executable, "-m", "tests.bench.tenants", "--flood", url]
    command += ["--batch", str(batch), "--rate", str(rate)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield
    finally:
        told, _ = process.communicate()
        totals[:] = map(int, told.split())


# -- the quiet tenant -------------------------------------------------------------------------------------------------


async def quiet_round(client: Client, seconds: float) -> Round:
    """Submit at `RATE` for some seconds, whatever the replies take, and wait until all jobs have ended."""
    took_ms: list[float] = []
    ids: list[str] = []

    async def one() -> None:
        began = time.monotonic()
        job = await client.submit("nap", queue=QUEUE, tenant=QUIET)
        took_ms.append((time.monotonic() - began) * 1000)
        ids.append(job.id)

    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(int(RATE * seconds)):
            await asyncio.sleep(max(0.0, began + number / RATE - time.monotonic()))
            group.create_task(one())
    delays = []
    for job_id in ids:
        await client.wait(job_id, timeout=30)
        job = await client.get(job_id)
        assert job.started_at is not None
        delays.append((job.started_at - job.run_at).total_seconds() * 1000)
    return Round(took_ms, delays)


async def _fill(client: Client, count: int) -> None:
    """Give the loud tenant `count` more waiting jobs."""
    for first in range(0, count, _BATCH_JOBS_MAX):
        jobs = [{"name": "nap", "queue": QUEUE, "tenant": LOUD}] * min(_BATCH_JOBS_MAX, count - first)
        await client.submit_many(jobs)


async def _backlog(client: Client) -> int:
    return (await client.tenants.get(LOUD)).usage.unfinished_jobs


async def _measure(url: str, urls: list[str], asked: argparse.Namespace) -> None:
    found: dict[str, list[Round]] = {"alone": [], "beside a polite one": [], "without quotas": [], "with a quota": []}
    async with Client(*urls) as client:
        await quiet_round(client, 1.0)
        for number in range(asked.rounds):
            kinds = [*found]
            for kind in (*kinds[number % len(kinds) :], *kinds[: number % len(kinds)]):  # none always follows the same
                rounds, totals = found[kind], [0, 0]
                if kind == "alone":
                    await client.bulk("cancel", filter={"queue": QUEUE, "tenant": LOUD})
                    while await _backlog(client):
                        await client.bulk("cancel", filter={"queue": QUEUE, "tenant": LOUD})
                    await asyncio.sleep(_SETTLE_SECONDS)
                    rounds.append(await quiet_round(client, asked.seconds))
                else:
                    await client.tenants.configure(LOUD, submits_per_second=None)
                    await _fill(client, max(0, BACKLOG - await _backlog(client)))
                    quota = asked.quota if kind == "with a quota" else None
                    await client.tenants.configure(LOUD, submits_per_second=quota)
                    rate = asked.quota if kind == "beside a polite one" else 0.0
                    with _flooding(url, asked.batch, rate, totals):
                        await asyncio.sleep(_SETTLE_SECONDS)
                        rounds.append(await quiet_round(client, asked.seconds))
                _print_round(f"round {number + 1}, {kind}", rounds[-1:], totals)
    for kind, rounds in found.items():
        _print_round(kind, rounds, None)
        for other in ("alone", "beside a polite one"):
            ratios = (_percentile(rounds, field, 99) / _percentile(found[other], field, 99) for field in (0, 1))
            print("    p99 {} / {}: submit {:.2f}, delay {:.2f}".format(kind, other, *ratios))


def _percentile(rounds: list[Round], field: int, percent: int) -> float:
    return statistics.quantiles([value for each in rounds for value in each[field]], n=100)[percent - 1]


def _print_round(what: str, rounds: list[Round], totals: list[int] | None) -> None:
    texts = [
        f"{name} p50 {_percentile(rounds, field, 50):.1f} ms, p99 {_percentile(rounds, field, 99):.1f} ms"
        for field, name in enumerate(("submit", "delay"))
    ]
    others = f"; the other one: {totals[0]} accepted, {totals[1]} refused" if totals and any(totals) else ""
    print(f"{what}: {', '.join(texts)}{others}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--quota", type=int, default=50)
    parser.add_argument("--work", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--flood", help=argparse.SUPPRESS)
    parser.add_argument("--rate", type=float, default=0.0, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work:
        work(asked.work)
    elif asked.flood:
        asyncio.run(flood(asked.flood, asked.batch, asked.rate))
    else:
        with tempfile.TemporaryDirectory(prefix="raftsched-bench-") as name:
            cluster = LocalCluster(Path(name) / "nodes", settings={"log_level": "warning"})
            with cluster, _started("--work", *cluster.urls, directory=Path(name)):
                leader = cluster.wait_for_leader()
                asyncio.run(_measure(leader.api, cluster.urls, asked))


if __name__ == "__main__":
    main()
