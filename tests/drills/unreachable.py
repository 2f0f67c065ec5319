"""Users whom the addresses that the cluster names lead nowhere (case N08): NAT, published ports, a load balancer.

    python -m tests.drills.unreachable --seconds 45

Three nodes name addresses whose packets are dropped at the users' host; a client and a worker know two of them by other
addresses. One submit every 100 ms, and one job that outlives its lease twice. Exit code 1: after the first 10 s a submit
or the start of a job was late, or at any time a heartbeat or a request for jobs failed; 2: nothing could be run.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from contextlib import suppress
from typing import Final

import aiohttp
from structlog.testing import capture_logs

from chaos.drills.backends import Unfit
from chaos.drills.backends.namespaces import Network, enter
from raftsched import Client
from raftsched.worker import Worker
from tests.drills.gaps import settled_leader
from tests.drills.hosts import Host, hosts
from tests.drills.users import PAUSE_SECONDS, QUEUE

_REACHED: Final = "10.93.8"
_NAMED: Final = "10.93.7"
_SETTLE_SECONDS: Final = 10.0
_SUBMIT_SECONDS_MAX: Final = 0.2
_START_SECONDS_MAX: Final = 1.0
"""Both at the 99th percentile."""


async def _run(seconds: float) -> bool:
    """Return whether something was late."""
    took: list[float] = []
    lags: list[float] = []
    with hosts(3, subnet=_REACHED, advertised=_NAMED) as (nodes, network, _):
        await settled_leader(nodes)
        network.add_address(Network.HARNESS, f"{_NAMED}.{Network.HARNESS}")  # so that packets have a way to be lost on
        network.drop(Network.HARNESS, addresses=[f"{_NAMED}.0/24"])
        await _check_unreachable(nodes[0])
        urls = [host.api for host in nodes[:2]]
        worker = Worker(*urls, queues=[QUEUE], concurrency=16)
        began = time.monotonic()

        @worker.job("note")
        async def note(payload: float) -> None:
            if time.monotonic() - began > _SETTLE_SECONDS:
                lags.append(time.monotonic() - payload)

        @worker.job("nap")
        async def nap(payload: float) -> None:
            await asyncio.sleep(payload)

        serving = asyncio.create_task(worker.serve())
        async with Client(*urls) as client:
            nap_job = await client.submit("nap", seconds, queue=QUEUE)
            while time.monotonic() - began < seconds:
                sent = time.monotonic()
                await client.submit("note", sent, queue=QUEUE)
                if sent - began > _SETTLE_SECONDS:
                    took.append(time.monotonic() - sent)
                await asyncio.sleep(PAUSE_SECONDS)
            await nap_job.wait(timeout=seconds)
            attempts = (await nap_job.get()).attempt_number
        worker.drain()
        await serving
    submit, start = _percentile(took), _percentile(lags)
    print(
        f"{len(took)} submits, p99 {submit * 1000:.0f} ms, longest {max(took) * 1000:.0f} ms; {len(lags)} starts, p99"
        f" {start * 1000:.0f} ms late, latest {max(lags) * 1000:.0f} ms; the long job took {attempts} attempt;"
        f" load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    return submit > _SUBMIT_SECONDS_MAX or start > _START_SECONDS_MAX or attempts != 1


async def _check_unreachable(host: Host) -> None:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=1.0)) as session:
        with suppress(TimeoutError):
            async with session.get(f"{host.advertised}/healthz"):
                raise Unfit(f"{host.advertised} can be reached")


def _percentile(seconds: list[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=45.0)
    arguments = parser.parse_args()
    try:
        enter("tests.drills.unreachable")
        with capture_logs() as events:
            is_late = asyncio.run(_run(arguments.seconds))
    except Unfit as error:
        print(f"nothing was run: {error}")
        return 2
    failures = [event for event in events if event["event"] in ("heartbeat_failed", "cluster_unavailable")]
    print(f"{len(failures)} failed heartbeats and requests for jobs", *failures)
    return 1 if is_late or failures else 0


if __name__ == "__main__":
    sys.exit(main())
