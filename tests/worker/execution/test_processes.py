"""Handlers in processes of their own (case W09), in a worker of this process."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import psutil
import pytest

from raftsched.errors import Unavailable
from raftsched.worker import Worker
from raftsched.worker.execution.processes import PipeSink
from raftsched.worker.handlers.result import completed
from tests.client.cluster import WAIT_SECONDS, Cluster, running_cluster
from tests.worker import program
from tests.worker.conftest import SETTINGS, run, run_job, serving, worker_of
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
    await run(cluster, worker, *jobs, described)
    assert [job.result["sum"] for job in jobs] == list(range(1, 21))
    pids = {job.result["pid"] for job in jobs}
    assert len(pids) <= 2
    assert os.getpid() not in pids
    assert described.result == {"token": described.token, "run_id": f"{described.id}.1", "cancelled": False}
    assert not any(psutil.pid_exists(pid) for pid in pids)  # they ended with the worker


async def test_child_that_dies_takes_only_its_own_run_with_it(cluster: Cluster, worker: Worker) -> None:
    killed = await cluster.add_job("die")
    jobs = [await cluster.add_job("add", {"a": n, "b": 1}) for n in range(10)]
    await run(cluster, worker, killed, *jobs)
    assert killed.error is not None
    assert killed.error["type"] == "ProcessDied"
    assert all(job.attempt_number == 1 for job in jobs)


async def test_what_a_process_handler_raises_becomes_its_outcome(cluster: Cluster, worker: Worker) -> None:
    job = await run_job(cluster, worker, "explode")
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


@pytest.mark.parametrize("then", ["wait", "ignore", "die", "return"])
async def test_run_that_must_stop_ends_with_all_that_its_handler_started(then: str) -> None:
    """Case N01: its processes, one that ignores SIGTERM, and one that was forked and holds its pipe."""
    async with running_cluster(lease_seconds=WAIT_SECONDS) as cluster, listening() as ear:
        worker = process_worker(cluster, stop_grace_seconds=0.3, drain_seconds=0.05)
        worker.job("family", process=True, max_attempts=1)(program.family)
        job = await cluster.add_job("family", [ear.port, then])
        async with serving(worker):
            members = list(_processes((await ear.hear()).split()))
            if then == "wait":
                cluster.cancel_requested.add(job.id)
            elif then == "ignore":
                worker.drain()  # and again, by its grace, at the end of this block
            await cluster.until(lambda: cluster.outcomes)
            left = [member.pid for member in members if _lives(member)]
        assert [member for member in members if _lives(member)] == []
    assert bool(left) is (then == "return"), "what a finished handler leaves running goes with the worker only"
    expected = {"wait": "cancelled", "ignore": "queued", "die": "dead_letter", "return": "completed"}
    assert job.status == expected[then]


async def test_handler_in_a_process_may_clean_up_when_it_is_asked_to_stop() -> None:
    async with running_cluster(lease_seconds=WAIT_SECONDS) as cluster, listening() as ear:
        worker = process_worker(cluster)
        worker.job("clean_up", process=True)(program.clean_up)
        job = await cluster.add_job("clean_up", ear.port)
        async with serving(worker):
            assert await ear.hear() == "running"
            cluster.cancel_requested.add(job.id)
            assert await ear.hear() == "cleaning up"
            await cluster.finished(job)


def _processes(pids: list[str]) -> Iterator[psutil.Process]:
    """Yield the processes that are still there: one that dies may be faster than this test."""
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            yield psutil.Process(int(pid))


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)  # a zombie is for this machine's first process to reap
    except psutil.NoSuchProcess:
        return False


async def test_handler_in_a_process_says_and_asks_as_others_do(cluster: Cluster, worker: Worker) -> None:
    parent = "00000000-0000-7000-8000-000000000777"
    cluster.documents = {f"/jobs/{parent}/result": {"id": parent, "result": 7}}
    worker.job("speak", process=True, capture_stdout=True)(program.speak)
    jobs = [await cluster.add_job("speak", parent, task="load", instant="2027-01-01T00:00:00.000Z") for _ in range(2)]
    await run(cluster, worker, *jobs)
    for job in jobs:
        assert job.result == {"parent": 7, "no": "not_found", "task": "load", "instant": "2027-01-01T00:00:00Z"}
        assert job.progress[-1] == {"done": 1}
        assert (job.log[0], job.log[1].split()[2:], job.log[2:]) == (
            "logged \\ud800",
            ["INFO", "by", "logger"],
            ["printed"],
        )


async def test_child_whose_question_cannot_be_answered_gets_no_other_call(cluster: Cluster) -> None:
    parent = "00000000-0000-7000-8000-000000000777"
    cluster.documents = {f"/jobs/{parent}/result": "no document of ours"}
    worker = worker_of(cluster, settings=replace(SETTINGS, concurrency=1))
    for handler in (program.ask, program.add):
        worker.job(handler.__name__, process=True, max_attempts=1)(handler)
    asking = await cluster.add_job("ask", parent)
    async with serving(worker):
        await cluster.finished(asking)
        adding = await cluster.add_job("add", {"a": 1, "b": 1})
        await cluster.finished(adding)
    assert (asking.status, adding.result["sum"]) == ("dead_letter", 2)


async def test_thread_left_behind_in_a_child_does_not_take_the_next_call_for_an_answer() -> None:
    ours, theirs = multiprocessing.Pipe()
    sink = PipeSink(theirs)
    sink.end(completed(1))
    ours.send_bytes(b"{}")  # the next call
    with pytest.raises(Unavailable):
        sink.result_of("parent")
    assert (theirs.poll(), b"asked" in ours.recv_bytes()) == (True, False)


async def test_child_ends_its_call_once_what_was_asked_is_answered() -> None:
    ours, theirs = multiprocessing.Pipe()
    sink = PipeSink(theirs)
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(sink.result_of("parent")))
    asking.start()
    assert b"asked" in await asyncio.to_thread(ours.recv_bytes)
    ending = threading.Thread(target=sink.end, args=(completed(1),))
    ending.start()
    ending.join(0.1)  # only one that does not wait for the answer ends here
    assert not ours.poll()
    ours.send_bytes(b'{"result":7}')
    for thread in (asking, ending):
        await asyncio.to_thread(thread.join, WAIT_SECONDS)
    assert (answers, b"outcome" in ours.recv_bytes()) == ([7], True)


@pytest.mark.parametrize(
    ("rules", "is_final"), [({"no_retry": [KeyError]}, False), ({"no_retry": [LookupError]}, True)]
)
async def test_errors_in_a_process_are_final_by_the_handlers_own_rules(
    cluster: Cluster, rules: dict[str, Any], is_final: bool
) -> None:
    worker = worker_of(cluster)
    worker.job("explode", process=True, **rules)(program.explode)
    await cluster.add_job("explode")
    async with serving(worker):
        await cluster.until(lambda: cluster.outcomes)
        cluster.is_paused = True
    assert cluster.outcomes[0].get("retryable", True) is not is_final
    assert cluster.outcomes[0]["error"]["type"] == "LookupError"
