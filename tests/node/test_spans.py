"""A node that is set up for tracing records what it does with jobs that have a `traceparent`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import aiohttp
from opentelemetry import trace

from raftsched.cli.local.cluster import free_ports
from raftsched.client import Client
from raftsched.config import Member, NodeConfig
from raftsched.executors.shell.executor import ShellExecutor
from raftsched.node.node import Node
from raftsched.node.shutdown import Shutdown
from raftsched.system import SystemClock
from raftsched.worker import Worker
from tests.client.cluster import QUICK, WAIT_SECONDS
from tests.spans import by_name, recorded_spans, traceparent_of
from tests.worker.conftest import SETTINGS, serving

PRINTS_ITS_TRACE = ["sh", "-c", 'printf "%s" "$TRACEPARENT"']


@asynccontextmanager
async def running_node(directory: Path) -> AsyncIterator[str]:
    """Run a node of one, in this process; yield the URL of its API."""
    shutdown = Shutdown(leave=lambda _code: None)
    member = Member("n1", *map("127.0.0.1:{}".format, free_ports(2)))
    config = NodeConfig(node_id="n1", data_dir=str(directory), nodes=(member,), auth="none")
    node = Node(config, clock=SystemClock(), randomness=Random(1), shutdown=shutdown)
    running = asyncio.create_task(node.run())
    try:
        yield config.url_of(member.api)
    finally:
        shutdown.ask("the test is over")
        await running
        with suppress(SystemExit):
            shutdown.end(0)


async def test_a_trace_shows_request_commit_wait_and_outcome_of_a_shell_job(tmp_path: Path) -> None:
    with recorded_spans() as spans:
        async with running_node(tmp_path / "data") as url, Client(url, settings=QUICK) as client:
            worker = Worker(url, settings=SETTINGS, queues=["shell"])
            worker.execute("shell", ShellExecutor(allow=None, grace_seconds=0.3).run)
            async with serving(worker):
                with trace.get_tracer("shop").start_as_current_span("order"):
                    job = await client.shell(PRINTS_ITS_TRACE)
                result = await job.wait(timeout=WAIT_SECONDS)
                found = by_name(spans)
                async with aiohttp.ClientSession(url) as session:  # no client of ours, which begins a trace
                    reply = await session.post("/api/v1/jobs", json={"shell": {"argv": PRINTS_ITS_TRACE}})
                    untraced = (await reply.json())["id"]
                await client.wait(untraced, timeout=WAIT_SECONDS)
    names = [span.name for span in spans.get_finished_spans()]
    assert result["stdout_tail"] == traceparent_of(found["run shell"])
    assert {name: names.count(name) for name in ("commit shell", "wait shell", "record shell")} == {
        "commit shell": 1, "wait shell": 1, "record shell": 1
    }  # fmt: skip  # of the traced job only
    recorded = [found[name] for name in ("POST /api/v1/jobs/batch", "commit shell", "wait shell", "record shell")]
    parents = {span.parent.span_id for span in recorded if span.parent is not None}
    assert parents == {found["submit shell"].context.span_id}
    assert all(span.start_time and span.end_time and span.start_time <= span.end_time for span in recorded)
