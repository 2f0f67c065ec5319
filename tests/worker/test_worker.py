from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from raftsched.errors import Invalid, Rejected
from raftsched.worker import Context, GiveUp, Retry, Snooze, Worker
from tests.client.cluster import WAIT_SECONDS, Cluster, Fault
from tests.worker.conftest import SETTINGS, run, run_job, serving, with_cluster, worker_of

OUTCOMES = "/leases/outcomes"


# -- handlers ---------------------------------------------------------------------------------------------------------


async def test_async_handler_gets_context_and_payload_and_its_result_is_recorded(
    cluster: Cluster, worker: Worker
) -> None:
    seen: list[Context] = []

    @worker.job("sum")
    async def total(ctx: Context, payload: dict[str, int]) -> dict[str, int]:
        seen.append(ctx)
        return {"sum": payload["a"] + payload["b"]}

    job = await run_job(cluster, worker, "sum", {"a": 1, "b": 2}, timeout_seconds=60)
    assert (job.status, job.result) == ("completed", {"sum": 3})
    (ctx,) = seen
    assert (ctx.job_id, ctx.run_id, ctx.fencing_token) == (job.id, f"{job.id}.1", job.token)
    assert (ctx.name, ctx.queue, ctx.attempt_number) == ("sum", "sum", 1)
    assert ctx.deadline is not None
    assert timedelta() < ctx.deadline - datetime.now(UTC) <= timedelta(seconds=60)


async def test_plain_handler_runs_in_a_thread(cluster: Cluster, worker: Worker) -> None:
    @worker.job("where")
    def where(payload: object) -> bool:
        return threading.current_thread() is threading.main_thread()

    job = await run_job(cluster, worker, "where")
    assert job.result is False


async def test_handlers_run_at_the_same_time_up_to_the_concurrency(cluster: Cluster, worker: Worker) -> None:
    running = most = 0
    go = asyncio.Event()

    @worker.job("a")
    async def handle(payload: object) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == SETTINGS.concurrency:
            go.set()
        await go.wait()
        running -= 1

    jobs = [await cluster.add_job("a") for _ in range(20)]
    await run(cluster, worker, *jobs)
    assert most == SETTINGS.concurrency


async def test_threads_are_used_again(cluster: Cluster, worker: Worker) -> None:
    threads: set[int] = set()

    @worker.job("a")
    def handle(payload: object) -> None:
        threads.add(threading.get_ident())

    jobs = [await cluster.add_job("a") for _ in range(50)]
    await run(cluster, worker, *jobs)
    assert len(threads) <= SETTINGS.concurrency


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Retry("busy", after=2.5), {"status": "failed", "retry_after_seconds": 2.5, "kind": "Retry"}),
        (Retry(), {"status": "failed", "kind": "Retry"}),
        (GiveUp("no such user"), {"status": "failed", "retryable": False, "kind": "GiveUp"}),
        (Snooze(timedelta(minutes=1)), {"status": "snoozed", "snooze_seconds": 60.0}),
        (ValueError("bad \udc80"), {"status": "failed", "kind": "ValueError"}),
        (ValueError("a\0b"), {"status": "failed", "kind": "ValueError"}),
        (SystemExit(3), {"status": "failed", "kind": "SystemExit"}),
        (BaseException("x"), {"status": "failed", "kind": "BaseException"}),
        (GeneratorExit(), {"status": "failed", "kind": "GeneratorExit"}),
        (KeyboardInterrupt(), {"status": "failed", "kind": "KeyboardInterrupt"}),
        (asyncio.CancelledError(), {"status": "failed", "kind": "CancelledError"}),
    ],
)
async def test_what_a_handler_raises_becomes_its_outcome(
    cluster: Cluster, worker: Worker, error: BaseException, outcome: dict[str, Any], is_async: bool
) -> None:
    def handle(payload: object) -> None:
        raise error

    async def handle_async(payload: object) -> None:
        handle(payload)

    worker.job("a")(handle_async if is_async else handle)
    await cluster.add_job("a")
    async with serving(worker):
        await cluster.until(lambda: cluster.outcomes)
        cluster.is_paused = True
    recorded = cluster.outcomes[0]
    named = {field: recorded[field] for field in ("run_id", "fencing_token", "completion_id")}
    kind = {"kind": recorded.pop("error")["type"]} if "error" in recorded else {}
    assert recorded | kind == named | outcome


async def test_failure_says_type_message_and_trace(cluster: Cluster, worker: Worker) -> None:
    @worker.job("a")
    async def explode(payload: object) -> None:
        raise ZeroDivisionError("x" * 10_000)

    await cluster.add_job("a")
    async with serving(worker):
        await cluster.until(lambda: cluster.outcomes)
        cluster.is_paused = True
    error = cluster.outcomes[0]["error"]
    assert (error["type"], len(error["message"])) == ("ZeroDivisionError", 2_000)
    assert len(error["trace"]) <= 8_000


async def test_result_without_a_json_form_fails_for_good(cluster: Cluster, worker: Worker) -> None:
    @worker.job("a")
    async def handle(payload: object) -> object:
        return float("nan")

    job = await run_job(cluster, worker, "a")
    assert job.status == "dead_letter"
    assert job.error is not None
    assert job.error["type"] == "ResultNotJson"


async def test_unknown_job_name_is_a_failure_to_be_tried_again_later_and_later(cluster: Cluster) -> None:
    worker = worker_of(cluster, queues=["default"])
    await cluster.add_job("surprise", queue="default")
    async with serving(worker):
        await cluster.until(lambda: len(cluster.outcomes) >= 10)
    told = cluster.outcomes[:10]
    assert {outcome["error"]["type"] for outcome in told} == {"UnknownJob"}
    assert "'surprise'" in told[0]["error"]["message"]
    assert all(outcome.get("retryable", True) for outcome in told)
    delays = [outcome["retry_after_seconds"] for outcome in told]
    assert delays == [15, 30, 60, 120, 240, *[300] * 5]


async def test_unknown_job_is_run_by_a_worker_that_knows_it(cluster: Cluster) -> None:
    older, newer = (worker_of(cluster, queues=["default"]) for _ in range(2))
    newer.job("surprise")(_nothing)
    job = await cluster.add_job("surprise", queue="default")
    async with serving(older):
        await cluster.until(lambda: cluster.outcomes)
    async with serving(newer):
        await cluster.finished(job)
    assert job.status == "completed"


async def test_failure_of_the_handlers_last_attempt_is_final(cluster: Cluster, worker: Worker) -> None:
    @worker.job("a", max_attempts=2)
    async def explode(payload: object) -> None:
        raise ValueError

    job = await run_job(cluster, worker, "a")
    assert (job.status, job.attempt_number) == ("dead_letter", 2)


async def test_handler_that_cancels_itself_has_failed(cluster: Cluster, worker: Worker) -> None:
    @worker.job("a", max_attempts=1)
    async def cancel_self(payload: object) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    job = await run_job(cluster, worker, "a")
    assert job.error is not None
    assert job.error["type"] == "CancelledError"


async def test_queues_are_those_of_the_handlers(cluster: Cluster, worker: Worker) -> None:
    worker.job("a")(_nothing)
    worker.job("b", queue="shared")(_nothing)
    worker.job("c", queue="shared")(_nothing)
    async with serving(worker):
        await cluster.until(lambda: cluster.bodies("/leases"))
    assert cluster.bodies("/leases")[0]["queues"] == ["a", "shared"]


async def test_worker_without_queues_is_refused(cluster: Cluster) -> None:
    with pytest.raises(Invalid) as caught:
        await worker_of(cluster).serve()
    assert caught.value.field == "queues"


def test_workers_of_one_name_are_told_apart() -> None:
    first, second = Worker(name="mailer"), Worker(name="mailer")
    assert first.name != second.name
    assert first.name.startswith("mailer-")
    with pytest.raises(Invalid):
        Worker(name="a b")


# -- outcomes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.REPLY_LOST, Fault.REFUSED, Fault.UNKNOWN, Fault.GARBLED])
async def test_outcome_is_repeated_under_its_completion_id_until_it_is_answered(
    cluster: Cluster, worker: Worker, fault: Fault, logs: list[Any]
) -> None:
    worker.job("a")(_nothing)
    cluster.faults[OUTCOMES].extend([fault] * 4)
    await run_job(cluster, worker, "a")
    sent = [outcome for body in cluster.bodies(OUTCOMES) for outcome in body["outcomes"]]
    assert len({outcome["completion_id"] for outcome in sent}) == 1
    assert (len(cluster.outcomes), cluster.refused) == (1, [])
    assert not cluster.faults[OUTCOMES]
    assert "outcome_refused" not in [event["event"] for event in logs]


async def test_outcome_that_the_cluster_refuses_is_logged_and_not_repeated(
    cluster: Cluster, worker: Worker, logs: list[Any]
) -> None:
    @worker.job("a")
    async def lose_lease(ctx: Context, payload: object) -> None:
        cluster.lost_tokens.add(ctx.fencing_token)

    await cluster.add_job("a")
    async with serving(worker):
        await cluster.until(lambda: cluster.refused)
    assert len(cluster.refused) == 1
    assert [event["code"] for event in logs if event["event"] == "outcome_refused"] == ["lease_lost"]


async def test_result_that_the_cluster_cannot_take_fails_the_job_for_good(cluster: Cluster, worker: Worker) -> None:
    worker.job("a")(_nothing)
    cluster.item_problems.append({"code": "malformed", "detail": "outcomes[0].result: too deep"})
    job = await run_job(cluster, worker, "a")
    assert job.status == "dead_letter"
    assert job.error == {"type": "ResultRefused", "message": "result: too deep"}


async def test_verdict_that_the_cluster_cannot_take_fails_the_job_for_good(cluster: Cluster, worker: Worker) -> None:
    @worker.job("a")
    async def snooze(payload: object) -> None:
        raise Snooze(1)

    cluster.item_problems.append({"code": "malformed", "detail": "outcomes[0].snooze_seconds: too long"})
    job = await run_job(cluster, worker, "a")
    assert job.status == "dead_letter"
    assert job.error == {"type": "OutcomeRefused", "message": "snooze_seconds: too long"}


async def test_refusal_of_what_stands_for_a_refused_outcome_ends_it(
    cluster: Cluster, worker: Worker, logs: list[Any]
) -> None:
    worker.job("a")(_nothing)
    cluster.item_problems.extend([{"code": "malformed", "detail": "no"}] * 3)
    await cluster.add_job("a")
    async with serving(worker):
        await cluster.until(lambda: len(cluster.item_problems) == 1)
    assert [event["code"] for event in logs if event["event"] == "outcome_refused"] == ["malformed"] * 2
    assert (len(cluster.item_problems), cluster.outcomes) == (1, [])


async def test_only_the_outcomes_that_were_not_taken_go_again(cluster: Cluster, worker: Worker) -> None:
    worker.job("a")(_nothing)
    cluster.item_problems.append({"code": "unavailable", "retryable": True})
    jobs = [await cluster.add_job("a") for _ in range(3)]
    await run(cluster, worker, *jobs)
    assert len(cluster.outcomes) == 3
    assert sum(len(body["outcomes"]) for body in cluster.bodies(OUTCOMES)) == 4


@with_cluster(2)
async def test_outcomes_survive_a_change_of_leader(cluster: Cluster, worker: Worker) -> None:
    @worker.job("a")
    async def change_leader(payload: object) -> str:
        cluster.leader = cluster.nodes[1]
        await cluster.nodes[0].stop()
        return "done"

    job = await run_job(cluster, worker, "a")
    assert job.result == "done"


# -- leasing ----------------------------------------------------------------------------------------------------------


async def test_free_slot_is_asked_for_at_once(cluster: Cluster, worker: Worker) -> None:
    go = asyncio.Event()

    @worker.job("hold")
    async def hold(payload: object) -> None:
        await go.wait()

    worker.job("a")(_nothing)
    held = await cluster.add_job("hold")
    async with serving(worker):
        await cluster.until(lambda: held.status == "running")
        job = await cluster.add_job("a")
        await cluster.finished(job)
        go.set()
    assert {body["capacity"] for body in cluster.bodies("/leases")[:2]} == {SETTINGS.concurrency, 3}


async def test_fast_handlers_have_jobs_leased_ahead(cluster: Cluster, worker: Worker) -> None:
    worker.job("a")(_nothing)
    jobs = [await cluster.add_job("a") for _ in range(100)]
    await run(cluster, worker, *jobs)
    asked = cluster.bodies("/leases")
    assert max(body["capacity"] for body in asked) == 2 * SETTINGS.concurrency


async def test_slow_handlers_have_nothing_leased_ahead(cluster: Cluster) -> None:
    worker = worker_of(cluster, settings=replace(SETTINGS, prefetch_below_seconds=0.0))
    worker.job("a")(_nothing)
    jobs = [await cluster.add_job("a") for _ in range(50)]
    await run(cluster, worker, *jobs)
    assert max(body["capacity"] for body in cluster.bodies("/leases")) == SETTINGS.concurrency


async def test_job_leased_ahead_that_finds_no_slot_is_given_back(cluster: Cluster) -> None:
    settings = replace(SETTINGS, concurrency=1, prefetched_seconds_max=0.05)
    worker = worker_of(cluster, settings=settings)
    go = asyncio.Event()

    @worker.job("a")
    async def handle(payload: str) -> None:
        if payload == "hold":
            await go.wait()

    quick = [await cluster.add_job("a", "quick") for _ in range(4)]
    async with serving(worker):
        await cluster.finished(*quick)
        hold = await cluster.add_job("a", "hold")
        ahead = await cluster.add_job("a", "ahead")
        await cluster.until(lambda: any(outcome["status"] == "snoozed" for outcome in cluster.outcomes))
        assert (hold.status, ahead.status) == ("running", "queued")
        go.set()
    (given_back,) = [outcome for outcome in cluster.outcomes if outcome["status"] == "snoozed"]
    assert (given_back["run_id"], given_back["snooze_seconds"]) == (f"{ahead.id}.1", 0.0)


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.REFUSED, Fault.GARBLED])
async def test_worker_goes_on_asking_after_a_failed_request(cluster: Cluster, worker: Worker, fault: Fault) -> None:
    worker.job("a")(_nothing)
    cluster.faults["/leases"].extend([fault] * 5)
    async with serving(worker):
        await cluster.until(lambda: cluster.nodes[0].seen.count("/leases") == 6)
        job = await cluster.add_job("a")
        await cluster.finished(job)
    assert job.status == "completed"


async def test_worker_that_the_cluster_refuses_ends_with_its_reason(cluster: Cluster) -> None:
    worker = worker_of(cluster, queues=["a"])
    cluster.refusal = {"status": 403, "code": "forbidden", "detail": "this token may not lease"}
    with pytest.raises(Rejected) as caught:
        async with asyncio.timeout(WAIT_SECONDS):
            await worker.serve()
    assert caught.value.code == "forbidden"


async def _nothing(payload: object) -> None:
    return None
