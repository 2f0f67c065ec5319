from __future__ import annotations

from typing import Any

import pytest

from raftsched import limits
from tests.api.node import Answer, Api

QUOTAS = {"unfinished_jobs": 3, "schedules": 1, "submits_per_second": 100, "weight": 2}


async def configure(api: Api, name: str = "default", **settings: int | None) -> dict[str, Any]:
    reply = await api.ask("PATCH", f"tenants/{name}", json=settings)
    assert reply.status == 200, reply.json
    changed: dict[str, Any] = reply.json
    return changed


def assert_exceeded(reply: Answer, quota: str, retry_after: str) -> None:
    problem = reply.json
    assert (reply.status, problem["code"], problem["retryable"]) == (429, "quota_exceeded", True)
    assert f"the quota {quota} of tenant" in problem["detail"]
    assert reply.headers["Retry-After"] == retry_after


async def test_tenants_are_listed_with_their_usage_in_pages_by_name(api: Api, follower: Api) -> None:
    await configure(api, "idle", **QUOTAS)
    await api.submit(tenant="busy")
    await api.ask("POST", "schedules", json={"name": "s", "cron": "0 0 * * *", "job": {"name": "j"}, "tenant": "clock"})
    pages = await follower.pages("tenants", "tenants", limit="2")
    assert [[tenant["name"] for tenant in page] for page in pages] == [["busy", "clock"], ["idle"]]
    (busy, clock), (idle,) = pages
    assert busy["usage"] == {"unfinished_jobs": 1, "schedules": 0}
    assert clock["usage"] == {"unfinished_jobs": 0, "schedules": 1}
    assert QUOTAS.items() <= idle.items()
    assert (busy["unfinished_jobs"], busy["weight"], busy["revision"], busy["updated_at"]) == (None, 1, None, None)


async def test_settings_stay_unless_named_and_null_removes_one(api: Api) -> None:
    first = await configure(api, "acme", **QUOTAS)
    assert first["submit_burst"] == 100, "a second's by default"
    second = await configure(api, "acme", unfinished_jobs=None, submit_burst=250, weight=None)
    assert second == first | {
        "unfinished_jobs": None,
        "submit_burst": 250,
        "weight": 1,
        "revision": second["revision"],
    }
    assert (await api.get("tenants/acme")).json == second
    removed = await api.ask("DELETE", "tenants/acme")
    assert (removed.json["schedules"], removed.json["revision"]) == (None, None)
    assert (await api.get("tenants/acme")).json == removed.json
    assert (await api.ask("DELETE", "tenants/acme")).status == 404
    actions = [entry["action"] for entry in (await api.get("audit", subject="tenant:acme")).json["entries"]]
    assert actions == ["tenant.remove", "tenant.configure", "tenant.configure"]


@pytest.mark.parametrize(
    ("path", "settings", "status", "field"),
    [
        ("acme", {"unfinished_jobs": 0}, 400, "unfinished_jobs"),
        ("acme", {"submits_per_second": "many"}, 400, "submits_per_second"),
        ("acme", {"weight": 1_001}, 400, "weight"),
        ("acme", {"jobs": 1}, 400, "jobs"),
        ("a%20b", {"weight": 1}, 404, None),
    ],
)
async def test_bad_settings_are_refused_by_name(
    api: Api, path: str, settings: dict[str, Any], status: int, field: str | None
) -> None:
    reply = await api.ask("PATCH", f"tenants/{path}", json=settings)
    assert (reply.status, reply.json.get("field")) == (status, field)


async def test_submissions_beyond_the_quota_of_jobs_get_429_and_others_none(api: Api, follower: Api) -> None:
    await configure(api, unfinished_jobs=2)
    for node in (api, follower):
        await node.submit()
    for node in (api, follower):
        refused = await node.ask("POST", "jobs", json={"name": "j"})
        assert_exceeded(refused, "unfinished_jobs", str(limits.QUOTA_RETRY_SECONDS))
    workflow = await api.ask("POST", "workflows", json={"name": "w", "jobs": {"a": {"name": "j"}}})
    assert_exceeded(workflow, "unfinished_jobs", str(limits.QUOTA_RETRY_SECONDS))
    await configure(api, unfinished_jobs=3)
    batch = [{"name": "j"}, {"name": "j"}, {"name": "j", "tenant": "acme"}]
    results = (await api.ask("POST", "jobs/batch", json={"jobs": batch})).json["results"]
    assert [each["status"] for each in results] == [201, 429, 201]
    assert results[1]["problem"]["retry_after_seconds"] == limits.QUOTA_RETRY_SECONDS


async def test_a_refused_job_is_not_proposed_and_a_repetition_of_a_stored_one_is_answered(api: Api) -> None:
    keyed, unique = (
        {"name": "j", "idempotency_key": "k"},
        {"name": "j", "unique": {"by": ["name"], "on_conflict": "return"}},
    )
    stored = [(await api.ask("POST", "jobs", json=body)).json["id"] for body in (keyed, unique)]
    await configure(api, unfinished_jobs=1)
    count = len(api.node.proposed)
    assert_exceeded(await api.ask("POST", "jobs", json={"name": "j"}), "unfinished_jobs", "5")
    assert len(api.node.proposed) == count
    repeated = [await api.ask("POST", "jobs", json=body) for body in (keyed, unique)]
    assert [(reply.status, reply.json["id"]) for reply in repeated] == [(200, job_id) for job_id in stored]


async def test_schedules_beyond_the_quota_get_429(api: Api) -> None:
    await configure(api, schedules=1)
    schedule = {"name": "s", "cron": "0 0 * * *", "job": {"name": "j"}}
    assert (await api.ask("POST", "schedules", json=schedule)).status == 201
    refused = await api.ask("POST", "schedules", json=schedule | {"name": "other"})
    assert_exceeded(refused, "schedules", str(limits.QUOTA_RETRY_SECONDS))


async def test_submissions_take_tokens_one_for_each_job_and_the_leader_fills_them_evenly(
    api: Api, follower: Api
) -> None:
    await configure(api, submits_per_second=2, submit_burst=5)
    jobs = [{"name": "j"}] * 4
    results = (await api.ask("POST", "jobs/batch", json={"jobs": jobs})).json["results"]
    assert [each["status"] for each in results] == [201] * 4
    await follower.submit()
    refused = await follower.ask("POST", "jobs", json={"name": "j"})
    assert_exceeded(refused, "submits_per_second", "1")
    assert refused.json["retry_after_seconds"] == 0.5
    await api.submit(tenant="acme")
    api.node.clock.now_ms += 1_000
    results = (await api.ask("POST", "jobs/batch", json={"jobs": jobs})).json["results"]
    assert [each["status"] for each in results] == [201, 201, 429, 429]
    api.node.clock.now_ms += 60_000
    results = (await api.ask("POST", "jobs/batch", json={"jobs": jobs * 2})).json["results"]
    assert [each["status"] for each in results].count(201) == 5, "a burst, however long nothing came"
    await configure(api, submits_per_second=None)
    await api.submit()


async def test_a_workflow_of_any_size_is_admitted_by_a_full_bucket_and_leaves_a_debt(api: Api) -> None:
    await configure(api, submits_per_second=2)
    jobs = {f"t{number}": {"name": "j"} for number in range(6)}
    assert (await api.ask("POST", "workflows", json={"name": "w", "jobs": jobs})).status == 201
    assert_exceeded(await api.ask("POST", "jobs", json={"name": "j"}), "submits_per_second", "3")
    api.node.clock.now_ms += 2_500
    await api.submit()
