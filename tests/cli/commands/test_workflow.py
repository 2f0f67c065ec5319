from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.api.node import Api
from tests.cli.runner import Cli, written

FILE = """
name: etl
jobs:
  extract: {name: extract_rows, queue: q}
  transform:
    name: transform_rows
    queue: q
    depends_on: [extract]
  alarm:
    name: call_somebody
    queue: q
    depends_on: [{task: transform, condition: failure}]
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return written(tmp_path / "etl.yaml", FILE)


async def test_submit_stores_the_jobs_and_get_shows_the_graph(cli: Cli, path: str) -> None:
    workflow = await cli.json("workflow", "submit", "-f", path)
    assert set(workflow["jobs"]) == {"extract", "transform", "alarm"}
    graph = await cli.json("workflow", "get", workflow["id"])
    assert [node["task"] for node in graph["nodes"]] == ["extract", "transform", "alarm"]
    assert len(graph["edges"]) == 2
    shown = await cli.ok("workflow", "get", workflow["id"])
    assert "etl is running: 0 of 3 jobs ended" in shown.stdout
    assert shown.rows[1][:4] == ["transform", "waiting_dependencies", "transform_rows", "extract"]
    assert "transform (failure)" in shown.stdout
    assert "[not_found]" in await cli.refused("workflow", "get", workflow["jobs"]["extract"])


async def test_submit_under_the_same_key_finds_the_first(cli: Cli, path: str) -> None:
    command = ("workflow", "submit", "-f", path, "--idempotency-key", "monday")
    first, again = await cli.json(*command), await cli.json(*command)
    assert (again["id"], again["duplicate"]) == (first["id"], True)
    assert [each["id"] for each in await cli.json("workflow", "list", "--name", "etl")] == [first["id"]]
    [row] = (await cli.ok("workflow", "list")).rows
    assert row[:3] == [first["id"], "etl", "running"]
    assert "name" in await cli.refused("workflow", "list", "--name", "a b")


async def test_submit_with_wait_ends_as_the_workflow_does(api: Api, cli: Cli, path: str) -> None:
    waiting = asyncio.create_task(cli.run("workflow", "submit", "-f", path, "--wait", "--json"))
    for _ in range(2):
        [lease] = await api.lease("q", wait_seconds=10)
        held = {"run_id": lease["run_id"], "fencing_token": lease["fencing_token"]}
        await api.report(held | {"status": "completed"})
    ran = await waiting
    assert (ran.exit_code, ran.json["status"], ran.json["skipped_count"]) == (0, "completed", 1)


async def test_submit_with_wait_shows_how_each_task_ended(api: Api, cli: Cli, path: str) -> None:
    waiting = asyncio.create_task(cli.run("workflow", "submit", "-f", path, "--wait"))
    [lease] = await api.lease("q", wait_seconds=10)
    workflow_id = (await api.get(f"jobs/{lease['job_id']}")).json["workflow_id"]
    await api.ask("DELETE", f"workflows/{workflow_id}")
    held = {"run_id": lease["run_id"], "fencing_token": lease["fencing_token"]}
    await api.report(held | {"status": "completed"})
    ran = await waiting
    assert ran.exit_code == 4
    assert ran.stderr == f"raftsched: waiting for {workflow_id}\n"
    assert [row[:2] for row in ran.rows] == [
        ["extract", "cancelled"], ["transform", "cancelled"], ["alarm", "cancelled"],
    ]  # fmt: skip


async def test_cancel_ends_what_has_not_ended(cli: Cli, path: str) -> None:
    workflow = await cli.json("workflow", "submit", "-f", path)
    assert (await cli.json("workflow", "cancel", workflow["id"]))["status"] in ("cancelling", "cancelled")
    assert (await cli.ok("workflow", "cancel", workflow["id"])).stdout.startswith("etl is ")
    assert "[not_found]" in await cli.refused("workflow", "cancel", "00000000-0000-7000-8000-000000000001")


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        (FILE.replace("queue: q}", "priorty: 1}"), 4, "priorty"),
        (FILE.replace("depends_on: [extract]", "depends_on: [extrakt]"), 8, "extrakt"),
        (FILE.replace("{name: extract_rows, queue: q}", "{name: a, depends_on: [transform]}"), None, "[cycle]"),
        ("- a", None, "a workflow has the fields"),
    ],
)
async def test_submit_names_the_line_and_the_field_at_fault(
    cli: Cli, tmp_path: Path, text: str, line: int | None, told: str
) -> None:
    path = written(tmp_path / "etl.yaml", text)
    refused = await cli.refused("workflow", "submit", "-f", path)
    assert told in refused
    if line:
        assert refused.startswith(f"raftsched: {path}:{line}: ")
    assert await cli.json("workflow", "list") == []
