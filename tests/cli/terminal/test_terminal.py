"""What is otherwise at a terminal: somebody can be asked, and nothing that a job wrote may steer it."""

from __future__ import annotations

import pytest

from raftsched.cli.terminal import session
from tests.api.node import Api
from tests.cli.commands.test_control import failed, scheduled, statuses
from tests.cli.pty import at_terminal
from tests.cli.runner import Cli

EVIL = "\x1b]0;owned\x07plain\tcell\n\x1b[2J\x9b31mred\r over\x7f\u202eesrever\u2069 é ü\n"
SHOWN = "\\x1b]0;owned\\x07plain\tcell\n\\x1b[2J\\x9b31mred\\x0d over\\x7f\\u202eesrever\\u2069 é ü\n"


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
        ("delete",),
        ("dead-letter", "requeue"),
        ("dead-letter", "purge"),
    ],
)
async def test_all_without_a_terminal_needs_yes_and_does_nothing_before(
    api: Api, cli: Cli, command: tuple[str, ...]
) -> None:
    jobs = [await scheduled(cli), await failed(api)]
    before = [await cli.json("get", job["id"]) for job in jobs]
    asked = api.node.state.applied_index
    told = await cli.misused(*command, "--all")
    assert "--all needs --yes" in " ".join(told.split())
    assert api.node.state.applied_index == asked
    assert [await cli.json("get", job["id"]) for job in jobs] == before
    assert (await cli.json(*command, "--all", "--dry-run"))["dry_run"]
    assert (await cli.json(*command, "--all", "--yes"))["done"] == (0 if command == ("resume",) else 1)


async def test_all_at_a_terminal_shows_the_count_and_asks(api: Api, cli: Cli) -> None:
    jobs = [await scheduled(cli) for _ in range(3)]
    url = api.node.api_url
    for answer in ("n\n", "\n", "\x04"):
        code, shown = await at_terminal(url, ["cancel", "--all"], typed=answer)
        assert code == 1, shown
        assert "Cancel 3 jobs? [y/N]" in shown
        assert "raftsched: nothing was done" in shown
        assert await statuses(cli, jobs) == ["scheduled"] * 3
    code, shown = await at_terminal(url, ["cancel", "--all"], typed="y\n")
    assert (code, await statuses(cli, jobs)) == (0, ["cancelled"] * 3)
    assert "3 of 3 jobs cancelled" in shown
    code, shown = await at_terminal(url, ["cancel", "--all"])
    assert (code, "?" in shown) == (0, False), "nobody is asked about nothing"
    await scheduled(cli)
    code, shown = await at_terminal(url, ["cancel", "--all", "--json"], typed="y\n", into_pipe=True)
    assert (code, shown.count("{"), '"done":1' in shown) == (0, 1, True)


async def test_what_a_job_wrote_can_not_steer_a_terminal_and_reaches_a_pipe_as_it_is(api: Api, cli: Cli) -> None:
    job = await api.submit(name="a")
    [lease] = await api.lease("a")
    lines = {"fencing_token": lease["fencing_token"], "lines": EVIL.rstrip("\n").split("\n")}
    wrote = await api.post(f"runs/{lease['run_id']}/logs", lines)
    assert wrote.status == 200, wrote.body
    held = {name: lease[name] for name in ("run_id", "fencing_token")}
    assert (await api.report(held | {"status": "completed", "result": None})).status == 200
    url = api.node.api_url
    for command in ("logs", "tail"):
        code, shown = await at_terminal(url, [command, job["id"]])
        assert (code, SHOWN in shown.replace("\r\n", "\n")) == (0, True), shown
        code, piped = await at_terminal(url, [command, job["id"]], into_pipe=True)
        assert (code, EVIL in piped) == (0, True), piped
        for into_pipe in (False, True):
            code, shown = await at_terminal(url, [command, job["id"], "--json"], into_pipe=into_pipe)
            assert code == 0
            assert [char for char in shown if not char.isprintable() and char not in "\r\n"] == []


async def test_history_of_a_submit_begins_with_its_actor(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    async def first_actor(job_id: str) -> str:
        actor: str = (await cli.json("history", job_id))["events"][0]["actor"]
        return actor

    job = await cli.json("submit", "a", "--delay", "60", "--actor", "grace")
    assert await first_actor(job["id"]) == "grace"
    monkeypatch.setenv("RAFTSCHED_ACTOR", "cron@host")
    job = await cli.json("submit", "a", "--delay", "60")
    assert await first_actor(job["id"]) == "cron@host"


async def test_a_user_who_waits_is_informed_and_a_pipe_gets_the_answer_only(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_SILENCE_SECONDS", 0.0)
    ran = await cli.ok("tenant", "list", "--json")
    assert (ran.stderr, ran.json) == ("raftsched: still waiting for the cluster to answer\n", [])
