"""What keeps, loses and ends leases while handlers run."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from raftsched.worker import Context, Worker
from raftsched.worker.runs.runs import Grant, Run, StopReason, lease_end
from tests.client.cluster import WAIT_SECONDS, Cluster, Fault
from tests.worker.conftest import SETTINGS, SetClock, endless, held, run_job, serving, with_cluster, worker_of

BEATS = "/leases/heartbeat"
SHORT_SECONDS = 0.6


def events(logs: list[Any], name: str, field: str) -> list[Any]:
    return [event[field] for event in logs if event["event"] == name]


# -- the arithmetic ---------------------------------------------------------------------------------------------------


def test_lease_ends_for_the_worker_before_it_can_end_for_the_cluster() -> None:
    asked_at, lease_seconds = 1000.0, 10.0
    slowest_clock = 1 - 0.01  # of the worker, while the cluster's runs at 1
    end = lease_end(asked_at, lease_seconds)
    assert (end - asked_at) / slowest_clock < lease_seconds
    assert end - asked_at > 0.9 * lease_seconds


def test_renewed_lease_counts_from_before_the_heartbeat_left() -> None:
    run = _run()
    run.renew(1003.0)
    assert run.lease_end == lease_end(1003.0, 10.0)


def test_first_order_to_stop_stands() -> None:
    run = _run()
    assert run.condemn(StopReason.CANCELLED)
    assert not run.condemn(StopReason.LEASE_LOST)
    assert (run.stop, bool(run.context.cancelled)) == (StopReason.CANCELLED, True)


def test_ended_run_is_not_stopped_any_more() -> None:
    run = _run()
    run.is_ended = True
    assert not run.condemn(StopReason.LEASE_LOST)
    assert run.stop is None


def _run() -> Run:
    context = Context(job_id="j", run_id="j.1", fencing_token=1, attempt_number=1, name="a", queue="a")
    return Run(Grant(job_id="j", run_id="j.1", fencing_token=1, name="a", lease_seconds=10.0), 1000.0, context, None)


# -- kept -------------------------------------------------------------------------------------------------------------


@with_cluster(lease_seconds=SHORT_SECONDS)
async def test_lease_of_a_waiting_handler_is_renewed(cluster: Cluster, worker: Worker) -> None:
    go = held(worker)
    job = await cluster.add_job("a")
    async with serving(worker):
        await cluster.until(lambda: len(cluster.bodies(BEATS)) >= 4)  # well past the first lease
        go.set()
        await cluster.finished(job)
    assert job.result == "done"
    assert cluster.bodies(BEATS)[0]["leases"] == [{"run_id": f"{job.id}.1", "fencing_token": job.token}]


@pytest.mark.parametrize("is_async", [True, False])
@with_cluster(lease_seconds=SHORT_SECONDS)
async def test_handler_that_blocks_the_loop_or_a_thread_keeps_its_lease(
    cluster: Cluster, is_async: bool, logs: list[Any]
) -> None:
    """Case W01. The worker has a thread and a loop of its own here, since its handler blocks them."""
    beaten = threading.Event()

    def block(payload: object) -> str:
        assert beaten.wait(WAIT_SECONDS)
        return "done"

    async def block_loop(payload: object) -> str:
        return block(payload)

    def run_worker() -> None:
        worker = worker_of(cluster)
        worker.job("a")(block_loop if is_async else block)
        asyncio.run(_serve_one(worker))

    async def _serve_one(worker: Any) -> None:
        serve = asyncio.create_task(worker.serve())
        drains.append(worker.drain)
        await serve

    drains: list[Any] = []
    job = await cluster.add_job("a")
    serving_thread = asyncio.create_task(asyncio.to_thread(run_worker))
    await cluster.until(lambda: len(cluster.bodies(BEATS)) >= 7)
    beaten.set()
    await cluster.finished(job)
    drains[0]()
    await serving_thread
    assert (job.result, job.attempt_number, cluster.refused) == ("done", 1, [])
    if is_async:
        assert events(logs, "event_loop_blocked", "handlers") == [["a"]]


@with_cluster(3, lease_seconds=SHORT_SECONDS)
async def test_heartbeat_goes_to_another_node_when_one_does_not_answer(cluster: Cluster, worker: Worker) -> None:
    go = held(worker)
    job = await cluster.add_job("a")
    async with serving(worker):
        await cluster.until(lambda: cluster.bodies(BEATS))
        cluster.leader = cluster.nodes[1]
        await cluster.nodes[0].stop()
        seen = len(cluster.bodies(BEATS))
        await cluster.until(lambda: len(cluster.bodies(BEATS)) >= seen + 3)
        go.set()
        await cluster.finished(job)
    assert (job.result, job.attempt_number) == ("done", 1)


@with_cluster(2, lease_seconds=SHORT_SECONDS)
async def test_node_that_hangs_costs_no_lease_while_another_one_answers(cluster: Cluster, worker: Worker) -> None:
    """Case W13: cut off from the leader only."""
    go = held(worker)
    cluster.faults[BEATS].append(Fault.HANGS)
    job = await cluster.add_job("a")
    async with serving(worker):
        await cluster.until(lambda: len(cluster.bodies(BEATS)) >= 4)
        go.set()
        await cluster.finished(job)
    assert (job.result, job.attempt_number) == ("done", 1)
    assert BEATS in cluster.nodes[0].seen
    assert BEATS in cluster.nodes[1].seen


@with_cluster(lease_seconds=SHORT_SECONDS)
async def test_lease_is_kept_while_its_outcome_finds_no_leader(cluster: Cluster, worker: Worker) -> None:
    @worker.job("a")
    async def finish(payload: object) -> str:
        return "done"

    cluster.faults["/leases/outcomes"].extend([Fault.REFUSED] * 10_000)
    job = await cluster.add_job("a")
    async with serving(worker):
        await cluster.until(lambda: len(cluster.bodies(BEATS)) >= 4)
        cluster.faults["/leases/outcomes"].clear()
        await cluster.finished(job)
    assert job.result == "done"


# -- lost -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [True, False])
@with_cluster(lease_seconds=SHORT_SECONDS)
async def test_handler_is_stopped_when_its_lease_is_lost_and_nothing_is_reported(
    cluster: Cluster, worker: Worker, is_async: bool, logs: list[Any]
) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def wait(ctx: Context, payload: object) -> str:
        cluster.lost_tokens.add(ctx.fencing_token)
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    def wait_in_thread(ctx: Context, payload: object) -> str:
        cluster.lost_tokens.add(ctx.fencing_token)
        assert ctx.cancelled.wait(WAIT_SECONDS)
        loop.call_soon_threadsafe(stopped.set)
        return "too late"

    worker.job("a")(wait if is_async else wait_in_thread)
    await cluster.add_job("a")
    async with serving(worker), asyncio.timeout(WAIT_SECONDS):
        await stopped.wait()
    assert (cluster.outcomes, cluster.refused) == ([], [])
    assert events(logs, "run_stopped", "reason") == ["lease_lost"]


@pytest.mark.parametrize(("stops_at_lease_end", "start"), [(True, "at_least_once"), (False, "at_most_once")])
@with_cluster(lease_seconds=SHORT_SECONDS)
async def test_handler_is_stopped_before_its_lease_ends_when_no_heartbeat_gets_through(
    cluster: Cluster, stops_at_lease_end: bool, start: str, logs: list[Any]
) -> None:
    """Case W13: by the worker's own clock, without a word from the cluster; a job that begins once never goes on."""
    clock = SetClock()
    worker = worker_of(cluster, clock=clock, settings=replace(SETTINGS, stop_at_lease_end=stops_at_lease_end))
    cluster.faults[BEATS].extend([Fault.HANGS] * 1000)

    def begin() -> None:
        cluster.is_paused = True
        clock.now += 0.95 * SHORT_SECONDS  # and no more: by this clock the lease never ends

    stopped = endless(worker, begin)
    job = await cluster.add_job("a", start=start)
    async with serving(worker), asyncio.timeout(WAIT_SECONDS):
        await stopped.wait()
    assert (job.status, cluster.outcomes, cluster.refused) == ("running", [], [])
    assert events(logs, "run_stopped", "reason") == ["lease_over"]


@pytest.mark.parametrize("is_lost", [False, True])
@with_cluster(lease_seconds=SHORT_SECONDS)
async def test_handler_that_may_go_on_beyond_its_lease_does_until_an_answer_says_that_it_is_lost(
    cluster: Cluster, is_lost: bool, logs: list[Any]
) -> None:
    """Case D22: nobody can have been given the run while the whole cluster was out."""
    clock = SetClock()
    worker = worker_of(cluster, clock=clock, settings=replace(SETTINGS, stop_at_lease_end=False))
    began, go, stopped = asyncio.Event(), asyncio.Event(), asyncio.Event()
    cluster.faults[BEATS].extend([Fault.REFUSED] * 100_000)

    @worker.job("a")
    async def wait(ctx: Context, payload: object) -> str:
        cluster.is_paused = True
        clock.now += 20 * SHORT_SECONDS
        began.set()
        try:
            await go.wait()
        finally:
            if is_lost:
                stopped.set()
        return "done"

    job = await cluster.add_job("a")
    async with serving(worker), asyncio.timeout(WAIT_SECONDS):
        await began.wait()
        seen = cluster.nodes[0].seen.count(BEATS)
        await cluster.until(lambda: cluster.nodes[0].seen.count(BEATS) >= seen + 3)
        assert not events(logs, "run_stopped", "reason")
        if is_lost:
            cluster.lost_tokens.add(job.token)
        cluster.faults[BEATS].clear()
        if is_lost:
            await stopped.wait()
        else:
            seen = len(cluster.bodies(BEATS))
            await cluster.until(lambda: len(cluster.bodies(BEATS)) > seen)
            go.set()
            await cluster.finished(job)
    assert events(logs, "run_stopped", "reason") == (["lease_lost"] if is_lost else [])
    assert (job.result, cluster.refused) == (None if is_lost else "done", [])


@with_cluster(lease_seconds=SHORT_SECONDS)
async def test_success_that_comes_after_the_lease_is_not_reported(cluster: Cluster, logs: list[Any]) -> None:
    """Case W02: the whole process stood still, and the handler returns before anybody told it to stop."""
    clock = JumpingClock()
    worker = worker_of(cluster, clock=clock)
    done = asyncio.Event()

    @worker.job("a")
    async def freeze(payload: object) -> str:
        cluster.is_paused = True
        clock.ahead_seconds = 3600.0
        done.set()
        return "stale"

    job = await cluster.add_job("a")
    async with serving(worker), asyncio.timeout(WAIT_SECONDS):
        await done.wait()
    assert (job.status, cluster.outcomes, cluster.refused) == ("running", [], [])


@with_cluster(lease_seconds=SHORT_SECONDS)
async def test_lease_that_is_over_when_it_arrives_is_not_started_but_given_back(
    cluster: Cluster, logs: list[Any]
) -> None:
    clock = JumpingClock()
    worker = worker_of(cluster, clock=clock)
    started = []

    @worker.job("a")
    async def handle(payload: object) -> None:
        started.append(payload)

    async with serving(worker):
        await cluster.until(lambda: cluster.bodies("/leases"))
        clock.ahead_seconds = 3600.0  # while the request waits
        job = await cluster.add_job("a")
        await cluster.until(lambda: cluster.outcomes)
        cluster.is_paused = True
    assert started == []
    assert (cluster.outcomes[0]["status"], job.status) == ("snoozed", "queued")


async def test_request_for_jobs_whose_reply_was_lost_is_repeated_under_its_id(cluster: Cluster, worker: Worker) -> None:
    @worker.job("a")
    async def handle(payload: object) -> None:
        pass

    cluster.faults["/leases"].append(Fault.UNKNOWN)
    job = await cluster.add_job("a")
    async with serving(worker):
        await cluster.finished(job)
        await cluster.until(lambda: len(cluster.bodies("/leases")) >= 3)
    first, second, third = [body["request_id"] for body in cluster.bodies("/leases")[:3]]
    assert first == second != third
    assert len(cluster.outcomes) == 1


class JumpingClock:
    """The real clock, and as far ahead as the test says."""

    def __init__(self) -> None:
        self.ahead_seconds = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead_seconds

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


# -- cancelled and out of time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [True, False])
@with_cluster(lease_seconds=SHORT_SECONDS)
async def test_cancelled_job_stops_its_handler_and_closes_its_lease(
    cluster: Cluster, worker: Worker, is_async: bool
) -> None:
    async def wait(ctx: Context, payload: object) -> None:
        cluster.cancel_requested.add(ctx.job_id)
        await asyncio.Event().wait()

    def wait_in_thread(ctx: Context, payload: object) -> str:
        cluster.cancel_requested.add(ctx.job_id)
        assert ctx.cancelled.wait(WAIT_SECONDS)
        return "finished all the same"

    worker.job("a")(wait if is_async else wait_in_thread)
    job = await run_job(cluster, worker, "a")
    assert job.status == "cancelled"
    (outcome,) = cluster.outcomes
    assert (outcome["status"], outcome["retryable"], "result" in outcome) == ("failed", False, False)


async def test_handler_that_exceeds_its_own_timeout_has_failed(cluster: Cluster, worker: Worker) -> None:
    @worker.job("a", timeout_seconds=0.05, max_attempts=1)
    async def wait(payload: object) -> None:
        await asyncio.Event().wait()

    job = await run_job(cluster, worker, "a")
    assert job.error is not None
    assert job.error["type"] == "Timeout"


async def test_timeout_of_the_job_stops_the_handler_and_is_left_to_the_cluster(
    cluster: Cluster, worker: Worker, logs: list[Any]
) -> None:
    stopped = endless(worker)
    await cluster.add_job("a", timeout_seconds=0.05)
    async with serving(worker), asyncio.timeout(WAIT_SECONDS):
        await stopped.wait()
    assert cluster.outcomes == []
    assert events(logs, "run_stopped", "reason") == ["timeout"]


@pytest.mark.parametrize("is_async", [True, False])
async def test_slot_of_a_handler_that_ignores_the_order_to_stop_is_used_again(
    cluster: Cluster, is_async: bool, logs: list[Any]
) -> None:
    """Case W03."""
    worker = worker_of(cluster, settings=replace(SETTINGS, concurrency=1, stop_grace_seconds=0.01))
    go, go_thread = asyncio.Event(), threading.Event()

    async def hang(payload: object) -> None:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    def hang_in_thread(payload: object) -> None:
        go_thread.wait(WAIT_SECONDS)

    worker.job("hang", timeout_seconds=0.05, max_attempts=1)(hang if is_async else hang_in_thread)

    @worker.job("good")
    async def good(payload: object) -> str:
        return "fine"

    hung = [await cluster.add_job("hang") for _ in range(3)]
    async with serving(worker):
        await cluster.finished(*hung)
        job = await cluster.add_job("good")
        await cluster.finished(job)
        go.set()
        go_thread.set()
    assert job.result == "fine"
    assert events(logs, "handler_hung", "hung_count") == [1, 2, 3]


# -- faults of our own ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("place", ["execution.executor.reported_outcome", "runs.reporter.OutcomeReport"])
@with_cluster(lease_seconds=SHORT_SECONDS)
async def test_fault_of_our_own_costs_no_slot_and_keeps_no_lease(
    cluster: Cluster, is_async: bool, place: str, logs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = worker_of(cluster, settings=replace(SETTINGS, concurrency=1))
    go = asyncio.Event()

    async def end(payload: object) -> None: ...

    def end_in_thread(payload: object) -> None: ...

    worker.job("doomed")(end if is_async else end_in_thread)

    @worker.job("good")
    async def good(payload: object) -> str:
        await go.wait()
        return "fine"

    doomed = await cluster.add_job("doomed")
    async with serving(worker):
        _plant_one_fault(monkeypatch, f"raftsched.worker.{place}")
        await cluster.until(lambda: doomed.token)
        job = await cluster.add_job("good")
        await cluster.until(lambda: job.token)
        beats_before = len(cluster.bodies(BEATS))
        await cluster.until(lambda: len(cluster.bodies(BEATS)) >= beats_before + 4)
        go.set()
        await cluster.finished(job)
    held = [[lease["fencing_token"] for lease in beat["leases"]] for beat in cluster.bodies(BEATS)[-3:]]
    assert held == [[job.token]] * 3
    assert (job.result, doomed.status, cluster.refused) == ("fine", "running", [])
    assert events(logs, "run_abandoned", "name") == ["doomed"]


def _plant_one_fault(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Let the next use of a function of the worker's raise; those after it are as ever."""
    module_name, _, name = place.rpartition(".")
    whole = getattr(importlib.import_module(module_name), name)
    uses = itertools.count()

    def faulty(*args: Any, **fields: Any) -> Any:
        if next(uses) == 0:
            raise AssertionError("planted")
        return whole(*args, **fields)

    monkeypatch.setattr(place, faulty)
