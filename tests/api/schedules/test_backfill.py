"""Backfill over HTTP: dry runs, order, chains, caps, and the same when sent again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raftsched import limits
from raftsched.api.schedules import backfill as backfilling
from raftsched.core.operations.schedules import RunSchedule
from raftsched.core.records.ids import TimeMs, parse_job_id
from raftsched.core.records.schedule import Firing, ScheduleId
from raftsched.errors import OutcomeUnknown
from raftsched.leader.maintenance.trim import Trimming
from raftsched.leader.now import Now
from tests.api.node import START_MS, Answer, Api, Fault, malformed, misjudged, run_of
from tests.api.schedules.scene import at, decided, saved

DAY = 86_400_000
MARCH_MS = 1_898_553_600_000
FROM, TO = "2030-03-01T00:00:00Z", "2030-03-06T00:00:00Z"
DAYS = [f"2030-03-0{day}T00:00:00.000Z" for day in (1, 2, 3, 4, 5)]


async def _backfill(api: Api, **fields: Any) -> Answer:
    return await api.post("schedules/report/backfill", {"from": FROM, "to": TO} | fields)


async def test_a_dry_run_lists_the_instants_and_changes_nothing(api: Api) -> None:
    await saved(api, cron="@daily", calendar={"skip_dates": ["2030-03-02"]})
    told = (await _backfill(api, dry_run=True)).json
    assert (told["run_count"], told["skipped_count"], told["remaining_count"], told["dry_run"]) == (4, 1, 0, True)
    assert [(item["instant"], item["action"]) for item in told["instants"]] == [
        (day, "skip" if number == 1 else "run") for number, day in enumerate(DAYS)
    ]
    assert told["instants"][1]["reason"] == "skip date 2030-03-02"
    assert told["instants"][0] == {
        "instant": DAYS[0],
        "action": "run",
        "run_at": at(START_MS),
        "job_id": None,
        "reason": None,
        "planned": None,
    }
    assert len(api.node.proposed) == 1


async def test_sequential_runs_wait_for_each_other(api: Api) -> None:
    await saved(api, cron="@daily")
    done = (await _backfill(api)).json
    assert (done["run_count"], done["remaining_count"]) == (5, 0)
    jobs = [(await api.get(f"jobs/{item['job_id']}")).json for item in done["instants"]]
    assert [job["instant"] for job in jobs] == DAYS
    assert [job["status"] for job in jobs] == ["queued"] + ["waiting_dependencies"] * 4
    [first] = await api.lease("build_report")
    assert first["job_id"] == jobs[0]["id"]
    await api.report(run_of(first, status="failed", retryable=False))
    [second] = await api.lease("build_report")  # however the first one ended
    assert second["job_id"] == jobs[1]["id"]


@pytest.mark.parametrize("overlap", ["sequential", "allow"])
async def test_the_latest_first_where_that_is_asked_for(api: Api, overlap: str) -> None:
    await saved(api, cron="@daily")
    done = (await _backfill(api, order="desc", overlap=overlap)).json
    assert [item["instant"] for item in done["instants"]] == DAYS[::-1]
    leases = await api.lease("build_report", capacity=1)
    assert leases[0]["job_id"] == done["instants"][0]["job_id"]


async def test_runs_that_may_overlap_are_all_ready(api: Api) -> None:
    await saved(api, cron="@daily")
    await _backfill(api, overlap="allow")
    assert len(await api.lease("build_report")) == 5


async def test_a_cap_spreads_the_runs(api: Api) -> None:
    await saved(api, cron="@daily", job={"name": "x", "expires_in_seconds": 60})
    done = (await _backfill(api, overlap="allow", per_minute=2)).json
    assert [item["run_at"] for item in done["instants"]] == [at(START_MS + k * 30_000) for k in range(5)]
    job = (await api.get(f"jobs/{done['instants'][2]['job_id']}")).json
    assert (job["run_at"], job["expires_at"]) == (at(START_MS + 60_000), at(START_MS + 120_000))


async def test_a_cap_spreads_the_runs_of_all_parts(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfilling, "_SECONDS_MAX", -1.0)
    monkeypatch.setattr(limits, "DECISIONS_MAX", 2)
    await saved(api, cron="@daily")
    for _ in range(3):
        await _backfill(api, overlap="allow", per_minute=2)
    jobs = (await api.get("jobs")).json["jobs"]
    assert sorted(job["run_at"] for job in jobs) == [at(START_MS + k * 30_000) for k in range(5)]


async def test_sent_again_it_finds_what_it_has_made(api: Api) -> None:
    await saved(api, cron="@daily")
    first = (await _backfill(api)).json
    count = len(api.node.proposed)
    again = (await _backfill(api)).json
    assert (again["run_count"], again["known_count"]) == (0, 5)
    assert [item["job_id"] for item in again["instants"]] == [item["job_id"] for item in first["instants"]]
    assert {item["action"] for item in again["instants"]} == {"known"}
    assert len(api.node.proposed) == count
    wider = (await _backfill(api, to="2030-03-08T00:00:00Z")).json
    assert (wider["run_count"], wider["known_count"]) == (2, 5)


async def test_many_runs_are_several_operations_in_order(api: Api) -> None:
    await saved(api, cron="0 * * * *")
    done = (await _backfill(api, to="2030-03-11T00:00:00Z", order="desc")).json
    assert (done["run_count"], len(done["instants"])) == (240, 240)
    operations = [operation for operation in api.node.proposed if isinstance(operation, RunSchedule)]
    assert [len(operation.decisions) for operation in operations] == [100, 100, 40]
    chain = [(await api.get(f"jobs/{item['job_id']}")).json["depends_on"] for item in done["instants"][99:102]]
    assert chain == [[_parent(done, number)] for number in (98, 99, 100)]


def _parent(done: dict[str, Any], number: int) -> Any:
    return {"job": done["instants"][number]["job_id"], "condition": "completion"}


async def test_trimming_the_ledger_lets_no_instant_run_again(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LEDGER_LINES_KEPT", 2)
    schedule = await saved(api, cron="@daily")
    await _backfill(api, overlap="allow")
    for _ in range(2):
        _trim(api, schedule)
        again = (await _backfill(api, overlap="allow")).json
        assert (again["run_count"], again["known_count"]) == (0, 5)
    api.node.clock.now_ms += limits.LEDGER_CALLS_KEPT_MS
    _trim(api, schedule)
    later = (await _backfill(api, overlap="allow", dry_run=True)).json
    assert (later["run_count"], later["known_count"]) == (3, 2)


def _trim(api: Api, schedule: dict[str, Any]) -> None:
    """Let the leader trim the schedule's ledger, as it does after many lines."""
    state = api.node.state
    trimming = Trimming(state, lambda _: 0)
    now = Now.of(api.node.clock, state.cluster_time_ms)
    trimming.line_written(ScheduleId(parse_job_id(schedule["id"])), Firing(TimeMs(0)))
    for operation in trimming.step(now):
        api.node.apply(operation)


async def test_requests_count_what_they_made_themselves(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DECISIONS_MAX", 2)
    await saved(api, cron="@daily", calendar={"skip_dates": ["2030-03-02"]})
    told = [answer.json for answer in await asyncio.gather(*(_backfill(api, overlap="allow") for _ in range(6)))]
    assert (sum(each["run_count"] for each in told), sum(each["skipped_count"] for each in told)) == (4, 1)
    assert all(each["run_count"] + each["skipped_count"] + each["known_count"] == 5 for each in told)
    made = {item["job_id"] for each in told for item in each["instants"]} - {None}
    assert len(made) == len((await api.get("jobs", name="build_report")).json["jobs"]) == 4


async def test_a_request_that_lost_its_reply_counts_what_it_made_the_first_time(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DECISIONS_MAX", 2)
    await saved(api, cron="@daily", calendar={"skip_dates": ["2030-03-02"]})
    proposed = api.node.proposed
    api.node.proposal_error = lambda _: OutcomeUnknown("who knows") if len(proposed) > 2 else None
    assert (await _backfill(api, idempotency_key="one")).code == "outcome_unknown"
    api.node.proposal_error = lambda _: None
    told = (await _backfill(api, idempotency_key="one", dry_run=True)).json
    assert (told["run_count"], told["known_count"]) == (1, 4)
    done = (await _backfill(api, idempotency_key="one")).json
    assert (done["run_count"], done["skipped_count"], done["known_count"]) == (4, 1, 0)
    other = (await _backfill(api, idempotency_key="two")).json
    assert (other["run_count"], other["skipped_count"], other["known_count"]) == (0, 0, 5)


async def test_without_room_it_says_what_remains_and_goes_on_later(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCHEDULE_ACTIVE_MAX", 3)
    await saved(api, cron="@daily")
    planned = (await _backfill(api, overlap="allow", dry_run=True)).json
    assert (planned["run_count"], planned["remaining_count"]) == (3, 2)
    first = (await _backfill(api, overlap="allow")).json
    assert (first["run_count"], first["remaining_count"]) == (3, 2)
    for lease in await api.lease("build_report"):
        await api.report(run_of(lease, status="completed"))
    second = (await _backfill(api, overlap="allow")).json
    assert (second["run_count"], second["known_count"], second["remaining_count"]) == (2, 3, 0)


async def test_a_backfill_that_takes_long_says_what_remains(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfilling, "_SECONDS_MAX", -1.0)
    monkeypatch.setattr(limits, "DECISIONS_MAX", 2)
    await saved(api, cron="@daily")
    remaining = [(await _backfill(api)).json["remaining_count"] for _ in range(3)]
    assert remaining == [3, 1, 0]


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_what_remains_begins_at_the_next_instant(api: Api, monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    monkeypatch.setattr(limits, "SCHEDULE_ACTIVE_MAX", 3)
    await saved(api, cron="@daily")
    assert (await _backfill(api, order=order, dry_run=True)).json["next_instant"] is None
    done = (await _backfill(api, order=order, overlap="allow")).json
    assert done["next_instant"] == done["instants"][3]["instant"] == DAYS[3 if order == "asc" else 1]
    monkeypatch.undo()
    assert (await _backfill(api, order=order, overlap="allow")).json["next_instant"] is None


async def test_a_backfill_that_is_cut_off_goes_on_when_sent_again(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DECISIONS_MAX", 2)
    await saved(api, cron="@daily")
    proposed = api.node.proposed
    api.node.proposal_error = lambda _: OutcomeUnknown("who knows") if len(proposed) > 2 else None
    assert (await _backfill(api)).code == "outcome_unknown"
    api.node.proposal_error = lambda _: None
    done = (await _backfill(api)).json
    assert (done["known_count"], done["run_count"]) == (4, 1)
    jobs = (await api.get("jobs", name="build_report")).json["jobs"]
    assert len(jobs) == 5


async def test_what_was_decided_at_its_time_is_shown_and_made_again(api: Api) -> None:
    api.node.clock.now_ms = MARCH_MS - 1
    schedule = await saved(api, cron="@daily")
    decided(api, schedule, MARCH_MS, step_ms=DAY)
    decided(api, schedule, MARCH_MS + DAY, reason="misfire", count=3, step_ms=DAY)
    api.node.clock.now_ms = START_MS
    told = (await _backfill(api, dry_run=True)).json
    assert [item["planned"] for item in told["instants"]][:4] == ["fired", "skipped", "skipped", "skipped"]
    assert told["run_count"] == 5


_WRONG: list[Fault] = [
    *malformed(
        {
            "from": [None],
            "order": ["random"],
            "overlap": ["skip"],
            "per_minute": [0],
            "force": [True],
        }
    ),
    ({"to": FROM}, 422, "to"),
    ({"to": "2030-03-20T00:00:00Z"}, 422, "to"),
    ({"from": "2010-03-01T00:00:00Z", "to": "2030-03-01T00:00:00Z"}, 422, "to"),
]


async def test_what_cannot_be_a_backfill_is_refused(api: Api) -> None:
    await saved(api, cron="0 * * * *")
    assert await misjudged(_WRONG, lambda fields: _backfill(api, **fields)) == []
    assert len(api.node.proposed) == 1


async def test_a_backfill_of_no_schedule_is_not_found(api: Api) -> None:
    assert (await _backfill(api)).code == "not_found"
