from __future__ import annotations

import asyncio
from typing import Any, get_args

import pytest

from raftsched.errors import Invalid
from raftsched.wire.calls import KINDS, Kind
from raftsched.worker import Context, GiveUp, Worker
from raftsched.worker.handlers.verdicts import Accepted
from tests.client.cluster import Cluster
from tests.worker.conftest import SETTINGS, run, run_job, serving, worker_of


def test_kinds_are_those_of_calls() -> None:
    assert get_args(Kind) == KINDS


async def test_executor_gets_every_job_of_its_kind_whatever_its_name(cluster: Cluster, worker: Worker) -> None:
    closed = asyncio.Event()

    async def close() -> None:
        closed.set()

    async def execute(ctx: Context, payload: object) -> Any:
        return [ctx.name, ctx.call, payload, ctx.starts_at_most_once]

    @worker.job("nightly")
    async def handle(payload: object) -> str:
        return "by its handler"

    worker.execute("http", execute, on_stop=close)
    call = {"url": "https://example.org/"}
    jobs = [
        await cluster.add_job(name, 1, http=call, queue="http", start=start)
        for name, start in (("nightly", "at_least_once"), ("http", "at_most_once"))
    ]
    plain = await cluster.add_job("nightly")
    await run(cluster, worker, *jobs, plain)
    assert [job.result for job in jobs] == [["nightly", call, 1, False], ["http", call, 1, True]]
    assert plain.result == "by its handler"
    assert closed.is_set()
    request = cluster.bodies("/leases")[0]
    assert (request["queues"], request["names"], request["executes"]) == (["nightly", "http"], ["nightly"], ["http"])


async def test_worker_without_executors_runs_no_such_job_by_a_handler_of_its_name(cluster: Cluster) -> None:
    worker = worker_of(cluster, queues=["http"])

    @worker.job("nightly")
    async def handle(payload: object) -> str:
        return "by its handler"

    job = await cluster.add_job("nightly", http={"url": "https://example.org/"}, queue="http")
    async with serving(worker):
        await cluster.until(lambda: cluster.outcomes)
    error = cluster.outcomes[0]["error"]
    assert (error["type"], error["message"]) == ("UnknownJob", "this worker executes no http jobs")
    assert job.status == "queued"
    assert "executes" not in cluster.bodies("/leases")[0]


async def test_verdict_of_an_executor_is_recorded_under_its_own_type(cluster: Cluster, worker: Worker) -> None:
    class Refused(GiveUp):
        error_type = "TargetRefused"

    async def execute(ctx: Context, payload: object) -> None:
        raise Refused("10.0.0.1")

    worker.execute("http", execute)
    job = await run_job(cluster, worker, "http", http={})
    assert job.status == "dead_letter"
    assert job.error == {"type": "TargetRefused", "message": "10.0.0.1"}


def test_executor_of_an_unknown_kind_and_a_second_one_are_refused() -> None:
    async def execute(ctx: Context, payload: object) -> None: ...

    worker = Worker(settings=SETTINGS)
    worker.execute("shell", execute)
    for kind in ("shell", "ftp"):
        with pytest.raises(Invalid) as caught:
            worker.execute(kind, execute)  # type: ignore[arg-type]  # what is refused
        assert caught.value.field == "kind"


async def test_run_whose_target_may_report_starts_with_a_token_and_is_reported_as_accepted(
    cluster: Cluster, worker: Worker
) -> None:
    tokens: list[str | None] = []

    async def execute(ctx: Context, payload: object) -> None:
        tokens.append(ctx.callback_token)
        raise Accepted

    worker.execute("http", execute)
    job = await cluster.add_job("http", http={"url": "https://example.org/", "completion": "callback"})
    async with serving(worker):
        await cluster.until(lambda: cluster.outcomes)
    [started] = cluster.bodies(f"/runs/{job.id}.1/start")
    assert started["callback_token"] == tokens[0]
    assert len(str(tokens[0])) >= 32
    assert cluster.outcomes[0]["status"] == "accepted"
