"""Runs that begin at most once (RELIABILITY G5)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from raftsched.client.http.connection import Connection
from raftsched.client.http.nodes import Nodes
from raftsched.system import SystemClock
from raftsched.worker import Context, Worker
from raftsched.worker.handlers.context import NullSink
from raftsched.worker.runs.runs import Grant, Run, context_of
from raftsched.worker.runs.start import Starter
from tests.client.cluster import QUICK, Cluster, Fault, StoredJob
from tests.worker.conftest import SETTINGS, run, run_job, serving, with_cluster, worker_of


def start_path(job: StoredJob) -> str:
    return f"/runs/{job.id}.1/start"


async def test_handler_begins_after_its_start_is_committed(cluster: Cluster, worker: Worker) -> None:
    @worker.job("pay")
    async def pay(ctx: Context, payload: object) -> bool:
        return job.started_token == ctx.fencing_token

    job = await cluster.add_job("pay", start="at_most_once")
    other = await cluster.add_job("pay")
    await run(cluster, worker, job, other)
    assert (job.result, other.result) == (True, False)
    assert cluster.bodies(start_path(job)) == [{"fencing_token": job.token}]
    assert cluster.bodies(start_path(other)) == []


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.REPLY_LOST, Fault.REFUSED, Fault.UNKNOWN])
async def test_start_without_answer_is_asked_for_again_and_the_handler_begins_once(
    cluster: Cluster, worker: Worker, fault: Fault
) -> None:
    begun: list[int] = []

    @worker.job("pay")
    def pay(ctx: Context, payload: object) -> str:
        begun.append(ctx.fencing_token)
        return "paid"

    job = await cluster.add_job("pay", start="at_most_once")
    cluster.faults[start_path(job)].extend([fault, fault])
    await run(cluster, worker, job)
    assert (job.result, begun) == ("paid", [job.token])


async def test_refused_start_means_that_the_handler_never_begins(
    cluster: Cluster, worker: Worker, logs: list[Any]
) -> None:
    begun: list[int] = []

    @worker.job("pay")
    async def pay(ctx: Context, payload: object) -> None:
        begun.append(ctx.attempt_number)

    job = await cluster.add_job("pay", start="at_most_once")
    cluster.lost_tokens.add(next(iter(range(2, 3))))  # the token of its first lease
    async with serving(worker):
        await cluster.until(lambda: cluster.bodies(start_path(job)))
    assert (begun, cluster.outcomes) == ([], [])
    assert [event["code"] for event in logs if event["event"] == "start_refused"] == ["lease_lost"]


async def test_run_that_drains_before_its_start_is_handed_back_unstarted(cluster: Cluster) -> None:
    worker = worker_of(cluster, settings=replace(SETTINGS, drain_seconds=0.01))
    begun: list[int] = []

    @worker.job("pay")
    async def pay(ctx: Context, payload: object) -> None:
        begun.append(ctx.attempt_number)

    job = await cluster.add_job("pay", start="at_most_once")
    cluster.faults[start_path(job)].append(Fault.HANGS)
    async with serving(worker):
        await cluster.until(lambda: start_path(job) in cluster.nodes[0].seen)
        cluster.is_paused = True
    assert begun == []
    assert [(outcome["status"], outcome["snooze_seconds"]) for outcome in cluster.outcomes] == [("snoozed", 0.0)]
    assert job.status == "queued"


@with_cluster(lease_seconds=0.3)
async def test_start_that_takes_longer_than_the_lease_never_begins(cluster: Cluster) -> None:
    worker = worker_of(cluster, settings=replace(SETTINGS, concurrency=1, prefetch_below_seconds=0))
    begun: list[int] = []

    @worker.job("pay")
    async def pay(ctx: Context, payload: object) -> None:
        begun.append(ctx.attempt_number)

    job = await cluster.add_job("pay", start="at_most_once")
    cluster.faults[start_path(job)].append(Fault.HANGS)
    cluster.faults["/leases/heartbeat"].extend([Fault.LOST] * 1000)
    async with serving(worker):
        await cluster.until(lambda: start_path(job) in cluster.nodes[0].seen)
        cluster.is_paused = True
        asked_count = len(cluster.bodies("/leases"))
        await cluster.until(lambda: len(cluster.bodies("/leases")) > asked_count)  # its only slot is free again
    assert (begun, cluster.outcomes) == ([], [])


async def test_job_without_a_handler_is_started_before_it_is_refused(cluster: Cluster) -> None:
    worker = worker_of(cluster, queues=["pay"])
    job = await run_job(cluster, worker, "pay", start="at_most_once")
    assert (job.status, job.error and job.error["type"]) == ("dead_letter", "UnknownJob")


async def test_failed_handler_is_not_called_again(cluster: Cluster, worker: Worker) -> None:
    begun: list[int] = []

    @worker.job("pay")
    async def pay(ctx: Context, payload: object) -> None:
        begun.append(ctx.attempt_number)
        raise LookupError("no account")

    job = await run_job(cluster, worker, "pay", start="at_most_once")
    assert (begun, job.status) == ([1], "dead_letter")


class _JumpingClock(SystemClock):
    """A clock on which all leases are over once `has_jumped`."""

    has_jumped = False

    def monotonic(self) -> float:
        return super().monotonic() + (1_000_000 if self.has_jumped else 0)


async def test_start_that_is_committed_after_the_lease_is_over_does_not_count(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a pause of the process: the reply is there, and nobody has condemned the run yet."""
    job = await cluster.add_job("pay", start="at_most_once")
    (lease,) = (await cluster.lease({"queues": ["pay"], "capacity": 1, "wait_seconds": 1}))["leases"]
    clock, told = _JumpingClock(), Cluster.told

    def told_late(self: Cluster, *arguments: Any) -> Any:
        clock.has_jumped = True
        return told(self, *arguments)

    monkeypatch.setattr(Cluster, "told", told_late)
    nodes = Nodes([cluster.nodes[0].url], avoid_seconds=1)
    connection = Connection(nodes, QUICK, clock=clock)
    grant = msgspec.convert(lease, Grant)
    run = Run(grant, clock.monotonic(), context_of(grant, NullSink(), None), None)
    assert not await Starter(connection).start(run)
    assert job.started_token == job.token
    await connection.close()


async def test_lease_that_comes_twice_is_run_once(
    cluster: Cluster, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    lease = Cluster.lease

    async def lease_twice(self: Cluster, document: Any) -> Any:
        return {"leases": (await lease(self, document))["leases"] * 2}

    monkeypatch.setattr(Cluster, "lease", lease_twice)

    @worker.job("pay")
    async def pay(ctx: Context, payload: object) -> None:
        begun.append(ctx.fencing_token)

    jobs = [await cluster.add_job("pay", start=start) for start in ("at_most_once", "at_least_once")]
    await run(cluster, worker, *jobs)
    assert sorted(begun) == sorted(job.token for job in jobs)
    assert cluster.refused == []
