"""The end of a worker (cases W02, W06, W09): in this process, and as a process that gets signals."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from raftsched.client.http.connection import Connection
from raftsched.worker import Cancelled, Context, HungHandlers, Worker
from tests.client.cluster import WAIT_SECONDS, Cluster, running_cluster
from tests.test_first_process import NEW_PID_NAMESPACE
from tests.worker.conftest import SETTINGS, endless, held, serving, worker_of
from tests.worker.ear import Ear, listening


async def test_drain_lets_running_handlers_finish_and_leases_nothing_more(cluster: Cluster, worker: Worker) -> None:
    go = held(worker)
    job = await cluster.add_job("a")
    async with serving(worker) as serve:
        await cluster.until(lambda: job.status == "running" and len(cluster.bodies("/leases")) >= 2)
        worker.drain()
        await asyncio.sleep(0)
        asked = len(cluster.bodies("/leases"))
        go.set()
        async with asyncio.timeout(WAIT_SECONDS):
            await serve
    late = await cluster.add_job("a")
    assert (job.result, late.status) == ("done", "queued")
    assert len(cluster.bodies("/leases")) == asked


async def test_drain_gives_back_a_job_that_was_leased_in_that_moment(cluster: Cluster) -> None:
    worker = worker_of(cluster, settings=replace(SETTINGS, wait_seconds=1.0))
    started: list[object] = []

    @worker.job("a")
    async def handle(payload: object) -> None:
        started.append(payload)

    async with serving(worker):
        await cluster.until(lambda: cluster.bodies("/leases"))
        worker.drain()
        await asyncio.sleep(0)
        job = await cluster.add_job("a")
    (outcome,) = cluster.outcomes
    assert (outcome["status"], outcome["snooze_seconds"], started, job.status) == ("snoozed", 0.0, [], "queued")


@pytest.mark.parametrize("is_async", [True, False])
async def test_handlers_that_outlast_the_drain_are_stopped_and_given_back(cluster: Cluster, is_async: bool) -> None:
    """What a handler returns that saw the order to stop does not count."""
    worker = worker_of(cluster, settings=replace(SETTINGS, drain_seconds=0.05))

    def export(ctx: Context, payload: object) -> str:
        return "half of it" if ctx.cancelled.wait(WAIT_SECONDS) else "never"

    if is_async:
        endless(worker)
    else:
        worker.job("a")(export)
    job = await cluster.add_job("a")
    async with serving(worker):
        await cluster.until(lambda: job.status == "running")
    (outcome,) = cluster.outcomes
    assert (outcome["status"], outcome["snooze_seconds"], job.status) == ("snoozed", 0.0, "queued")


async def test_success_within_the_grace_of_the_drain_still_counts(cluster: Cluster) -> None:
    worker = worker_of(cluster, settings=replace(SETTINGS, drain_seconds=0.05))

    @worker.job("a")
    async def clean_up(payload: object) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "just in time"
        return "never"

    job = await cluster.add_job("a")
    async with serving(worker):
        await cluster.until(lambda: job.status == "running")
    assert job.result == "just in time"


async def test_success_of_a_handler_that_did_not_look_whether_to_stop_counts(cluster: Cluster) -> None:
    worker = worker_of(cluster, settings=replace(SETTINGS, drain_seconds=0.05))
    begun, stopped = threading.Event(), threading.Event()

    class Watched(Cancelled):
        """Tells the test, and not the handler, that it was set."""

        def set(self) -> None:
            super().set()
            stopped.set()

    @worker.job("a")
    def charge(ctx: Context, payload: object) -> str:
        ctx.cancelled = Watched()
        begun.set()
        return "charged" if stopped.wait(WAIT_SECONDS) else "never"

    job = await cluster.add_job("a")
    async with serving(worker):
        assert await asyncio.to_thread(begun.wait, WAIT_SECONDS)
    assert job.result == "charged"


async def test_drain_before_serve_ends_it_at_once(cluster: Cluster) -> None:
    worker = worker_of(cluster, queues=["a"])
    worker.drain()
    async with asyncio.timeout(WAIT_SECONDS):
        await worker.serve()
    assert cluster.nodes[0].seen.count("/leases") == 0


async def test_worker_with_too_many_hung_handlers_ends_to_be_started_afresh(cluster: Cluster) -> None:
    settings = replace(SETTINGS, hung_handlers_max=2, stop_grace_seconds=0.01)
    worker = worker_of(cluster, settings=settings)
    go = asyncio.Event()

    @worker.job("a", timeout_seconds=0.02, max_attempts=1)
    async def hang(payload: object) -> None:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    for _ in range(2):
        await cluster.add_job("a")
    with pytest.raises(HungHandlers):
        async with asyncio.timeout(WAIT_SECONDS):
            await worker.serve()
    go.set()


async def test_cancelled_serve_stops_its_handlers(cluster: Cluster, worker: Worker) -> None:
    started = asyncio.Event()
    stopped = endless(worker, started.set)
    await cluster.add_job("a")
    serve = asyncio.create_task(worker.serve())
    async with asyncio.timeout(WAIT_SECONDS):
        await started.wait()
        serve.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serve
        await stopped.wait()
    assert cluster.outcomes == []


async def test_worker_whose_heartbeats_break_stops_its_handlers_and_ends(cluster: Cluster) -> None:
    connections = 0

    class Broken(Worker):
        def _connect(self) -> Connection:
            nonlocal connections
            connections += 1
            if connections == 2:  # the first is the worker's own, the second that of the heartbeats
                raise ZeroDivisionError
            return super()._connect()

    worker = Broken(cluster.nodes[0].url, settings=SETTINGS, queues=["a"])
    with pytest.raises(ZeroDivisionError):
        async with asyncio.timeout(WAIT_SECONDS):
            await worker.serve()


# -- signals ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def worker_process(
    cluster: Cluster, *options: str, within: Sequence[str] = ()
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *within,
        sys.executable,
        "-m",
        "tests.worker.program",
        cluster.nodes[0].url,
        *options,
        cwd=Path(__file__).parents[2],
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        await process.wait()


async def exit_code(process: asyncio.subprocess.Process) -> int:
    async with asyncio.timeout(WAIT_SECONDS):
        return await process.wait()


@pytest.fixture
async def ear() -> AsyncIterator[Ear]:
    async with listening() as made:
        yield made


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_drains_and_the_process_exits_with_0(cluster: Cluster, ear: Ear, number: signal.Signals) -> None:
    async with worker_process(cluster) as process:
        job = await cluster.add_job("hold", ear.port)
        _, go_on = await ear.hear_and_answer_later()
        process.send_signal(number)
        asked = len(cluster.bodies("/leases"))
        go_on.write(b"\n")
        assert await exit_code(process) == 0
    assert (job.result, job.attempt_number) == ("held", 1)
    assert len(cluster.bodies("/leases")) <= asked + 1


async def test_second_signal_exits_at_once_even_from_a_blocked_loop(cluster: Cluster, ear: Ear) -> None:
    async with worker_process(cluster) as process:
        job = await cluster.add_job("block", ear.port)
        await ear.hear()
        process.send_signal(signal.SIGTERM)
        exited = asyncio.create_task(exit_code(process))
        while not exited.done():  # a second one that comes before the first was handled counts for nothing
            process.send_signal(signal.SIGINT)
            await asyncio.wait([exited], timeout=0.1)
        assert await exited == -signal.SIGINT
    assert (job.status, cluster.outcomes) == ("running", [])


async def test_first_process_of_a_container_exits_at_the_second_signal(cluster: Cluster, ear: Ear) -> None:
    """Case N02: the kernel ignores signals of process 1 that have no handler."""
    async with worker_process(cluster, within=NEW_PID_NAMESPACE) as unshare:
        job = await cluster.add_job("block", ear.port)
        await ear.hear()
        (first,) = psutil.Process(unshare.pid).children()
        first.terminate()
        exited = asyncio.create_task(exit_code(unshare))
        while not exited.done():  # as above
            with suppress(psutil.NoSuchProcess):
                first.send_signal(signal.SIGINT)
            await asyncio.wait([exited], timeout=0.1)
        assert await exited == 128 + signal.SIGINT
    assert (job.status, cluster.outcomes) == ("running", [])


async def test_jobs_that_have_not_begun_are_given_back_while_a_handler_blocks_the_loop(
    cluster: Cluster, ear: Ear
) -> None:
    """Cases N03 and N10: the heartbeat thread gives them back, and ends the process when the drain is overdue."""
    blocking = await cluster.add_job("block", ear.port)
    waiting = [await cluster.add_job("hold", ear.port) for _ in range(3)]
    async with worker_process(cluster, "drain_seconds=0.2", "stop_grace_seconds=0.2") as process:
        assert await ear.hear() == "running"
        await cluster.until(lambda: len(cluster.outcomes) >= len(waiting))
        assert {outcome["status"] for outcome in cluster.outcomes} == {"snoozed"}
        assert [job.status for job in (blocking, *waiting)] == ["running", "queued", "queued", "queued"]
        beats = len(cluster.bodies("/leases/heartbeat"))
        await cluster.until(lambda: len(cluster.bodies("/leases/heartbeat")) > beats)
        process.terminate()
        assert await exit_code(process) == 1, "a run was left to its lease"
    kept = cluster.bodies("/leases/heartbeat")[-1]["leases"]
    assert [lease["run_id"] for lease in kept] == [f"{blocking.id}.1"]
    assert (blocking.status, len(cluster.outcomes)) == ("running", len(waiting))


async def test_process_ends_despite_a_handler_that_never_does(cluster: Cluster, ear: Ear) -> None:
    async with worker_process(cluster, "drain_seconds=0.05", "stop_grace_seconds=0.05") as process:
        job = await cluster.add_job("never_end", ear.port)
        await ear.hear()
        process.terminate()
        assert await exit_code(process) == 0
    assert job.status == "queued"  # given back, before its lease ends


async def test_process_with_too_many_hung_handlers_exits_with_1(cluster: Cluster, ear: Ear) -> None:
    async with worker_process(cluster, "hung_handlers_max=1", "stop_grace_seconds=0.05") as process:
        await cluster.add_job("never_end", ear.port, timeout_seconds=0.5)
        await ear.hear()
        assert await exit_code(process) == 1


async def test_frozen_worker_learns_that_it_lost_the_run_and_stops_the_handler(ear: Ear) -> None:
    async with running_cluster(lease_seconds=0.6) as cluster, worker_process(cluster) as process:
        job = await cluster.add_job("hold", ear.port)
        assert await ear.hear() == "running"
        process.send_signal(signal.SIGSTOP)
        cluster.lost_tokens.add(job.token)  # the cluster gives the run to another
        cluster.is_paused = True
        await asyncio.sleep(0.7)  # longer than the lease: the case is that time passes for all but the worker
        process.send_signal(signal.SIGCONT)
        assert await ear.hear() == "cancelled"
        process.terminate()
        assert await exit_code(process) == 0
        assert (cluster.outcomes, cluster.refused) == ([], [])


async def test_children_end_with_a_worker_that_was_killed(cluster: Cluster, ear: Ear) -> None:
    async with worker_process(cluster) as process:
        await cluster.add_job("stay", ear.port)
        child = psutil.Process(int(await ear.hear()))
        process.kill()
        await process.wait()
        await asyncio.to_thread(child.wait, WAIT_SECONDS)
    assert cluster.outcomes == []
