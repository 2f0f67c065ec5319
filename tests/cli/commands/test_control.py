from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from raftsched.cli.commands.bulk import ActionWords, BulkOptions, Target, run_bulk
from raftsched.cli.terminal.session import Session
from tests.api.node import NOBODY, Api
from tests.cli.runner import Cli


async def scheduled(cli: Cli, *options: str) -> Any:
    return await cli.json("submit", "a", "--delay", "1h", *options)


async def failed(api: Api) -> Any:
    """A job in the dead letters."""
    job = await api.submit(name="a", queue="a", max_attempts=1)
    await api.end("a", status="failed", error={"type": "Broke", "message": "no", "trace": ""})
    return job


async def statuses(cli: Cli, jobs: Iterable[Any]) -> list[str]:
    return [(await cli.json("get", job["id"]))["status"] for job in jobs]


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (("cancel",), "cancelled"),
        (("cancel", "--force"), "cancelled"),
        (("pause", "--for", "1h", "--reason", "lunch"), "paused"),
        (("reschedule", "--delay", "0"), "queued"),
        (("reschedule", "--run-at", "+3h"), "scheduled"),
        (("reprioritise", "--priority", "9"), "scheduled"),
    ],
)
async def test_command_on_one_job_shows_it_as_it_then_is(cli: Cli, command: tuple[str, ...], status: str) -> None:
    job = await scheduled(cli)
    name, *options = command
    shown = (await cli.ok(name, job["id"], *options)).stdout
    assert shown.startswith(f"{job['id']}  {status}")
    other = await scheduled(cli)
    assert (await cli.json(name, other["id"], *options))["status"] == status


async def test_resume_lets_a_paused_job_go_on(cli: Cli) -> None:
    job = await scheduled(cli, "--paused")
    assert "scheduled" in (await cli.ok("resume", job["id"])).stdout
    assert (await cli.json("get", job["id"]))["status"] == "scheduled"


async def test_retry_runs_a_dead_letter_again(api: Api, cli: Cli) -> None:
    job = await failed(api)
    assert (await cli.json("retry", job["id"], "--delay", "1h"))["status"] == "scheduled"
    assert "queued" in (await cli.ok("retry", (await failed(api))["id"])).stdout


async def test_replay_makes_a_clone_with_a_link(api: Api, cli: Cli) -> None:
    job = await failed(api)
    clone = await cli.json("replay", job["id"], "--payload", "[1]", "--to-queue", "slow", "--priority", "low")
    assert clone["id"] != job["id"]
    assert (clone["replay_of"], clone["payload"], clone["queue"], clone["priority"]) == (job["id"], [1], "slow", 2)
    again = ("replay", job["id"], "--idempotency-key", "once")
    assert (await cli.json(*again))["id"] == (await cli.json(*again))["id"]


async def test_amend_changes_what_is_named_and_takes_away_what_is_named(cli: Cli) -> None:
    job = await scheduled(cli, "--timeout", "60", "--tag", "x")
    changed = await cli.json(
        "amend", job["id"], "--delay", "2h", "--priority", "9", "--queue", "slow", "--payload", "[7]",
        "--max-attempts", "9", "--expires-at", "+3h", "--deadline", "+4h", "--without", "timeout", "--without", "tags",
        "--if-revision", str(job["revision"]),
    )  # fmt: skip
    assert (changed["priority"], changed["queue"], changed["payload"], changed["max_attempts"]) == (9, "slow", [7], 9)
    assert (changed["timeout_seconds"], changed["tags"]) == (None, [])
    assert changed["run_at"] < changed["expires_at"] < changed["deadline"]
    assert "scheduled" in (await cli.ok("amend", job["id"], "--tag", "y")).stdout
    assert "[stale_revision]" in await cli.refused("amend", job["id"], "--tag", "z", "--if-revision", "1")
    assert "say what to change" in await cli.misused("amend", job["id"])


async def test_delete_removes_jobs_that_have_ended(cli: Cli) -> None:
    job = await scheduled(cli)
    await cli.ok("cancel", job["id"])
    assert (await cli.ok("delete", job["id"])).stdout == "1 of 1 job deleted\n"
    assert "[not_found]" in await cli.refused("get", job["id"])


@pytest.mark.parametrize(
    "command",
    [
        ("cancel",),
        ("pause",),
        ("resume",),
        ("retry",),
        ("replay",),
        ("reschedule", "--delay", "1"),
        ("reprioritise", "--priority", "1"),
    ],
)
async def test_command_on_a_job_that_is_not_there_is_refused(cli: Cli, command: tuple[str, ...]) -> None:
    assert "[not_found]" in await cli.refused(command[0], NOBODY, *command[1:])


@pytest.mark.parametrize(
    "command", [("cancel",), ("pause",), ("delete",), ("retry",), ("reprioritise", "--priority", "1")]
)
async def test_command_that_names_no_jobs_is_refused(cli: Cli, command: tuple[str, ...]) -> None:
    assert "--all" in await cli.misused(*command)
    assert "--all" in await cli.misused(*command, "--all", "--queue", "a")


async def test_bulk_by_filter_leaves_the_others_alone(cli: Cli) -> None:
    meant = [await scheduled(cli, "--tag", "x") for _ in range(3)]
    other = await scheduled(cli)
    dry = await cli.ok("cancel", "--tag", "x", "--dry-run")
    assert dry.stdout.startswith("would cancel 3 jobs, for instance:\n")
    assert meant[0]["id"] in dry.stdout
    assert await statuses(cli, meant) == ["scheduled"] * 3
    assert (await cli.ok("cancel", "--tag", "x")).stdout == "3 of 3 jobs cancelled\n"
    assert await statuses(cli, meant) == ["cancelled"] * 3
    assert await statuses(cli, [other]) == ["scheduled"]


async def test_bulk_counts_in_json(cli: Cli) -> None:
    await scheduled(cli)
    await scheduled(cli)
    told = await cli.json("pause", "--all", "--yes", "--reason", "move")
    assert (told["matched"], told["done"], told["failed_count"], told["dry_run"]) == (2, 2, 0, False)
    assert (await cli.json("resume", "--status", "paused", "--dry-run"))["matched"] == 2


async def test_bulk_by_ids_says_which_could_not_be(cli: Cli) -> None:
    job = await scheduled(cli)
    ran = await cli.run("cancel", job["id"], NOBODY)
    assert ran.exit_code == 1
    assert ran.stdout.startswith("1 of 2 jobs cancelled\n")
    [row] = ran.rows
    assert row[:2] == [NOBODY, "not_found"]


async def test_bulk_goes_on_until_nothing_is_left(api: Api, cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [await scheduled(cli, "--tag", "x") for _ in range(5)]

    def cancel() -> None:
        with Session([api.node.api_url]) as session:
            chosen_options = BulkOptions(Target(filter={"tag": "x"}), dry_run=False, as_json=False)
            document = {"action": "cancel", "limit": 2}
            run_bulk(session, "/jobs/bulk", document, chosen_options, words=ActionWords("cancel", "cancelled"))

    await asyncio.to_thread(cancel)
    assert capsys.readouterr().out == "5 of 5 jobs cancelled\n"
    assert await statuses(cli, jobs) == ["cancelled"] * 5


async def test_reschedule_wants_a_time_and_replay_of_many_no_payload(cli: Cli) -> None:
    assert "--run-at or --delay" in await cli.misused("reschedule", "--all")
    assert "one job at a time" in await cli.misused("replay", "--all", "--payload", "1")
