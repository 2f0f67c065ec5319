"""What metrics cost: CPU per job with and without them, at a fixed rate.

    python -m tests.bench.metrics [--seconds 20] [--rounds 5] [--rate 1667]

Two clusters of three nodes, each with two workers, take turns, so that a machine that other programs use, too, does not
favour one. One counts and is scraped every 15 seconds, all nodes, as by Prometheus. In the processes of the other all
counting is replaced by nothing (`_WITHOUT`). Printed for each round: CPU per job of the nodes, and the ratio; then the
median ratio, and the difference in percent of one core at the rate. The aim is under 1 %.

First of all it prints the CPU of counting alone, in this process: it is small beside the noise of clusters.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

from raftsched.cli.bench.command import _wait_for_workers, _workers
from raftsched.cli.bench.load import Load, Measurement
from raftsched.cli.local.cluster import LocalCluster
from raftsched.client import Client
from raftsched.core.records.job import AttemptEnd
from raftsched.metrics.job_events import JobEvents
from raftsched.metrics.requests import RequestTimes
from tests.leader.scene import Leader, World

SCRAPE_SECONDS = 15.0
JOBS_COUNTED = 20_000
_WITHOUT = """\
import asyncio
from raftsched.histogram import Histogram
from raftsched.metrics.job_events import JobEvents
from raftsched.metrics.requests import RequestTimes
from raftsched.node.metrics import NodeMetrics


async def rest(self):
    await asyncio.Event().wait()


for kind, name in ((Histogram, "observe"), (RequestTimes, "observe"), (JobEvents, "on_changes"), (JobEvents, "on_records")):
    setattr(kind, name, lambda self, *_: None)
NodeMetrics.watch_loop = rest
"""
"""A module that Python imports at the start of a process."""


def counting_us() -> float:
    """Return the CPU of counting a job from its submission to its end, in microseconds."""
    world = World()
    leader = Leader(world)
    changes = []
    world.on_changes = changes.append
    world.submit("bench")
    [job] = leader.lease("bench")
    world.report(job, AttemptEnd.COMPLETED)
    events, requests = JobEvents(), RequestTimes()
    began = time.process_time()
    for _ in range(JOBS_COUNTED):
        for change in changes:
            events.on_changes(change)
        requests.observe("POST /api/v1/jobs", 201, 0.003)
    return 1e6 * (time.process_time() - began) / JOBS_COUNTED


def start(stack: ExitStack, directory: Path, *, counts: bool) -> tuple[LocalCluster, list[int]]:
    """Start a cluster and its workers."""
    directory.mkdir()
    environment = {}
    if not counts:
        (directory / "sitecustomize.py").write_text(_WITHOUT, encoding="utf-8")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(directory), os.environ.get("PYTHONPATH"))))
    with patch.dict(os.environ, environment):
        cluster = stack.enter_context(LocalCluster(directory / "cluster", settings={"log_level": "warning"}))
        cluster.wait_for_leader()
    return cluster, stack.enter_context(_workers(cluster, 2, token=None))


async def scrape(cluster: LocalCluster) -> None:
    """Read the metrics of all nodes again and again."""
    while True:
        for node in cluster.nodes:
            await asyncio.to_thread(lambda url: urllib.request.urlopen(url, timeout=5).read(), f"{node.api}/metrics")
        await asyncio.sleep(SCRAPE_SECONDS)


async def measure(
    cluster: LocalCluster, workers: list[int], rate: float, seconds: float, *, counts: bool
) -> Measurement:
    """Run the load on one cluster."""
    nodes = [node.process.pid for node in cluster.nodes if node.process]
    async with Client(*cluster.urls) as client:
        await _wait_for_workers(client)
        scraping = asyncio.create_task(scrape(cluster)) if counts else None
        measured = await Load(client, {"nodes": nodes, "workers": workers}).at_rate(rate, seconds)
        if scraping is not None:
            scraping.cancel()
        return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", type=float, default=1_667.0)
    options = parser.parse_args()
    us = min(counting_us() for _ in range(5))
    print(f"counting alone: {us:.1f} µs a job, {us * options.rate / 1e4:.2f} % of a core at {options.rate:,.0f} jobs/s")
    ratios, differences_ms = [], []
    with tempfile.TemporaryDirectory(prefix="raftsched-bench-") as directory, ExitStack() as stack:
        clusters = {on: start(stack, Path(directory) / str(on), counts=on) for on in (True, False)}
        for number in range(options.rounds):
            order = (True, False) if number % 2 else (False, True)
            measured = {
                on: asyncio.run(measure(*clusters[on], options.rate, options.seconds, counts=on)) for on in order
            }
            on_ms, off_ms = (measured[on].cpu_ms_per_job_by_role["nodes"] for on in (True, False))
            ratios.append(on_ms / off_ms)
            differences_ms.append(on_ms - off_ms)
            jobs = measured[True].jobs_per_second
            print(
                f"round {number + 1}: {on_ms:.3f} ms with, {off_ms:.3f} ms without: {on_ms / off_ms:.3f} ({jobs:,.0f}/s)"
            )
    percent = statistics.median(differences_ms) * options.rate / 10
    print(f"median ratio {statistics.median(ratios):.3f}; {percent:.2f} % of a core, all nodes together")


if __name__ == "__main__":
    main()
