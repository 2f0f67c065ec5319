from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raftsched import limits
from raftsched.api.schedules import backfill as backfilling
from raftsched.cli.commands.schedule import runs
from raftsched.cli.commands.schedule.fire_times import local_text
from raftsched.core.operations.base import Operation
from raftsched.core.records.ids import parse_job_id
from raftsched.core.records.schedule import ScheduleId
from raftsched.core.state.writes import RemoveFirings
from raftsched.errors import Invalid, RaftschedError
from tests.api.node import Api
from tests.cli.pty import at_terminal
from tests.cli.runner import USER, Cli


async def saved(cli: Cli, *options: str) -> Any:
    return await cli.json("schedule", "create", "nightly", "build_report", '{"n": 1}', "--cron", "0 3 * * *", *options)


NOTICES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("dead_letter,missed=https://h.example/a?b=c", {"webhook": "https://h.example/a?b=c"}),
    ("recovered=slack:https://h.example/s", {"slack": "https://h.example/s"}),
    ("late=email:ops@h.example,b@h.example", {"email": {"to": ["ops@h.example", "b@h.example"]}}),
    ('failed={"name": "page"}', {"job": {"name": "page"}}),
)


async def test_create_takes_notices_as_people_write_them_and_get_shows_them_so(cli: Cli) -> None:
    options = [word for text, _ in NOTICES for word in ("--notify", text)]
    schedule = await saved(cli, *options, "--expect-success-within", "26h", "--late-after", "10m")
    assert (schedule["expect_success_within_seconds"], schedule["late_after_seconds"]) == (93_600.0, 600.0)
    for (text, wanted), notice in zip(NOTICES, schedule["notify"], strict=True):
        assert notice["on"] == text.partition("=")[0].split(",")
        [(form, target)] = wanted.items()
        assert notice[form] == target if isinstance(target, str) else notice[form].items() >= target.items()
    shown = (await cli.ok("schedule", "get", "nightly")).stdout
    assert "; ".join((*(text for text, _ in NOTICES[:3]), "failed=submit page")) in shown
    for text in ("https://h.example", "failed", "=slack:x"):
        refusal = await cli.refused("schedule", "create", "a", "b", "--every", "1h", "--notify", text)
        assert "--notify: must be EVENTS=TARGET" in refusal


async def test_create_passes_on_every_field_that_an_option_names(cli: Cli) -> None:
    schedule = await cli.json(
        "schedule", "create", "nightly", "build_report", '{"n": 1}', "--cron", "30 2 * * *",
        "--timezone", "Europe/Berlin", "--start-at", "2030-01-01", "--end-at", "2040-01-01", "--dst-gap", "skip",
        "--dst-overlap", "both", "--skip-date", "2030-12-25", "--business-days", "DE-BY",
        "--calendar", '{"blackouts": [{"start": "22:00", "end": "06:00"}]}', "--overlap", "buffer_one",
        "--misfire", "run_all", "--catchup-window", "2h", "--jitter", "30s", "--max-firings", "5",
        "--description", "For the board.", "--owner", "ops", "--label", "team=shop", "--label", "tier=",
        "--queue", "reports", "--priority", "low", "--timeout", "5m", "--tag", "x", "--at-most-once",
    )  # fmt: skip
    assert (schedule["cron"], schedule["timezone"], schedule["dst_gap"]) == ("30 2 * * *", "Europe/Berlin", "skip")
    assert (schedule["overlap"], schedule["misfire"], schedule["max_firings"]) == ("buffer_one", "run_all", 5)
    assert (schedule["catchup_window_seconds"], schedule["jitter_seconds"]) == (7_200.0, 30.0)
    assert schedule["calendar"] == {
        "skip_dates": ["2030-12-25"],
        "blackouts": [{"start": "22:00", "end": "06:00"}],
        "business_days": {"country": "DE", "subdivision": "BY"},
    }
    told = {"description": "For the board.", "owner": "ops", "labels": {"team": "shop", "tier": ""}}
    assert schedule.items() >= told.items()
    assert [each["name"] for each in await cli.json("schedule", "list", "--label", "team=shop", "--owner", "ops")] == [
        "nightly"
    ]
    assert await cli.json("schedule", "list", "--label", "team=other") == []
    assert "labels  team=shop, tier=\n" in (await cli.ok("schedule", "get", "nightly")).stdout
    job = schedule["job"]
    assert (job["name"], job["queue"], job["priority"], job["payload"]) == ("build_report", "reports", 2, {"n": 1})
    assert (job["timeout_seconds"], job["tags"], job["start"]) == (300.0, ["x"], "at_most_once")


async def test_create_again_changes_the_schedule_unless_it_must_be_new(cli: Cli) -> None:
    first = await saved(cli)
    changed = await saved(cli, "--overlap", "allow")
    assert (changed["id"], changed["overlap"]) == (first["id"], "allow")
    shown = (await cli.ok("schedule", "create", "other", "a", "--every", "90s")).stdout
    assert "other" in shown
    refused = await cli.refused("schedule", "create", "nightly", "a", "--every", "1h", "--create-only")
    assert "[exists]" in refused


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--cron", "61 * * * *"), "cron"),
        (("--every", "1h", "--cron", "* * * * *"), "every"),
        (("--cron", "0 3 * * *", "--timezone", "Europe/Atlantis"), "timezone"),
        (("--every", "1h", "--calendar", "[]"), "--calendar"),
        (("--every", "1h", "--priority", "11"), "job.priority"),
        (("--every", "1h", "--owner", "x" * 201), "owner"),
    ],
)
async def test_create_says_in_one_line_what_is_wrong(cli: Cli, options: tuple[str, ...], told: str) -> None:
    assert told in await cli.refused("schedule", "create", "n", "a", *options)


async def test_a_label_or_value_without_its_text_is_refused_before_anything_is_sent(cli: Cli) -> None:
    told = await cli.misused("schedule", "create", "n", "a", "--every", "1h", "--label", "team")
    assert "--label: write it like NAME=TEXT" in told
    for values in (("--parameter", "rows"), ("--parameter", "rows=1", "--parameter", "rows=2")):
        assert "--parameter: " in await cli.misused("schedule", "trigger", "n", *values)


async def test_times_beside_a_timezone_are_meant_by_its_clock_wherever_it_stands(cli: Cli) -> None:
    berlin = ("--timezone", "Europe/Berlin")
    for options in (("--at", "2031-01-01 09:00", *berlin), (*berlin, "--at", "2031-01-01T09:00")):
        assert (await cli.json("schedule", "create", "once", "a", *options))["at"] == "2031-01-01T08:00:00.000Z"
    start = await saved(cli, "--start-at", "2031-01-01", "--end-at", "2031-07-01T00:00:00Z", *berlin)
    assert (start["start_at"], start["end_at"]) == ("2030-12-31T23:00:00.000Z", "2031-07-01T00:00:00.000Z")
    assert (await saved(cli, "--start-at", "2031-01-01"))["start_at"] == "2031-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--at", "2031-01-01 09:00"), "--timezone"),
        (("--at", "2031-03-30 02:30", "--timezone", "Europe/Berlin"), "leapt over"),
        (("--at", "2031-10-26 02:30", "--timezone", "Europe/Berlin"), "twice"),
        (("--at", "2031-01-01 09:00", "--timezone", "Europe/Atlantis"), "timezone"),
        (("--at", "soon", "--timezone", "Europe/Berlin"), "2027-03-14T07:00:00Z"),
    ],
)
async def test_a_time_that_could_be_meant_otherwise_is_a_misuse(cli: Cli, options: tuple[str, ...], told: str) -> None:
    said = await cli.misused("schedule", "create", "once", "a", *options)
    assert told in said
    assert await cli.json("schedule", "list") == []


async def test_list_and_get_show_what_there_is(cli: Cli) -> None:
    schedule = await saved(cli)
    await cli.ok("schedule", "create", "grid", "a", "--every", "90s")
    listed = await cli.json("schedule", "list")
    assert [each["name"] for each in listed] == ["grid", "nightly"]
    assert [row[0] for row in (await cli.ok("schedule", "list")).rows] == ["grid", "nightly"]
    assert await cli.json("schedule", "list", "--paused") == []
    assert await cli.json("schedule", "get", "nightly") == schedule
    assert "0 3 * * *" in (await cli.ok("schedule", "get", schedule["id"])).stdout
    assert "[not_found]" in await cli.refused("schedule", "get", "absent")


async def test_pause_and_resume_show_the_schedule_as_it_then_is(cli: Cli) -> None:
    await saved(cli)
    paused = await cli.json("schedule", "pause", "nightly", "--for", "1h", "--reason", "audit")
    assert (paused["status"], paused["pause"]["reason"]) == ("paused", "audit")
    assert (await cli.json("schedule", "resume", "nightly"))["status"] == "active"
    assert "paused" in (await cli.ok("schedule", "pause", "nightly")).stdout
    assert "active" in (await cli.ok("schedule", "resume", "nightly")).stdout
    for command in ("pause", "resume"):
        assert "[not_found]" in await cli.refused("schedule", command, "absent")


async def test_delete_removes_schedules_by_name(cli: Cli) -> None:
    await saved(cli)
    await cli.ok("schedule", "create", "grid", "a", "--every", "90s")
    assert (await cli.ok("schedule", "delete", "nightly")).stdout == "nightly  deleted\n"
    assert [each["name"] for each in await cli.json("schedule", "delete", "grid")] == ["grid"]
    assert "[not_found]" in await cli.refused("schedule", "delete", "nightly")


async def test_trigger_runs_it_now_and_firings_show_it(api: Api, cli: Cli) -> None:
    await saved(cli)
    firing = await cli.json("schedule", "trigger", "nightly", "--payload", "[2]")
    job = await cli.json("get", firing["job_id"])
    assert (job["name"], job["payload"]) == ("build_report", [2])
    skipped = await cli.run("schedule", "trigger", "nightly")
    assert (skipped.exit_code, skipped.stdout) == (1, "skipped: overlap\n")
    again = await cli.ok("schedule", "trigger", "nightly", "--overlap", "allow")
    assert again.stdout.startswith("job ")
    listed = await cli.json("schedule", "firings", "nightly", "--kind", "manual")
    assert [each["fired"] for each in listed] == [True, False, True]
    assert len(await cli.json("schedule", "firings", "nightly", "--fired")) == 2
    rows = (await cli.ok("schedule", "firings", "nightly", "--skipped")).rows
    assert "overlap" in rows[0]
    for command in ("trigger", "firings"):
        assert "[not_found]" in await cli.refused("schedule", command, "absent")


async def test_trigger_for_the_same_instant_finds_the_first_run(cli: Cli) -> None:
    await saved(cli, "--overlap", "allow")
    command = ("schedule", "trigger", "nightly", "--instant", "2030-01-01")
    assert (await cli.json(*command))["job_id"] == (await cli.json(*command))["job_id"]


async def test_trigger_with_the_same_key_finds_the_first_run(cli: Cli) -> None:
    await saved(cli, "--overlap", "allow")
    command = ("schedule", "trigger", "nightly", "--payload", "1")
    assert (await cli.json(*command))["job_id"] != (await cli.json(*command))["job_id"]
    keyed = (*command, "--idempotency-key", "one")
    assert (await cli.json(*keyed))["job_id"] == (await cli.json(*keyed))["job_id"]
    assert "[idempotency_mismatch]" in await cli.refused(*keyed, "--overlap", "allow")


async def test_backfill_makes_runs_for_the_past_after_a_look(cli: Cli) -> None:
    await saved(cli, "--start-at", "2020-01-01")
    command = ("schedule", "backfill", "nightly", "--from", "2020-01-01", "--to", "2020-01-04")
    assert "would make 3 runs and skip 0 fire times" in (await cli.ok(*command, "--dry-run")).stdout
    assert (await cli.json(*command, "--dry-run"))["run_count"] == 3
    assert await cli.json("list") == []
    assert (await cli.ok(*command, "--overlap", "allow")).stdout == "3 runs made, 0 fire times skipped\n"
    assert [job["schedule_id"] is not None for job in await cli.json("list")] == [True] * 3
    assert (await cli.json(*command))["run_count"] == 0
    assert "3 were backfilled before" in (await cli.ok(*command)).stdout
    assert "to: " in await cli.refused("schedule", "backfill", "nightly", "--from", "2020-01-04", "--to", "2020-01-01")


@pytest.mark.parametrize("order", [(), ("--latest-first",)])
async def test_backfill_of_many_parts_decides_no_instant_twice_even_if_the_cluster_forgets(
    api: Api, cli: Cli, monkeypatch: pytest.MonkeyPatch, order: tuple[str, ...]
) -> None:
    """Trimming the ledger made it run its instants again and again."""
    monkeypatch.setattr(limits, "DECISIONS_MAX", 2)
    monkeypatch.setattr(backfilling, "_SECONDS_MAX", -1.0)
    schedule = await saved(cli, "--start-at", "2020-01-01")
    schedule_id = ScheduleId(parse_job_id(schedule["id"]))

    def forget(operation: Operation) -> RaftschedError | None:
        state = api.node.state
        lines = tuple(state.firings(schedule_id, after=None, until_ms=None, limit=1_000))
        state.execute([RemoveFirings(schedule_id, lines)])
        return Invalid("it goes on and on") if len(api.node.proposed) > 9 else None

    api.node.proposal_error = forget
    command = ("schedule", "backfill", "nightly", "--from", "2020-01-01", "--to", "2020-01-08", "--overlap", "allow")
    done = await cli.json(*command, *order)
    assert (done["run_count"], done["skipped_count"], done["known_count"], done["remaining_count"]) == (7, 0, 0, 0)
    days = [f"2020-01-0{day}T03:00:00.000Z" for day in range(1, 8)]
    assert [item["instant"] for item in done["instants"]] == (days[::-1] if order else days)
    jobs = await cli.json("list")
    assert {item["job_id"] for item in done["instants"]} == {job["id"] for job in jobs}
    assert len(jobs) == 7


async def test_backfill_without_room_goes_on_as_runs_end_and_gives_up_when_none_does(
    api: Api, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SCHEDULE_ACTIVE_MAX", 2)
    monkeypatch.setattr(runs, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(runs, "_PATIENCE_SECONDS", 0.0)
    await saved(cli, "--start-at", "2020-01-01")
    command = ("schedule", "backfill", "nightly", "--from", "2020-01-01", "--to", "2020-01-06", "--overlap", "allow")
    told = (await cli.ok(*command)).stdout
    assert "2 runs made, 0 fire times skipped\n3 fire times remain: there are too many" in told
    monkeypatch.setattr(runs, "_PATIENCE_SECONDS", 60.0)
    started = asyncio.create_task(cli.json(*command))
    for _ in range(3):
        while not (leases := await api.lease("build_report", capacity=2)):
            await asyncio.sleep(0)
        for lease in leases:
            done = {"run_id": lease["run_id"], "fencing_token": lease["fencing_token"], "status": "completed"}
            await api.report(done)
    assert ((await started)["run_count"], len(await cli.json("list"))) == (3, 5)


async def test_next_and_preview_show_instants_by_the_clock_of_the_zone(cli: Cli) -> None:
    asked = ("preview", "0 9 * * mon-fri", "--timezone", "Europe/Berlin", "--after", "2027-03-26", "--count", "2")
    answer = await cli.json("schedule", *asked)
    assert answer["firings"] == ["2027-03-26T08:00:00.000Z", "2027-03-29T07:00:00.000Z"]
    shown = (await cli.ok("schedule", *asked)).stdout
    assert "Mon 2027-03-29 09:00:00 +0200" in shown
    await saved(cli, "--timezone", "Asia/Tokyo")
    assert len((await cli.json("schedule", "next", "nightly", "--count", "3"))["firings"]) == 3
    assert " 03:00:00 +0900" in (await cli.ok("schedule", "next", "nightly")).stdout
    assert "cron: " in await cli.refused("schedule", "preview", "never")
    assert "[not_found]" in await cli.refused("schedule", "next", "absent")


async def test_preview_shows_what_the_calendar_skips(cli: Cli) -> None:
    asked = ("--after", "2030-12-24", "--count", "1", "--skip-date", "2030-12-25", "--skip-date", "2030-12-24")
    shown = await cli.ok("schedule", "preview", "0 12 * * *", *asked)
    assert [row[0] for row in shown.rows] == [
        "2030-12-24T12:00:00.000Z",
        "2030-12-25T12:00:00.000Z",
        "2030-12-26T12:00:00.000Z",
    ]
    assert "fires" in shown.rows[2]
    assert all("skipped:" in row for row in shown.rows[:2])


async def test_what_is_done_to_schedules_is_in_the_audit_trail(cli: Cli) -> None:
    await saved(cli)
    await cli.ok("schedule", "pause", "nightly")
    lines = await cli.json("audit", "--actor", USER, "--action", "schedule")
    assert lines[0]["subject"] == "schedule:nightly"


def test_local_times_go_by_the_zone_data_of_the_cluster_not_by_those_of_the_system() -> None:
    """Releases of the zone data differ about this day, so a system's own showed another hour."""
    assert local_text("2027-03-12T04:00:00Z", "America/Havana") == "Fri 2027-03-12 00:00:00 -0400"
    assert local_text("2027-03-12T04:00:00Z", "Nowhere/Land") == ""


# -- parameters -------------------------------------------------------------------------------------------------------

ROWS = '{"name": "rows", "type": "integer", "required": true, "description": "rows at most"}'
REGION = '{"name": "region", "type": "choice", "choices": ["eu", "us"], "default": "eu", "required": true}'
OTHERS = ('{"name": "note"}', '{"name": "full", "type": "boolean"}', '{"name": "share", "type": "number"}')


async def with_parameters(cli: Cli) -> Any:
    definitions = [part for each in (ROWS, REGION, *OTHERS) for part in ("--parameter", each)]
    return await cli.json("schedule", "create", "export", "export", *definitions)


async def test_a_run_by_hand_is_given_values_of_the_types_that_its_schedule_defines(cli: Cli, api: Api) -> None:
    schedule = await with_parameters(cli)
    assert (schedule["status"], [each["name"] for each in schedule["parameters"]]) == (
        "manual",
        ["rows", "region", "note", "full", "share"],
    )
    assert "by hand" in (await cli.ok("schedule", "list")).stdout
    shown = "rows: integer, required; region: choice (eu|us), default eu, required; note: text; full: boolean"
    assert shown in (await cli.ok("schedule", "get", "export")).stdout
    given = ["rows=-3", "note=007=a", "full=true", "share=1.50"]
    run = await cli.json("schedule", "trigger", "export", *(part for each in given for part in ("--parameter", each)))
    job = (await api.get(f"jobs/{run['job_id']}")).json
    assert job["parameters"] == {"rows": -3, "region": "eu", "note": "007=a", "full": True, "share": 1.5}
    for values, told in (
        ((), "parameters.rows: is required"),
        (("--parameter", "rows=many"), "parameters.rows: must be an integer"),
        (("--parameter", "rows=1", "--parameter", "region=asia"), "parameters.region: must be one of eu, us"),
        (("--parameter", "row=1"), "parameters.row: the schedule has no such parameter"),
    ):
        assert told in await cli.refused("schedule", "trigger", "export", *values)
    assert "--parameter: not JSON" in await cli.refused("schedule", "create", "n", "a", "--parameter", "rows")


async def test_a_terminal_is_asked_for_required_values_that_are_missing(cli: Cli, api: Api) -> None:
    await with_parameters(cli)
    code, shown = await at_terminal(api.node.api_url, ["schedule", "trigger", "export"], typed="12\n")
    assert (code, "rows (rows at most): " in shown) == (0, True), shown
    [job] = (await api.get("jobs")).json["jobs"]
    assert job["parameters"]["rows"] == 12
