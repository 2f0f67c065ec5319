"""python -m tests.drills.million --jobs 1000000 --queues 10000"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from raftsched.client import Client
from raftsched.client.http.settings import ClientSettings
from tests.drills.million.filling import Plan, fill, running_worker
from tests.drills.million.nodes import CountingCluster, CountingNode
from tests.drills.million.pages import found_pages
from tests.drills.million.visits import Browser, Cost, Load, beside_load, longest_stall, opened_browser, quiet

_QUEUES_MIN: Final = 400
_READY_SECONDS: Final = 600.0
_SETTINGS: Final = {"election_seconds_min": 5.0, "election_seconds_max": 10.0}
_PATIENT: Final = ClientSettings(request_timeout_seconds=120.0, retry_seconds=600.0, hedge_seconds=30.0)
"""For a machine that has other work: costs are counted, and a leader that waits for a processor must keep the lead."""


async def run(cluster: CountingCluster, plan: Plan) -> list[Cost]:
    """Fill the cluster unless a former run did, open every page on its leader, and return what each cost."""
    token = cluster.nodes[0].token
    async with Client(*cluster.urls, token=token, settings=_PATIENT) as client, running_worker(cluster.urls, token):
        leader = await _leader(cluster)
        filled = cluster.directory / "filled"
        if not filled.exists():
            await fill(client, plan)
            filled.touch()
            leader = await _leader(cluster)
        async with opened_browser(leader) as browser:
            costs = await _visited(client, browser)
        if await _leader(cluster) is not leader:
            sys.exit(f"{leader.id} has lost the lead meanwhile, so its figures count for nothing: run it again")
    return costs


async def _leader(cluster: CountingCluster) -> CountingNode:
    leader = await asyncio.to_thread(cluster.wait_for_leader, seconds=_READY_SECONDS)
    assert isinstance(leader, CountingNode)
    return leader


async def _visited(client: Client, browser: Browser) -> list[Cost]:
    """Open every page, and print what each costs."""
    began = time.monotonic()
    pages = await found_pages(browser.document)
    print(f"{time.monotonic() - began:.0f} s to reach the last page of each list", flush=True)
    reads = await quiet(browser, pages)
    load, before = Load(), await browser.stalls()
    costs: list[Cost] = []
    async with load.running(client):
        print(_row("page", "status", "ms", "CPU ms", "steps", "rows", "bytes"), _row(*["---"] * 7), sep="\n")
        async for cost in beside_load(browser, pages, reads):
            costs.append(cost)
            print(_told(cost), flush=True)
    print(
        f"{len(load.seconds):,} submits meanwhile: p50 {load.percentile_ms(50):.1f} ms, p99 {load.percentile_ms(99):.1f} ms,"
        f" longest {max(load.seconds) * 1000:.0f} ms; longest stall of the leader's event loop"
        f" {longest_stall(before, await browser.stalls())}; jobs: {(await client.overview()).jobs}"
    )
    return costs


def _told(cost: Cost) -> str:
    path = f"`{cost.page.path if len(cost.page.path) < 70 else cost.page.path[:69] + '…'}`"
    numbers = (f"{cost.ms:.0f}", f"{cost.cpu_ms:.0f}", f"{cost.steps:,}", f"{cost.rows:,}", f"{cost.bytes:,}")
    return _row(path, str(cost.status), *numbers, cost.fault)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell for cell in cells if cell)} |"


@contextmanager
def _place(wanted: Path | None) -> Iterator[Path]:
    """Return the directory of the nodes; one of our own is removed at the end."""
    if wanted is not None:
        yield wanted
        return
    with tempfile.TemporaryDirectory(prefix="raftsched-drill-") as name:
        yield Path(name)


def _summary(costs: Sequence[Cost]) -> str:
    slowest = max(costs, key=lambda cost: cost.cpu_ms)
    return f"{len(costs)} pages, the dearest {slowest.cpu_ms:.0f} ms of CPU: {slowest.page.path}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument(
        "--keep", type=Path, help="keep the nodes' data here, and open the pages of what a former run left"
    )
    asked = parser.parse_args()
    if asked.queues < _QUEUES_MIN:
        parser.error(f"--queues: at least {_QUEUES_MIN}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the contexts are left
    with (
        _place(asked.keep) as directory,
        CountingCluster(directory / "cluster", settings=_SETTINGS, with_tokens=True) as cluster,
    ):
        costs = asyncio.run(run(cluster, Plan(asked.jobs, asked.queues)))
    faults = [cost for cost in costs if cost.fault]
    print(f"load average {os.getloadavg()[0]:.1f}; {_summary(costs)}")
    print("\n".join(f"{cost.page.path}: {cost.fault}" for cost in faults) or "every page is within its bounds")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
