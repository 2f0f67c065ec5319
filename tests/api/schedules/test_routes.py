"""Schedules over HTTP: saving, amending, control, lists."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import pytest

from raftsched import limits
from raftsched.core import cron
from raftsched.core.operations.base import Operation
from raftsched.core.records.ids import TimeMs
from tests.api.cases import case
from tests.api.node import START_MS, Api, Fault, malformed, misjudged
from tests.api.schedules.scene import MINUTE, REPORT, at, decided, patch, saved
from tests.steps import counted_steps

# -- saving -----------------------------------------------------------------------------------------------------------


async def test_post_schedules_stores_what_was_sent_and_spells_out_the_defaults(api: Api) -> None:
    answer = await api.post("schedules", REPORT | {"cron": "30 17 * * *", "timezone": "Europe/Berlin"})
    assert answer.status == 201
    schedule = answer.json
    assert answer.headers["Location"] == f"/api/v1/schedules/{schedule['id']}"
    assert answer.headers["ETag"] == f'"{schedule["revision"]}"'
    assert schedule | {"id": "", "job": {}} == {
        "id": "",
        "name": "report",
        "tenant": "default",
        "status": "active",
        "cron": "30 17 * * *",
        "every": None,
        "at": None,
        "timezone": "Europe/Berlin",
        "dst_gap": "shift",
        "dst_overlap": "first",
        "start_at": None,
        "end_at": None,
        "calendar": None,
        "jitter_seconds": None,
        "overlap": "skip",
        "misfire": "run_once",
        "catchup_window_seconds": None,
        "max_firings": None,
        "job": {},
        "description": None,
        "owner": None,
        "labels": {},
        "expect_success_within_seconds": None,
        "late_after_seconds": None,
        "notify": [],
        "alarms": [],
        "last_success_at": None,
        "parameters": [],
        "source": None,
        "pause": None,
        "next_at": "2030-03-18T16:30:00.000Z",
        "last_at": None,
        "latest": None,
        "fired_count": 0,
        "skipped_count": 0,
        "active": [],
        "backfilling": [],
        "generation": 1,
        "revision": 1,
        "changed_revision": 1,
        "created_at": at(START_MS),
        "updated_at": at(START_MS),
    }
    assert schedule["job"] == {
        "name": "build_report",
        "payload": {"n": 1},
        "queue": "build_report",
        "priority": 5,
        "max_attempts": 3,
        "retry_policy": {
            "backoff": "exponential",
            "base_seconds": 1.0,
            "factor": 2.0,
            "cap_seconds": 3600.0,
            "jitter": 0.2,
        },
    }


async def test_a_schedule_is_read_by_its_id_and_by_its_name(api: Api, follower: Api) -> None:
    schedule = await saved(api)
    for asked in (api, follower):
        for key in (schedule["id"], "report"):
            assert (await asked.get(f"schedules/{key}")).json == schedule
            assert (await asked.get(f"schedules/{key}", consistency="stale")).json == schedule
    assert (await api.get("schedules/other")).code == "not_found"
    assert (await api.get("schedules/report", tenant="acme")).code == "not_found"


async def test_what_is_read_can_be_sent_again_and_changes_nothing(api: Api) -> None:
    everything = REPORT | {
        "every": "1h30m",
        "timezone": "Asia/Tokyo",
        "start_at": "2030-04-01T00:00:00Z",
        "end_at": "2031-04-01T00:00:00Z",
        "jitter_seconds": 2.5,
        "overlap": "buffer_all",
        "misfire": "run_all",
        "catchup_window_seconds": 0,
        "max_firings": 7,
        "description": "For the board.\nAsk before you change it.",
        "owner": "reports@example.com",
        "labels": {"team": "shop", "tier": ""},
        "expect_success_within_seconds": 93_600,
        "late_after_seconds": 90.5,
        "notify": [
            {"on": ["recovered", "failed"], "webhook": "https://hooks.example/a"},
            {"on": ["dead_letter"], "slack": "https://hooks.example/b"},
            {"on": ["missed"], "email": {"to": ["ops@example.com"], "subject": "{{cause.event}} at {{cause.since}}"}},
            {"on": ["late"], "job": {"name": "page", "payload": {"text": "{{cause.summary}}"}, "max_attempts": 7}},
        ],
        "calendar": {
            "skip_dates": ["2030-12-24"],
            "blackouts": [
                {"from": "2030-05-01T00:00:00Z", "to": "2030-05-02T00:00:00Z", "reason": "move"},
                {"start": "22:00", "end": "06:00:30", "weekdays": ["sun", "sat"], "timezone": "UTC"},
            ],
            "business_days": {"country": "DE", "subdivision": "BY"},
            "timezone": "Europe/Berlin",
        },
        "job": {
            "name": "x",
            "priority": "high",
            "max_retries": 0,
            "retry_policy": {"backoff": "list", "delays_seconds": [1, 2.5]},
            "timeout_seconds": 9,
            "heartbeat_timeout_seconds": 3,
            "retry_on": ["Timeout"],
            "no_retry": ["ValueError"],
            "start": "at_most_once",
            "concurrency_key": "k",
            "on_dependency_failure": "fail",
            "tags": ["a", "b"],
            "region": "eu",
            "expires_in_seconds": 60,
            "deadline_in_seconds": 600,
            "retention_seconds": 3600,
            "max_lost_workers": 7,
        },
    }
    schedule = await saved(api, **everything)
    assert schedule["catchup_window_seconds"] == 0.001  # none at all; null would be the default
    assert schedule["calendar"]["blackouts"] == [
        everything["calendar"]["blackouts"][1],
        {"from": "2030-05-01T00:00:00.000Z", "to": "2030-05-02T00:00:00.000Z", "reason": "move"},
    ]
    fields = await _request_fields(api)
    again = await api.post("schedules", {name: value for name, value in schedule.items() if name in fields})
    assert (again.status, again.json) == (200, schedule)


async def _request_fields(api: Api) -> set[str]:
    schemas = (await api.get("openapi.json")).json["components"]["schemas"]
    return set(schemas["ScheduleRequest"]["properties"])


async def test_case_d24_registered_at_every_deployment_it_is_one_schedule(api: Api) -> None:
    first = await api.post("schedules", REPORT | {"every": "10s"})
    api.node.clock.now_ms += 3_000
    for _ in range(10):
        again = await api.post("schedules", {"every": "10s", **REPORT, "overlap": "skip"})
        assert (again.status, again.json) == (200, first.json)
    assert len((await api.get("schedules")).json["schedules"]) == 1
    changed = await api.post("schedules", REPORT | {"every": "1m"})
    assert changed.json["id"] == first.json["id"]
    assert (changed.json["generation"], changed.json["next_at"]) == (2, at(START_MS + 3_000 + MINUTE))


async def test_case_d25_the_same_cron_text_twice_is_two_schedules(api: Api) -> None:
    cron = {"cron": "*/1 * * * *"}
    first = await saved(api, **cron, name="a", job={"name": "x", "payload": 1})
    second = await saved(api, **cron, name="b", job={"name": "x", "payload": 2})
    assert first["id"] != second["id"]
    assert first["next_at"] == second["next_at"]


async def test_case_d07_a_changed_timing_counts_from_the_change(api: Api) -> None:
    told = case("D07")["input"]
    api.node.clock.now_ms = _ms(told["now"])
    await saved(api, cron=told["expression"])
    changed = await saved(api, cron=told["changed_to"])
    assert changed["next_at"] == "2027-05-03T16:32:00.000Z"
    api.node.clock.now_ms = _ms("2027-05-02T12:00:00Z")
    await saved(api, name="other", cron="0 23 * * *")
    assert (await saved(api, name="other", cron="0 5 * * *"))["next_at"] == "2027-05-03T05:00:00.000Z"


async def test_a_changed_timing_tells_the_ledger_what_it_left_undecided(api: Api) -> None:
    await saved(api, cron="* * * * *", pause_until=at(START_MS + 600 * MINUTE))
    api.node.clock.now_ms += 5 * MINUTE
    await saved(api, cron="0 0 * * *")
    [line] = (await api.get("schedules/report/firings")).json["firings"]
    assert (line["reason"], line["count"], line["job_id"]) == ("changed", 5, None)
    assert (await api.get("schedules/report")).json["skipped_count"] == 5


async def test_a_grid_keeps_its_beginning_when_other_fields_change(api: Api) -> None:
    first = await saved(api, every="10m")
    api.node.clock.now_ms += 3 * MINUTE
    second = await saved(api, every="10m", job={"name": "other"})
    assert (second["generation"], second["next_at"]) == (1, first["next_at"])
    instants = (await api.get("schedules/report/next", count=3)).json["firings"]
    assert instants == [at(START_MS + k * 10 * MINUTE) for k in (1, 2, 3)]


@pytest.mark.parametrize(
    "change",
    [
        {"jitter_seconds": 1},
        {"calendar": {"skip_dates": ["2040-01-01"]}},
        {"max_firings": 5},
        {"timezone": "Asia/Tokyo"},
        {"every": "600s"},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_an_edit_of_anything_but_its_period_leaves_a_grid_where_it_is(api: Api, change: dict[str, Any]) -> None:
    """Where it began anew with each edit, one that was edited often enough never fired."""
    first = await saved(api, every="10m")
    api.node.clock.now_ms += 3 * MINUTE
    assert (await patch(api, "report", change)).json["next_at"] == first["next_at"]
    assert (await patch(api, "report", {"every": "9m"})).json["next_at"] == at(START_MS + 12 * MINUTE)


@pytest.mark.parametrize("when", [{"every": "10m"}, {"cron": "@every 10m"}])
async def test_a_grid_is_one_grid_although_saving_takes_time(api: Api, when: dict[str, str]) -> None:
    def take_time(_: Operation) -> None:
        api.node.clock.now_ms += 3

    api.node.proposal_error = take_time
    schedule = await saved(api, **when)
    assert (schedule["created_at"], schedule["next_at"]) == (at(START_MS + 3), at(START_MS + 10 * MINUTE))
    instants = (await api.get("schedules/report/next", count=3)).json["firings"]
    assert instants == [at(START_MS + k * 10 * MINUTE) for k in (1, 2, 3)]


async def test_a_grid_begins_at_its_start(api: Api) -> None:
    schedule = await saved(api, every="10m", start_at=at(START_MS + 123))
    assert schedule["next_at"] == at(START_MS + 123)


async def test_if_none_match_creates_only(api: Api) -> None:
    create_only = {"If_None_Match": "*"}
    first = await api.post("schedules", REPORT | {"cron": "@daily"}, **create_only)
    assert first.status == 201
    assert (await api.post("schedules", REPORT | {"cron": "@daily"}, **create_only)).status == 200
    paused = REPORT | {"cron": "@daily", "pause_until": at(START_MS + MINUTE)}
    assert (await api.post("schedules", paused, **create_only)).json["status"] == "active"
    other = await api.post("schedules", REPORT | {"cron": "@hourly"}, **create_only)
    assert (other.status, other.code) == (409, "exists")
    wrong = await api.post("schedules", REPORT | {"cron": "@hourly"}, If_None_Match='"1"')
    assert (wrong.status, wrong.json["field"]) == (400, "If-None-Match")


async def test_if_match_changes_only_what_was_read(api: Api) -> None:
    schedule = await saved(api, cron="@daily")
    other = REPORT | {"cron": "@hourly"}
    stale = await api.post("schedules", other, If_Match='"77"')
    assert (stale.status, stale.code) == (412, "stale_revision")
    assert (await api.post("schedules", other, If_Match=str(schedule["revision"]))).status == 200
    missing = await api.post("schedules", other | {"name": "new"}, If_Match="1")
    assert (missing.status, missing.code) == (404, "not_found")
    wrong = await api.post("schedules", other, If_Match="latest")
    assert (wrong.status, wrong.json["field"]) == (400, "If-Match")


async def test_pause_until_pauses_from_the_start_and_is_no_part_of_what_makes_it_the_same(api: Api) -> None:
    until = at(START_MS + 60 * MINUTE)
    schedule = await saved(api, cron="* * * * *", pause_until=until)
    assert (schedule["status"], schedule["pause"]["until"]) == ("paused", until)
    again = await api.post("schedules", REPORT | {"cron": "* * * * *"})
    assert (again.status, again.json) == (200, schedule)
    past = await saved(api, name="other", cron="* * * * *", pause_until=at(START_MS - 1))
    assert (past["status"], past["pause"]) == ("active", None)


async def test_a_patch_with_pause_until_null_says_how_a_pause_is_ended(api: Api) -> None:
    until = at(START_MS + 60 * MINUTE)
    schedule = await saved(api, cron="* * * * *", pause_until=until)
    refused = await patch(api, "report", {"pause_until": None})
    assert (refused.status, refused.code, refused.json["field"]) == (422, "invalid", "pause_until")
    assert "/resume" in refused.json["detail"]
    assert (await api.get("schedules/report")).json == schedule
    later = await patch(api, "report", {"pause_until": at(START_MS + 90 * MINUTE)})
    assert later.json["pause"]["until"] == at(START_MS + 90 * MINUTE)


async def test_what_people_are_told_changes_no_fire_time_and_is_audited(api: Api) -> None:
    schedule = await saved(api, every="10m", owner="ops", labels={"team": "shop", "tier": "1"})
    api.node.clock.now_ms += MINUTE
    changes = {"description": "New.", "owner": None, "labels": {"team": None, "site": "eu"}}
    changed = (await patch(api, "report", changes)).json
    assert (changed["description"], changed["owner"]) == ("New.", None)
    assert changed["labels"] == {"site": "eu", "tier": "1"}
    assert (changed["generation"], changed["next_at"]) == (1, schedule["next_at"])
    line = (await api.get("audit")).json["entries"][0]
    told = "description: none -> New.; owner: ops -> none; labels: team=shop, tier=1 -> site=eu, tier=1"
    assert (line["action"], line["detail"]) == ("schedule.change", told)
    assert (await patch(api, "report", {"labels": None})).json["labels"] == {}


# -- refusals ---------------------------------------------------------------------------------------------------------

_REFUSED: list[Fault] = [
    *malformed(
        {
            "at": ["9999-12-31T23:30:00-01:00"],
        }
    ),
    ({}, 422, "cron"),
    ({"cron": "@daily", "every": "1m"}, 422, "every"),
    ({"cron": "61 * * * *"}, 422, "cron"),
    ({"cron": ""}, 422, "cron"),
    ({"cron": "0 0 31 2 *"}, 422, "cron"),
    ({"cron": "@every 10 parsecs"}, 422, "cron"),
    ({"at": "2031-01-01T00:00:00Z", "end_at": "2030-12-31T00:00:00Z"}, 422, "end_at"),
    ({"cron": "@daily", "start_at": "9999-12-31T23:00:00Z"}, 422, "start_at"),
    ({"cron": "@daily", "name": "6f1e7c5e-0b1f-4c5e-9d53-0a3d3a1c9b11"}, 422, "name"),
    ({"every": "90"}, 422, "every"),
    ({"every": ""}, 422, "every"),
    ({"every": "10ms"}, 422, "every"),
    ({"every": "10s", "timezone": "Mars/Olympus"}, 422, "timezone"),
    ({"cron": "@daily", "timezone": "europe/berlin"}, 422, "timezone"),
    ({"cron": "@daily", "dst_gap": "jump"}, 400, "dst_gap"),
    ({"cron": "@daily", "dst_overlap": "never"}, 400, "dst_overlap"),
    ({"cron": "@daily", "overlap": "sometimes"}, 400, "overlap"),
    ({"cron": "@daily", "misfire": "panic"}, 400, "misfire"),
    ({"cron": "@daily", "start_at": "2031-01-02T00:00:00Z", "end_at": "2031-01-01T00:00:00Z"}, 422, "end_at"),
    ({"cron": "@daily", "end_at": "2030-03-17T18:00:00Z"}, 422, "end_at"),
    ({"cron": "@daily", "start_at": "2031-01-02T00:00:00"}, 400, "start_at"),
    ({"at": "2020-01-01T00:00:00Z"}, 422, "at"),
    ({"cron": "@daily", "jitter_seconds": -1}, 400, "jitter_seconds"),
    ({"cron": "@daily", "max_firings": 0}, 400, "max_firings"),
    ({"cron": "@daily", "description": "x" * 2_001}, 400, "description"),
    ({"cron": "@daily", "owner": ""}, 400, "owner"),
    ({"cron": "@daily", "owner": "x" * 201}, 400, "owner"),
    ({"cron": "@daily", "labels": {f"l{number}": "" for number in range(33)}}, 400, "labels"),
    ({"cron": "@daily", "labels": {"team": "x" * 201}}, 400, "labels[...]"),
    ({"cron": "@daily", "labels": {"team": None}}, 400, "labels[...]"),
    ({"cron": "@daily", "labels": {"a=b": "x"}}, 400, "labels"),
    ({"cron": "@daily", "corn": "@daily"}, 400, "corn"),
    ({"cron": "@daily", "name": "a/b"}, 400, "name"),
    ({"cron": "@daily", "job": {}}, 400, "job.name"),
    ({"cron": "@daily", "job": {"name": "x", "run_at": "2031-01-01T00:00:00Z"}}, 400, "job.run_at"),
    ({"cron": "@daily", "job": {"name": "x", "idempotency_key": "k"}}, 400, "job.idempotency_key"),
    ({"cron": "@daily", "job": {"name": "x", "depends_on": []}}, 400, "job.depends_on"),
    ({"cron": "@daily", "job": {"name": "x", "priority": 10}}, 400, "job.priority"),
    ({"cron": "@daily", "job": {"name": "x", "max_attempts": 1, "max_retries": 1}}, 422, "job.max_retries"),
    (
        {"cron": "@daily", "job": {"name": "x", "retry_policy": {"backoff": "list"}}},
        422,
        "job.retry_policy.delays_seconds",
    ),
    ({"cron": "@daily", "calendar": {"skip_dates": ["24.12.2030"]}}, 422, "calendar.skip_dates"),
    ({"cron": "@daily", "calendar": {"timezone": "Nowhere"}}, 422, "calendar.timezone"),
    ({"cron": "@daily", "calendar": {"only_dates": ["2030-03-01"]}}, 422, "calendar.only_dates"),
    (
        {"cron": "@daily", "calendar": {"only_dates": ["2031-01-01"], "skip_dates": ["2031-01-01"]}},
        422,
        "calendar.only_dates",
    ),
    ({"cron": "@daily", "calendar": {"blackouts": [{"start": "00:00", "end": "24:00"}]}}, 422, "calendar.blackouts"),
    (
        {"cron": "@daily", "calendar": {"blackouts": [{"start": "00:00", "end": "00:01"}] * 101}},
        422,
        "calendar.blackouts",
    ),
    (
        {"cron": "@daily", "calendar": {"business_days": {"country": "DE", "weekend": ["fri"]}}},
        422,
        "calendar.business_days.weekend",
    ),
    ({"cron": "@daily", "calendar": {"business_days": {"weekend": []}}}, 422, "calendar.business_days.weekend"),
    ({"cron": "@daily", "calendar": {"business_days": {"country": "XX"}}}, 422, "calendar.business_days.country"),
    ({"cron": "@daily", "calendar": {"blackouts": [{}]}}, 422, "calendar.blackouts[0].from"),
    ({"cron": "@daily", "calendar": {"blackouts": [{"start": "09:00"}]}}, 422, "calendar.blackouts[0].end"),
    (
        {"cron": "@daily", "calendar": {"blackouts": [{"start": "9", "end": "10:00"}]}},
        422,
        "calendar.blackouts[0].start",
    ),
    (
        {
            "cron": "@daily",
            "calendar": {
                "blackouts": [
                    {"from": "2031-01-01T00:00:00Z", "to": "2031-01-02T00:00:00Z"},
                    {"start": "09:00", "end": "10:00", "timezone": "Nowhere"},
                ]
            },
        },
        422,
        "calendar.blackouts[1].timezone",
    ),
    (
        {"cron": "@daily", "calendar": {"blackouts": [{"from": "2031-01-02T00:00:00Z", "to": "2031-01-01T00:00:00Z"}]}},
        422,
        "calendar.blackouts[0].to",
    ),
]


async def test_what_cannot_be_a_schedule_is_refused_and_the_field_is_named(api: Api) -> None:
    assert await misjudged(_REFUSED, lambda fields: api.post("schedules", REPORT | fields)) == []
    assert api.node.proposed == []


async def test_a_huge_expression_is_refused_unread(api: Api) -> None:
    """Case C38: it takes no more steps of `core.cron` than one that is a character too long."""
    counts: list[int] = []
    for text in ("?" * (limits.CRON_CHARS_MAX + 1), ",".join("0" * 200_000) + " * * * *"):
        body = msgspec.json.encode(REPORT | {"cron": text})
        await api.post("schedules", body)
        with counted_steps(cron) as steps:
            answer = await api.post("schedules", body)
        assert (answer.status, answer.json["field"]) == (422, "cron")
        assert len(answer.body) < 1_000
        counts.append(steps.count)
    assert counts[0] == counts[1] > 0


async def test_a_payload_that_is_too_large_is_refused(api: Api) -> None:
    job = {"name": "x", "payload": "x" * limits.PAYLOAD_BYTES_MAX}
    answer = await api.post("schedules", REPORT | {"cron": "@daily", "job": job})
    assert (answer.status, answer.json["field"]) == (413, "job.payload")


# -- lists ------------------------------------------------------------------------------------------------------------


async def test_lists_go_by_name_and_on_by_cursor(api: Api) -> None:
    for name in ("c", "a", "d", "b"):
        await saved(api, name=name, cron="@daily", job={"name": "x", "queue": f"q-{name}"})
    await saved(api, name="e", tenant="acme", cron="@daily")
    await api.ask("POST", "schedules/b/pause")
    assert await _walked(api, limit=3) == ["a", "b", "c", "d"]
    assert await _walked(api, limit=1, order="desc") == ["d", "c", "b", "a"]
    assert await _walked(api, paused="true") == ["b"]
    assert await _walked(api, paused="false", limit=2) == ["a", "c", "d"]
    assert await _walked(api, queue="q-c") == ["c"]
    assert await _walked(api, tenant="acme") == ["e"]
    cursor = (await api.get("schedules", limit=1)).json["next_cursor"]
    assert (await api.get("schedules", cursor=cursor, order="desc")).json["field"] == "cursor"
    assert (await api.get("schedules", cursor="AAAA")).json["field"] == "cursor"


async def test_lists_find_schedules_by_owner_and_label(api: Api) -> None:
    for name, owner, labels in (
        ("a", "ops", {"team": "shop"}),
        ("b", "ops", {"team": "a=b, c"}),
        ("c", "dev", {"t": "shop"}),
    ):
        await saved(api, name=name, owner=owner, labels=labels)
    assert await _walked(api, owner="ops", limit=1) == ["a", "b"]
    assert await _walked(api, label="team=shop") == ["a"]
    assert await _walked(api, label="team=a=b, c", owner="ops") == ["b"]
    assert await _walked(api, label="team=") == []
    for query in ({"label": "team"}, {"label": "=x"}, {"owner": ""}):
        assert (await api.get("schedules", **query)).json["field"] == next(iter(query))


async def _walked(api: Api, **query: Any) -> list[str]:
    return [schedule["name"] for schedule in await api.all("schedules", "schedules", **query)]


# -- when they fire next ----------------------------------------------------------------------------------------------


async def test_the_next_instant_shown_is_the_first_that_the_calendar_lets_fire(api: Api, follower: Api) -> None:
    calendar = {"skip_dates": ["2030-03-19"], "business_days": True}
    shown = await saved(api, cron="0 9 * * sat,sun,mon,tue,wed", calendar=calendar)
    assert shown["next_at"] == "2030-03-18T09:00:00.000Z"
    api.node.clock.now_ms = _ms("2030-03-18T09:00:00Z")
    decided(api, shown, api.node.clock.now_ms, step_ms=24 * 60 * MINUTE)
    for asked in (api, follower):
        assert (await asked.get("schedules/report")).json["next_at"] == "2030-03-20T09:00:00.000Z"
        assert (await asked.get("schedules")).json["schedules"][0]["next_at"] == "2030-03-20T09:00:00.000Z"
        assert (await asked.get("schedules/report/next")).json["firings"][0] == "2030-03-20T09:00:00.000Z"
    paused = await api.ask("POST", "schedules/report/pause")
    assert paused.json["next_at"] == "2030-03-20T09:00:00.000Z"
    changed = await patch(api, "report", {"calendar": None})
    assert changed.json["next_at"] == "2030-03-19T09:00:00.000Z"


async def test_a_schedule_shows_its_latest_decision_and_what_became_of_the_run(api: Api, follower: Api) -> None:
    shown = await saved(api)
    at_ms = _ms("2030-03-17T18:00:00Z")
    decided(api, shown, at_ms, late_ms=1_500, step_ms=60 * MINUTE)
    latest = (await api.get("schedules/report")).json["latest"]
    assert latest | {"job_id": ""} == {
        "instant": at(TimeMs(at_ms)),
        "kind": "planned",
        "job_id": "",
        "status": "queued",
        "reason": None,
        "lateness_ms": 1_500,
    }
    assert latest["job_id"]
    decided(api, shown, at_ms + 60 * MINUTE, reason="holiday", count=2, step_ms=60 * MINUTE)
    for asked in (api, follower):
        listed = (await asked.get("schedules", consistency="stale")).json["schedules"][0]["latest"]
        assert (listed["job_id"], listed["status"], listed["reason"]) == (None, None, "holiday")


async def test_a_calendar_that_leaves_nothing_shows_no_next_instant(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FIRE_TIMES_EXAMINED_MAX", 50)
    never = {"only_dates": ["2036-01-01"]}
    shown = await saved(api, every="1m", calendar=never)
    assert (shown["status"], shown["next_at"]) == ("active", None)
    assert (await saved(api, name="no", cron="@daily", end_at="2030-03-30T00:00:00Z", calendar=never))[
        "next_at"
    ] is None
    # What was looked through holds up to where it ended; then it is looked on.
    first_ms = START_MS + MINUTE
    decided(api, shown, first_ms, reason="closed", count=50)
    with counted_steps(cron) as steps:
        assert (await api.get("schedules/report")).json["next_at"] is None
    assert steps.count > 0


async def test_what_was_found_is_not_looked_for_again(api: Api) -> None:
    shown = await saved(api, cron="* * * * *", calendar={"blackouts": [{"start": "17:40", "end": "20:00"}]})
    assert shown["next_at"] == "2030-03-17T20:00:00.000Z"
    decided(api, shown, START_MS // MINUTE * MINUTE + MINUTE, reason="blackout", count=30)
    with counted_steps(cron) as steps:
        assert (await api.get("schedules")).json["schedules"][0]["next_at"] == "2030-03-17T20:00:00.000Z"
    assert steps.count == 0


async def test_a_page_ends_early_where_calendars_make_looking_ahead_long(
    api: Api, follower: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FIRE_TIMES_EXAMINED_MAX", 60)
    closed = {"blackouts": [{"start": "17:40", "end": "18:30"}]}  # 44 instants are looked at
    for name in ("a", "b", "c", "d"):
        await saved(api, name=name, cron="* * * * *", calendar=None if name == "c" else closed)
    pages = await follower.pages("schedules", "schedules", consistency="stale")
    shown = [[f"{each['name']} {each['next_at'][11:16]}" for each in page] for page in pages]
    assert shown == [["a 18:30"], ["b 18:30", "c 17:47"], ["d 18:30"]]
    whole = (await follower.get("schedules", consistency="stale")).json
    assert (len(whole["schedules"]), whole["next_cursor"]) == (4, None)


def _ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)
