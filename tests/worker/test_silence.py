"""Nodes that take a worker's requests and say nothing: others are asked, and nothing is lost or run twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from raftsched.worker import Worker
from tests.client.cluster import WAIT_SECONDS, Cluster, Fault
from tests.client.test_silence import HEDGING
from tests.worker.conftest import SETTINGS, run, run_job, serving, with_cluster, worker_of

PATIENT = replace(SETTINGS, wait_seconds=0.05, client=HEDGING)
"""Only a node that is passed over soon lets a test end in time."""


def patient(cluster: Cluster) -> tuple[Worker, list[str]]:
    """A worker, and the run ids of what its handler began."""
    worker = worker_of(cluster, settings=PATIENT)
    begun: list[str] = []

    @worker.job("a")
    async def handler(ctx: Any, payload: object) -> None:
        begun.append(ctx.run_id)

    return worker, begun


@with_cluster(2)
async def test_silent_node_is_passed_over_by_the_request_for_jobs(cluster: Cluster) -> None:
    worker, begun = patient(cluster)
    cluster.nodes[0].is_silent = True
    job = await run_job(cluster, worker, "a")
    assert begun == [f"{job.id}.1"]
    assert cluster.nodes[0].seen.count("/leases") == 1


@with_cluster(2, lease_seconds=600.0)
async def test_lease_whose_answer_was_swallowed_is_given_by_the_repeated_request(cluster: Cluster) -> None:
    """The lease is not lost for its term: the same request at another node gets it."""
    worker, begun = patient(cluster)
    cluster.faults["/leases"].append(Fault.SWALLOWED)
    job = await run_job(cluster, worker, "a")
    assert begun == [f"{job.id}.1"]
    ids = [body["request_id"] for body in cluster.bodies("/leases")]
    assert ids[0] == ids[1]


@pytest.mark.parametrize("fault", [Fault.HANGS, Fault.SWALLOWED])
@with_cluster(2, lease_seconds=600.0)
async def test_outcome_that_gets_no_answer_is_reported_to_another_node_and_counts_once(
    cluster: Cluster, fault: Fault
) -> None:
    worker, begun = patient(cluster)
    cluster.faults["/leases/outcomes"].append(fault)
    job = await cluster.add_job("a")
    async with serving(worker):
        await cluster.finished(job)
        await cluster.until(lambda: len(cluster.bodies("/leases/outcomes")) >= 1)
    assert (len(begun), len(cluster.outcomes), cluster.refused) == (1, 1, [])
    assert {node.seen.count("/leases/outcomes") for node in cluster.nodes} == {1}


@with_cluster(2, lease_seconds=600.0)
async def test_start_that_gets_no_answer_is_asked_of_another_node(cluster: Cluster) -> None:
    worker, begun = patient(cluster)
    job = await cluster.add_job("a", start="at_most_once")
    cluster.faults[f"/runs/{job.id}.1/start"].append(Fault.SWALLOWED)
    await run(cluster, worker, job)
    assert (len(begun), job.status) == (1, "completed")


@with_cluster(2, lease_seconds=1.0)
async def test_worker_cut_off_from_the_leader_alone_keeps_its_run(cluster: Cluster, logs: list[Any]) -> None:
    """Case W13: the leader goes silent while a handler runs; the next heartbeat finds another node."""
    worker = worker_of(cluster, settings=PATIENT)

    @worker.job("a")
    async def handler(ctx: Any, payload: object) -> bool:
        cluster.nodes[0].is_silent = True
        return await asyncio.to_thread(ctx.cancelled.wait, 2.5)

    job = await cluster.add_job("a")
    async with serving(worker), asyncio.timeout(WAIT_SECONDS):
        await cluster.finished(job)
    assert (job.status, job.result, job.attempt_number) == ("completed", False, 1)
    assert "run_stopped" not in {event["event"] for event in logs}
    assert cluster.nodes[0].seen.count("/leases/heartbeat") <= 2


@with_cluster(2, lease_seconds=1.0)
async def test_worker_that_reaches_no_node_stops_its_handler_before_the_lease_ends(
    cluster: Cluster, logs: list[Any]
) -> None:
    """Case W13: all nodes go silent; the handler is told within the lease, and what it says then is not reported."""
    worker = worker_of(cluster, settings=PATIENT)
    told: list[str] = []

    @worker.job("a")
    async def handler(ctx: Any, payload: object) -> None:
        for node in cluster.nodes:
            node.is_silent = True
        try:
            await asyncio.Event().wait()
        finally:
            told.append(ctx.run_id)
            cluster.is_paused = True
            for node in cluster.nodes:
                node.is_silent = False
            await cluster.poke()

    await cluster.add_job("a")
    async with serving(worker), asyncio.timeout(WAIT_SECONDS):
        await cluster.until(lambda: told)
    assert {event["reason"] for event in logs if event["event"] == "run_stopped"} == {"lease_over"}
    assert cluster.outcomes == []
