"""`audit`, `events`, `workers`, `cluster`."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE

import msgspec

from raftsched.core.operations.codec import MarkWorkers, WorkerMark
from raftsched.core.records.ids import TimeMs
from raftsched.wire.cluster import NodeStatus
from tests.api.node import Api
from tests.cli.runner import USER, Cli


async def test_audit_says_who_did_what(cli: Cli) -> None:
    await cli.ok("queue", "pause", "mail", "--reason", "moving")
    await cli.ok("queue", "resume", "mail", "--actor", "grace")
    lines = await cli.json("audit", "--subject", "queue:mail")
    assert [(line["actor"], line["action"]) for line in lines] == [("grace", "queue.resume"), (USER, "queue.pause")]
    assert [line["actor"] for line in await cli.json("audit", "--actor", "grace")] == ["grace"]
    assert await cli.json("audit", "--actor", "carol") == []
    assert USER in (await cli.ok("audit", "--action", "queue.pause")).rows[0]
    assert "action" in await cli.refused("audit", "--action", "x" * 100)


async def test_commands_that_leave_no_trace_take_no_actor(cli: Cli) -> None:
    for command in ("get", "list", "explain", "history", "tail", "logs", "events", "workers", "queues"):
        assert "--actor" not in (await cli.ok(command, "--help")).stdout, command
    for words in ("submit", "queue pause", "workflow submit", "dead-letter requeue", "cancel"):
        assert "--actor" in (await cli.ok(*words.split(), "--help")).stdout, words


async def test_events_are_shown_as_they_happen(api: Api, cli: Cli) -> None:
    start = f"{api.node.state.applied_index + 1}-0"
    following = asyncio.create_task(cli.run("events", "--after", start, "--type", "job", "--count", "2", "--json"))
    job = await api.submit(delay_seconds=60)
    await api.ask("DELETE", f"jobs/{job['id']}")
    ran = await following
    assert ran.exit_code == 0
    created, cancelled = ran.json_lines
    assert (created["job_id"], cancelled["job_id"]) == (job["id"], job["id"])
    assert cancelled["type"] == "job.cancelled"
    again = await cli.ok("events", "--after", created["id"], "--job", job["id"], "--count", "1")
    assert "job.cancelled" in again.stdout
    assert job["id"] in again.stdout


async def test_interrupt_ends_a_stream_quietly(api: Api) -> None:
    job = await api.submit(delay_seconds=60)
    command = (sys.executable, "-m", "raftsched", "events", "--url", api.node.api_url, "--after", "1-0", "--json")
    # A shell starts background programs with SIGINT ignored, and so would this one be.
    process = await asyncio.create_subprocess_exec(
        *command, stdout=PIPE, stderr=PIPE, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    )
    assert process.stdout is not None
    first = msgspec.json.decode(await process.stdout.readline())
    assert (first["type"], first["job_id"]) == ("job.created", job["id"])
    process.send_signal(signal.SIGINT)
    _, errors = await process.communicate()
    assert (process.returncode, errors) == (130, b"")


async def test_events_of_what_is_no_job_is_refused(cli: Cli) -> None:
    assert "job" in await cli.refused("events", "--job", "7")


async def test_workers_are_shown_once_they_were_heard_of(api: Api, cli: Cli) -> None:
    assert await cli.json("workers") == []
    api.node.apply(MarkWorkers((WorkerMark("w1", ("a", "b"), 10, TimeMs(api.node.now_ms())),)))
    assert [(worker["name"], worker["queues"]) for worker in await cli.json("workers")] == [("w1", ["a", "b"])]
    [row] = (await cli.ok("workers")).rows
    assert row[:5] == ["w1", "a,", "b", "10", "active"]
    assert "w1  drained" in (await cli.ok("workers", "drain", "w1", "--reason", "new kernel")).stdout
    assert (await cli.json("workers", "drain", "w1"))["drain_reason"] == "new kernel"
    assert "w1  active" in (await cli.ok("workers", "undrain", "w1")).stdout
    assert "no worker of this name" in await cli.refused("workers", "drain", "w2")


async def test_cluster_is_shown_and_changed(api: Api, cli: Cli) -> None:
    assert (await cli.json("cluster", "status"))["leader"] == "n1"
    [row] = (await cli.ok("cluster", "status")).rows
    assert row[:2] == ["n1", "leader"]
    assert "warning" not in (await cli.ok("cluster", "status")).stdout
    where = ("--raft", "h:8401", "--api", "h:8400")
    assert "n4 joins" in (await cli.ok("cluster", "add", "n4", *where)).stdout
    assert "n4 was removed" in (await cli.ok("cluster", "remove", "n4")).stdout
    assert [node["id"] for node in (await cli.json("cluster", "add", "n5", *where))["nodes"]] == ["n1", "n5"]
    assert [node["id"] for node in (await cli.json("cluster", "remove", "n5"))["nodes"]] == ["n1"]
    assert "none can become leader" in await cli.refused("cluster", "transfer")
    api.node.other_nodes = (NodeStatus("n2", "", "follower"),)
    assert (await cli.ok("cluster", "transfer")).stdout == "handed over\n"
    assert await cli.json("cluster", "transfer")
    assert "id: " in await cli.refused("cluster", "add", "n/4", *where)


async def test_events_name_the_option_that_is_wrong(cli: Cli) -> None:
    refused = await cli.refused("events", "--after", "zzz")
    assert "--after: not an id" in refused
    assert "Last-Event-ID" not in refused


async def test_times_of_events_are_written_as_all_other_times(api: Api, cli: Cli) -> None:
    start = f"{api.node.state.applied_index + 1}-0"
    job = await api.submit(delay_seconds=60)
    [created] = (await cli.ok("events", "--after", start, "--type", "job", "--count", "1", "--json")).json_lines
    assert created["at"] == job["created_at"]


async def test_reason_of_a_pause_can_not_steer_the_terminal(api: Api, cli: Cli) -> None:
    job = await api.submit(name="a", queue="mail")
    await cli.ok("queue", "pause", "mail", "--reason", "\x1b[31mmoving\r\x9b")
    for words in (("explain", job["id"]), ("audit",), ("queue", "get", "mail"), ("history", job["id"])):
        shown = (await cli.ok(*words)).stdout
        assert [char for char in shown if not char.isprintable() and char != "\n"] == []
    assert r"\x1b[31mmoving\x0d\x9b" in (await cli.ok("explain", job["id"])).stdout
