"""HTTP jobs run while the leader and an executor are killed half-way: each effect is at the receiver once, none is lost.

python -m tests.drills.http_effects --jobs 1000

The receiver counts every request by run id and fencing token, and makes the effect by the rule of `demo.ledger`: once for
each run, and not for an older token than it has seen.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from raftsched import Client
from raftsched.cli.demo.ledger import Ledger, Superseded
from raftsched.cli.local.cluster import HOST, LOOPBACK_TARGETS, LocalCluster, LocalNode
from raftsched.client import Job
from raftsched.client.kinds import http_job

SECONDS_MAX = 300.0
_TAKES_SECONDS = 0.05
_SETTINGS = {
    "lease_seconds": 5.0,
    "executors": {"http": True, "http_concurrency": 16},
    "http_targets": LOOPBACK_TARGETS,
}


@dataclass(slots=True)
class Receiver:
    """A target that takes a while, and then makes the effect."""

    ledger: Ledger
    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Requests by run id and fencing token."""
    superseded: int = 0
    half: asyncio.Event = field(default_factory=asyncio.Event)
    half_count: int = 0
    url: str = ""

    async def record(self, request: web.Request) -> web.Response:
        run_id, token = request.headers["Raftsched-Run-Id"], int(request.headers["Raftsched-Fencing-Token"])
        self.requests[run_id, token] += 1
        if len(self.requests) >= self.half_count:
            self.half.set()
        try:
            text = await request.text()
        except ConnectionResetError:  # its sender was killed
            return web.Response(status=400)
        await asyncio.sleep(_TAKES_SECONDS)
        try:
            return web.json_response({"value": self.ledger.record(run_id, token, text)})
        except Superseded as error:
            self.superseded += 1
            return web.json_response({"error": str(error)}, status=409)


@asynccontextmanager
async def receiving(ledger: Ledger, half_count: int) -> AsyncIterator[Receiver]:
    receiver = Receiver(ledger, half_count=half_count)
    app = web.Application()
    app.router.add_post("/", receiver.record)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0).start()
    receiver.url = f"http://{HOST}:{runner.addresses[0][1]}/"
    try:
        yield receiver
    finally:
        await runner.cleanup()


def kill_executor(node: LocalNode) -> int:
    """Kill the executor that `node` runs, and return its process id."""
    assert node.process is not None
    pid = node.process.pid
    children = {
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    }
    executors = [child for child in children if b"--http" in Path(f"/proc/{child}/cmdline").read_bytes()]
    assert len(executors) == 1, f"{node.id} has the executors {executors}"
    os.kill(executors[0], signal.SIGKILL)
    return executors[0]


async def run(cluster: LocalCluster, job_count: int, ledger: Ledger) -> list[str]:
    """Submit the jobs, kill half-way, and return what is wrong at the end."""
    async with receiving(ledger, job_count // 2) as receiver, Client(*cluster.urls) as client:
        specs = [http_job(receiver.url, body=f"job {number}", max_attempts=10) for number in range(job_count)]
        jobs = [job async for job in client.submit_each(specs)]
        refused = [str(job) for job in jobs if not isinstance(job, Job)]
        if refused:
            return refused
        await asyncio.wait_for(receiver.half.wait(), SECONDS_MAX)
        leader = await asyncio.to_thread(cluster.wait_for_leader)
        other = next(node for node in cluster.nodes if node is not leader)
        print(f"kill -9 {leader.id}, the leader, and process {kill_executor(other)}, the executor of {other.id}")
        leader.kill()
        await asyncio.to_thread(cluster.wait_for_leader)
        cluster.start_node(leader)
        found = await _finished(client, job_count)
    return [*_faults(found, ledger.values(), {job.id for job in jobs if isinstance(job, Job)}), *_told(receiver)]


async def _finished(client: Client, job_count: int) -> dict[str, str]:
    """Return the status of each job by its id, once all have ended."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            [queue] = [each for each in await client.queues() if each["name"] == "http"]
            if queue["completed"] + queue["dead_letter"] >= job_count:
                return {job.id: job.status async for job in client.list(queue="http", page_size=1_000)}
            await asyncio.sleep(0.1)


def _faults(found: dict[str, str], effects: dict[str, list[str]], submitted: set[str]) -> list[str]:
    faults = [
        f"job {job_id} is {found.get(job_id, 'lost')}" for job_id in submitted if found.get(job_id) != "completed"
    ]
    faults += [f"job {job_id} has {len(effects.get(f'{job_id}.1', []))} effects" for job_id in submitted
               if len(effects.get(f"{job_id}.1", [])) != 1]  # fmt: skip
    return faults + [f"the effect of {run_id} belongs to no job" for run_id in effects if run_id[:-2] not in submitted]


def _told(receiver: Receiver) -> list[str]:
    """Print what the receiver saw, and return tokens that were sent twice: no attempt sends its request again."""
    runs = Counter(run_id for run_id, _ in receiver.requests)
    again = sum(count > 1 for count in runs.values())
    print(f"{receiver.requests.total()} requests for {len(runs)} runs: {again} runs were sent by a second attempt, "
          f"{receiver.superseded} late requests were refused")  # fmt: skip
    return [f"token {token} of {run} came {n} times" for (run, token), n in receiver.requests.items() if n > 1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="raftsched-drill-") as directory:
        ledger = Ledger.create(Path(directory) / "ledger.sqlite")
        with LocalCluster(Path(directory) / "nodes", settings=_SETTINGS) as cluster:
            cluster.wait_for_leader()
            began = time.monotonic()
            faults = asyncio.run(run(cluster, asked.jobs, ledger))
            print(f"{asked.jobs} jobs in {time.monotonic() - began:.1f} s")
        ledger.close()
    print("\n".join(faults[:50]) or "each effect is at the receiver once, and none is lost")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
