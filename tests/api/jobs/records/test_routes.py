"""What became of a job: runs, history, logs, and why it waits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raftsched import limits
from raftsched.core.operations.queues import ConfigureQueue, PauseQueue
from tests.api.node import NOBODY, START_MS, Api, Fault, malformed, misjudged, run_of
from tests.api.schedules.scene import at


async def _fail(api: Api, **fields: Any) -> dict[str, Any]:
    """Lease the job that is due and let its attempt fail; return the lease."""
    leases: list[dict[str, Any]] = await api.lease()
    lease = leases[0]
    api.node.clock.now_ms += 250
    await api.report(run_of(lease) | {"status": "failed", "error": {"type": "E", "message": "m"}} | fields)
    return lease


async def _log(api: Api, lease: dict[str, Any], *lines: str, **fields: Any) -> Any:
    document = {"fencing_token": lease["fencing_token"], "lines": list(lines)} | fields
    return await api.post(f"runs/{lease['run_id']}/logs", document)


@pytest.mark.parametrize("record", ["runs", "history", "logs", "explain", "result"])
async def test_record_of_an_unknown_job_is_404(api: Api, record: str) -> None:
    for job_id in (NOBODY, "x"):
        answer = await api.get(f"jobs/{job_id}/{record}")
        assert (answer.status, answer.code) == (404, "not_found")


@pytest.mark.parametrize("record", ["runs", "history", "logs", "explain"])
async def test_record_is_read_from_any_node(api: Api, follower: Api, record: str) -> None:
    job = await api.submit()
    here = await api.get(f"jobs/{job['id']}/{record}")
    assert here.status == 200
    assert (await follower.get(f"jobs/{job['id']}/{record}")).json == here.json
    follower.node.leader = None
    stale = await follower.get(f"jobs/{job['id']}/{record}", consistency="stale")
    assert (stale.status, stale.json) == (200, here.json)
    assert "Raftsched-Age-Ms" in stale.headers


# -- runs -------------------------------------------------------------------------------------------------------------


async def test_runs_show_each_attempt_under_its_run(api: Api) -> None:
    job = await api.submit(retry_policy={"base_seconds": 0}, max_attempts=2)
    first = await _fail(api)
    await _log(api, first, "late")
    await _fail(api)
    await api.ask("POST", f"jobs/{job['id']}/retry")
    [third] = await api.lease()
    await _log(api, third, "a", "b")
    runs = (await api.get(f"jobs/{job['id']}/runs")).json
    assert (runs["id"], runs["status"], runs["truncated"]) == (job["id"], "running", False)
    assert [run["run_id"] for run in runs["runs"]] == [f"{job['id']}.1", f"{job['id']}.2"]
    ended, running = runs["runs"]
    assert [(each["attempt_number"], each["end"], each["log_bytes"]) for each in ended["attempts"]] == [
        (1, "failed", 0),
        (2, "failed", 0),
    ]
    assert ended["attempts"][0] == {
        "attempt_number": 1,
        "worker": "w1",
        "fencing_token": 1,
        "started_at": "2030-03-17T17:46:40.000Z",
        "ended_at": "2030-03-17T17:46:40.250Z",
        "execution_time_ms": 250,
        "end": "failed",
        "error": {"type": "E", "message": "m", "trace": ""},
        "log_bytes": 0,
    }
    [attempt] = running["attempts"]
    assert (attempt["attempt_number"], attempt["end"], attempt["ended_at"], attempt["log_bytes"]) == (1, None, None, 4)


async def test_runs_of_a_job_that_never_ran_are_one_without_attempts(api: Api) -> None:
    job = await api.submit()
    assert (await api.get(f"jobs/{job['id']}/runs")).json["runs"] == [
        {"run_id": f"{job['id']}.1", "run_number": 1, "attempts": []}
    ]


async def test_runs_say_when_older_attempts_are_gone(api: Api) -> None:
    job = await api.submit(retry_policy={"backoff": "fixed", "base_seconds": 0}, max_attempts=100)
    for _ in range(21):
        await _fail(api)
    runs = (await api.get(f"jobs/{job['id']}/runs")).json
    assert runs["truncated"] is True
    assert [each["attempt_number"] for each in runs["runs"][0]["attempts"]] == list(range(2, 22))


# -- history ----------------------------------------------------------------------------------------------------------


async def test_history_tells_what_happened_in_order(api: Api) -> None:
    job = await api.submit(max_attempts=1)
    api.node.clock.now_ms += 1_000
    await api.ask("POST", f"jobs/{job['id']}/pause", headers={"Raftsched-Actor": "ann"})
    api.node.clock.now_ms += 1_000
    await api.ask("POST", f"jobs/{job['id']}/resume", headers={"Raftsched-Actor": "bob"})
    api.node.clock.now_ms += 1_000
    await _fail(api)
    history = (await api.get(f"jobs/{job['id']}/history")).json
    told = [(event["event"], event["actor"], event["detail"]) for event in history["events"]]
    assert told == [
        ("created", None, None),
        ("paused", "ann", None),
        ("resumed", "bob", None),
        ("attempt_started", None, None),
        ("attempt_ended", None, "failed: E"),
        ("finished", None, "dead_letter: attempts_exhausted"),
    ]
    times = [event["at"] for event in history["events"]]
    assert times == sorted(times)
    started = history["events"][3]
    assert (started["run_number"], started["attempt_number"], started["worker"]) == (1, 1, "w1")
    assert (history["status"], history["truncated"]) == ("dead_letter", False)


async def test_history_begins_with_who_made_the_job_whichever_way(api: Api) -> None:
    when = {"cron": "0 * * * *", "overlap": "allow", "job": {"name": "a"}}
    asked: list[tuple[str, dict[str, Any]]] = [
        ("jobs", {"name": "a"}),
        ("jobs/batch", {"jobs": [{"name": "a"}]}),
        ("/submit", {"task": "a"}),
        ("workflows", {"name": "w", "jobs": {"t": {"name": "a"}}}),
        ("schedules/s/trigger", {}),
        ("schedules/s/backfill", {"from": at(START_MS - 7_200_000), "to": at(START_MS)}),
    ]
    await api.post("schedules", {"name": "s", **when}, Raftsched_Actor="eve")
    seen: set[str] = set()
    for path, document in asked:
        for actor in ("ann", None):
            answer = await api.post(path, document, **({"Raftsched-Actor": actor} if actor else {}))
            assert answer.status in (200, 201), answer.body
            found = {job["id"] for job in (await api.get("jobs")).json["jobs"]} - seen
            assert [(await _created(api, job_id))["actor"] for job_id in found] == [actor] * len(found), path
            assert found or path.endswith("backfill"), path
            seen |= found
    job_id = min(seen)
    await api.ask("DELETE", f"jobs/{job_id}")
    for path, document in ((f"jobs/{job_id}/replay", {}), ("jobs/bulk", {"action": "replay", "ids": [job_id]})):
        assert (await api.post(path, document, Raftsched_Actor="bob")).status in (200, 201)
        (clone,) = {job["id"] for job in (await api.get("jobs")).json["jobs"]} - seen
        assert (await _created(api, clone))["actor"] == "bob"
        seen.add(clone)


async def test_history_keeps_who_made_the_job_and_shows_it_once(api: Api) -> None:
    job = (await api.post("jobs", {"name": "send_email"}, Raftsched_Actor="ann")).json
    for number in range(limits.NOTES_KEPT_MAX):
        await api.post(f"jobs/{job['id']}/pause", {"reason": str(number)}, Raftsched_Actor="bob")
    history = (await api.get(f"jobs/{job['id']}/history")).json
    assert [event["event"] for event in history["events"]] == ["created", *["paused"] * (limits.NOTES_KEPT_MAX - 1)]
    assert (history["events"][0]["actor"], history["truncated"]) == ("ann", True)
    assert history["events"][1]["detail"] == "1"


async def _created(api: Api, job_id: str) -> Any:
    event = (await api.get(f"jobs/{job_id}/history")).json["events"][0]
    assert event["event"] == "created"
    return event


# -- logs -------------------------------------------------------------------------------------------------------------


async def test_logs_are_read_on_by_cursor_until_the_job_has_ended(api: Api) -> None:
    job = await api.submit()
    [lease] = await api.lease()
    await _log(api, lease, "one", "zwölf")
    path = f"jobs/{job['id']}/logs"
    first = (await api.get(path)).json
    assert (first["text"], first["attempt_ended"], first["attempt_number"]) == ("one\nzwölf\n", False, 1)
    assert (first["run_id"], first["id"]) == (lease["run_id"], job["id"])
    again = (await api.get(path, cursor=first["next_cursor"])).json
    assert (again["text"], again["next_cursor"]) == ("", first["next_cursor"])
    await _log(api, lease, "three")
    third = (await api.get(path, cursor=first["next_cursor"])).json
    assert third["text"] == "three\n"
    await api.report(run_of(lease, status="completed"))
    last = (await api.get(path, cursor=third["next_cursor"])).json
    assert (last["text"], last["attempt_ended"], last["next_cursor"]) == ("", True, None)


async def test_logs_come_in_parts_of_whole_pieces(api: Api) -> None:
    job = await api.submit()
    [lease] = await api.lease()
    for number in range(5):
        await _log(api, lease, f"line {number}")
    texts: list[str] = []
    cursor: dict[str, str] = {}
    for _ in range(10):
        part = (await api.get(f"jobs/{job['id']}/logs", max_bytes=10, **cursor)).json
        if not part["text"]:
            break
        texts.append(part["text"])
        cursor = {"cursor": part["next_cursor"]}
    assert texts == ["line 0\nline 1\n", "line 2\nline 3\n", "line 4\n"]


async def test_logs_of_two_attempts_are_never_mixed(api: Api) -> None:
    """Case W16."""
    job = await api.submit(retry_policy={"base_seconds": 0})
    [first] = await api.lease()
    await _log(api, first, "A1", "A2")
    await api.report(run_of(first, status="failed"))
    [second] = await api.lease()
    await _log(api, second, "B1")
    late = await _log(api, first, "A3")
    assert (late.status, late.code) == (409, "lease_lost")
    path = f"jobs/{job['id']}/logs"
    assert (await api.get(path)).json["text"] == "B1\n"
    assert (await api.get(path, attempt=2)).json["text"] == "B1\n"
    earlier = (await api.get(path, attempt=1)).json
    assert earlier["text"] == "A1\nA2\n"
    assert (await api.get(path, cursor=earlier["next_cursor"])).json["next_cursor"] is None


async def test_who_follows_a_log_is_led_on_to_the_next_attempt(api: Api) -> None:
    job = await api.submit(retry_policy={"base_seconds": 0})
    path = f"jobs/{job['id']}/logs"
    none_yet = (await api.get(path)).json
    assert (none_yet["text"], none_yet["attempt_number"]) == ("", 0)
    [first] = await api.lease()
    await _log(api, first, "A1")
    await api.report(run_of(first, status="failed"))
    [second] = await api.lease()
    await _log(api, second, "B1")
    seen: list[tuple[int, str]] = []
    cursor = none_yet["next_cursor"]
    for _ in range(4):
        part = (await api.get(path, cursor=cursor)).json
        seen.append((part["attempt_number"], part["text"]))
        cursor = part["next_cursor"]
    assert seen == [(0, ""), (1, "A1\n"), (1, ""), (2, "B1\n")]


async def test_who_waits_for_lines_gets_them_when_they_come(api: Api, follower: Api) -> None:
    job = await api.submit()
    [lease] = await api.lease()
    cursor = (await api.get(f"jobs/{job['id']}/logs")).json["next_cursor"]
    waiting = asyncio.create_task(follower.get(f"jobs/{job['id']}/logs", cursor=cursor, wait_seconds=30))
    await _log(api, lease, "here")
    assert (await asyncio.wait_for(waiting, 10)).json["text"] == "here\n"


async def test_who_waits_for_lines_hears_of_the_end(api: Api) -> None:
    job = await api.submit()
    [lease] = await api.lease()
    waiting = asyncio.create_task(api.get(f"jobs/{job['id']}/logs", wait_seconds=30))
    await api.report(run_of(lease, status="completed"))
    answer = await asyncio.wait_for(waiting, 10)
    assert (answer.json["text"], answer.json["next_cursor"]) == ("", None)


_WRONG: list[Fault] = [
    *malformed(
        {
            "cursor": ["x", "kwEBAw=="],
            "attempt": ["0"],
            "max_bytes": ["0"],
            "wait_seconds": ["61"],
        }
    ),
    ({"run": "1"}, 422, "attempt"),
    ({"attempt": "1"}, 404, ""),
    ({"run": "2", "attempt": "1"}, 404, ""),
]


async def test_logs_refuse_what_is_not_there(api: Api) -> None:
    job = await api.submit()
    assert await misjudged(_WRONG, lambda query: api.get(f"jobs/{job['id']}/logs", **query)) == []


# -- explain ----------------------------------------------------------------------------------------------------------


async def _reasons(api: Api, job: dict[str, Any], **query: str) -> list[dict[str, Any]]:
    reasons: list[dict[str, Any]] = (await api.get(f"jobs/{job['id']}/explain", **query)).json["reasons"]
    return reasons


async def test_explain_names_what_stands_in_the_way(api: Api) -> None:
    parent = await api.submit(queue="q1")
    job = await api.submit(queue="q2", delay_seconds=60, depends_on=[parent["id"]])
    assert [reason["code"] for reason in await _reasons(api, job)] == ["waits_for_parents", "not_due", "no_worker"]
    waits, not_due, _ = await _reasons(api, job)
    assert waits["details"]["parents"] == [
        {"id": parent["id"], "name": "send_email", "status": "queued", "condition": "success"}
    ]
    assert not_due["details"] == {"due_at": "2030-03-17T17:47:40.000Z", "in_seconds": 60.0}


async def test_explain_knows_the_workers_that_ask(api: Api) -> None:
    job = await api.submit(queue="q1", paused=True)
    assert [reason["code"] for reason in await _reasons(api, job)] == ["paused", "no_worker"]
    await api.lease("q1")
    assert [reason["code"] for reason in await _reasons(api, job)] == ["paused"]


async def test_explain_says_that_no_worker_is_in_the_region(api: Api, follower: Api) -> None:
    job = await api.submit(queue="q1", region="eu")
    await api.lease("q1", worker="nowhere")
    await api.lease("q1", worker="abroad", region="us")
    [reason] = await _reasons(follower, job)
    assert (reason["code"], reason["details"]) == ("no_worker", {"queue": "q1", "region": "eu", "worker_count": 2})
    await api.lease("other", worker="late", region="eu")
    assert [reason["code"] for reason in await _reasons(api, job)] == ["no_worker"]
    [lease] = await api.lease("q1", worker="here", region="eu")
    assert lease["job_id"] == job["id"]


async def test_explain_of_a_running_job_says_what_is_known_of_its_worker(api: Api, follower: Api) -> None:
    job = await api.submit()
    [lease] = await api.lease()
    api.node.clock.now_ms += 4_000
    heard = run_of(lease)
    await api.post("leases/heartbeat", {"worker": "w1", "leases": [heard]})
    api.node.clock.now_ms += 3_000
    [running] = await _reasons(api, job)
    assert running["details"]["worker_heard_at"] == "2030-03-17T17:46:44.000Z"
    assert running["details"]["lease_ends_at"] == "2030-03-17T17:46:54.000Z"
    assert "last heard 3 s ago; its lease ends in 7 s" in running["text"]
    await api.ask("DELETE", f"jobs/{job['id']}")
    [cancelling] = await _reasons(api, job)
    assert "is asked to stop at its next heartbeat" in cancelling["text"]
    assert cancelling["text"].endswith("and in 30 s in any case")
    api.node.clock.now_ms += 1
    await api.post("leases/heartbeat", {"worker": "w1", "leases": [heard]})
    assert "its worker was asked to stop" in (await _reasons(api, job))[0]["text"]
    [stale] = await _reasons(follower, job, consistency="stale")
    assert "lease_ends_at" not in stale["details"]


async def test_explain_names_the_limits_of_the_queue(api: Api) -> None:
    job = await api.submit()
    await api.lease("other", "send_email", capacity=1)
    second = await api.submit()
    assert [reason["code"] for reason in await _reasons(api, second)] == ["ready"]
    api.node.apply(ConfigureQueue("send_email", concurrency_max=1))
    api.node.apply(PauseQueue("send_email", paused=True, reason="night"))
    paused, limit = await _reasons(api, second)
    assert (paused["code"], paused["details"]["reason"]) == ("queue_paused", "night")
    assert paused["details"]["since"] == "2030-03-17T17:46:40.000Z"
    assert (limit["code"], limit["details"]["running_count"]) == ("concurrency_limit", 1)
    assert [reason["code"] for reason in await _reasons(api, job)] == ["running"]


async def test_explain_of_a_finished_job_says_how_it_ended(api: Api) -> None:
    job = await api.submit()
    await api.ask("DELETE", f"jobs/{job['id']}")
    [reason] = await _reasons(api, job)
    assert (reason["code"], reason["details"]["status"]) == ("finished", "cancelled")
