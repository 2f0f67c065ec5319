"""Schedules over HTTP: amending, pausing, deleting, and that reading moves nothing."""

from __future__ import annotations

from raftsched.core.ids import TimeMs, parse_job_id
from raftsched.core.operations import Operation
from raftsched.core.schedule import FiringKind, Overlap, ScheduleId
from raftsched.core.schedule_operations import Decision, RunSchedule, SaveSchedule
from raftsched.errors import RaftschedError
from tests.api.node import START_MS, Api
from tests.api.schedules import at, patch, saved

MINUTE = 60_000

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


async def test_patch_survives_a_firing_in_between_and_respects_if_match(api: Api) -> None:
    schedule = await saved(api, cron="@daily")
    await api.post("schedules/report/trigger", {})  # a new revision
    stale = await patch(api, "report", {"overlap": "allow"}, If_Match=str(schedule["revision"]))
    assert (stale.status, stale.code) == (412, "stale_revision")
    assert (await patch(api, "report", {"overlap": "allow"})).json["overlap"] == "allow"


async def test_an_amendment_is_made_anew_where_the_schedule_fires_in_between(api: Api) -> None:
    await saved(api, cron="@daily", overlap="allow")
    fired: list[Operation] = []

    def fire_first(operation: Operation) -> RaftschedError | None:
        if isinstance(operation, SaveSchedule) and len(fired) < 2:
            fired.append(operation)
            by_hand = Decision(TimeMs(len(fired)), api.node.new_job_id(), TimeMs(1))
            schedule_id = api.node.state.schedule_id_for_name("default", "report")
            assert schedule_id is not None
            api.node.apply(RunSchedule(schedule_id, "default", FiringKind.MANUAL, (by_hand,), Overlap.ALLOW))
        return None

    api.node.proposal_error = fire_first
    changed = (await patch(api, "report", {"overlap": "skip"})).json
    assert (changed["overlap"], len(changed["active"]), len(fired)) == ("skip", 2, 2)


async def test_a_follower_passes_conditions_and_marks_on(api: Api, follower: Api) -> None:
    schedule = await saved(follower, cron="@daily")
    assert (await follower.get("schedules/report")).headers["ETag"] == f'"{schedule["revision"]}"'
    stale = await patch(follower, "report", {"overlap": "allow"}, If_Match='"99"', X_Actor="ann")
    assert (stale.status, stale.code) == (412, "stale_revision")
    changed = await patch(follower, "report", {"overlap": "allow"}, If_Match=f'"{schedule["revision"]}"', X_Actor="ann")
    assert changed.headers["ETag"] == f'"{changed.json["revision"]}"'
    assert (await api.get("audit", actor="ann")).json["entries"][0]["action"] == "schedule.change"


# -- control ----------------------------------------------------------------------------------------------------------


async def test_pause_and_resume_twice_succeed(api: Api) -> None:
    schedule = await saved(api, cron="* * * * *")
    for _ in range(2):
        paused = (await api.post("schedules/report/pause", {"until": at(START_MS + MINUTE), "reason": "audit"})).json
        assert paused["pause"] == {"since": at(START_MS), "until": at(START_MS + MINUTE), "reason": "audit"}
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
    answer = await api.ask("DELETE", f"schedules/{schedule['id']}", headers={"X-Actor": "ann"})
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
