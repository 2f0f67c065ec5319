from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.api.node import NOBODY, Api, run_of
from tests.cli.runner import Cli


async def leased(api: Api, **fields: Any) -> tuple[Any, Any]:
    """A job that runs, and its lease."""
    job = await api.submit(name="a", queue="a", **fields)
    [lease] = await api.lease("a")
    return job, lease


async def write(api: Api, lease: Any, *lines: str) -> None:
    """Log lines of the run, as its worker does."""
    answer = await api.post(f"runs/{lease['run_id']}/logs", {"fencing_token": lease["fencing_token"], "lines": lines})
    assert answer.status == 200, answer.body


async def end(api: Api, lease: Any, **outcome: Any) -> None:
    answer = await api.report(run_of(lease, **({"status": "completed"} | outcome)))
    assert answer.status == 200, answer.body


async def test_tail_follows_status_progress_and_lines_until_the_end(api: Api, cli: Cli) -> None:
    job, lease = await leased(api)
    await write(api, lease, "one")
    tail = asyncio.create_task(cli.run("tail", job["id"], "--json"))
    beat = {"fencing_token": lease["fencing_token"], "progress": {"done": 1}}
    progress = await api.post(f"runs/{lease['run_id']}/progress", beat)
    assert progress.status == 200, progress.body
    await write(api, lease, "two")
    await end(api, lease, result=7)
    ran = await tail
    assert ran.exit_code == 0
    events = ran.json_lines
    assert "".join(event["text"] for event in events if event["event"] == "log") == "one\ntwo\n"
    assert [event["status"] for event in events if event["event"] == "status"][-1] == "completed"
    assert [event["progress"] for event in events if event["event"] == "progress"] == [{"done": 1}]


async def test_tail_ends_with_the_status_and_not_with_the_progress_before_it(api: Api, cli: Cli) -> None:
    job, lease = await leased(api)
    said = {"fencing_token": lease["fencing_token"], "progress": {"done": 1}}
    assert (await api.post(f"runs/{lease['run_id']}/progress", said)).status == 200
    await end(api, lease)
    events = (await cli.ok("tail", job["id"], "--json")).json_lines
    assert [event["event"] for event in events] == ["progress", "status"]


async def test_tail_prints_the_lines_as_they_are(api: Api, cli: Cli) -> None:
    job, lease = await leased(api)
    await write(api, lease, "[red]not markup[/red]")
    await end(api, lease)
    shown = (await cli.ok("tail", job["id"])).stdout
    assert "[red]not markup[/red]\n" in shown
    assert "── completed" in shown


@pytest.mark.parametrize(
    ("outcome", "exit_code"),
    [
        ({"status": "completed"}, 0),
        ({"status": "failed", "error": {"type": "Broke", "message": "no", "trace": ""}}, 3),
    ],
)
async def test_exit_code_of_tail_says_how_the_job_ended(
    api: Api, cli: Cli, outcome: dict[str, Any], exit_code: int
) -> None:
    job, lease = await leased(api, max_attempts=1)
    await end(api, lease, **outcome)
    assert (await cli.run("tail", job["id"])).exit_code == exit_code
    assert "[not_found]" in await cli.refused("tail", NOBODY)
    cancelled = await cli.json("submit", "a", "--delay", "1h")
    await cli.ok("cancel", cancelled["id"])
    assert (await cli.run("tail", cancelled["id"])).exit_code == 4


async def test_logs_prints_what_the_latest_attempt_wrote_or_the_one_that_is_named(api: Api, cli: Cli) -> None:
    job, lease = await leased(api, retry_policy={"backoff": "fixed", "base_seconds": 0, "jitter": 0})
    await write(api, lease, "first")
    await end(api, lease, status="failed", error={"type": "Broke", "message": "no", "trace": ""})
    [second] = await api.lease("a")
    await write(api, second, "second", "third")
    assert (await cli.ok("logs", job["id"])).stdout == "second\nthird\n"
    assert (await cli.ok("logs", job["id"], "--run", "1", "--attempt", "1")).stdout == "first\n"
    [part] = await cli.json("logs", job["id"])
    assert part == {"run_number": 1, "attempt_number": 2, "text": "second\nthird\n"}


async def test_logs_follow_ends_with_the_job(api: Api, cli: Cli) -> None:
    job, lease = await leased(api)
    await write(api, lease, "one")
    logs = asyncio.create_task(cli.run("logs", job["id"], "--follow", "--json"))
    await write(api, lease, "two")
    await end(api, lease)
    ran = await logs
    assert (ran.exit_code, "".join(part["text"] for part in ran.json_lines)) == (0, "one\ntwo\n")


async def test_logs_of_an_attempt_that_was_not_made_is_refused(api: Api, cli: Cli) -> None:
    job, _ = await leased(api)
    assert "[not_found]" in await cli.refused("logs", job["id"], "--attempt", "5")
    assert "--attempt" in await cli.misused("logs", job["id"], "--run", "1")


async def test_submit_with_wait_sees_the_job_through(api: Api, cli: Cli) -> None:
    waiting = asyncio.create_task(cli.run("submit", "a", "--wait", "--json"))
    [lease] = await api.lease("a", wait_seconds=10)
    await end(api, lease, result={"sent": True})
    ran = await waiting
    assert (ran.exit_code, ran.json["status"], ran.json["result"]) == (0, "completed", {"sent": True})
    assert ran.stderr == f"raftsched: waiting for {lease['job_id']}\n"
