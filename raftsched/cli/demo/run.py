"""Drive the demo: submit, kill the leader half-way, restart it, wait, gather the evidence."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from raftsched.cli.demo.evidence import Evidence, Timetable
from raftsched.cli.demo.jobs_table import JobsTable, finished_count
from raftsched.cli.demo.ledger import Ledger
from raftsched.cli.demo.plan import EXECUTED_KINDS, Planned, plan, probe
from raftsched.cli.demo.receiver import receiver
from raftsched.cli.demo.report import Report, judge
from raftsched.cli.demo.scenes import PLAYED_KINDS, Scenes
from raftsched.cli.local.children import UNTIL_STDIN_ENDS, lifeline
from raftsched.cli.local.cluster import LOOPBACK_TARGETS, LocalCluster, LocalNode
from raftsched.cli.terminal.output import console
from raftsched.client import Client, Job
from raftsched.client.records import Graph
from raftsched.errors import RaftschedError
from raftsched.single_file import own_variables

WORKER_COUNT = 2
FINISH_SECONDS_MAX = 120.0
"""Many times the usual time, for machines that are busy with other things."""
_POLL_SECONDS = 0.05
_DOWN_SECONDS = 2.0
_SHOW_SECONDS = 0.25


async def run_demo(directory: Path, *, make_cluster: Callable[..., LocalCluster] = LocalCluster) -> Report:
    """Run the whole demo under `directory`, on the cluster that `make_cluster` makes, and return its figures."""
    ledger_path = directory / "ledger.sqlite"
    ledger = Ledger.create(ledger_path)
    executors = {"http": True, "http_queues": [kind for kind in EXECUTED_KINDS if kind.startswith("http")]}
    settings = {"lease_seconds": 5.0, "executors": executors, "http_targets": LOOPBACK_TARGETS}
    with make_cluster(directory, settings=settings, with_tokens=True) as cluster:
        leader = cluster.wait_for_leader()
        _introduce(cluster, leader)
        async with Client(*cluster.urls, token=leader.token) as admin:
            operator = await _new_token(admin, "operator", tenant="*", name="demo")
            worker = await _new_token(admin, "worker", name="demo workers")
        async with receiver(ledger) as receiver_url, Client(*cluster.urls, token=operator) as client:
            with _workers(cluster, ledger_path, token=worker):
                with JobsTable() as jobs_table:
                    demo = _Demo(cluster, client, jobs_table, receiver_url, ledger_path)
                    await demo.drive()
                evidence = await demo.evidence(ledger)
    ledger.close()
    report = judge(evidence)
    report.seconds = demo.seconds
    report.leader_changes = demo.leader_changes
    report.seconds_without_leader = demo.seconds_without_leader
    report.faults += demo.faults
    return report


async def _new_token(admin: Client, role: Literal["operator", "worker"], **fields: str) -> str:
    """Make a token, and return its text."""
    made = await admin.tokens.create(role, **fields)  # type: ignore[arg-type]  # they are names
    return str(made.token)


def _introduce(cluster: LocalCluster, leader: LocalNode) -> None:
    for node in cluster.nodes:
        pid = node.process.pid if node.process else None
        console.print(f"{node.id}  pid {pid}  {node.api}{'  ← elected leader' if node is leader else ''}")


@contextmanager
def _workers(cluster: LocalCluster, ledger: Path, *, token: str) -> Iterator[None]:
    app = ["--app", "raftsched.cli.demo.jobs:worker"]
    queues = [part for kind in EXECUTED_KINDS if kind.startswith("shell") for part in ("--queue", kind)]
    passed_on = [part for name in own_variables() for part in ("--env", name)]
    shell = ["--shell", "--allow", sys.executable, *passed_on, *queues]
    command = [sys.executable, "-m", "raftsched", "worker", UNTIL_STDIN_ENDS]
    environment = os.environ | {
        "RAFTSCHED_URL": " ".join(cluster.urls),
        "RAFTSCHED_TOKEN": token,
        "RAFTSCHED_DEMO_LEDGER": str(ledger),
    }
    with (cluster.directory / "workers.log").open("ab") as log:
        workers = [
            subprocess.Popen([*command, *kind], env=environment, stdin=lifeline(), stdout=log, stderr=log)  # noqa: S603
            for kind in (*[app] * WORKER_COUNT, shell)
        ]
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

    def __init__(
        self, cluster: LocalCluster, client: Client, jobs_table: JobsTable, receiver_url: str, ledger: Path
    ) -> None:
        self._receiver_url = receiver_url
        self._ledger = ledger
        self._cluster = cluster
        self._client = client
        self._jobs_table = jobs_table
        self.planned: dict[str, Planned] = {}
        self._scenes = Scenes(client, jobs_table, self.planned, receiver=receiver_url, ledger=ledger)
        self._timetables: Sequence[Timetable] = ()
        self.seconds = 0.0
        self.leader_changes = 0
        self.seconds_without_leader = 0.0
        self.faults: list[str] = []

    async def drive(self) -> None:
        """Run all of it; jobs that do not end in time are a fault."""
        began = time.monotonic()
        watching = asyncio.create_task(self._watch())
        try:
            async with asyncio.timeout(FINISH_SECONDS_MAX):
                await self._scenes.set_up()
                jobs = plan(receiver=self._receiver_url, ledger=self._ledger)
                await self._submit([job for job in jobs if job.kind in PLAYED_KINDS])
                await self._scenes.play()
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._submit([job for job in jobs if job.kind not in PLAYED_KINDS]))
                    group.create_task(self._kill_leader_half_way(len(jobs)))
                await self._wait_until_finished()
                self._timetables = await self._scenes.finish_schedules()
                await self._scenes.find_hooks()
                await self._wait_until_finished()
        except TimeoutError:
            self.faults.append(f"not everything had ended after {FINISH_SECONDS_MAX:.0f} s")
        finally:
            watching.cancel()
            await asyncio.wait([watching])
            self.seconds = time.monotonic() - began
        with suppress(RaftschedError):
            self._jobs_table.show(await self._client.queues())

    async def _watch(self) -> None:
        while True:
            with suppress(RaftschedError):  # it only shows; the verdict is made at the end
                self._jobs_table.show(await self._client.queues())
            await asyncio.sleep(_SHOW_SECONDS)

    async def _submit(self, jobs: list[Planned]) -> None:
        waiting = iter(jobs)
        async for result in self._client.submit_each(job.spec for job in jobs):
            job = next(waiting)
            if isinstance(result, Job):
                self.planned[result.id] = job
            else:
                self.faults.append(f"{job.kind} was refused: {result}")

    async def _kill_leader_half_way(self, total: int) -> None:
        while sum(map(finished_count, await self._client.queues())) < total // 2:
            await asyncio.sleep(_POLL_SECONDS)
        leader = await asyncio.to_thread(self._cluster.wait_for_leader)
        half_way = await self._scenes.half_way()
        leader.kill()
        killed_at = time.monotonic()
        self._jobs_table.say(f"[red]kill -9[/red] {leader.id}, the leader, half-way: {half_way}")
        job = probe()
        handle = await self._client.submit(job.spec.name, job.spec.payload, queue=job.spec.queue)
        self.seconds_without_leader = time.monotonic() - killed_at
        self.planned[handle.id] = job
        new = await asyncio.to_thread(self._cluster.wait_for_leader)
        self.leader_changes += 1
        self._jobs_table.say(f"{new.id} leads; next write accepted {self.seconds_without_leader:.2f} s after the kill")
        await asyncio.sleep(_DOWN_SECONDS)
        self._cluster.start_node(leader)
        await asyncio.to_thread(self._cluster.wait_until_ready, leader)
        self._jobs_table.say(f"{leader.id} is back and has caught up")

    async def _wait_until_finished(self) -> None:
        """Wait for all planned jobs; a schedule's are planned once it has decided its last fire time."""
        planned = Counter(job.kind for job in self.planned.values())
        while True:
            finished = {queue["name"]: finished_count(queue) for queue in await self._client.queues()}
            if all(finished.get(kind, 0) >= count for kind, count in planned.items()):
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def evidence(self, ledger: Ledger) -> Evidence:
        """Read all evidence."""
        found = {job.id: job async for job in self._client.list(page_size=1_000)}
        handles = {kind: self._handles(kind) for kind in ("pause", "report")}
        workflow = self._scenes.workflow
        return Evidence(
            planned=self.planned,
            found=found,
            recorded=ledger.values(),
            spans=ledger.spans(),
            timetables=self._timetables,
            graph=await workflow.graph() if workflow else Graph(),
            histories={job.id: [each.event for each in (await job.history()).events] for job in handles["pause"]},
            logs={job.id: [line.text async for line in job.logs()] for job in handles["report"]},
            unique_ids=self._scenes.unique_ids,
        )

    def _handles(self, kind: str) -> list[Job]:
        return [self._client.job(job_id) for job_id, job in self.planned.items() if job.kind == kind]
