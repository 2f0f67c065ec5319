from __future__ import annotations

from typing import Any

import pytest

from raftsched import limits
from raftsched.api.jobs.bulk import routes as bulk
from raftsched.core.operations.base import Operation
from raftsched.errors import NotLeader, OutcomeUnknown, RaftschedError
from tests.api.node import NOBODY, Answer, Api


async def _bulk(api: Api, action: str, **fields: Any) -> Answer:
    headers = {"Idempotency_Key": fields.pop("key")} if "key" in fields else {}
    return await api.post("jobs/bulk", {"action": action} | fields, **headers)


async def _statuses(api: Api) -> dict[str, str]:
    jobs = (await api.get("jobs", limit=1000)).json["jobs"]
    return {job["id"]: job["status"] for job in jobs}


async def test_bulk_does_what_was_asked_to_what_the_filter_names(api: Api) -> None:
    mail = await api.submit_many(3, queue="mail", tags=["t"])
    others = await api.submit_many(2, queue="other", tags=["t"])
    answer = await _bulk(api, "cancel", filter={"queue": "mail"})
    assert (answer.status, answer.json) == (
        200,
        {
            "action": "cancel",
            "dry_run": False,
            "matched": 3,
            "done": 3,
            "failed_count": 0,
            "failed": [],
            "sample": mail,
            "next_cursor": None,
        },
    )
    assert await _statuses(api) == dict.fromkeys(mail, "cancelled") | dict.fromkeys(others, "queued")


async def test_dry_run_counts_and_changes_nothing(api: Api) -> None:
    ids = await api.submit_many(3)
    before = len(api.node.proposed)
    reply = (await _bulk(api, "cancel", all=True, dry_run=True)).json
    assert (reply["matched"], reply["done"], reply["dry_run"], reply["sample"]) == (3, 0, True, ids)
    reply = (await _bulk(api, "cancel", ids=[*ids, NOBODY], dry_run=True)).json
    assert (reply["matched"], reply["done"], reply["failed_count"]) == (4, 0, 1)
    assert len(api.node.proposed) == before


@pytest.mark.parametrize(
    ("action", "fields", "status"),
    [
        ("cancel", {}, "cancelled"),
        ("pause", {"reason": "night", "for_seconds": 60}, "paused"),
        ("reschedule", {"delay_seconds": 60}, "scheduled"),
        ("reschedule", {"run_at": "2030-03-18T00:00:00Z"}, "scheduled"),
        ("reprioritise", {"priority": "high"}, "queued"),
    ],
)
async def test_bulk_of_all_is_meant_for_jobs_that_wait(
    api: Api, action: str, fields: dict[str, Any], status: str
) -> None:
    await api.submit_many(2)
    await api.end("x", count=2, status="completed")
    waiting = await api.submit_many(3)
    reply = (await _bulk(api, action, all=True, **fields)).json
    assert (reply["matched"], reply["done"], reply["failed"]) == (3, 3, [])
    statuses = await _statuses(api)
    assert [statuses[job_id] for job_id in waiting] == [status] * 3
    assert sorted(statuses.values()) == sorted(["completed"] * 2 + [status] * 3)


async def test_bulk_resumes_what_is_paused(api: Api) -> None:
    ids = await api.submit_many(3, paused=True)
    assert (await _bulk(api, "resume", filter={"name": "x"})).json["done"] == 3
    assert await _statuses(api) == dict.fromkeys(ids, "queued")


async def test_bulk_retries_dead_letters(api: Api) -> None:
    ids = await api.submit_many(3, max_attempts=1)
    await api.end("x", count=3, status="failed")
    reply = (await _bulk(api, "retry", filter={"reason": "attempts_exhausted"})).json
    assert (reply["matched"], reply["done"]) == (3, 3)
    assert await _statuses(api) == dict.fromkeys(ids, "queued")


async def test_bulk_replays_a_filtered_range_once_for_each_key(api: Api) -> None:
    await api.submit_many(2)
    api.node.clock.now_ms += 60_000
    meant = await api.submit_many(3, payload={"n": 1})
    api.node.clock.now_ms += 60_000
    await api.submit_many(2)
    await api.end("x", count=7, status="completed")
    filter_ = {"created_after": "2030-03-17T17:47:40Z", "created_before": "2030-03-17T17:48:40Z"}
    for _ in range(2):
        reply = (await _bulk(api, "replay", filter=filter_, key="again")).json
        assert (reply["matched"], reply["done"], reply["sample"]) == (3, 3, meant)
    clones = (await api.get("jobs", status="queued")).json["jobs"]
    assert sorted(clone["replay_of"] for clone in clones) == sorted(meant)
    assert {clone["payload"]["n"] for clone in clones} == {1}
    await _bulk(api, "replay", filter=filter_)
    assert len((await api.get("jobs", status="queued")).json["jobs"]) == 6


async def test_bulk_deletes_what_is_finished(api: Api) -> None:
    await api.submit_many(3)
    await api.end("x", count=2, status="completed")
    [waiting] = [job_id for job_id, status in (await _statuses(api)).items() if status == "queued"]
    reply = (await _bulk(api, "delete", all=True)).json
    assert (reply["matched"], reply["done"]) == (2, 2)
    assert await _statuses(api) == {waiting: "queued"}
    reply = (await _bulk(api, "delete", ids=[waiting])).json
    assert (reply["done"], reply["failed"][0]["code"]) == (0, "running")
    assert "cancel it before" in reply["failed"][0]["detail"]
    audit = [line for _, line in api.node.state.list_audit(limit=100).items]
    assert [(line.action, line.actor, line.detail) for line in audit] == [
        ("job.delete", "anonymous", "completed"),
        ("job.delete", "anonymous", "completed"),
    ]


async def test_bulk_tells_which_jobs_stayed_as_they_were_and_why(api: Api) -> None:
    [ended] = await api.submit_many(1)
    await api.end("x", count=1, status="completed")
    [waiting] = await api.submit_many(1)
    reply = (await _bulk(api, "cancel", ids=[ended, waiting, NOBODY, waiting])).json
    assert (reply["matched"], reply["done"], reply["failed_count"]) == (3, 1, 2)
    assert {failure["id"]: failure["code"] for failure in reply["failed"]} == {
        ended: "already_finished",
        NOBODY: "not_found",
    }


async def test_bulk_cancels_by_force_where_asked(api: Api) -> None:
    [job_id] = await api.submit_many(1)
    await api.lease("x")
    await _bulk(api, "cancel", ids=[job_id])
    assert await _statuses(api) == {job_id: "cancelling"}
    await _bulk(api, "cancel", ids=[job_id], force=True)
    assert await _statuses(api) == {job_id: "cancelled"}


async def test_bulk_leaves_the_actor_in_the_history(api: Api, follower: Api) -> None:
    [job_id] = await api.submit_many(1)
    document = b'{"action":"pause","all":true}'
    headers = {"Content-Type": "application/json", "Raftsched-Actor": "ann"}
    answer = await follower.ask("POST", "jobs/bulk", data=document, headers=headers)
    assert answer.json["done"] == 1
    events = (await api.get(f"jobs/{job_id}/history")).json["events"]
    assert (events[-1]["event"], events[-1]["actor"]) == ("paused", "ann")


@pytest.mark.parametrize(
    ("document", "status", "field"),
    [
        ({"action": "cancel"}, 422, "ids"),
        ({"action": "cancel", "filter": {}}, 422, "filter"),
        ({"action": "cancel", "all": True, "filter": {"queue": "x"}}, 422, "all"),
        ({"action": "cancel", "ids": [NOBODY], "all": True}, 422, "all"),
        ({"action": "cancel", "ids": []}, 400, "ids"),
        ({"action": "cancel", "ids": ["x"]}, 400, "ids[0]"),
        ({"action": "cancel", "ids": [NOBODY], "cursor": "x"}, 400, "cursor"),
        ({"action": "cancel", "all": True, "cursor": "x"}, 400, "cursor"),
        ({"action": "cancle", "all": True}, 400, "action"),
        ({"action": "cancel", "all": True, "priority": 1}, 422, "priority"),
        ({"action": "pause", "all": True, "force": True}, 422, "force"),
        ({"action": "reprioritise", "all": True}, 422, "priority"),
        ({"action": "reschedule", "all": True}, 422, "run_at"),
        ({"action": "retry", "all": True, "run_at": "2030-03-18T00:00:00Z", "delay_seconds": 1}, 422, "run_at"),
        ({"action": "cancel", "filter": {"stats": "queued"}}, 400, "filter.stats"),
        ({"action": "cancel", "filter": {"status": ["runing"]}}, 400, "filter.status[0]"),
        ({"action": "cancel", "filter": {"workflow": "x"}}, 400, "filter.workflow"),
        ({"action": "cancel", "filter": {"created_after": "x"}}, 400, "filter.created_after"),
        ({"action": "cancel", "all": True, "limit": 10_001}, 400, "limit"),
    ],
)
async def test_bulk_names_the_field_at_fault(api: Api, document: Any, status: int, field: str) -> None:
    await api.submit()
    answer = await api.post("jobs/bulk", document)
    assert (answer.status, answer.json["field"]) == (status, field), answer.body
    assert len(api.node.proposed) == 1


async def test_bulk_with_a_key_that_means_nothing_is_refused(api: Api) -> None:
    answer = await _bulk(api, "cancel", all=True, key="k")
    assert (answer.status, answer.json["field"]) == (422, "Idempotency-Key")


# -- bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["cancel", "pause", "reprioritise", "reschedule"])
async def test_bulk_goes_on_by_cursor_and_takes_each_job_once(api: Api, action: str) -> None:
    ids = await api.submit_many(10)
    fields: dict[str, Any] = {"reprioritise": {"priority": 0}, "reschedule": {"delay_seconds": 9}}.get(action, {})
    seen: list[str] = []
    cursor: dict[str, Any] = {}
    for _ in range(10):
        reply = (await _bulk(api, action, all=True, limit=4, **fields, **cursor)).json
        assert reply["done"] == reply["matched"] <= 4
        seen += reply["sample"]
        if reply["next_cursor"] is None:
            break
        cursor = {"cursor": reply["next_cursor"]}
        await api.submit_many(1)
    assert seen == ids


async def test_bulk_of_ids_goes_on_by_cursor(api: Api) -> None:
    ids = await api.submit_many(5)
    first = (await _bulk(api, "cancel", ids=[*ids, ids[0]], limit=3)).json
    assert (first["matched"], first["done"]) == (3, 3)
    rest = (await _bulk(api, "cancel", ids=[*ids, ids[0]], limit=3, cursor=first["next_cursor"])).json
    assert (rest["matched"], rest["sample"], rest["next_cursor"]) == (2, ids[3:], None)
    for action, other in (("cancel", ids[1:]), ("pause", [*ids, ids[0]])):
        answer = await _bulk(api, action, ids=other, cursor=first["next_cursor"])
        assert (answer.status, answer.json["field"]) == (400, "cursor")


async def test_bulk_refuses_the_cursor_of_another_request(api: Api) -> None:
    await api.submit_many(3)
    cursor = (await _bulk(api, "cancel", all=True, limit=1)).json["next_cursor"]
    for other in (("pause", {"all": True}), ("cancel", {"filter": {"queue": "x"}})):
        answer = await _bulk(api, other[0], cursor=cursor, **other[1])
        assert (answer.status, answer.json["field"]) == (400, "cursor")


async def test_bulk_ends_when_its_time_is_over(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "_SECONDS_MAX", 0.0)
    monkeypatch.setattr(bulk, "_STEP_JOBS", 2)
    await api.submit_many(5)
    reply = (await _bulk(api, "cancel", all=True)).json
    assert (reply["matched"], reply["done"]) == (2, 2)
    assert (await _bulk(api, "cancel", all=True, cursor=reply["next_cursor"])).json["done"] == 2


async def test_bulk_examines_a_bounded_number_of_jobs(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCAN_ROWS_MAX", 5)
    monkeypatch.setattr(bulk, "_EXAMINED_MAX", 10)
    await api.submit_many(20, tenant="many")
    [rare] = await api.submit_many(1)
    replies: list[Any] = []
    cursor: dict[str, Any] = {}
    while not replies or replies[-1]["next_cursor"]:
        replies.append((await _bulk(api, "reschedule", filter={"tenant": "default"}, delay_seconds=9, **cursor)).json)
        cursor = {"cursor": replies[-1]["next_cursor"]}
    assert [reply["matched"] for reply in replies] == [0, 0, 1]
    assert replies[-1]["sample"] == [rare]


async def test_bulk_shows_a_bounded_number_of_failures(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BULK_FAILURES_SHOWN_MAX", 2)
    ids = await api.submit_many(5)
    await api.end("x", count=5, status="completed")
    reply = (await _bulk(api, "cancel", ids=ids)).json
    assert (reply["failed_count"], len(reply["failed"]), len(reply["sample"])) == (5, 2, 2)


async def test_bulk_of_five_thousand_jobs_is_one_request(api: Api) -> None:
    for _ in range(5):
        await api.submit_many(1_000)
    reply = (await _bulk(api, "cancel", filter={"name": "x"})).json
    assert (reply["matched"], reply["done"], reply["next_cursor"]) == (5_000, 5_000, None)


# -- a lead that is lost ----------------------------------------------------------------------------------------------


async def test_bulk_of_which_nothing_was_taken_is_503(api: Api) -> None:
    ids = await api.submit_many(2)
    api.node.proposal_error = lambda _: NotLeader()
    for which in ({"all": True}, {"ids": ids}):
        answer = await _bulk(api, "cancel", **which)
        assert (answer.status, answer.code) == (503, "not_leader")


async def test_bulk_that_is_cut_short_says_what_it_did_and_where_to_go_on(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "_STEP_JOBS", 2)
    ids = await api.submit_many(6)
    left = 2

    def error(_: Operation) -> RaftschedError | None:
        nonlocal left
        left -= 1
        return NotLeader() if left < 0 else None

    api.node.proposal_error = error
    reply = (await _bulk(api, "cancel", all=True)).json
    assert (reply["matched"], reply["done"], reply["failed_count"]) == (2, 2, 0)
    left = 2
    by_id = (await _bulk(api, "pause", ids=ids[2:])).json
    assert (by_id["matched"], by_id["done"], by_id["failed_count"]) == (2, 2, 0)
    left = 100
    by_id = (await _bulk(api, "pause", ids=ids[2:], cursor=by_id["next_cursor"])).json
    assert (by_id["matched"], by_id["done"], by_id["next_cursor"]) == (2, 2, None)
    rest = (await _bulk(api, "cancel", all=True, cursor=reply["next_cursor"])).json
    assert rest["done"] == 4
    assert set((await _statuses(api)).values()) == {"cancelled"}


async def test_bulk_tells_of_outcomes_that_nobody_knows(api: Api) -> None:
    await api.submit_many(2)
    api.node.proposal_error = lambda _: OutcomeUnknown("lost the lead")
    reply = (await _bulk(api, "cancel", all=True)).json
    assert (reply["matched"], reply["done"], reply["failed_count"]) == (2, 0, 2)
    assert reply["failed"][0]["code"] == "outcome_unknown"
    assert reply["failed"][0]["retryable"] is True


# -- jobs that depend on others


async def _chain(api: Api) -> tuple[str, list[str]]:
    """A workflow x -> y -> z."""
    body = {"name": "w", "jobs": {"x": {"name": "x"}, "y": {"name": "x", "depends_on": ["x"]}}}
    body["jobs"]["z"] = {"name": "x", "depends_on": ["y"]}  # type: ignore[index]
    workflow = (await api.post("workflows", body)).json
    return workflow["id"], [workflow["jobs"][task] for task in "xyz"]


async def test_bulk_retry_of_a_cancelled_workflow_runs_it_in_its_order_again(api: Api) -> None:
    workflow, chain = await _chain(api)
    await api.ask("DELETE", f"workflows/{workflow}")
    reply = (await _bulk(api, "retry", filter={"workflow": workflow, "status": "cancelled"})).json
    assert (reply["matched"], reply["done"], reply["failed"]) == (3, 3, [])
    statuses = await _statuses(api)
    assert [statuses[job] for job in chain] == ["queued", "waiting_dependencies", "waiting_dependencies"]
    for _ in chain:
        await api.end("x", count=1, status="completed")
    assert (await api.get(f"workflows/{workflow}")).json["status"] == "completed"


@pytest.mark.parametrize("step", [500, 1])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
async def test_bulk_retry_of_ids_is_right_in_whatever_order(
    api: Api, monkeypatch: pytest.MonkeyPatch, order: tuple[int, ...], step: int
) -> None:
    monkeypatch.setattr(bulk, "_STEP_JOBS", step)
    workflow, chain = await _chain(api)
    await api.ask("DELETE", f"workflows/{workflow}")
    reply = (await _bulk(api, "retry", ids=[chain[place] for place in order])).json
    assert (reply["matched"], reply["done"], reply["failed"]) == (3, 3, [])
    statuses = await _statuses(api)
    assert [statuses[job] for job in chain] == ["queued", "waiting_dependencies", "waiting_dependencies"]


async def test_bulk_retry_without_the_parent_is_refused_and_names_it(api: Api) -> None:
    workflow, (x, y, z) = await _chain(api)
    await api.ask("DELETE", f"workflows/{workflow}")
    reply = (await _bulk(api, "retry", ids=[z, y])).json
    assert (reply["matched"], reply["done"], reply["failed_count"]) == (2, 0, 2)
    told = {failure["id"]: (failure["code"], failure["detail"]) for failure in reply["failed"]}
    assert {code for code, _ in told.values()} == {"dependency_unmet"}
    assert (x in told[y][1], y in told[z][1]) == (True, True)


async def test_bulk_delete_leaves_what_is_still_needed_and_says_why(api: Api) -> None:
    parent = await api.submit(name="x")
    child = await api.submit(name="y", depends_on=[parent["id"]], delay_seconds=60)
    await api.end("x", count=1, status="completed")
    keyed = await api.submit(name="x", idempotency_key="k", idempotency_ttl_seconds=60)
    await api.end("x", count=1, status="completed")
    reply = (await _bulk(api, "delete", ids=[parent["id"], keyed["id"]])).json
    told = {failure["id"]: (failure["code"], failure["detail"]) for failure in reply["failed"]}
    assert told[keyed["id"]] == ("needed", "its idempotency key still counts")
    assert (told[parent["id"]][0], child["id"] in told[parent["id"]][1]) == ("needed", True)
    await api.ask("DELETE", f"jobs/{child['id']}")
    assert (await _bulk(api, "delete", ids=[parent["id"]])).json["done"] == 1
