"""Shell jobs in a worker of this process."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest

from raftsched import limits
from raftsched.worker import Worker
from tests.client.cluster import WAIT_SECONDS, Cluster, running_cluster
from tests.executors.shell.scene import executor_of, living
from tests.executors.shell.test_process import FAMILY
from tests.worker.conftest import SETTINGS, run, serving, worker_of


def shell_worker(cluster: Cluster, **settings: Any) -> Worker:
    worker = worker_of(cluster, settings=replace(SETTINGS, **settings))
    worker.execute("shell", executor_of(grace_seconds=worker.settings.stop_grace_seconds).run)
    return worker


async def test_shell_job_has_its_result_and_its_log() -> None:
    async with running_cluster() as cluster:
        good = await cluster.add_job("shell", "in", shell={"argv": ["sh", "-c", "cat; echo; echo two >&2"]})
        bad = await cluster.add_job("shell", shell={"argv": ["sh", "-c", "exit 9"], "retry_exit_codes": []})
        refused = await cluster.add_job("shell", shell={"argv": ["no-such-program"]})
        await run(cluster, shell_worker(cluster), good, bad, refused)
    assert (good.result["stdout_tail"], good.result["exit_code"]) == ("in\n", 0)
    assert sorted(good.log) == ["stderr: two", "stdout: in"]
    assert [(job.status, job.error and job.error["type"]) for job in (bad, refused)] == [
        ("dead_letter", "ExitCode"),
        ("dead_letter", "CommandRefused"),
    ]


async def test_log_of_a_flood_has_its_beginning_without_gaps_and_says_what_is_missing() -> None:
    async with running_cluster() as cluster:
        job = await cluster.add_job("shell", shell={"argv": ["seq", "1500000"]})
        await run(cluster, shell_worker(cluster), job)
    *lines, note = job.log
    assert lines == [f"stdout: {number + 1}" for number in range(len(lines))]
    assert 0.99 * limits.LOG_BYTES_MAX < len("\n".join(job.log).encode()) < limits.LOG_BYTES_MAX
    assert note.startswith("… ")
    assert job.result["output_bytes"] == sum(len(f"{number + 1}\n") for number in range(1_500_000))


@pytest.mark.parametrize("how", ["cancel", "drain"])
async def test_run_that_must_stop_ends_when_nothing_of_its_command_is_left(how: str) -> None:
    async with running_cluster(lease_seconds=WAIT_SECONDS) as cluster:
        worker = shell_worker(cluster, stop_grace_seconds=0.3, drain_seconds=0.05, log_seconds=0.01)
        job = await cluster.add_job("shell", shell={"argv": [sys.executable, "-c", FAMILY, "ignore"]})
        async with serving(worker):
            await cluster.until(lambda: len(job.log) == 3)
            pids = [int(line.removeprefix("stdout: ")) for line in job.log]
            if how == "cancel":
                cluster.cancel_requested.add(job.id)
            else:
                worker.drain()
            await cluster.until(lambda: cluster.outcomes)
            assert living(pids) == []
    assert job.status == {"cancel": "cancelled", "drain": "queued"}[how]
