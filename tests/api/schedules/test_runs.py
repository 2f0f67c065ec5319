"""Instants of schedules over HTTP: previews, what comes next, the ledger, runs by hand."""

from __future__ import annotations

import asyncio
from datetime import datetime

import pytest

from raftsched import limits
from tests.api.node import START_MS, Api, Fault, misjudged
from tests.api.schedules.scene import at, decided, saved
from tests.cases.cron import Question, questions
from tests.for_each import for_each

MINUTE = 60_000
START = at(START_MS)


# -- previews ---------------------------------------------------------------------------------------------------------


@for_each(
    "question",
    questions(),
)
async def test_cases_c01_to_c47_over_http(api: Api, question: Question) -> None:
    asked = {"cron": question.expression, "timezone": question.timezone, "after": at(question.after_ms)}
    answer = await api.post("schedules/preview", asked | {"count": question.count})
    if answer.status == 200:
        question.judge([_ms(text) for text in answer.json["firings"]])
    elif "\0" in question.expression:
        assert answer.status == 400  # no document holds a NUL
        question.judge(None)
    else:
        assert (answer.status, answer.json["field"]) == (422, "cron")
        question.judge(None)


async def test_a_preview_is_answered_by_any_node_and_needs_no_leader(api: Api, follower: Api) -> None:
    asked = {"every": "90s", "count": 2}
    api.node.is_leading = False
    for node in (api, follower):
        answer = await node.post("schedules/preview", asked)
        assert answer.json == {
            "firings": [at(START_MS + 90_000), at(START_MS + 180_000)],
            "skipped": [],
            "complete": True,
        }


async def test_a_preview_shows_what_the_calendar_skips(api: Api) -> None:
    calendar = {"skip_dates": ["2030-03-19"], "business_days": True}
    answer = await api.post("schedules/preview", {"cron": "0 9 * * *", "calendar": calendar, "count": 5})
    days = [text[:10] for text in answer.json["firings"]]
    assert days == ["2030-03-18", "2030-03-20", "2030-03-21", "2030-03-22", "2030-03-25"]
    assert answer.json["skipped"] == [
        {"instant": "2030-03-19T09:00:00.000Z", "reason": "skip date 2030-03-19"},
        {"instant": "2030-03-23T09:00:00.000Z", "reason": "weekend"},
        {"instant": "2030-03-24T09:00:00.000Z", "reason": "weekend"},
    ]


async def test_a_preview_looks_at_a_bounded_number_of_instants(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FIRE_TIMES_EXAMINED_MAX", 100)
    calendar = {"only_dates": ["2036-01-01"]}
    answer = (await api.post("schedules/preview", {"cron": "* * * * *", "calendar": calendar})).json
    assert (answer["firings"], answer["complete"], len(answer["skipped"])) == ([], False, 100)


async def test_a_preview_over_thousands_of_years_of_holidays_gives_way_to_others(api: Api) -> None:
    """In one go it took seconds, and the leader that was asked lost its lead."""
    asked = {"cron": "0 0 29 2 *", "calendar": {"business_days": {"country": "BD"}}, "count": 100}
    preview = asyncio.create_task(api.post("schedules/preview", asked))
    turns = 0
    while not preview.done():
        await asyncio.sleep(0)
        turns += 1
    answer = (await preview).json
    assert len(answer["firings"]) == 100
    assert turns > len(answer["firings"] + answer["skipped"]) / 4


async def test_a_preview_keeps_to_start_and_end_and_to_one_time(api: Api) -> None:
    limited = {"cron": "0 * * * *", "start_at": "2030-03-18T00:00:00Z", "end_at": "2030-03-18T01:00:00Z"}
    assert (await api.post("schedules/preview", limited)).json["firings"] == [
        "2030-03-18T00:00:00.000Z",
        "2030-03-18T01:00:00.000Z",
    ]
    once = {"at": "2030-03-18T00:00:00.5Z"}
    assert (await api.post("schedules/preview", once)).json["firings"] == ["2030-03-18T00:00:00.500Z"]


_WRONG: list[Fault] = [
    ({}, 422, "cron"),
    ({"cron": "@daily", "count": 0}, 400, "count"),
    ({"cron": "@daily", "count": 1_001}, 400, "count"),
    ({"cron": "@daily", "after": "yesterday"}, 400, "after"),
    ({"cron": "@daily", "tz": "UTC"}, 400, "tz"),
    ({"every": "1d", "timezone": "UTC+1"}, 422, "timezone"),
    ({"cron": "0 0 * * *", "dst_gap": "leap"}, 400, "dst_gap"),
]


async def test_previews_name_the_field_at_fault(api: Api) -> None:
    assert await misjudged(_WRONG, lambda asked: api.post("schedules/preview", asked)) == []


async def test_a_schedule_may_be_called_preview(api: Api) -> None:
    await saved(api, name="preview")
    assert (await api.get("schedules/preview")).json["name"] == "preview"


# -- what comes next --------------------------------------------------------------------------------------------------


async def test_next_begins_with_the_first_undecided_instant(api: Api) -> None:
    schedule = await saved(api, cron="* * * * *", pause_until=at(START_MS + 60 * MINUTE))
    api.node.clock.now_ms += 10 * MINUTE
    shown = (await api.get("schedules/report/next", count=2)).json
    first_ms = _ms(schedule["next_at"])
    assert (shown["paused"], shown["firings"]) == (True, [at(first_ms), at(first_ms + MINUTE)])


async def test_next_shows_no_more_than_may_still_fire(api: Api) -> None:
    await saved(api, cron="* * * * *", max_firings=3)
    assert len((await api.get("schedules/report/next")).json["firings"]) == 3
    assert (await api.get("schedules/report/next", count=0)).json["field"] == "count"


# -- the ledger -------------------------------------------------------------------------------------------------------


async def test_the_ledger_tells_what_was_decided_for_each_instant(api: Api) -> None:
    schedule = await saved(api, cron="* * * * *")
    first_ms = _ms(schedule["next_at"])
    decided(api, schedule, first_ms, late_ms=250)
    decided(api, schedule, first_ms + MINUTE, reason="misfire", count=3)
    latest, first = (await api.get("schedules/report/firings")).json["firings"]
    assert first == {
        "instant": at(first_ms),
        "kind": "planned",
        "fired": True,
        "job_id": first["job_id"],
        "reason": None,
        "count": 1,
        "last_instant": None,
        "decided_at": at(first_ms + 250),
        "lateness_ms": 250,
        "generation": 1,
        "revision": 2,
    }
    job = (await api.get(f"jobs/{first['job_id']}")).json
    assert (job["schedule_id"], job["instant"], job["payload"]) == (schedule["id"], at(first_ms), {"n": 1})
    assert (latest["fired"], latest["job_id"], latest["reason"]) == (False, None, "misfire")
    assert (latest["count"], latest["last_instant"]) == (3, at(first_ms + 3 * MINUTE))
    oldest_first = await api.get("schedules/report/firings", order="asc")
    assert [line["instant"] for line in oldest_first.json["firings"]] == [first["instant"], latest["instant"]]


async def test_the_ledger_is_read_in_pages_and_by_kind(api: Api) -> None:
    schedule = await saved(api, cron="* * * * *", overlap="allow")
    decided(api, schedule, _ms(schedule["next_at"]))
    for _ in range(3):
        assert (await api.post("schedules/report/trigger", {})).status == 201
    path, by_hand = "schedules/report/firings", {"limit": 1, "kind": "manual", "fired": "true"}
    assert [line["kind"] for line in await api.all(path, "firings", **by_hand)] == ["manual"] * 3
    assert (await api.get(path, fired="false")).json["firings"] == []
    cursor = (await api.get(path, **by_hand)).json["next_cursor"]
    assert (await api.get(path, kind="planned", cursor=cursor)).json["field"] == "cursor"


# -- by hand ----------------------------------------------------------------------------------------------------------


async def test_a_trigger_runs_the_job_now_and_leaves_the_instants_alone(api: Api) -> None:
    schedule = await saved(api, cron="0 0 1 1 *")
    answer = await api.post("schedules/report/trigger", {"payload": {"n": 9}}, Raftsched_Actor="ann")
    assert (answer.status, answer.json["kind"], answer.json["lateness_ms"]) == (201, "manual", None)
    job = (await api.get(f"jobs/{answer.json['job_id']}")).json
    assert (job["status"], job["payload"], job["schedule_id"]) == ("queued", {"n": 9}, schedule["id"])
    after = (await api.get("schedules/report")).json
    assert (after["next_at"], after["fired_count"], after["active"]) == (schedule["next_at"], 0, [job["id"]])
    [line] = (await api.get("audit", action="schedule.trigger")).json["entries"]
    assert line["actor"] == "ann"


async def test_a_trigger_obeys_the_overlap_policy_or_says_that_it_does_not(api: Api) -> None:
    await saved(api)
    assert (await api.ask("POST", "schedules/report/trigger")).status == 201
    skipped = await api.post("schedules/report/trigger", {})
    assert (skipped.status, skipped.json["fired"], skipped.json["reason"]) == (200, False, "overlap")
    assert (await api.post("schedules/report/trigger", {"overlap": "allow"})).status == 201
    assert len((await api.get("schedules/report")).json["active"]) == 2


async def test_triggers_of_one_moment_are_runs_of_their_own(api: Api) -> None:
    await saved(api, overlap="allow")
    runs = [(await api.post("schedules/report/trigger", {})).json for _ in range(5)]
    assert len({run["job_id"] for run in runs}) == 5
    assert [run["instant"] for run in runs] == [at(START_MS + k) for k in range(5)]


async def test_triggers_at_once_are_as_many_runs_with_their_own_payloads(api: Api) -> None:
    await saved(api, overlap="allow")
    asked = [{"payload": {"customer": n}, "idempotency_key": f"order {n}"} for n in range(60)]
    runs = [run.json for run in await asyncio.gather(*(api.post("schedules/report/trigger", each) for each in asked))]
    assert len({run["instant"] for run in runs}) == 60
    jobs = [(await api.get(f"jobs/{run['job_id']}")).json for run in runs]
    assert [job["payload"]["customer"] for job in jobs] == [*range(60)]


async def test_a_trigger_with_the_same_key_finds_its_run(api: Api) -> None:
    await saved(api, overlap="allow")
    asked = {"payload": {"amount": 1, "to": "ann"}}
    first = await api.post("schedules/report/trigger", asked, Idempotency_Key="one")
    api.node.clock.now_ms += MINUTE
    turned = {"payload": {"to": "ann", "amount": 1}, "idempotency_key": "one"}
    again = await api.post("schedules/report/trigger", turned)
    assert (first.status, again.status, again.json) == (201, 200, first.json)
    for other in ({"payload": {"amount": 2}}, {}, asked | {"overlap": "skip"}, asked | {"instant": START}):
        refused = await api.post("schedules/report/trigger", other, Idempotency_Key="one")
        assert (refused.status, refused.code, refused.json["field"]) == (
            422,
            "idempotency_mismatch",
            "idempotency_key",
        )
    assert (await api.post("jobs", {"name": "x"}, Idempotency_Key="one")).status == 201
    await saved(api, name="other", overlap="allow")
    assert (await api.post("schedules/other/trigger", asked, Idempotency_Key="one")).status == 201


async def test_a_trigger_that_made_no_run_is_judged_again_under_its_key(api: Api) -> None:
    await saved(api)
    run = (await api.post("schedules/report/trigger", {})).json
    asked = {"idempotency_key": "one"}
    assert (await api.post("schedules/report/trigger", asked)).json["reason"] == "overlap"
    await api.ask("DELETE", f"jobs/{run['job_id']}")
    assert (await api.post("schedules/report/trigger", asked)).status == 201


async def test_an_instant_that_has_a_run_by_hand_is_refused_to_one_that_asks_for_something_else(api: Api) -> None:
    await saved(api, overlap="allow")
    first = await api.post("schedules/report/trigger", {"instant": START, "payload": {"amount": 1}})
    for other in ({"payload": {"amount": 2}}, {"payload": {"amount": 1}, "overlap": "skip"}):
        refused = await api.post("schedules/report/trigger", {"instant": START} | other)
        assert (refused.status, refused.code, refused.json["field"]) == (422, "idempotency_mismatch", "instant")
    [line] = (await api.get("schedules/report/firings")).json["firings"]
    assert line == first.json


async def test_a_trigger_for_an_instant_can_be_sent_again(api: Api) -> None:
    await saved(api, overlap="allow")
    asked = {"instant": "2030-03-01T00:00:00Z"}
    first = await api.post("schedules/report/trigger", asked)
    again = await api.post("schedules/report/trigger", asked)
    assert (first.status, again.status, again.json) == (201, 200, first.json)


async def test_triggers_name_the_field_at_fault(api: Api) -> None:
    await saved(api)
    large = {"payload": "x" * limits.PAYLOAD_BYTES_MAX}
    for asked, field in (({"overlap": "never"}, "overlap"), ({"when": "now"}, "when"), (large, "payload")):
        assert (await api.post("schedules/report/trigger", asked)).json["field"] == field
    assert (await api.post("schedules/other/trigger", {})).code == "not_found"


def _ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)
