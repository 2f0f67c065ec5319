from __future__ import annotations

import pytest

from tests.api.node import Api
from tests.cli.runner import Cli


async def test_list_shows_jobs_by_status(cli: Cli) -> None:
    await cli.ok("submit", "a")
    await cli.ok("submit", "a", "--delay", "1h")
    await cli.ok("submit", "b", "--paused")
    queues = await cli.json("queue", "list")
    assert [(queue["name"], queue["queued"], queue["scheduled"], queue["paused"]) for queue in queues] == [
        ("a", 1, 1, 0),
        ("b", 0, 0, 1),
    ]
    assert [row[0] for row in (await cli.ok("queues")).rows] == ["a", "b"]
    assert [row[0] for row in (await cli.ok("queue", "list")).rows] == ["a", "b"]


async def test_set_changes_what_is_named_and_none_takes_it_away(cli: Cli) -> None:
    settings = await cli.json(
        "queue", "set", "mail", "--rate", "100/5m", "--concurrency", "7", "--key-concurrency", "2",
        "--ageing", "10m", "--retention", "30d", "--max-lost-workers", "9", "--weight", "acme=3", "--weight", "other=1",
    )  # fmt: skip
    assert settings["rate"] == {"count": 100, "per_seconds": 300.0, "burst": 1}
    assert (settings["concurrency"], settings["key_concurrency"], settings["ageing_seconds"]) == (7, 2, 600.0)
    assert settings["max_lost_workers"] == 9
    assert (settings["retention_seconds"], settings["weights"]) == (2_592_000.0, {"acme": 3, "other": 1})
    settings = await cli.json("queue", "set", "mail", "--rate", "none", "--weight", "none")
    assert (settings["rate"], settings["weights"], settings["concurrency"]) == (None, {}, 7)
    assert "concurrency" in (await cli.ok("queue", "set", "mail", "--rate", "10/s:4")).stdout
    assert (await cli.json("queue", "get", "mail"))["settings"]["rate"] == {"count": 10, "per_seconds": 1.0, "burst": 4}
    assert '"per_seconds":1' in (await cli.ok("queue", "get", "mail")).stdout


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--rate", "many"),
        ("--rate", "10"),
        ("--rate", "10/s:"),
        ("--concurrency", "-1"),
        ("--ageing", "soon"),
        ("--weight", "a"),
    ],
)
async def test_set_refuses_what_it_can_not_read(cli: Cli, options: tuple[str, ...]) -> None:
    await cli.misused("queue", "set", "mail", *options)


async def test_set_says_which_setting_the_cluster_refuses(cli: Cli) -> None:
    assert "concurrency" in await cli.refused("queue", "set", "mail", "--concurrency", "0")


async def test_pause_and_resume_say_how_the_queue_stands(cli: Cli) -> None:
    shown = (await cli.ok("queue", "pause", "mail", "--reason", "provider down")).stdout
    assert shown.startswith("paused")
    assert "provider down" in shown
    [queue] = await cli.json("queue", "list")
    assert queue["settings"]["pause"]["reason"] == "provider down"
    assert (await cli.ok("queue", "list")).rows[0][:2] == ["mail", "paused"]
    assert (await cli.ok("queue", "resume", "mail")).stdout == "no limits of its own\n"
    assert (await cli.json("queue", "pause", "mail", "--for", "1h"))["pause"]["until"] is not None
    assert (await cli.json("queue", "resume", "mail"))["pause"] is None
    for command in ("pause", "resume"):
        assert "[not_found]" in await cli.refused("queue", command, "a b")


async def test_pause_until_a_time_that_has_passed_is_refused(cli: Cli) -> None:
    assert "until" in await cli.refused("queue", "pause", "mail", "--until", "2020-01-01")
    assert (await cli.json("queue", "get", "mail"))["settings"]["pause"] is None


async def test_scale_shows_numbers_for_autoscalers(cli: Cli) -> None:
    await cli.ok("submit", "a")
    numbers = await cli.json("queue", "scale", "a")
    assert (numbers["queue"], numbers["ready"], numbers["running"]) == ("a", 1, 0)
    assert "wanted_workers" in (await cli.ok("queue", "scale", "a")).stdout
    assert "[not_found]" in await cli.refused("queue", "scale", "a b")


async def test_get_shows_the_jobs_by_status(api: Api, cli: Cli) -> None:
    for _ in range(2):
        await cli.ok("submit", "mail", "1")
    await cli.ok("submit", "mail", "--paused")
    await api.lease("mail", capacity=1)
    shown = await cli.ok("queue", "get", "mail")
    counts = dict(row for row in shown.rows if len(row) == 2)
    assert (counts["queued"], counts["running"], counts["paused"], counts["completed"]) == ("1", "1", "1", "0")
    assert "mail" in shown.stdout


async def test_get_of_a_queue_that_nobody_uses_says_so(cli: Cli) -> None:
    assert (await cli.ok("queue", "get", "mial")).stdout.startswith("Nothing is known about mial: no jobs")
    await cli.ok("queue", "set", "mial", "--concurrency", "1")
    assert "concurrency  1" in (await cli.ok("queue", "get", "mial")).stdout


async def test_get_of_what_is_no_queue_is_refused(cli: Cli) -> None:
    assert "[not_found]" in await cli.refused("queue", "get", "a b")
