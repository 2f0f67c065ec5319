"""Twenty low jobs, and then a stream of high ones that keeps a worker busy for minutes (case D33).

    python -m tests.drills.ageing --seconds 120

Three queues at the same time, each with one worker that runs one job at a time, and whose capacity is measured first:

    default    90 % load and the cluster's ageing of 5 minutes a priority, as in the case
    aged       more load than the worker can take, and so short an ageing that the low ones have their turn in the run
    waiting    as much load and the cluster's ageing: the low ones wait, and the metric of the oldest wait says so

The leader is killed half-way. Within a priority jobs must start in the order in which they were submitted; a low job
must start before every high one that was submitted more than (8 - 2) times the ageing after it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from raftsched.cli.local.cluster import LocalCluster
from raftsched.client import Client
from tests.acceptance.http import all_pages
from tests.drills.ledger import ms
from tests.drills.processes import drill_cluster
from tests.drills.workers import running_worker

LOW, HIGH = 2, 8
_AGEING_SECONDS: Final = 300.0
"""The cluster's default."""
_LOW_JOBS: Final = 20
_NAP_SECONDS: Final = 0.25
"""What a job takes: much longer than a round trip, so that a worker's capacity hardly changes."""
_MEASURED_JOBS: Final = 20
_SAMPLE_SECONDS: Final = 2.0


@dataclass
class Lane:
    """One queue: what is asked of it, and what became of its jobs."""

    queue: str
    load: float
    """Of the worker's capacity."""
    ageing_seconds: float = _AGEING_SECONDS
    is_finished: bool = True
    """Whether the low jobs must be done before the stream's end, or soon after it."""
    capacity: float = 0.0
    """Jobs a second."""
    low: list[str] = field(default_factory=list)
    high: list[str] = field(default_factory=list)
    """Ids, in the order in which they were submitted."""
    low_since: float = 0.0
    """When the last low job was there, by our monotonic clock."""
    oldest_waits: list[tuple[float, float]] = field(default_factory=list)
    """(seconds since then, the metric in seconds)."""

    @property
    def bound_seconds(self) -> float:
        """A high job that is submitted so long after a low one does not go before it."""
        return (HIGH - LOW) * self.ageing_seconds


def run(cluster: LocalCluster, seconds: float) -> tuple[list[Lane], list[str]]:
    """Run all lanes for so long; return them, and what is wrong in what was recorded."""
    lanes = [
        Lane("default", 0.9),
        Lane("aged", 1.2, ageing_seconds=seconds / 4 / (HIGH - LOW)),
        Lane("waiting", 1.2, is_finished=False),
    ]
    with ExitStack() as workers:
        for lane in lanes:
            workers.enter_context(running_worker(cluster, lane.queue, concurrency=1))
        asyncio.run(_streams(cluster, lanes, seconds))
    base = cluster.wait_for_leader().api
    return lanes, [fault for lane in lanes for fault in _faults(base, lane)]


# -- the streams ------------------------------------------------------------------------------------------------------


async def _streams(cluster: LocalCluster, lanes: Sequence[Lane], seconds: float) -> None:
    async with Client(*cluster.urls) as client:
        for lane in lanes:
            await client.queue(lane.queue).configure(ageing_seconds=lane.ageing_seconds)
        await asyncio.gather(*(_measure(client, lane) for lane in lanes))
        async with asyncio.TaskGroup() as tasks:
            for lane in lanes:
                tasks.create_task(_stream(client, lane, seconds))
            await asyncio.sleep(seconds / 2)
            await asyncio.to_thread(_replace_leader, cluster)
        for lane in lanes:
            if lane.is_finished:
                await asyncio.gather(*(client.job(job_id).wait(lane.bound_seconds) for job_id in lane.low))


async def _measure(client: Client, lane: Lane) -> None:
    """See how many jobs a second the lane's worker runs."""
    jobs = [await client.submit("nap", _NAP_SECONDS, queue=lane.queue) for _ in range(_MEASURED_JOBS)]
    await asyncio.gather(*(job.wait() for job in jobs))
    first, last = (await jobs[0].get()).started_at, (await jobs[-1].get()).completed_at
    assert first is not None
    assert last is not None
    lane.capacity = _MEASURED_JOBS / (last - first).total_seconds()


async def _stream(client: Client, lane: Lane, seconds: float) -> None:
    """Submit the low jobs, and then high ones, each once the one before is acknowledged: so their order is known."""
    for _ in range(_LOW_JOBS):
        lane.low.append((await client.submit("nap", _NAP_SECONDS, queue=lane.queue, priority="low")).id)
    start = lane.low_since = time.monotonic()
    watch = asyncio.create_task(_watch(client, lane))
    while (passed := time.monotonic() - start) < seconds:
        await asyncio.sleep(len(lane.high) / (lane.load * lane.capacity) - passed)
        lane.high.append((await client.submit("nap", _NAP_SECONDS, queue=lane.queue, priority="high")).id)
    watch.cancel()


async def _watch(client: Client, lane: Lane) -> None:
    """Sample the metric of the oldest wait."""
    while True:
        waited = time.monotonic() - lane.low_since
        lane.oldest_waits.append((waited, (await client.queue(lane.queue).get()).oldest_wait_ms / 1000))
        await asyncio.sleep(_SAMPLE_SECONDS)


def _replace_leader(cluster: LocalCluster) -> None:
    leader = cluster.wait_for_leader()
    leader.kill()
    cluster.start_node(leader)
    cluster.wait_until_ready(leader)


# -- what must not be -------------------------------------------------------------------------------------------------


def _faults(base: str, lane: Lane) -> Iterator[str]:
    """Yield jobs that started out of order, and what the metric did not say."""
    jobs = {job["id"]: job for job in all_pages(base, f"/jobs?queue={lane.queue}&limit=1000", "jobs")}
    started = sorted((job for job in jobs.values() if job["started_at"]), key=lambda job: job["started_at"])
    order = [job["id"] for job in started]
    for name, submitted in (("low", lane.low), ("high", lane.high)):
        ran = [job_id for job_id in order if job_id in set(submitted)]
        if ran != submitted[: len(ran)]:
            yield f"{lane.queue}: {name} jobs did not start in the order of their submission"
    yield from _rank_faults(lane, jobs, started)
    yield from _bound_faults(lane, jobs, order)
    undone = [job_id for job_id in lane.low if jobs[job_id]["status"] != "completed"]
    if lane.is_finished and undone:
        yield f"{lane.queue}: {len(undone)} low jobs are not done"
    if not lane.is_finished:
        yield from _metric_faults(lane, undone)


def _rank_faults(lane: Lane, jobs: dict[str, Any], started: Sequence[Any]) -> Iterator[str]:
    """Yield jobs that started although another, with a better claim by ageing, had been there before the last start.

    What was there then was known when the worker, a nap later, asked for its next job.
    """
    ageing_ms = lane.ageing_seconds * 1000
    ranks = {job_id: ms(job["run_at"]) - job["priority"] * ageing_ms for job_id, job in jobs.items()}
    left = dict(jobs)
    for before, job in pairwise(started):
        left.pop(before["id"])
        better = (
            other["id"]
            for other in left.values()
            if ranks[other["id"]] < ranks[job["id"]] and other["created_at"] < before["started_at"]
        )
        if (passed_over := next(better, None)) is not None:
            yield f"{lane.queue}: {job['id']} started before {passed_over}"


def _bound_faults(lane: Lane, jobs: dict[str, Any], order: Sequence[str]) -> Iterator[str]:
    """Yield high jobs that started before a low one that had waited for longer than the bound when they came."""
    places = {job_id: place for place, job_id in enumerate(order)}
    for low in lane.low:
        due_ms = ms(jobs[low]["run_at"]) + lane.bound_seconds * 1000
        for high in lane.high:
            if ms(jobs[high]["run_at"]) > due_ms and places.get(high, len(order)) < places.get(low, len(order)):
                yield f"{lane.queue}: {high}, submitted beyond the bound, started before {low}"


def _metric_faults(lane: Lane, undone: Sequence[str]) -> Iterator[str]:
    if not undone:
        yield f"{lane.queue}: no low job waited, so the metric had nothing to say"
    for waited, told in lane.oldest_waits:
        if undone and told < waited:
            yield f"{lane.queue}: the oldest wait was {told:.1f} s where low jobs had waited for {waited:.1f} s"


# -- the command ------------------------------------------------------------------------------------------------------


def _told(base: str, lane: Lane) -> str:
    jobs = [job for job in all_pages(base, f"/jobs?queue={lane.queue}&limit=1000", "jobs") if job["id"] in lane.low]
    waits = [(ms(job["started_at"]) - ms(job["run_at"])) / 1000 for job in jobs if job["started_at"]]
    return (
        f"{lane.queue}: {lane.capacity:.2f} jobs/s, load {lane.load:.0%}, {len(lane.high)} high jobs; "
        f"{len(waits)} of {_LOW_JOBS} low ones started, after {max(waits, default=0):.1f} s at most "
        f"(ageing {lane.ageing_seconds:.1f} s, bound {lane.bound_seconds:.0f} s and what is ahead by then); "
        f"the oldest wait was {max(told for _, told in lane.oldest_waits):.1f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0)
    asked = parser.parse_args()
    with drill_cluster() as cluster:
        lanes, found = run(cluster, asked.seconds)
        base = cluster.wait_for_leader().api
        print("\n".join(_told(base, lane) for lane in lanes))
    print(f"load average {os.getloadavg()[0]:.1f}")
    print("\n".join(found[:50]) or "equals started in the order of submission, and no low job waited beyond the bound")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
