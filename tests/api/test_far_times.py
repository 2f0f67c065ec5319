"""The year 9999: times up to the last that can be written are taken, and what would be later answers cleanly."""

from __future__ import annotations

from tests.api.node import Api, malformed, misjudged
from tests.api.schedules.scene import saved

LAST = "9999-12-31T23:59:59.999Z"


async def test_a_job_can_be_due_at_the_last_time_that_can_be_written(api: Api) -> None:
    job = await api.submit(run_at=LAST)
    assert (job["status"], job["run_at"]) == ("scheduled", LAST)
    for query in ({}, {"status": "scheduled"}, {"queue": "send_email", "status": "scheduled"}):
        [shown] = (await api.get("jobs", **query)).json["jobs"]
        assert shown["run_at"] == LAST
    explained = await api.get(f"jobs/{job['id']}/explain")
    assert (explained.status, explained.json["reasons"][0]["code"]) == (200, "not_due")
    assert await api.lease("send_email") == []


async def test_times_that_can_not_be_written_are_refused_by_name(api: Api) -> None:
    faults = [
        *malformed({"run_at": ["9999-12-31T23:59:59.9995Z"]}),
        ({"run_at": LAST, "deadline_in_seconds": 1}, 422, "deadline_in_seconds"),
        ({"run_at": LAST, "expires_in_seconds": 1}, 422, "expires_in_seconds"),
    ]
    assert await misjudged(faults, lambda fields: api.post("jobs", {"name": "x"} | fields)) == []


async def test_a_grid_ends_with_the_year_9999(api: Api) -> None:
    schedule = await saved(api, every="1000h", start_at="9999-12-31T23:00:00Z")
    assert schedule["next_at"] == "9999-12-31T23:00:00.000Z"
    shown = await api.get(f"schedules/{schedule['id']}/next", count="5")
    assert (shown.status, shown.json["firings"]) == (200, ["9999-12-31T23:00:00.000Z"])
    for timing in ({"every": "1h"}, {"cron": "@every 1h"}, {"cron": "0 * * * *"}):
        preview = await api.post("schedules/preview", timing | {"after": "9999-12-31T22:30:00Z", "count": 10})
        assert preview.status == 200, preview.body
        assert all(each.startswith("9999-12-31T23") for each in preview.json["firings"])
        late = await api.post("schedules/preview", timing | {"after": LAST, "count": 10})
        assert (late.status, late.json["firings"]) == (200, []), late.body
    once = await saved(api, name="once", at=LAST, jitter_seconds=60)
    assert once["next_at"] == LAST
    assert (await api.get("schedules")).status == 200


async def test_a_backfill_outside_the_limits_of_its_schedule_says_why(api: Api) -> None:
    limited = await saved(api, cron="0 * * * *", start_at="2030-03-10T00:00:00Z", end_at="2030-03-20T00:00:00Z")
    grid = await saved(api, name="grid", every="1h")
    api.node.clock.now_ms += 10 * 86_400_000
    wrong: list[object] = []
    for schedule, span, field, told in (
        (limited, ("2030-03-01T00:00:00Z", "2030-03-10T00:00:00Z"), "to", "start_at"),
        (limited, ("2030-03-21T00:00:00Z", "2030-03-22T00:00:00Z"), "from", "end_at"),
        (grid, ("2030-03-17T00:00:00Z", "2030-03-17T17:00:00Z"), "to", "start_at"),
    ):
        for dry_run in (True, False):
            wanted = {"from": span[0], "to": span[1], "dry_run": dry_run}
            answer = await api.post(f"schedules/{schedule['id']}/backfill", wanted)
            if (answer.status, answer.json.get("field")) != (422, field) or told not in answer.json["detail"]:
                wrong.append((wanted, answer.body))
    assert not wrong
    partly = {"from": "2030-03-09T00:00:00Z", "to": "2030-03-10T02:00:00Z"}
    answer = await api.post(f"schedules/{limited['id']}/backfill", partly)
    assert (answer.status, answer.json["run_count"]) == (200, 2), answer.body
