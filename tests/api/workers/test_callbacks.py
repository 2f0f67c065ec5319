"""Requests whose target reports the outcome itself: the token, the lease that nobody renews, and repeats."""

from __future__ import annotations

from typing import Any

from tests.api.node import Answer, Api

TOKEN = "a-token-of-this-attempt"


async def awaiting(api: Api, **fields: Any) -> dict[str, Any]:
    """Submit a request with a callback, and let its executor start it and report that it was accepted."""
    http = {"url": "https://hooks.example.org/", "completion": "callback"}
    await api.submit(name="report", http=http, timeout_seconds=600, **fields)
    [lease] = await api.lease("http", executes=["http"])
    started = {"fencing_token": lease["fencing_token"], "callback_token": TOKEN}
    for _ in "12":
        assert (await api.post(f"runs/{lease['run_id']}/start", started)).status == 200
    return dict(lease)


async def accept(api: Api, lease: dict[str, Any]) -> Answer:
    outcome = {"run_id": lease["run_id"], "fencing_token": lease["fencing_token"], "status": "accepted"}
    return await api.post("leases/outcomes", {"worker": "w1", "outcomes": [outcome]})


async def complete(api: Api, lease: dict[str, Any], report: Any = None, token: str = TOKEN) -> Answer:
    return await api.post(
        f"runs/{lease['run_id']}/complete", {} if report is None else report, Raftsched_Callback_Token=token
    )


async def test_target_reports_the_outcome_once_though_nobody_renews_the_lease(api: Api) -> None:
    lease = await awaiting(api)
    for _ in "12":
        assert (await accept(api, lease)).status == 200
    assert (await api.get(f"jobs/{lease['job_id']}")).json["status"] == "running"
    reasons = (await api.get(f"jobs/{lease['job_id']}/explain")).json["reasons"]
    assert [reason["code"] for reason in reasons] == ["awaiting_callback"]
    wrong = await complete(api, lease, token=TOKEN + "x")
    assert (wrong.status, wrong.code) == (409, "lease_lost")
    report = {"status": "completed", "result": {"rows": 3}}
    for _ in "12":
        assert (await complete(api, lease, report)).json["accepted"] is True
    other = await complete(api, lease, {"status": "failed"})
    assert (other.status, other.code) == (409, "already_recorded")
    job = (await api.get(f"jobs/{lease['job_id']}")).json
    assert (job["status"], job["result"], job["attempt_number"]) == ("completed", {"rows": 3}, 1)


async def test_report_at_a_follower_counts(api: Api, follower: Api) -> None:
    lease = await awaiting(api)
    await accept(api, lease)
    assert (await complete(follower, lease)).json["accepted"] is True


async def test_target_may_be_faster_than_the_report_of_its_executor(api: Api) -> None:
    lease = await awaiting(api)
    assert (await complete(api, lease)).status == 200
    assert (await accept(api, lease)).status == 200
    assert (await api.get(f"jobs/{lease['job_id']}")).json["status"] == "completed"


async def test_report_that_is_not_asked_for_is_refused_and_names_the_field(api: Api) -> None:
    await api.submit(name="plain")
    [lease] = await api.lease("plain")
    refused = await accept(api, lease)
    assert (refused.status, refused.json["outcomes"][0]["code"]) == (422, "invalid")
    assert (await complete(api, lease)).code == "lease_lost"
    asked = await awaiting(api)
    misplaced = await complete(api, asked, {"status": "failed", "result": 1})
    assert (misplaced.status, misplaced.json["field"]) == (422, "result")
    assert (await api.get(f"jobs/{asked['job_id']}")).json["status"] == "running"
