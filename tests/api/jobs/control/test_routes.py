from __future__ import annotations

from typing import Any

import pytest

from raftsched import limits
from raftsched.core.operations.codec import CancelJob
from raftsched.core.records.ids import parse_job_id
from tests.api.node import NOBODY, Answer, Api, Fault, malformed, misjudged, run_of


async def _patch(api: Api, job_id: str, document: Any, **headers: str) -> Answer:
    return await api.patch(f"jobs/{job_id}", document, **headers)


async def _end(api: Api, job_id: str, end: str) -> None:
    """Bring a queued job to its end."""
    if end == "cancelled":
        await api.ask("DELETE", f"jobs/{job_id}")
        return
    [lease] = await api.lease()
    assert lease["job_id"] == job_id
    if end == "running":
        return
    report = {"status": "completed"} if end == "completed" else {"status": "failed", "retryable": False}
    await api.report(run_of(lease) | report)


# -- amend ------------------------------------------------------------------------------------------------------------


async def test_amend_changes_what_it_names_and_nothing_else(api: Api) -> None:
    job = await api.submit(payload={"a": 1}, tags=["x"], timeout_seconds=5)
    wanted = {
        "run_at": "2030-03-18T00:00:00.000Z",
        "priority": 9,
        "queue": "other",
        "payload": {"b": 2},
        "max_attempts": 7,
        "timeout_seconds": 2.0,
        "expires_at": "2030-03-19T00:00:00.000Z",
        "deadline": "2030-03-20T00:00:00.000Z",
        "tags": ["y", "z"],
    }
    answer = await _patch(api, job["id"], wanted)
    assert answer.status == 200
    changed = {"status", "next_run_at", "queued_at", "revision"}
    assert {name: answer.json[name] for name in wanted} == wanted
    assert {name for name in job if job[name] != answer.json[name]} == {*wanted, *changed}
    assert (await api.get(f"jobs/{job['id']}")).json == answer.json
    assert answer.headers["ETag"] == '"2"'


async def test_amend_reschedules_and_reprioritises(api: Api) -> None:
    job = await api.submit(delay_seconds=3600)
    assert (await _patch(api, job["id"], {"priority": "high"})).json["priority"] == 8
    now = (await _patch(api, job["id"], {"delay_seconds": 0})).json
    assert (now["status"], now["run_at"]) == ("queued", "2030-03-17T17:46:40.000Z")
    later = (await _patch(api, job["id"], {"delay_seconds": 1.5, "max_retries": 0})).json
    assert (later["status"], later["run_at"], later["max_attempts"]) == ("scheduled", "2030-03-17T17:46:41.500Z", 1)


async def test_amend_takes_away_what_is_null(api: Api) -> None:
    job = await api.submit(payload=1, tags=["x"], timeout_seconds=5, expires_in_seconds=60, deadline_in_seconds=60)
    nothing = {"payload": None, "tags": None, "timeout_seconds": None, "expires_at": None, "deadline": None}
    amended = (await _patch(api, job["id"], nothing)).json
    assert {name: amended[name] for name in nothing} == nothing | {"tags": []}


async def test_amend_counts_spans_from_the_new_time(api: Api) -> None:
    job = await api.submit(delay_seconds=10)
    amended = (await _patch(api, job["id"], {"delay_seconds": 60, "expires_in_seconds": 30})).json
    assert amended["expires_at"] == "2030-03-17T17:48:10.000Z"
    amended = (await _patch(api, job["id"], {"deadline_in_seconds": 60})).json
    assert amended["deadline"] == "2030-03-17T17:48:40.000Z"


async def test_amend_with_the_revision_that_was_seen(api: Api, follower: Api) -> None:
    job = await api.submit()
    first = await _patch(api, job["id"], {"priority": 1}, If_Match=f'"{job["revision"]}"')
    assert first.status == 200
    answer = await _patch(api, job["id"], {"priority": 2}, If_Match=f'"{job["revision"]}"')
    assert (answer.status, answer.code) == (412, "stale_revision")
    assert (await api.get(f"jobs/{job['id']}")).json["priority"] == 1
    assert (await _patch(api, job["id"], {"priority": 2}, If_Match="*")).status == 200
    assert (await _patch(api, job["id"], {"priority": 3}, If_Match="x")).json["field"] == "If-Match"
    assert (await _patch(follower, job["id"], {"priority": 3}, If_Match='"1"')).status == 412


_WRONG_AMENDMENTS: list[Fault] = [
    *malformed(
        {
            "priorty": [1],
            "name": ["other"],
            "priority": [None],
            "run_at": ["soon"],
            "queue": ["a b"],
            "tags[0]": [["é" * 65]],
        }
    ),
    ({"run_at": "2030-03-18T00:00:00Z", "delay_seconds": 1}, 422, "run_at"),
    ({"max_attempts": 1, "max_retries": 1}, 422, "max_retries"),
    ({"expires_at": "2030-03-18T00:00:00Z", "expires_in_seconds": 1}, 422, "expires_at"),
    ({"payload": "y" * limits.PAYLOAD_BYTES_MAX}, 413, "payload"),
]


async def test_amend_names_the_field_at_fault(api: Api) -> None:
    job = await api.submit()
    assert await misjudged(_WRONG_AMENDMENTS, lambda fields: _patch(api, job["id"], fields)) == []
    assert (await api.get(f"jobs/{job['id']}")).json == job


async def test_amend_to_no_more_attempts_than_it_failed_names_the_field(api: Api) -> None:
    job = await api.submit()
    [lease] = await api.lease()
    await api.report(run_of(lease, status="failed"))
    answer = await _patch(api, job["id"], {"max_attempts": 1})
    assert (answer.status, answer.code, answer.json["field"]) == (422, "invalid", "max_attempts")


@pytest.mark.parametrize(("end", "code"), [("running", "running"), ("completed", "already_finished")])
async def test_amend_of_a_job_that_runs_or_ended_is_409(api: Api, end: str, code: str) -> None:
    job = await api.submit()
    await _end(api, job["id"], end)
    answer = await _patch(api, job["id"], {"priority": 1})
    assert (answer.status, answer.code) == (409, code)
    assert answer.json["advice"]


# -- cancel -----------------------------------------------------------------------------------------------------------


async def test_cancel_by_force_ends_a_running_attempt_at_once(api: Api) -> None:
    job = await api.submit()
    [lease] = await api.lease()
    answer = await api.ask("DELETE", f"jobs/{job['id']}?force=true")
    assert (answer.status, answer.json["status"], answer.json["worker"]) == (200, "cancelled", None)
    late = await api.report(run_of(lease, status="completed"))
    assert late.status == 409
    assert (await api.get(f"jobs/{job['id']}")).json["status"] == "cancelled"


async def test_cancel_and_completion_agree_about_who_came_first(api: Api) -> None:
    """Case D36."""
    for first in ("cancel", "complete"):
        job = await api.submit()
        [lease] = await api.lease()
        report = run_of(lease, status="completed")
        if first == "cancel":
            assert (await api.ask("DELETE", f"jobs/{job['id']}")).json["status"] == "cancelling"
            assert (await api.report(report)).json["code"] == "cancelled"
            assert (await api.get(f"jobs/{job['id']}")).json["status"] == "cancelled"
        else:
            assert (await api.report(report)).status == 200
            answer = await api.ask("DELETE", f"jobs/{job['id']}")
            assert (answer.status, answer.code) == (409, "already_finished")


async def test_cancel_refuses_a_force_that_is_neither_true_nor_false(api: Api) -> None:
    job = await api.submit()
    answer = await api.ask("DELETE", f"jobs/{job['id']}?force=perhaps")
    assert (answer.status, answer.json["field"]) == (400, "force")


# -- pause, resume ----------------------------------------------------------------------------------------------------


async def test_pause_keeps_a_job_from_running_until_it_is_resumed(api: Api) -> None:
    job = await api.submit()
    answer = await api.post(f"jobs/{job['id']}/pause", {"reason": "incident", "until": "2030-03-18T00:00:00Z"})
    assert (answer.status, answer.json["status"]) == (200, "paused")
    assert answer.json["pause"] == {
        "since": "2030-03-17T17:46:40.000Z",
        "until": "2030-03-18T00:00:00.000Z",
        "reason": "incident",
        "by": None,
    }
    assert await api.lease() == []
    for _ in range(2):
        resumed = await api.ask("POST", f"jobs/{job['id']}/resume")
        assert (resumed.status, resumed.json["status"], resumed.json["pause"]) == (200, "queued", None)
    assert len(await api.lease()) == 1


async def test_pause_needs_no_body(api: Api) -> None:
    job = await api.submit()
    assert (await api.ask("POST", f"jobs/{job['id']}/pause")).json["pause"]["until"] is None
    paused = (await api.post(f"jobs/{job['id']}/pause", {"for_seconds": 90})).json
    assert paused["pause"]["until"] == "2030-03-17T17:48:10.000Z"


_WRONG_PAUSES: list[Fault] = [
    *malformed(
        {
            "untill": ["2030-03-18T00:00:00Z"],
            "until": ["x"],
            "reason": ["y" * 501],
        }
    ),
    ({"until": "2030-03-17T17:46:40Z"}, 422, "until"),
    ({"until": "2029-01-01T00:00:00Z"}, 422, "until"),
    ({"until": "2030-03-18T00:00:00Z", "for_seconds": 1}, 422, "until"),
    ({"reason": "é" * 251}, 422, "reason"),
]


async def test_pause_names_the_field_at_fault(api: Api) -> None:
    job = await api.submit()
    assert await misjudged(_WRONG_PAUSES, lambda fields: api.post(f"jobs/{job['id']}/pause", fields)) == []


@pytest.mark.parametrize(
    ("end", "action", "code"),
    [
        ("running", "pause", "running"),
        ("completed", "pause", "already_finished"),
        ("cancelled", "resume", "already_finished"),
    ],
)
async def test_pause_and_resume_where_they_are_not_legal_are_409(api: Api, end: str, action: str, code: str) -> None:
    job = await api.submit()
    await _end(api, job["id"], end)
    answer = await api.post(f"jobs/{job['id']}/{action}", {})
    assert (answer.status, answer.code) == (409, code)


# -- retry, replay ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["dead_letter", "cancelled"])
async def test_retry_begins_a_new_run(api: Api, end: str) -> None:
    job = await api.submit()
    await _end(api, job["id"], end)
    answer = await api.ask("POST", f"jobs/{job['id']}/retry")
    assert (answer.status, answer.json["status"], answer.json["run_id"]) == (200, "queued", f"{job['id']}.2")
    assert (answer.json["attempt_number"], answer.json["failure_count"]) == (0, 0)
    [lease] = await api.lease()
    assert lease["run_id"] == f"{job['id']}.2"


async def test_retry_may_wait(api: Api) -> None:
    job = await api.submit()
    await _end(api, job["id"], "dead_letter")
    later = (await api.post(f"jobs/{job['id']}/retry", {"delay_seconds": 60})).json
    assert (later["status"], later["run_at"]) == ("scheduled", "2030-03-17T17:47:40.000Z")
    assert (await api.post(f"jobs/{job['id']}/retry", {"delay": 60})).json["field"] == "delay"


async def test_run_at_stays_what_was_asked_for_until_another_time_is(api: Api) -> None:
    job = await api.submit(run_at="2030-03-17T17:46:39.000Z", max_attempts=2, retry_policy={"jitter": 0})
    [lease] = await api.lease()
    run = run_of(lease)
    await api.report(run | {"status": "snoozed", "snooze_seconds": 10})
    snoozed = (await api.get(f"jobs/{job['id']}")).json
    assert (snoozed["run_at"], snoozed["next_run_at"]) == (job["run_at"], "2030-03-17T17:46:50.000Z")
    hastened = (await api.ask("POST", f"jobs/{job['id']}/retry")).json
    assert (hastened["run_at"], hastened["next_run_at"]) == (job["run_at"], "2030-03-17T17:46:40.000Z")
    await _end(api, job["id"], "cancelled")
    again = (await api.ask("POST", f"jobs/{job['id']}/retry")).json
    assert (again["run_at"], again["next_run_at"]) == (job["run_at"], "2030-03-17T17:46:40.000Z")
    moved = (await _patch(api, job["id"], {"run_at": "2030-03-18T00:00:00.000Z"})).json
    assert (moved["run_at"], moved["next_run_at"]) == ("2030-03-18T00:00:00.000Z",) * 2


async def test_retry_of_a_job_that_waits_for_its_parents_is_409_and_says_why(api: Api) -> None:
    parent = await api.submit()
    child = await api.submit(depends_on=[parent["id"]])
    answer = await api.ask("POST", f"jobs/{child['id']}/retry")
    assert (answer.status, answer.code) == (409, "waiting_dependencies")
    assert "1 of 1 parents" in answer.json["detail"]


async def test_retry_without_a_parent_is_409_and_names_it(api: Api) -> None:
    parent = await api.submit()
    child = await api.submit(depends_on=[parent["id"]])
    await api.ask("DELETE", f"jobs/{parent['id']}")
    answer = await api.ask("POST", f"jobs/{child['id']}/retry")
    assert (answer.status, answer.code, answer.json["job_id"]) == (409, "dependency_unmet", parent["id"])
    assert "Retry the named parent" in answer.json["advice"]


@pytest.mark.parametrize(("end", "code"), [("completed", "completed"), ("running", "running")])
async def test_retry_where_it_is_not_legal_is_409(api: Api, end: str, code: str) -> None:
    job = await api.submit()
    await _end(api, job["id"], end)
    answer = await api.ask("POST", f"jobs/{job['id']}/retry")
    assert (answer.status, answer.code) == (409, code)
    if code == "completed":
        assert "Replay" in answer.json["advice"]


async def test_retry_of_a_paused_job_says_to_resume_it(api: Api) -> None:
    job = await api.submit(paused=True)
    answer = await api.ask("POST", f"jobs/{job['id']}/retry")
    assert (answer.status, answer.code) == (409, "paused")


async def test_retry_of_a_unique_job_names_the_one_that_took_its_place(api: Api) -> None:
    job = await api.submit(unique={})
    await _end(api, job["id"], "cancelled")
    second = await api.submit(unique={})
    answer = await api.ask("POST", f"jobs/{job['id']}/retry")
    assert (answer.status, answer.code, answer.json["job_id"]) == (409, "unique_conflict", second["id"])


async def test_replay_submits_a_clone_with_a_link(api: Api) -> None:
    job = await api.submit(
        payload={"a": 1},
        queue="mail",
        priority=7,
        tags=["t"],
        tenant="acme",
        max_attempts=5,
        concurrency_key="c",
        unique={},
        expires_in_seconds=5,
        idempotency_key="k",
    )
    answer = await api.ask("POST", f"jobs/{job['id']}/replay")
    assert answer.status == 201
    clone = answer.json
    assert answer.headers["Location"] == f"/api/v1/jobs/{clone['id']}"
    assert clone["id"] != job["id"]
    same = ("name", "payload", "queue", "priority", "tags", "tenant", "max_attempts", "concurrency_key")
    assert {name: clone[name] for name in same} == {name: job[name] for name in same}
    assert (clone["replay_of"], clone["expires_at"], clone["idempotency_key"]) == (job["id"], None, None)


async def test_replay_takes_other_values_and_is_repeatable_with_a_key(api: Api) -> None:
    job = await api.submit(payload=1)
    wanted = {"payload": 2, "queue": "slow", "priority": "low", "delay_seconds": 60}
    first = await api.post(f"jobs/{job['id']}/replay", wanted, Idempotency_Key="r")
    again = await api.post(f"jobs/{job['id']}/replay", wanted, Idempotency_Key="r")
    assert (first.status, again.status, again.json["id"]) == (201, 200, first.json["id"])
    assert (first.json["payload"], first.json["queue"], first.json["priority"]) == (2, "slow", 2)
    assert first.json["status"] == "scheduled"
    other = await api.post(f"jobs/{job['id']}/replay", {}, Idempotency_Key="r")
    assert (other.status, other.code) == (422, "idempotency_mismatch")


# -- all of them ------------------------------------------------------------------------------------------------------

_CONTROLS = [("POST", "pause"), ("POST", "resume"), ("POST", "retry"), ("POST", "replay"), ("DELETE", "")]


@pytest.mark.parametrize(("method", "action"), _CONTROLS)
async def test_control_of_an_unknown_job_is_404(api: Api, method: str, action: str) -> None:
    for job_id in (NOBODY, "x"):
        answer = await api.ask(method, f"jobs/{job_id}/{action}".rstrip("/"))
        assert (answer.status, answer.code) == (404, "not_found")
    assert (await _patch(api, NOBODY, {})).status == 404


@pytest.mark.parametrize(("method", "action"), _CONTROLS)
async def test_control_works_through_a_follower_and_keeps_the_actor(
    api: Api, follower: Api, method: str, action: str
) -> None:
    job = await api.submit(tenant="acme", **({"paused": True} if action == "resume" else {}))
    if action == "retry":
        api.node.apply(CancelJob(parse_job_id(job["id"]), "acme"))
    answer = await follower.ask(method, f"jobs/{job['id']}/{action}".rstrip("/"), headers={"Raftsched-Actor": "Zoë"})
    assert answer.status in (200, 201), answer.body
    if action != "replay":
        assert answer.headers["ETag"] == f'"{answer.json["revision"]}"'
        history = (await api.get(f"jobs/{job['id']}/history")).json
        assert "Zoë" in {event["actor"] for event in history["events"]}


async def test_control_without_an_actor_is_anonymous(api: Api) -> None:
    job = await api.submit()
    await api.ask("POST", f"jobs/{job['id']}/pause")
    events = (await api.get(f"jobs/{job['id']}/history")).json["events"]
    assert [(event["event"], event["actor"]) for event in events] == [("created", None), ("paused", "anonymous")]


@pytest.mark.parametrize("actor", ["", " ", "x" * 129, "é" * 65, "a\tb"])
async def test_actor_that_is_no_name_is_refused(api: Api, actor: str) -> None:
    job = await api.submit()
    answer = await api.ask("POST", f"jobs/{job['id']}/pause", headers={"Raftsched-Actor": actor})
    assert (answer.status, answer.json["field"]) == (400, "Raftsched-Actor")


@pytest.mark.parametrize("action", ["pause", "retry", "replay"])
async def test_control_refuses_a_body_that_is_no_json(api: Api, action: str) -> None:
    job = await api.submit()
    answer = await api.ask("POST", f"jobs/{job['id']}/{action}", data=b"x", headers={"Content-Type": "text/plain"})
    assert answer.status == 415
    answer = await api.post(f"jobs/{job['id']}/{action}", b'{"a":1,"a":2}')
    assert (answer.status, answer.code) == (400, "malformed")
