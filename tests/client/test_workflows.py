"""Workflows, against the real API and a real worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from raftsched.client import Client, Dependency, Workflow, WorkflowNotCompleted
from raftsched.errors import Invalid, NotFound, Rejected
from raftsched.worker import Context, GiveUp, Worker
from tests.client.cluster import QUICK, WAIT_SECONDS
from tests.client.real import RealNode
from tests.client.test_control import lost_replies
from tests.worker.conftest import SETTINGS, serving


@pytest.fixture
async def client(node: RealNode) -> AsyncIterator[Client]:
    async with Client(node.api_url, settings=QUICK) as opened:
        yield opened


def worker_of(node: RealNode) -> Worker:
    worker = Worker(node.api_url, settings=SETTINGS, queues=["q"])

    @worker.job("count")
    async def count(ctx: Context, payload: int) -> int:
        return payload

    @worker.job("sum")
    async def total(ctx: Context, payload: list[str]) -> int:
        return sum([await ctx.result_of(task) for task in payload])

    @worker.job("fail")
    async def fail(ctx: Context, payload: object) -> None:
        raise GiveUp("as asked")

    return worker


async def test_children_run_after_their_parents_and_read_their_results(node: RealNode, client: Client) -> None:
    workflow = Workflow("nightly")
    counts = [workflow.job("count", n, queue="q") for n in range(1, 4)]
    total = workflow.job("sum", [task.name for task in counts], queue="q", after=counts)
    assert [task.name for task in counts] == ["count", "count-2", "count-3"]
    run = await client.workflows.submit(workflow)
    async with serving(worker_of(node)):
        done = await run.wait(timeout=WAIT_SECONDS)
    assert (done.status, done.completed_count, done.job_count) == ("completed", 4, 4)
    assert await run.results() == {"count": 1, "count-2": 2, "count-3": 3, "sum": 6}
    assert await run.result(total.name) == 6
    assert await client.workflows.run(run.id).result("sum") == 6
    with pytest.raises(NotFound):
        await run.result("no such task")


async def test_failed_workflow_runs_what_waits_for_the_failure_and_says_how_it_ended(
    node: RealNode, client: Client
) -> None:
    workflow = Workflow("w")
    fail = workflow.job("fail", queue="q")
    workflow.job("sum", [], task="then", queue="q", after=fail)
    workflow.job("sum", [], task="else", queue="q", after=fail, on="failure")
    workflow.job("sum", [], task="always", queue="q").after("then", "else", on="completion")
    run = await client.workflows.submit(workflow)
    async with serving(worker_of(node)):
        with pytest.raises(WorkflowNotCompleted, match="1 failed, 0 cancelled, 1 skipped") as caught:
            await run.wait(timeout=WAIT_SECONDS)
    assert caught.value.workflow.status == "failed"
    graph = await run.graph()
    statuses = {node.task: node.status for node in graph.nodes}
    assert statuses == {"fail": "dead_letter", "then": "skipped", "else": "completed", "always": "completed"}
    assert {(edge.child, edge.condition) for edge in graph.edges if edge.parent == run.jobs["fail"].id} == {
        (run.jobs["then"].id, "success"),
        (run.jobs["else"].id, "failure"),
    }


async def test_workflow_whose_reply_was_lost_is_stored_once(node: RealNode, client: Client) -> None:
    workflow = Workflow("w")
    workflow.job("a", after=workflow.job("b"))
    lost_replies(node, 2)
    run = await client.workflows.submit(workflow)
    assert [each.id async for each in client.workflows.list(name="w")] == [run.id]
    assert set(run.jobs) == {"a", "b"}


async def test_key_of_ones_own_finds_the_workflow_again(client: Client) -> None:
    workflow = Workflow("w", idempotency_key="2027-01-01")
    workflow.job("a")
    first, again = await client.workflows.submit(workflow), await client.workflows.submit(workflow)
    assert (again.id, again.duplicate, again.jobs["a"].id) == (first.id, True, first.jobs["a"].id)


async def test_cycle_is_refused_and_named(client: Client) -> None:
    workflow = Workflow("w")
    a = workflow.job("a", after="c")
    workflow.job("c", after=workflow.job("b", after=a))
    with pytest.raises(Rejected) as caught:
        await client.workflows.submit(workflow)
    assert caught.value.code == "cycle"
    assert set(caught.value.members) == {"a", "b", "c"}
    assert [each async for each in client.workflows.list()] == []


async def test_parent_may_be_a_job_elsewhere(client: Client) -> None:
    one, two = await client.submit("one"), await client.submit("two")
    workflow = Workflow("w")
    workflow.job("a", after=[one, Dependency(two.id, "completion")])
    run = await client.workflows.submit(workflow)
    info = await run.jobs["a"].get()
    assert {(parent.job, parent.condition) for parent in info.depends_on} == {
        (one.id, "success"),
        (two.id, "completion"),
    }


async def test_cancelled_workflow_ends_with_all_its_jobs(client: Client) -> None:
    workflow = Workflow("w")
    workflow.job("a", after=workflow.job("b"))
    run = await client.workflows.submit(workflow)
    await run.cancel()
    with pytest.raises(WorkflowNotCompleted) as caught:
        await run.wait(timeout=WAIT_SECONDS)
    assert caught.value.workflow.status == "cancelled"


@pytest.mark.parametrize("options", [{"task": "a"}, {"depends_on": ["x"]}])
def test_builder_refuses_what_can_not_be_meant(options: dict[str, Any]) -> None:
    workflow = Workflow("w")
    workflow.job("a")
    with pytest.raises(Invalid) as caught:
        workflow.job("b", **options)
    assert caught.value.field in options
