from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from raftsched.cli.commands import tail
from raftsched.core.explain import LeaseLiveness
from raftsched.core.records.ids import JobId
from tests.api.node import Api, run_of
from tests.cli.runner import Cli, written


async def test_submit_shows_the_job_that_it_stored(cli: Cli) -> None:
    shown = await cli.ok("submit", "send_email", '{"to": "a@example.org"}', "--priority", "high")
    assert "send_email" in shown.stdout
    assert '{"to":"a@example.org"}' in shown.stdout
    assert "\x1b" not in shown.stdout  # colours are for terminals


async def test_submit_passes_on_every_field_that_an_option_names(cli: Cli) -> None:
    parent = (await cli.json("submit", "parent", "--delay", "1h"))["id"]
    job = await cli.json(
        "submit", "pay", '{"n": 1}', "--queue", "money", "--priority", "7", "--delay", "2h", "--timeout", "90s",
        "--heartbeat-timeout", "30", "--max-retries", "0", "--retry-on", "Timeout", "--retry-on", "Busy",
        "--no-retry", "Broke", "--at-most-once", "--concurrency-key", "acct-7", "--expires-in", "1d",
        "--deadline-in", "2d", "--retention", "7d", "--tag", "a", "--tag", "b", "--region", "eu",
        "--depends-on", f"{parent}:completion", "--on-dependency-failure", "fail", "--paused",
        "--retry-policy", '{"backoff": "fixed", "base_seconds": 30}', "--idempotency-key", "order-7",
        "--idempotency-ttl", "1d", "--unique-key", "acct-7", "--unique-for", "1h", "--max-lost-workers", "12",
    )  # fmt: skip
    assert (job["queue"], job["priority"], job["timeout_seconds"], job["max_attempts"]) == ("money", 7, 90.0, 1)
    assert (job["retry_on"], job["no_retry"], job["start"]) == (["Timeout", "Busy"], ["Broke"], "at_most_once")
    assert (job["concurrency_key"], job["heartbeat_timeout_seconds"]) == ("acct-7", 30.0)
    assert (job["tags"], job["region"], job["idempotency_key"]) == (["a", "b"], "eu", "order-7")
    assert job["depends_on"] == [{"job": parent, "condition": "completion"}]
    assert (job["on_dependency_failure"], job["status"], job["retention_seconds"]) == ("fail", "paused", 604_800.0)
    assert (job["retry_policy"]["base_seconds"], job["max_lost_workers"]) == (30.0, 12)
    due = datetime.fromisoformat(job["run_at"])
    assert timedelta(hours=1) < due - datetime.now(UTC) <= timedelta(hours=2)
    assert datetime.fromisoformat(job["expires_at"]) - due == timedelta(days=1)
    assert job["unique_until"] is not None


async def test_submit_under_the_same_key_finds_the_first_job(cli: Cli) -> None:
    first = await cli.json("submit", "pay", "1", "--idempotency-key", "k")
    again = await cli.json("submit", "pay", "1", "--idempotency-key", "k")
    assert (again["id"], again["duplicate"]) == (first["id"], True)
    assert "[idempotency_mismatch]" in await cli.refused("submit", "pay", "2", "--idempotency-key", "k")


async def test_submit_of_a_unique_job_shows_the_one_there_is_or_fails(cli: Cli) -> None:
    first = await cli.json("submit", "pay", "1", "--unique", "--delay", "60")
    assert (await cli.json("submit", "pay", "1", "--unique"))["id"] == first["id"]
    refused = await cli.refused("submit", "pay", "1", "--unique", "--on-conflict", "reject")
    assert "[unique_conflict]" in refused


async def test_submit_reads_the_payload_from_standard_input(cli: Cli) -> None:
    assert (await cli.json("submit", "pay", "-", given='{"big": [1, 2]}'))["payload"] == {"big": [1, 2]}


async def test_payload_arrives_digit_for_digit(api: Api, cli: Cli, tmp_path: Path) -> None:
    number = "12345678901234567890.12345678901234567890"
    path = written(tmp_path / "jobs.jsonl", f'{{"name": "pay", "payload": {number}}}\n')
    await cli.ok("submit", "--file", path)
    await cli.ok("submit", "pay", number)
    assert (await api.get("jobs")).body.count(number.encode()) == 2


async def test_submit_with_wait_ends_as_the_job_does(api: Api, cli: Cli) -> None:
    job = await cli.json("submit", "a", "--delay", "1h")
    await cli.ok("cancel", job["id"])
    waited = await cli.run(
        "submit", "a", "--idempotency-key", job["idempotency_key"], "--delay", "1h", "--wait", "--json"
    )
    assert (waited.exit_code, waited.json["status"]) == (4, "cancelled")


async def test_submit_with_wait_prints_the_result_alone_and_names_the_job_meanwhile(api: Api, cli: Cli) -> None:
    waiting = asyncio.create_task(cli.run("submit", "a", "1", "--wait"))
    [lease] = await api.lease("a", wait_seconds=10)
    await api.report(run_of(lease, status="completed", result={"sent": True}))
    ran = await waiting
    assert (ran.exit_code, ran.stdout) == (0, '{"sent":true}\n')
    assert ran.stderr == f"raftsched: waiting for {lease['job_id']}\n"


async def test_submit_with_wait_says_why_it_waits_and_how_it_ended(
    api: Api, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "EXPLAIN_SECONDS", 0.0)
    job = await cli.json("submit", "a", "--paused")
    again = ("submit", "a", "--paused", "--idempotency-key", job["idempotency_key"])
    explained = asyncio.Event()
    leadership = api.node.leadership()
    lease_liveness = leadership.lease_liveness

    def asked_for_signs(job_id: JobId) -> LeaseLiveness | None:
        explained.set()
        return lease_liveness(job_id)

    monkeypatch.setattr(leadership, "lease_liveness", asked_for_signs)
    waiting = asyncio.create_task(cli.run(*again, "--wait"))
    await explained.wait()
    await api.ask("DELETE", f"jobs/{job['id']}")
    ran = await waiting
    assert (ran.exit_code, ran.stdout) == (4, "")
    waits, why, end = ran.stderr.splitlines()
    assert waits == f"raftsched: waiting for {job['id']}"
    assert why.startswith("raftsched: it is paused: it was submitted paused, until somebody resumes it; no worker")
    assert end == f"raftsched: {job['id']} ended: cancelled"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("pay", "{"), "PAYLOAD: not JSON"),
        (("pay", '{"a": 1, "a": 2}'), "[malformed]"),
        (("pay", "1", "--priority", "10"), "priority"),
        (("p a y",), "name"),
        (("pay", "--retry-policy", "["), "--retry-policy: not JSON"),
        (("pay", "--retry-policy", '{"bass_seconds": 1}'), "retry_policy.bass_seconds"),
        (("pay", "--depends-on", "00000000-0000-7000-8000-000000000001"), "[unknown_dependency]"),
    ],
)
async def test_submit_says_in_one_line_what_is_wrong(cli: Cli, arguments: tuple[str, ...], told: str) -> None:
    assert told in await cli.refused("submit", *arguments)


async def test_submit_refuses_what_is_no_time_no_duration_and_what_goes_not_together(cli: Cli) -> None:
    assert "2027-03-14T07:00:00Z" in await cli.misused("submit", "a", "--run-at", "tomorrow")
    assert "1h30m" in await cli.misused("submit", "a", "--delay", "soon")
    assert "either NAME" in await cli.misused("submit")
    assert "give no others" in await cli.misused("submit", "--file", "/dev/null", "--queue", "q")


async def test_submit_of_a_file_counts_what_was_refused(cli: Cli, tmp_path: Path) -> None:
    path = written(tmp_path / "jobs.jsonl", '{"name": "a"}\n\n{"name": "b", "priority": 99}\n{"name": "c"}\n')
    ran = await cli.run("submit", "--file", path)
    assert (ran.exit_code, ran.stdout) == (1, "2 submitted, 1 refused\n")
    assert "job 2: priority" in ran.stderr
    told = (await cli.run("submit", "--file", path, "--json")).json
    assert (told["submitted"], told["refused"], told["failures"][0]["job"]) == (2, 1, 2)
