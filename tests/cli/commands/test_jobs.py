from __future__ import annotations

from tests.api.node import NOBODY, Api
from tests.cli.runner import USER, Cli


async def test_get_shows_a_job_with_times_that_a_person_reads(cli: Cli) -> None:
    job = await cli.json("submit", "a", "--delay", "2h")
    shown = (await cli.ok("get", job["id"])).stdout
    assert f"{job['run_at']}  in 1 h 59 min" in shown
    assert await cli.json("get", job["id"]) == job


async def test_get_shows_the_error_of_a_job_as_it_was_raised(api: Api, cli: Cli) -> None:
    job = await api.submit(name="a", queue="a", max_attempts=1)
    error = {"type": "Broke", "message": "no [b]", "trace": "File x\n  line 1\n"}
    await api.end("a", status="failed", error=error)
    shown = (await cli.ok("get", job["id"])).stdout
    assert "error  Broke: no [b]\n" in shown
    assert shown.endswith("File x\n  line 1\n")
    assert (await cli.json("get", job["id"]))["error"] == error


async def test_what_is_not_there_is_refused_with_what_to_do(cli: Cli) -> None:
    assert "[not_found] See the list" in await cli.refused("get", NOBODY)
    assert "status" in await cli.refused("list", "--status", "tired")


async def test_list_goes_by_its_filters_the_latest_first(cli: Cli) -> None:
    first = await cli.json("submit", "a", "--tag", "x", "--delay", "1h")
    second = await cli.json("submit", "a", "--tag", "x", "--delay", "1h")
    await cli.ok("submit", "a")
    await cli.ok("submit", "b", "--tag", "x")
    chosen = ("list", "--name", "a", "--tag", "x", "--status", "scheduled,paused", "--since", "-1h")
    assert [job["id"] for job in await cli.json(*chosen)] == [second["id"], first["id"]]
    assert [job["id"] for job in await cli.json(*chosen, "--oldest-first", "--limit", "1")] == [first["id"]]
    assert [row[:4] for row in (await cli.ok(*chosen)).rows] == [
        [second["id"], "a", "a", "scheduled"],
        [first["id"], "a", "a", "scheduled"],
    ]
    assert await cli.json("list", "--before", "2020-01-01") == []


async def test_list_follows_pages_up_to_its_limit(cli: Cli, api: Api) -> None:
    for number in range(5):
        await api.submit(payload=number)
    assert len(await cli.json("list", "--limit", "3")) == 3
    assert len(await cli.json("list", "--limit", "50")) == 5


async def test_explain_says_why_a_job_waits(cli: Cli) -> None:
    job = await cli.json("submit", "a", "--paused")
    answer = await cli.json("explain", job["id"])
    assert "paused" in [reason["code"] for reason in answer["reasons"]]
    shown = (await cli.ok("explain", job["id"])).stdout
    assert shown.startswith("paused\n")
    assert "paused: it was submitted paused, until somebody resumes it\n  since: " in shown
    assert "[not_found]" in await cli.refused("explain", NOBODY)


async def test_explain_names_the_parents_that_a_job_waits_for(cli: Cli) -> None:
    parent = await cli.json("submit", "extract", "--delay", "1h")
    child = await cli.json("submit", "load", "--depends-on", parent["id"])
    shown = (await cli.ok("explain", child["id"])).stdout
    assert "have not ended: extract (scheduled)\n" in shown
    assert f"  parents:\n    id {parent['id']}  name extract  status scheduled" in shown


async def test_list_of_nothing_says_what_to_do(cli: Cli) -> None:
    assert (await cli.ok("list")).stdout.startswith("none: ")
    assert await cli.json("list") == []
    for command in (("queues",), ("audit",), ("workflow", "list")):
        assert (await cli.ok(*command)).stdout.startswith("none: ")


async def test_history_says_who_did_what_to_a_job(cli: Cli) -> None:
    job = await cli.json("submit", "a", "--delay", "1h")
    await cli.ok("pause", job["id"], "--reason", "wait for the bank")
    events = (await cli.json("history", job["id"]))["events"]
    assert [(event["event"], event["actor"]) for event in events] == [("created", USER), ("paused", USER)]
    shown = (await cli.ok("history", job["id"])).stdout
    assert USER in shown
    assert "wait for the bank" in shown
    assert "[not_found]" in await cli.refused("history", NOBODY)


async def test_actor_option_names_who_it_was(cli: Cli) -> None:
    job = await cli.json("submit", "a", "--delay", "1h")
    await cli.ok("pause", job["id"], "--actor", "grace")
    assert (await cli.json("history", job["id"]))["events"][-1]["actor"] == "grace"
