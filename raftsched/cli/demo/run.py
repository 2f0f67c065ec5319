"""Drives the demo: submit, kill the leader half-way, restart it, wait, compare."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from raftsched.cli.demo.ledger import Ledger
from raftsched.cli.demo.plan import Planned, plan, probe
from raftsched.cli.demo.report import Report, compare
from raftsched.cli.local_cluster import LocalCluster, LocalNode
from raftsched.cli.output import console
from raftsched.client import Client
from raftsched.errors import RaftschedError

WORKER_COUNT = 2
FINISH_SECONDS_MAX = 75.0
_POLL_SECONDS = 0.05
_DOWN_SECONDS = 2.0


async def run_demo(directory: Path) -> Report:
    """Run the whole demo under `directory` and return its figures."""
    ledger_path = directory / "ledger.sqlite"
    ledger = Ledger.create(ledger_path)
    with LocalCluster(directory, settings={"lease_seconds": 5.0}) as cluster:
        leader = cluster.wait_for_leader()
        _introduce(cluster, leader)
        with _workers(cluster, ledger_path):
            async with Client(*cluster.urls) as client:
                demo = _Demo(cluster, client)
                await demo.drive()
                found = {job.id: job async for job in client.list(page_size=1_000)}
    report = compare(demo.planned, found, ledger.values())
    ledger.close()
    report.leader_changes = demo.leader_changes
    report.seconds_without_leader = demo.seconds_without_leader
    report.faults += demo.faults
    return report


def _introduce(cluster: LocalCluster, leader: LocalNode) -> None:
    for node in cluster.nodes:
        pid = node.process.pid if node.process else None
        console.print(f"{node.id}  pid {pid}  {node.api}{'  ← elected leader' if node is leader else ''}")


@contextmanager
def _workers(cluster: LocalCluster, ledger: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "raftsched", "worker", "--app", "raftsched.cli.demo.jobs:worker"]
    environment = os.environ | {"RAFTSCHED_URL": " ".join(cluster.urls), "RAFTSCHED_DEMO_LEDGER": str(ledger)}
    with (cluster.directory / "workers.log").open("ab") as log:
        workers = [subprocess.Popen(command, env=environment, stdout=log, stderr=log) for _ in range(WORKER_COUNT)]  # noqa: S603
    try:
        yield
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            with suppress(subprocess.TimeoutExpired):
                worker.wait(timeout=10)
            worker.kill()
            worker.wait()


class _Demo:
    """The state of one run of the demo."""

    def __init__(self, cluster: LocalCluster, client: Client) -> None:
        self._cluster = cluster
        self._client = client
        self.planned: dict[str, Planned] = {}
        self.leader_changes = 0
        self.seconds_without_leader = 0.0
        self.faults: list[str] = []

    async def drive(self) -> None:
        jobs = plan()
        columns = (TextColumn("{task.description:<22}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console) as progress:
            submitted = progress.add_task("submitted", total=len(jobs))
            finished = progress.add_task("finished", total=len(jobs))
            async with asyncio.TaskGroup() as group:
                group.create_task(self._submit(jobs, progress, submitted))
                group.create_task(self._kill_leader_half_way(len(jobs), progress))
                group.create_task(self._wait_until_finished(len(jobs) + 1, progress, finished))

    async def _submit(self, jobs: list[Planned], progress: Progress, task: TaskID) -> None:
        cancels: list[str] = []
        number = 0
        async for result in self._client.submit_each(job.spec for job in jobs):
            job = jobs[number]
            number += 1
            if isinstance(result, RaftschedError):
                self.faults.append(f"{job.kind} was refused: {result}")
                continue
            self.planned[result.id] = job
            progress.advance(task)
            if job.ends_as == "cancelled":
                cancels.append(result.id)
        for job_id in cancels:
            await self._cancel(job_id)

    async def _cancel(self, job_id: str) -> None:
        """Cancel a job; one that is to be cancelled while it runs, once it runs."""
        if self.planned[job_id].kind == "cancelled running":
            while (await self._client.get(job_id)).status != "running":
                await asyncio.sleep(_POLL_SECONDS)
        await self._client.cancel(job_id)

    async def _kill_leader_half_way(self, total: int, progress: Progress) -> None:
        while await self._finished() < total // 2:
            await asyncio.sleep(_POLL_SECONDS)
        leader = await asyncio.to_thread(self._cluster.wait_for_leader)
        leader.kill()
        killed_at = time.monotonic()
        progress.console.print(f"[red]kill -9[/red] {leader.id}, the leader")
        job = probe()
        handle = await self._client.submit(job.spec.name, job.spec.payload, queue=job.spec.queue)
        self.seconds_without_leader = time.monotonic() - killed_at
        self.planned[handle.id] = job
        new = await asyncio.to_thread(self._cluster.wait_for_leader)
        self.leader_changes += 1
        progress.console.print(
            f"{new.id} leads; next write accepted {self.seconds_without_leader:.2f} s after the kill"
        )
        await asyncio.sleep(_DOWN_SECONDS)
        self._cluster.start_node(leader)
        await asyncio.to_thread(self._cluster.wait_until_ready, leader)
        progress.console.print(f"{leader.id} is back and has caught up")

    async def _wait_until_finished(self, total: int, progress: Progress, task: TaskID) -> None:
        deadline = time.monotonic() + FINISH_SECONDS_MAX
        while (done := await self._finished()) < total:
            if time.monotonic() > deadline:
                self.faults.append(f"{total - done} jobs had not finished after {FINISH_SECONDS_MAX:.0f} s")
                return
            progress.update(task, completed=done)
            await asyncio.sleep(_POLL_SECONDS)
        progress.update(task, completed=total - 1)

    async def _finished(self) -> int:
        queues = await self._client.queues()
        return sum(queue.get(end, 0) for queue in queues for end in ("completed", "dead_letter", "cancelled"))
