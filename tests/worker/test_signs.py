"""Progress, signs of life and logs of running handlers, as they reach the cluster."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
from contextlib import redirect_stdout
from dataclasses import replace
from typing import Any

import click
import pytest

from raftsched.errors import NotFound
from raftsched.worker import Context, Retry, Worker
from tests.client.cluster import WAIT_SECONDS, Cluster, Fault
from tests.worker import program
from tests.worker.conftest import SETTINGS, run, run_job, serving, with_cluster, worker_of

# ruff: noqa: T201 - what handlers print is a subject here

BEATS = "/leases/heartbeat"
NEVER_SECONDS = 10 * WAIT_SECONDS
PARENT = "00000000-0000-7000-8000-000000000777"


def events(logs: list[Any], name: str) -> list[Any]:
    return [event for event in logs if event["event"] == name]


async def test_progress_reaches_the_cluster_while_the_handler_runs(cluster: Cluster, worker: Worker) -> None:
    go = asyncio.Event()

    @worker.job("a")
    async def work(ctx: Context, payload: object) -> None:
        ctx.progress({"done": 1})
        await go.wait()

    job = await cluster.add_job("a")
    async with serving(worker):
        await cluster.until(lambda: job.progress)  # long before a third of the lease of 10 s
        go.set()
        await cluster.finished(job)
    assert job.progress == [{"done": 1}]


async def test_progress_comes_at_most_once_in_its_time_and_the_last_before_the_outcome(cluster: Cluster) -> None:
    worker = worker_of(cluster, settings=replace(SETTINGS, progress_seconds=NEVER_SECONDS))

    @worker.job("a")
    async def work(ctx: Context, payload: object) -> None:
        ctx.progress(0)
        await cluster.until(lambda: job.progress)
        for done in range(1, 100):
            ctx.progress(done)

    job = await cluster.add_job("a")
    await run(cluster, worker, job)
    assert job.progress == [0, 99]


@with_cluster(lease_seconds=NEVER_SECONDS)
async def test_signs_of_life_are_as_frequent_as_the_job_asks_for(cluster: Cluster) -> None:
    """Neither the lease nor the general pace of progress would have a second heartbeat within the test."""
    worker = worker_of(cluster, settings=replace(SETTINGS, progress_seconds=NEVER_SECONDS))

    @worker.job("a")
    def work(ctx: Context, payload: object) -> int:
        call_count = 0
        while job.sign_count < 3 and not ctx.cancelled.wait(0.001):
            ctx.heartbeat()
            call_count += 1
        return call_count

    job = await cluster.add_job("a", heartbeat_timeout_seconds=0.2)
    await run(cluster, worker, job)
    assert 3 <= job.sign_count < job.result


async def test_sign_in_a_lost_heartbeat_goes_with_the_next(cluster: Cluster, worker: Worker) -> None:
    cluster.faults[BEATS].append(Fault.LOST)

    @worker.job("a")
    async def work(ctx: Context, payload: object) -> None:
        ctx.progress("here")
        await cluster.until(lambda: job.progress)

    job = await cluster.add_job("a")
    await run(cluster, worker, job)
    assert job.progress == ["here"]


async def test_progress_whose_heartbeat_has_no_answer_is_sent_again_before_the_outcome(
    cluster: Cluster, worker: Worker
) -> None:
    cluster.faults[BEATS].extend([Fault.HANGS] * 3)

    @worker.job("a")
    async def work(ctx: Context, payload: object) -> None:
        ctx.progress("here")
        await cluster.until(lambda: BEATS in cluster.nodes[0].seen)

    job = await cluster.add_job("a")
    await run(cluster, worker, job)
    assert job.progress == ["here"]


async def test_handler_that_says_nothing_adds_nothing_to_its_requests(cluster: Cluster, worker: Worker) -> None:
    @worker.job("a")
    async def work(ctx: Context, payload: object) -> None:
        return None

    await run_job(cluster, worker, "a")
    assert [path for path, _ in cluster.requests if path.startswith("/runs/")] == []


async def test_log_is_whole_before_the_outcome_is_recorded(cluster: Cluster) -> None:
    worker = worker_of(cluster, settings=replace(SETTINGS, log_seconds=NEVER_SECONDS))

    @worker.job("a")
    async def work(ctx: Context, payload: object) -> None:
        for number in range(5):
            ctx.log(f"line {number}")
        ctx.log("last")

    job = await run_job(cluster, worker, "a")
    paths = [path for path, _ in cluster.requests]
    assert job.log == [*(f"line {number}" for number in range(5)), "last"]
    assert paths.index(f"/runs/{job.id}.1/logs") < paths.index("/leases/outcomes")


async def test_log_that_fills_a_piece_does_not_wait_for_more(cluster: Cluster) -> None:
    worker = worker_of(cluster, settings=replace(SETTINGS, log_seconds=NEVER_SECONDS))

    @worker.job("a")
    def work(ctx: Context, payload: object) -> bool:
        ctx.log("first")
        begun.wait(WAIT_SECONDS)  # until it waits for more
        for _ in range(10):
            ctx.log("x" * 8_000)
        return read.wait(WAIT_SECONDS)

    begun, read = threading.Event(), threading.Event()
    job = await cluster.add_job("a")
    async with serving(worker):
        await cluster.until(lambda: worker._serving and worker._serving[1]._shipper._hurry)
        begun.set()
        await cluster.until(lambda: len(job.log) > 1)
        read.set()
        await cluster.finished(job)
    assert len(job.log) == 11


async def test_log_is_read_while_the_handler_runs(cluster: Cluster) -> None:
    worker = worker_of(cluster, settings=replace(SETTINGS, log_seconds=0.01))

    @worker.job("a")
    def work(ctx: Context, payload: object) -> bool:
        ctx.log("begun")
        return read.wait(WAIT_SECONDS)

    read = threading.Event()
    job = await cluster.add_job("a")
    async with serving(worker):
        await cluster.until(lambda: job.log == ["begun"])
        read.set()
        await cluster.finished(job)
    assert job.result is True


@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.UNKNOWN, Fault.REFUSED, Fault.LOST])
async def test_piece_sent_again_is_in_the_log_once(cluster: Cluster, worker: Worker, fault: Fault) -> None:
    @worker.job("a")
    async def work(ctx: Context, payload: object) -> None:
        ctx.log("once")

    job = await cluster.add_job("a")
    cluster.faults[f"/runs/{job.id}.1/logs"].extend([fault, fault])
    await run(cluster, worker, job)
    assert job.log == ["once"]


async def test_log_that_has_no_answer_does_not_hold_up_the_outcome(cluster: Cluster, logs: list[Any]) -> None:
    worker = worker_of(cluster, settings=replace(SETTINGS, flush_seconds=0.05))

    @worker.job("a")
    async def work(ctx: Context, payload: object) -> str:
        ctx.log("lost")
        return "done"

    job = await cluster.add_job("a")
    cluster.faults[f"/runs/{job.id}.1/logs"].append(Fault.HANGS)
    async with serving(worker):
        await cluster.finished(job)
        assert (job.result, job.log) == ("done", [])
    assert [event["run_id"] for event in events(logs, "log_not_sent")] == [f"{job.id}.1"]


@with_cluster(lease_seconds=0.6)
async def test_late_log_of_a_lost_lease_is_refused_and_dropped(cluster: Cluster, logs: list[Any]) -> None:
    """Case W16: the log of the second attempt holds nothing of the first."""
    worker = worker_of(cluster, settings=replace(SETTINGS, log_seconds=0.01))
    first_may_go_on, first_is_over = threading.Event(), threading.Event()

    @worker.job("a")
    def work(ctx: Context, payload: object) -> str:
        if ctx.attempt_number == 1:
            cluster.lost_tokens.add(ctx.fencing_token)
            ctx.log("before it is told")
            assert ctx.cancelled.wait(WAIT_SECONDS)
            first_may_go_on.wait(WAIT_SECONDS)
            ctx.log("late")
            ctx.progress("late")
            first_is_over.set()
        else:
            ctx.log("second")
        return "done"

    job = await cluster.add_job("a")
    async with serving(worker):
        await cluster.until(lambda: job.token in cluster.lost_tokens and f"/runs/{job.id}.1/logs" in _paths(cluster))
        job.status = "queued"
        await cluster.poke()
        await cluster.finished(job)
        first_may_go_on.set()
        assert await asyncio.to_thread(first_is_over.wait, WAIT_SECONDS)
    assert (job.log, job.progress, job.attempt_number) == (["second"], [], 2)
    assert [event["code"] for event in events(logs, "report_refused")] == ["lease_lost"]


def _paths(cluster: Cluster) -> list[str]:
    return [path for path, _ in cluster.requests]


async def test_captured_print_goes_to_the_log_of_its_own_attempt(cluster: Cluster, worker: Worker, capsys: Any) -> None:
    async def in_task(ctx: Context, payload: object) -> None:
        print("from a task", end="")
        await asyncio.sleep(0)
        print(":", payload)

    def in_thread(payload: object) -> None:
        print(f"from a thread: {payload}\nunclosed", end="")

    def silent(payload: object) -> None:
        print("for the console")

    worker.job("task", capture_stdout=True)(in_task)
    worker.job("thread", capture_stdout=True)(in_thread)
    worker.job("silent")(silent)
    jobs = [await cluster.add_job(name, number) for number in range(3) for name in ("task", "thread", "silent")]
    await run(cluster, worker, *jobs)
    for job in jobs:
        name, number = job.document["name"], job.document["payload"]
        expected = {
            "task": [f"from a task: {number}"],
            "thread": [f"from a thread: {number}", "unclosed"],
            "silent": [],
        }
        assert job.log == expected[name]
    print("at the end")
    printed = [line for line in capsys.readouterr().out.splitlines() if " [info " not in line]
    assert printed == ["for the console"] * 3 + ["at the end"]


async def test_stdout_is_a_whole_text_stream_with_capture_and_without(
    cluster: Cluster, worker: Worker, capfdbinary: Any
) -> None:
    """Case N11: what handlers do to `sys.stdout` besides printing, in one worker where some ask for capture."""

    def write(payload: object) -> str:
        sys.stdout.buffer.write(b"bytes \xff\n")
        sys.stdout.buffer.write("cut \u20ac".encode()[:-1])
        sys.stdout.buffer.write("\u20ac\n".encode()[-2:])
        click.echo(b"by click")
        sys.stdout.writelines(["of ", "lines\n"])
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        sys.stdout.buffer.flush()
        with pytest.raises(TypeError):
            sys.stdout.write(b"no text")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            sys.stdout.buffer.write("no bytes")  # type: ignore[call-overload]
        return f"{sys.stdout.encoding} {sys.stdout.fileno() >= 0} {sys.stdout.isatty()} {sys.stdout.name}"

    async def write_async(payload: object) -> str:
        return write(payload)

    worker.job("captured", capture_stdout=True)(write)
    worker.job("captured_async", capture_stdout=True)(write_async)
    worker.job("plain")(write)
    worker.job("process", capture_stdout=True, process=True)(program.write_stdout)
    jobs = [await cluster.add_job(name) for name in ("captured", "captured_async", "plain", "process")]
    beneath = io.TextIOWrapper(open(1, "wb", closefd=False), encoding="utf-8")  # noqa: ASYNC230, SIM115
    with redirect_stdout(beneath):
        await run(cluster, worker, *jobs)
        beneath.flush()
    assert [(job.status, job.error) for job in jobs] == [("completed", None)] * 4
    assert [job.result for job in jobs[:3]] == ["utf-8 True False 1"] * 3
    written = ["bytes \\xff", "cut \u20ac", "by click", "of lines"]
    assert [job.log for job in jobs] == [written, written, [], ["bytes \\xff", "text"]]
    lines = [line for line in capfdbinary.readouterr().out.splitlines() if b" [info " not in line]
    assert lines == [b"bytes \xff", "cut \u20ac".encode(), b"by click", b"of lines"]


async def test_result_of_a_parent_is_read_by_id_or_by_task(cluster: Cluster) -> None:
    cluster.documents = {
        f"/jobs/{PARENT}/result": {"id": PARENT, "result": [1, 2]},
        "/workflows/w1": {"id": "w1", "nodes": [{"id": PARENT, "task": "extract"}], "next_cursor": None},
    }
    worker = worker_of(cluster)

    @worker.job("a")
    async def by_id(ctx: Context, payload: object) -> Any:
        return await ctx.result_of(PARENT)

    @worker.job("b")
    def by_task(ctx: Context, payload: object) -> Any:
        try:
            ctx.result_of("no such task")
        except NotFound:
            return [ctx.task, ctx.result_of("extract")]

    first = await cluster.add_job("a")
    second = await cluster.add_job("b", workflow_id="w1", task="load")
    await run(cluster, worker, first, second)
    assert (first.result, second.result) == ([1, 2], ["load", [1, 2]])


async def test_deadline_of_the_job_shows_where_it_is_before_the_timeout(cluster: Cluster, worker: Worker) -> None:
    @worker.job("a")
    async def tell(ctx: Context, payload: object) -> Any:
        return ctx.deadline

    far, near = "2099-01-01T00:00:00.000Z", "2020-01-01T00:00:00.000Z"
    by_deadline = await cluster.add_job("a", deadline=near, timeout_seconds=5)
    by_timeout = await cluster.add_job("a", deadline=far, timeout_seconds=5)
    await run(cluster, worker, by_deadline, by_timeout)
    assert by_deadline.result == "2020-01-01T00:00:00Z"
    assert by_timeout.result < "2099"


async def test_errors_are_final_by_the_handlers_own_rules(cluster: Cluster, worker: Worker) -> None:
    @worker.job("only_lookups", retry_on=[LookupError])
    async def only_lookups(payload: str) -> None:
        raise KeyError("a") if payload == "derived" else ValueError("b")

    @worker.job("no_values", no_retry=[ValueError])
    def no_values(ctx: Context, payload: str) -> None:
        if payload == "asked":
            raise Retry(after=WAIT_SECONDS)
        raise UnicodeError("c")

    jobs = {
        payload: await cluster.add_job(name, payload)
        for name, payload in [
            ("only_lookups", "derived"),
            ("only_lookups", "other"),
            ("no_values", "asked"),
            ("no_values", "fatal"),
        ]
    }
    async with serving(worker):
        await cluster.until(lambda: len({outcome["run_id"] for outcome in cluster.outcomes}) == 4)
        cluster.is_paused = True
    first = {outcome["run_id"]: outcome for outcome in reversed(cluster.outcomes)}
    retryable = {payload: first[f"{job.id}.1"].get("retryable", True) for payload, job in jobs.items()}
    assert retryable == {"derived": True, "other": False, "asked": True, "fatal": False}
