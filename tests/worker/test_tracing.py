"""A trace goes from the program that submits a job, over the job, to its runs and to what they send."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from raftsched.client import BlockingClient, Client
from raftsched.client.errors import JobFailed
from raftsched.tracing import current_traceparent
from raftsched.worker import Context, Worker
from tests.client.cluster import QUICK, WAIT_SECONDS
from tests.client.real import RealNode, real_node
from tests.spans import by_name, recorded_spans, traceparent_of
from tests.worker.conftest import SETTINGS, serving

GIVEN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    with recorded_spans() as exporter:
        yield exporter


@pytest.fixture
async def node() -> AsyncIterator[RealNode]:
    async with real_node() as running:
        yield running


@pytest.fixture
def worker(node: RealNode) -> Worker:
    made = Worker(node.api_url, settings=SETTINGS, queues=["default"])

    @made.job("coroutine")
    async def coroutine(ctx: Context, _payload: object) -> list[str | None]:
        return [ctx.traceparent, current_traceparent()]

    @made.job("thread")
    def thread(ctx: Context, _payload: object) -> list[str | None]:
        return [ctx.traceparent, current_traceparent()]

    @made.job("failing")
    async def failing(_ctx: Context, payload: str) -> None:
        raise ValueError(f"can't use {payload}")

    return made


@pytest.mark.parametrize("name", ["coroutine", "thread"])
async def test_run_is_a_part_of_the_trace_of_its_submission(
    node: RealNode, worker: Worker, spans: InMemorySpanExporter, name: str
) -> None:
    async with Client(node.api_url, settings=QUICK) as client, serving(worker):
        with trace.get_tracer("shop").start_as_current_span("order"):
            job = await client.submit(name, queue="default")
        submitted_in, ran_in = await job.wait(timeout=WAIT_SECONDS)
    found = by_name(spans)
    assert submitted_in == traceparent_of(found[f"submit {name}"])
    assert ran_in == traceparent_of(found[f"run {name}"])
    parents = [found[each].parent for each in (f"submit {name}", f"run {name}")]
    assert [parent.span_id for parent in parents if parent] == [
        found[each].context.span_id for each in ("order", f"submit {name}")
    ]
    attributes = found[f"run {name}"].attributes
    assert attributes is not None
    assert attributes["raftsched.job_id"] == job.id


async def test_run_that_fails_has_the_type_of_its_error_and_no_message(
    node: RealNode, worker: Worker, spans: InMemorySpanExporter
) -> None:
    async with Client(node.api_url, settings=QUICK) as client, serving(worker):
        job = await client.submit("failing", "canary", queue="default", max_attempts=1)
        with pytest.raises(JobFailed, match="canary"):
            await job.wait(timeout=WAIT_SECONDS)
    run = by_name(spans)["run failing"]
    assert (run.status.status_code, run.status.description) == (trace.StatusCode.ERROR, "ValueError")
    assert "canary" not in "".join(span.to_json() for span in spans.get_finished_spans())


async def test_blocking_client_submits_in_the_span_of_its_thread(node: RealNode, spans: InMemorySpanExporter) -> None:
    def submit() -> None:
        with (
            BlockingClient(node.api_url, settings=QUICK) as client,
            trace.get_tracer("shop").start_as_current_span("order"),
        ):
            client.submit("thread", queue="elsewhere")

    await asyncio.to_thread(submit)
    found = by_name(spans)
    parent = found["submit thread"].parent
    assert parent is not None
    assert parent.span_id == found["order"].context.span_id


async def test_traceparent_is_passed_on_where_nothing_records_spans(node: RealNode, worker: Worker) -> None:
    async with Client(node.api_url, settings=QUICK) as client, serving(worker):
        given = await client.submit("coroutine", queue="default", traceparent=GIVEN)
        assert (await given.wait(timeout=WAIT_SECONDS))[0] == GIVEN
        assert (await given.get()).traceparent == GIVEN
        none = await client.submit("coroutine", queue="default")
        assert await none.wait(timeout=WAIT_SECONDS) == [None, None]
