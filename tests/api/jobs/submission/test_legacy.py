"""The routes of the first version."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.node import Api


async def test_submit_at_the_root_stores_a_job_by_its_name(api: Api) -> None:
    answer = await api.post("/submit", {"task": "send_email"})
    assert answer.status == 201
    job_id = answer.json["id"]
    assert answer.json == {"id": job_id, "job_id": job_id, "task": "send_email", "status": "queued"}
    assert answer.headers["Location"] == f"/jobs/{job_id}"
    read = await api.get(answer.headers["Location"])
    assert read.json == (await api.get(f"jobs/{job_id}")).json | {"task": "send_email"}
    assert (read.json["name"], read.json["queue"]) == ("send_email", "send_email")


async def test_submit_at_the_root_takes_what_older_clients_say(api: Api) -> None:
    fields = {"payload": [1], "priority": "high", "delay_seconds": 5, "max_retries": 4, "timeout_seconds": 9}
    job_id = (await api.post("/submit", {"task": "x"} | fields)).json["id"]
    job = (await api.get(f"/jobs/{job_id}")).json
    assert (job["payload"], job["priority"], job["max_attempts"], job["timeout_seconds"]) == ([1], 8, 5, 9.0)
    assert job["status"] == "scheduled"


async def test_submit_at_the_root_is_repeatable_with_a_key(api: Api, follower: Api) -> None:
    first = await api.post("/submit", {"task": "x"}, Idempotency_Key="k")
    again = await follower.post("/submit", {"task": "x"}, Idempotency_Key="k")
    assert (again.status, again.json["id"], again.json["duplicate"]) == (200, first.json["id"], True)
    other = await api.post("/submit", {"task": "y"}, Idempotency_Key="k")
    assert (other.status, other.code) == (422, "idempotency_mismatch")


@pytest.mark.parametrize(
    ("document", "status", "field"),
    [({}, 400, "task"), ({"task": "a b"}, 400, "task"), ({"task": "x", "name": "y"}, 400, "name")],
)
async def test_submit_at_the_root_names_the_field_at_fault(api: Api, document: Any, status: int, field: str) -> None:
    answer = await api.post("/submit", document)
    assert (answer.status, answer.json["field"]) == (status, field)


async def test_get_at_the_root_of_an_unknown_job_is_404(api: Api) -> None:
    assert (await api.get("/jobs/x")).status == 404
    assert (await api.get("/health")).status == 200
