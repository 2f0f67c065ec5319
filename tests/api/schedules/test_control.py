"""Schedules over HTTP: amending, conditions, pausing, deleting, and that reading moves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import pytest

from raftsched.core.operations.base import Operation
from raftsched.core.operations.schedules import (
    ControlSchedule,
    Decision,
    RunSchedule,
    SaveSchedule,
    ScheduleAction,
)
from raftsched.core.records.ids import TimeMs, parse_job_id
from raftsched.core.records.schedule import FiringKind, Overlap, ScheduleId
from raftsched.errors import RaftschedError
from tests.api.node import START_MS, Answer, Api
from tests.api.schedules.scene import MINUTE, REPORT, at, decided, patch, saved

# -- amending ---------------------------------------------------------------------------------------------------------


async def test_case_d41_other_options_take_effect_and_leave_the_timing(api: Api) -> None:
    schedule = await saved(api, cron="* * * * *")
    run = (await api.post("schedules/report/trigger", {})).json["job_id"]
    changes = {"job": {"payload": {"n": 2}, "timeout_seconds": 7, "max_attempts": 9, "priority": "low"}}
    changed = (await patch(api, "report", changes)).json
    assert changed["job"] == schedule["job"] | {
        "payload": {"n": 2},
        "timeout_seconds": 7.0,
        "max_attempts": 9,
        "priority": 2,
    }
    assert (changed["next_at"], changed["generation"]) == (schedule["next_at"], 1)
    assert (await api.get(f"jobs/{run}")).json["payload"] == {"n": 1}
    following = (await api.post("schedules/report/trigger", {"overlap": "allow"})).json["job_id"]
    job = (await api.get(f"jobs/{following}")).json
    assert (job["payload"], job["timeout_seconds"], job["max_attempts"], job["priority"]) == ({"n": 2}, 7.0, 9, 2)


async def test_patch_takes_away_what_is_null_and_replaces_payloads_whole(api: Api) -> None:
    await saved(api, cron="@daily", max_firings=3, job={"name": "x", "timeout_seconds": 5, "payload": {"a": 1, "b": 2}})
    changed = (
        await patch(api, "report", {"max_firings": None, "job": {"timeout_seconds": None, "payload": {"a": 3}}})
    ).json
    assert (changed["max_firings"], changed["job"]["payload"]) == (None, {"a": 3})
    assert "timeout_seconds" not in changed["job"]
    assert "payload" not in (await patch(api, "report", b'{"job":{"payload":null}}')).json["job"]


async def test_patch_keeps_the_bytes_of_a_payload(api: Api) -> None:
    await api.post(
        "schedules", b'{"name":"report","cron":"@daily","job":{"name":"x","payload":[1.0, 10000000000000000000000]}}'
    )
    answer = await patch(api, "report", {"overlap": "allow"})
    assert b"[1.0, 10000000000000000000000]" in answer.body


async def test_one_way_to_say_when_takes_the_place_of_another(api: Api) -> None:
    await saved(api, cron="@daily")
    changed = (await patch(api, "report", {"every": "2h"})).json
    assert (changed["cron"], changed["every"], changed["generation"]) == (None, "2h", 2)


async def test_either_spelling_of_attempts_takes_the_place_of_the_other(api: Api) -> None:
    await saved(api, job={"name": "x", "max_attempts": 9})
    assert (await patch(api, "report", {"job": {"max_retries": 5}})).json["job"]["max_attempts"] == 6


async def test_a_schedule_has_ended_once_fewer_firings_are_asked_for_than_there_were(api: Api) -> None:
    schedule = await saved(api, every="1m")
    decided(api, schedule, START_MS + MINUTE)
    decided(api, schedule, START_MS + 2 * MINUTE)
    ended = (await patch(api, "report", {"max_firings": 1})).json
    assert (ended["status"], ended["next_at"]) == ("ended", None)
    assert (await patch(api, "report", {"max_firings": 3})).json["next_at"] == at(START_MS + 3 * MINUTE)


async def test_an_empty_patch_changes_nothing(api: Api) -> None:
    schedule = await saved(api, every="10s")
    assert (await patch(api, "report", {})).json == schedule


async def test_patch_refuses_what_it_does_not_know(api: Api) -> None:
    await saved(api, cron="@daily")
    for changes, field in (
        ({"crom": "@daily"}, "crom"),
        ({"name": "other"}, "name"),
        ({"job": {"idempotency_key": "x"}}, "job.idempotency_key"),
        ({"job": {"priority": 11}}, "job.priority"),
        ({"cron": "nonsense"}, "cron"),
        ({"cron": None}, "cron"),
        ({"job": {"name": None}}, "job.name"),
    ):
        answer = await patch(api, "report", changes)
        assert (answer.json["field"], answer.status in (400, 422)) == (field, True), answer.json
    assert (await patch(api, "other", {})).code == "not_found"


# -- conditions, and what happens in between --------------------------------------------------------------------------


class Change(Protocol):
    async def __call__(self, api: Api, key: str, changes: dict[str, Any], **headers: str) -> Answer: ...


async def _save(api: Api, key: str, changes: dict[str, Any], **headers: str) -> Answer:
    return await api.post("schedules", REPORT | {"name": key, "cron": "@daily"} | changes, **headers)


each_way = pytest.mark.parametrize("change", [patch, _save], ids=["patch", "save"])


def _id(api: Api) -> ScheduleId:
    schedule_id = api.node.state.schedule_id_for_name("default", "report")
    assert schedule_id is not None
    return schedule_id


def _run(api: Api) -> None:
    """Let the schedule run, as at one of its instants."""
    decision = Decision(TimeMs(api.node.state.applied_index), api.node.new_job_id(), TimeMs(1))
    api.node.apply(RunSchedule(_id(api), "default", FiringKind.MANUAL, (decision,), Overlap.ALLOW))


def _between(api: Api, *happens: Callable[[Api], object]) -> None:
    """Let one thing after the other happen between reading a schedule and saving it."""
    ahead = list(happens)

    def happen(operation: Operation) -> RaftschedError | None:
        if isinstance(operation, SaveSchedule) and ahead:
            ahead.pop(0)(api)
        return None

    api.node.proposal_error = happen


def _control(action: ScheduleAction) -> Callable[[Api], object]:
    return lambda api: api.node.apply(ControlSchedule(_id(api), "default", action))


@each_way
async def test_if_match_holds_while_the_schedule_only_runs(api: Api, change: Change) -> None:
    schedule = await saved(api, cron="@daily")
    etag = f'"{schedule["changed_revision"]}"'
    for _ in range(3):
        _run(api)
    read = await api.get("schedules/report")
    assert read.headers["ETag"] == etag
    assert read.json["revision"] > read.json["changed_revision"] == schedule["revision"]
    changed = await change(api, "report", {"overlap": "allow"}, If_Match=etag)
    assert (changed.status, changed.json["overlap"]) == (200, "allow")
    assert changed.headers["ETag"] == f'"{changed.json["revision"]}"'
    again = await change(api, "report", {"overlap": "skip"}, If_Match=etag)
    assert (again.status, again.code) == (412, "stale_revision")


@each_way
async def test_the_revision_that_was_read_is_as_good_as_its_etag(api: Api, change: Change) -> None:
    await saved(api, cron="@daily")
    _run(api)
    revision = (await api.get("schedules/report")).json["revision"]
    _run(api)
    assert (await change(api, "report", {"overlap": "allow"}, If_Match=f'"{revision}"')).status == 200
    for unknown in (revision, revision + 9):  # from before the change, and of no state that there was
        assert (await change(api, "report", {"overlap": "skip"}, If_Match=f'"{unknown}"')).code == "stale_revision"


@each_way
@pytest.mark.parametrize("made", ["saved", "paused", "resumed"])
async def test_if_match_fails_once_somebody_has_changed_the_schedule(api: Api, change: Change, made: str) -> None:
    await saved(api, cron="@daily")
    if made == "resumed":
        await api.ask("POST", "schedules/report/pause")
    etag = (await api.get("schedules/report")).headers["ETag"]
    if made == "saved":
        await saved(api, cron="@daily", misfire="skip")
    else:
        await api.ask("POST", f"schedules/report/{'resume' if made == 'resumed' else 'pause'}")
    _run(api)
    stale = await change(api, "report", {"overlap": "allow"}, If_Match=etag)
    assert (stale.status, stale.code) == (412, "stale_revision")
    assert (await api.get("schedules/report")).json["overlap"] == "skip"


@each_way
@pytest.mark.parametrize("conditional", [True, False])
async def test_a_change_is_made_anew_where_the_schedule_runs_in_between(
    api: Api, change: Change, conditional: bool
) -> None:
    await saved(api, cron="@daily")
    condition = {"If_Match": (await api.get("schedules/report")).headers["ETag"]} if conditional else {}
    _between(api, _run, _run)
    changed = (await change(api, "report", {"overlap": "allow"}, **condition)).json
    assert (changed["overlap"], len(changed["active"])) == ("allow", 2)


async def test_of_many_who_change_a_schedule_at_once_each_succeeds(api: Api) -> None:
    await saved(api, cron="@daily")
    tags = [f"t{number}" for number in range(40)]
    answers = await asyncio.gather(*(patch(api, "report", {"job": {"tags": [tag]}}) for tag in tags))
    assert [answer.json["job"]["tags"] for answer in answers] == [[tag] for tag in tags]


@each_way
async def test_if_match_fails_where_somebody_changes_the_schedule_in_between(api: Api, change: Change) -> None:
    etag = f'"{(await saved(api, cron="@daily"))["changed_revision"]}"'
    _between(api, _run, _control(ScheduleAction.PAUSE))
    stale = await change(api, "report", {"overlap": "allow"}, If_Match=etag)
    assert (stale.status, stale.code) == (412, "stale_revision")
    _between(api, _control(ScheduleAction.RESUME))
    assert (await change(api, "report", {"overlap": "allow"})).json["overlap"] == "allow"


@each_way
async def test_if_match_of_a_schedule_that_is_deleted_in_between_finds_none(api: Api, change: Change) -> None:
    etag = f'"{(await saved(api, cron="@daily"))["changed_revision"]}"'
    _between(api, _control(ScheduleAction.DELETE))
    assert (await change(api, "report", {"overlap": "allow"}, If_Match=etag)).code == "not_found"


async def test_a_schedule_that_is_deleted_while_it_is_saved_comes_anew(api: Api) -> None:
    first = await saved(api, cron="@daily")
    _between(api, _control(ScheduleAction.DELETE))
    answer = await _save(api, "report", {"overlap": "allow"})
    assert (answer.status, answer.json["overlap"]) == (201, "allow")
    assert answer.json["id"] != first["id"]


@each_way
async def test_a_schedule_that_never_rests_is_left_as_it_is(api: Api, change: Change) -> None:
    await saved(api, cron="@daily")
    _between(api, *[_run] * 99)
    answer = await change(api, "report", {"overlap": "allow"})
    assert (answer.status, answer.code, answer.json["retryable"]) == (503, "unavailable", True)
    assert (await api.get("schedules/report")).json["overlap"] == "skip"


@each_way
async def test_a_new_timing_leaves_an_instant_to_the_old_one_that_fires_in_between(api: Api, change: Change) -> None:
    schedule = await saved(api, cron="* * * * *")
    shared_ms = START_MS + 20_000  # 17:47
    _between(api, lambda api: decided(api, schedule, shared_ms))
    changed = (await change(api, "report", {"cron": "47 * * * *"})).json
    assert (changed["last_at"], changed["next_at"]) == (at(shared_ms), at(shared_ms + 60 * MINUTE))
    firings = (await api.get("schedules/report/firings")).json["firings"]
    assert [(line["instant"], line["generation"], line["fired"]) for line in firings] == [(at(shared_ms), 1, True)]


@pytest.mark.parametrize("nonsense", ["0", '"00"', "latest", '"1", "2"', ""])
async def test_if_match_refuses_what_is_no_revision(api: Api, nonsense: str) -> None:
    await saved(api, cron="@daily")
    answer = await patch(api, "report", {"overlap": "allow"}, If_Match=nonsense)
    assert (answer.status, answer.json["field"]) == (400, "If-Match")


async def test_a_follower_passes_conditions_and_marks_on(api: Api, follower: Api) -> None:
    schedule = await saved(follower, cron="@daily")
    assert (await follower.get("schedules/report")).headers["ETag"] == f'"{schedule["revision"]}"'
    stale = await patch(follower, "report", {"overlap": "allow"}, If_Match='"99"', Raftsched_Actor="ann")
    assert (stale.status, stale.code) == (412, "stale_revision")
    changed = await patch(
        follower, "report", {"overlap": "allow"}, If_Match=f'"{schedule["revision"]}"', Raftsched_Actor="ann"
    )
    assert changed.headers["ETag"] == f'"{changed.json["revision"]}"'
    assert (await api.get("audit", actor="ann")).json["entries"][0]["action"] == "schedule.change"


# -- control ----------------------------------------------------------------------------------------------------------


async def test_pause_and_resume_twice_succeed(api: Api) -> None:
    schedule = await saved(api, cron="* * * * *")
    for _ in range(2):
        paused = (await api.post("schedules/report/pause", {"until": at(START_MS + MINUTE), "reason": "audit"})).json
        expected = {"since": at(START_MS), "until": at(START_MS + MINUTE), "reason": "audit", "by": None}
        assert paused["pause"] == expected
        assert paused["status"] == "paused"
    for _ in range(2):
        resumed = (await api.ask("POST", "schedules/report/resume")).json
        assert (resumed["status"], resumed["pause"], resumed["next_at"]) == ("active", None, schedule["next_at"])
    assert (await api.ask("POST", "schedules/report/pause")).json["pause"]["until"] is None
    assert (await api.post("schedules/report/pause", {"until": "soon"})).json["field"] == "until"
    assert (await api.ask("POST", "schedules/other/pause")).code == "not_found"


async def test_case_d08_deleted_schedules_are_gone_and_their_jobs_go_on(api: Api) -> None:
    schedule = await saved(api, cron="* * * * *")
    run = (await api.post("schedules/report/trigger", {})).json["job_id"]
    answer = await api.ask("DELETE", f"schedules/{schedule['id']}", headers={"Raftsched-Actor": "ann"})
    assert answer.json == {"id": schedule["id"], "name": "report", "deleted": True}
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/resume"), ("POST", "/trigger"), ("GET", "/firings")):
        assert (await api.ask(method, f"schedules/report{path}")).code == "not_found"
    assert (await api.get(f"jobs/{run}")).json["status"] == "queued"
    [line] = (await api.get("audit", action="schedule.delete")).json["entries"]
    assert (line["actor"], line["subject"]) == ("ann", "schedule:report")


async def test_case_d05_reading_moves_nothing(api: Api, follower: Api) -> None:
    schedule = await saved(api, every="10m")
    state = api.node.state
    before = state.schedule(ScheduleId(parse_job_id(schedule["id"])))
    for asked in (api, follower):
        for _ in range(3):
            await asked.get("schedules")
            await asked.get("schedules/report")
            await asked.get("schedules/report/next", count=100)
            await asked.get("schedules/report/firings")
            await asked.post("schedules/preview", {"every": "10m"})
    assert len(api.node.proposed) == 1
    assert state.schedule(ScheduleId(parse_job_id(schedule["id"]))) == before


async def test_the_audit_trail_says_which_fields_changed(api: Api) -> None:
    await saved(api, cron="@daily")
    await patch(api, "report", {"cron": "@hourly", "overlap": "allow", "job": {"payload": {"n": 2}}})
    [entry] = (await api.get("audit", action="schedule.change")).json["entries"]
    assert entry["detail"] == "cron: @daily -> @hourly; overlap: skip -> allow; job.payload"
