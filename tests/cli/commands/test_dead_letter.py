from __future__ import annotations

from tests.api.node import Api
from tests.cli.commands.test_control import failed, statuses
from tests.cli.runner import Cli


async def test_list_shows_why_jobs_were_given_up(api: Api, cli: Cli) -> None:
    assert (await cli.ok("dead-letter", "list")).stdout.startswith("none: ")
    job = await failed(api)
    assert [each["id"] for each in await cli.json("dead-letter", "list", "--reason", "attempts_exhausted")] == [
        job["id"]
    ]
    assert await cli.json("dead-letter", "list", "--reason", "timeout") == []
    shown = await cli.ok("dead-letter", "list", "--queue", "a")
    [row] = shown.rows
    assert (row[0], row[-2], row[-1]) == (job["id"], "attempts_exhausted", "Broke")
    assert "ended" in shown.stdout
    assert "queue" in await cli.refused("dead-letter", "list", "--queue", "a b")


async def test_requeue_by_reason_runs_them_again(api: Api, cli: Cli) -> None:
    jobs = [await failed(api) for _ in range(3)]
    dry = await cli.ok("dead-letter", "requeue", "--reason", "attempts_exhausted", "--dry-run")
    assert dry.stdout.startswith("would requeue 3 dead letters, for instance:")
    assert (await cli.ok("dead-letter", "requeue", jobs[0]["id"])).stdout == "1 of 1 dead letter requeued\n"
    assert (await cli.json("dead-letter", "requeue", "--reason", "attempts_exhausted"))["done"] == 2
    assert await statuses(cli, jobs) == ["queued"] * 3


async def test_purge_removes_them_for_good(api: Api, cli: Cli) -> None:
    job = await failed(api)
    assert (await cli.json("dead-letter", "purge", "--all", "--dry-run"))["matched"] == 1
    assert (await cli.ok("dead-letter", "purge", "--all", "--yes")).stdout == "1 of 1 dead letter purged\n"
    assert "[not_found]" in await cli.refused("get", job["id"])


async def test_commands_that_name_no_dead_letters_are_refused(cli: Cli) -> None:
    for command in ("requeue", "purge"):
        assert "--all" in await cli.misused("dead-letter", command)
        assert "attempts_exhausted" in await cli.misused("dead-letter", command, "--reason", "bad luck")
