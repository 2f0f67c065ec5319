"""Handlers in processes of their own (case W09), in a worker of this process."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import Any

import psutil
import pytest

from raftsched.worker import Worker
from tests.client.cluster import WAIT_SECONDS, Cluster, running_cluster
from tests.worker import program
from tests.worker.conftest import SETTINGS, serving, worker_of
from tests.worker.ear import listening


@pytest.fixture
def worker(cluster: Cluster) -> Worker:
    return process_worker(cluster)


def process_worker(cluster: Cluster, **settings: Any) -> Worker:
    made = worker_of(cluster, settings=replace(SETTINGS, concurrency=2, **settings))
    for handler in (program.add, program.describe, program.die, program.explode, program.stay):
        made.job(handler.__name__, process=True, max_attempts=1)(handler)
    return made


async def test_process_handlers_run_in_few_other_processes_and_keep_their_results(
    cluster: Cluster, worker: Worker
) -> None:
    jobs = [await cluster.add_job("add", {"a": n, "b": 1}) for n in range(20)]
    described = await cluster.add_job("describe")
    async with serving(worker):
        await cluster.finished(*jobs, described)
    assert [job.result["sum"] for job in jobs] == list(range(1, 21))
    pids = {job.result["pid"] for job in jobs}
    assert len(pids) <= 2
    assert os.getpid() not in pids
    assert described.result == {"token": described.token, "run_id": f"{described.id}.1", "cancelled": False}
    assert not any(psutil.pid_exists(pid) for pid in pids)  # they ended with the worker


async def test_child_that_dies_takes_only_its_own_run_with_it(cluster: Cluster, worker: Worker) -> None:
    killed = await cluster.add_job("die")
    jobs = [await cluster.add_job("add", {"a": n, "b": 1}) for n in range(10)]
    async with serving(worker):
        await cluster.finished(killed, *jobs)
    assert killed.error is not None
    assert killed.error["type"] == "ProcessDied"
    assert all(job.attempt_number == 1 for job in jobs)


async def test_what_a_process_handler_raises_becomes_its_outcome(cluster: Cluster, worker: Worker) -> None:
    job = await cluster.add_job("explode")
    async with serving(worker):
        await cluster.finished(job)
    error = job.error
    assert error is not None
    assert (error["type"], error["message"]) == ("LookupError", "in the child")
    assert "explode" in error["trace"]


async def test_process_handler_that_must_stop_is_killed() -> None:
    async with running_cluster(lease_seconds=0.6) as cluster, listening() as ear:
        job = await cluster.add_job("stay", ear.port)
        async with serving(process_worker(cluster)):
            child = psutil.Process(int(await ear.hear()))
            cluster.cancel_requested.add(job.id)
            await cluster.finished(job)
            await asyncio.to_thread(child.wait, WAIT_SECONDS)
        assert job.status == "cancelled"
