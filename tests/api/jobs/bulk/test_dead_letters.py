from __future__ import annotations

from typing import Any

import pytest

from tests.api.node import NOBODY, Api, malformed, misjudged


async def _dead(api: Api, name: str, *, retryable: bool = True, **fields: Any) -> str:
    """A job in the dead letters: `attempts_exhausted`, or `rejected` where its handler gave up."""
    job = await api.submit(name=name, max_attempts=1, **fields)
    await api.end(job["queue"], status="failed", retryable=retryable)
    api.node.clock.now_ms += 1_000
    return str(job["id"])


async def _ids(api: Api, **query: Any) -> list[str]:
    return [job["id"] for job in await api.all("dead-letters", "jobs", **query)]


async def test_dead_letters_are_listed_by_reason_the_latest_first(api: Api) -> None:
    await api.submit(name="waits")
    first = await _dead(api, "a")
    second = await _dead(api, "b", retryable=False, queue="q", tags=["t"], tenant="acme")
    third = await _dead(api, "a")
    assert await _ids(api, limit=1) == [third, second, first]
    assert await _ids(api, order="asc") == [first, second, third]
    assert await _ids(api, reason="attempts_exhausted") == [third, first]
    assert await _ids(api, reason="rejected") == [second]
    assert await _ids(api, name="a", queue="a") == [third, first]
    assert await _ids(api, tag="t", tenant="acme") == [second]
    assert await _ids(api, reason="timeout") == []
    [job] = (await api.get("dead-letters", reason="rejected")).json["jobs"]
    assert job == (await api.get(f"jobs/{second}")).json


async def test_dead_letters_are_counted_by_reason_for_who_sees_them(api: Api, follower: Api) -> None:
    await _dead(api, "a")
    await _dead(api, "a")
    await _dead(api, "b", retryable=False, tenant="acme")
    for asked in (api, follower):
        assert (await asked.get("dead-letters/reasons")).json == {"reasons": {"attempts_exhausted": 2, "rejected": 1}}
    bound = await api.ask("GET", "dead-letters/reasons", headers={"Raftsched-Tenant": "acme"})
    assert bound.json == {"reasons": {"rejected": 1}}


async def test_dead_letters_refuse_unknown_parameters_and_reasons_and_name_those_that_there_are(api: Api) -> None:
    wrong = malformed({"status": ["completed"], "reason": ["foo"]})
    assert await misjudged(wrong, lambda query: api.get("dead-letters", **query)) == []
    assert "attempts_exhausted" in (await api.get("dead-letters", reason="foo")).json["detail"]


async def test_requeue_by_reason_runs_them_again(api: Api, follower: Api) -> None:
    first, other = await _dead(api, "a"), await _dead(api, "a", retryable=False)
    reply = (await follower.post("dead-letters/requeue", {"reason": "attempts_exhausted"})).json
    assert (reply["action"], reply["matched"], reply["done"]) == ("retry", 1, 1)
    assert (await api.get(f"jobs/{first}")).json["status"] == "queued"
    assert await _ids(api) == [other]


async def test_requeue_of_ids_touches_dead_letters_of_the_reason_only(api: Api) -> None:
    dead, rejected = await _dead(api, "a"), await _dead(api, "a", retryable=False)
    cancelled = (await api.submit(name="c"))["id"]
    await api.ask("DELETE", f"jobs/{cancelled}")
    asked = {"ids": [dead, rejected, cancelled, NOBODY], "reason": "attempts_exhausted"}
    for dry_run in (True, False):
        reply = (await api.post("dead-letters/requeue", asked | {"dry_run": dry_run})).json
        assert (reply["matched"], reply["done"], reply["failed_count"]) == (4, 0 if dry_run else 1, 3)
        assert {failure["id"]: failure["code"] for failure in reply["failed"]} == {
            rejected: "stale_decision",
            cancelled: "stale_decision",
            NOBODY: "not_found",
        }
    assert (await api.get(f"jobs/{cancelled}")).json["status"] == "cancelled"


async def test_purge_removes_dead_letters_for_good(api: Api) -> None:
    dead, rejected = await _dead(api, "a"), await _dead(api, "b", retryable=False)
    done = (await api.submit(name="c"))["id"]
    await api.ask("DELETE", f"jobs/{done}")
    reply = (await api.post("dead-letters/purge", {"filter": {"name": "a"}, "dry_run": True})).json
    assert (reply["matched"], reply["done"], reply["sample"]) == (1, 0, [dead])
    reply = (await api.post("dead-letters/purge", {"filter": {"name": "a"}})).json
    assert (reply["action"], reply["matched"], reply["done"]) == ("delete", 1, 1)
    assert (await api.get(f"jobs/{dead}")).status == 404
    assert await _ids(api) == [rejected]
    assert (await api.post("dead-letters/purge", {"all": True})).json["done"] == 1
    assert (await api.get(f"jobs/{done}")).status == 200


async def test_purge_goes_on_by_cursor(api: Api) -> None:
    for _ in range(3):
        await _dead(api, "a")
    first = (await api.post("dead-letters/purge", {"all": True, "limit": 2})).json
    assert (first["done"], first["next_cursor"] is None) == (2, False)
    rest = (await api.post("dead-letters/purge", {"all": True, "limit": 2, "cursor": first["next_cursor"]})).json
    assert (rest["done"], rest["next_cursor"]) == (1, None)


@pytest.mark.parametrize("action", ["requeue", "purge"])
@pytest.mark.parametrize(
    ("document", "status", "field"),
    [
        ({}, 422, "ids"),
        ({"filter": {}}, 422, "filter"),
        ({"all": True, "filter": {"queue": "x"}}, 422, "filter"),
        ({"ids": [NOBODY], "all": True}, 422, "ids"),
        ({"ids": [NOBODY], "filter": {"queue": "x"}}, 422, "ids"),
        ({"ids": ["x"]}, 400, "ids[0]"),
        ({"reason": "bored"}, 400, "reason"),
        ({"reason": "timeout", "filter": {"reason": "expired"}}, 422, "reason"),
        ({"filter": {"status": "completed"}}, 400, "filter.status"),
        ({"all": True, "force": True}, 400, "force"),
    ],
)
async def test_dead_letters_are_changed_only_where_they_are_named(
    api: Api, action: str, document: Any, status: int, field: str
) -> None:
    before = [await _dead(api, "a")]
    answer = await api.post(f"dead-letters/{action}", document)
    assert (answer.status, answer.json["field"]) == (status, field), answer.body
    assert await _ids(api) == before


@pytest.mark.parametrize("is_reversed", [False, True])
async def test_requeue_of_a_parent_and_those_that_ended_for_it_runs_the_parent_first(
    api: Api, *, is_reversed: bool
) -> None:
    parent = await api.submit(name="x", max_attempts=1)
    child = await api.submit(name="x", depends_on=[parent["id"]], on_dependency_failure="fail")
    await api.end("x", status="failed")
    ids = [parent["id"], child["id"]]
    reply = (await api.post("dead-letters/requeue", {"ids": ids[::-1] if is_reversed else ids})).json
    assert (reply["matched"], reply["done"], reply["failed"]) == (2, 2, [])
    assert [(await api.get(f"jobs/{job}")).json["status"] for job in ids] == ["queued", "waiting_dependencies"]
