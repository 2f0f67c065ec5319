from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.api.node import Api, Fault, malformed, misjudged, run_of


async def test_lease_holds_all_that_a_handler_needs(api: Api) -> None:
    job = await api.submit(payload={"to": "a"}, queue="mail", timeout_seconds=30)
    assert await api.lease("mail") == [
        {
            "job_id": job["id"],
            "run_id": f"{job['id']}.1",
            "fencing_token": 1,
            "name": "send_email",
            "queue": "mail",
            "tenant": "default",
            "payload": {"to": "a"},
            "http": None,
            "shell": None,
            "parameters": None,
            "attempt_number": 1,
            "max_attempts": 3,
            "run_at": job["run_at"],
            "retry_cap_seconds": 3600.0,
            "lease_seconds": 10.0,
            "timeout_seconds": 30.0,
            "heartbeat_timeout_seconds": None,
            "start": "at_least_once",
            "expires_at": None,
            "deadline": None,
            "schedule_id": None,
            "instant": None,
            "workflow_id": None,
            "task": None,
            "replay_of": None,
            "traceparent": None,
            "revision": 2,
        }
    ]


async def test_lease_keeps_the_payload_byte_for_byte(api: Api) -> None:
    await api.post("jobs", b'{"name":"x","payload":{"a" :  1.0}}')
    answer = await api.post("leases", {"worker": "w1", "queues": ["x"]})
    assert b'"payload":{"a" :  1.0},' in answer.body


async def test_lease_without_waiting_answers_at_once(api: Api) -> None:
    assert await api.lease("nothing-here") == []


async def test_lease_gives_no_more_than_the_capacity(api: Api) -> None:
    for _ in range(3):
        await api.submit()
    assert len(await api.lease(capacity=2)) == 2
    assert len(await api.lease(capacity=2)) == 1


async def test_lease_goes_by_the_region_of_the_worker(api: Api, follower: Api) -> None:
    eu, plain = await api.submit(region="eu"), await api.submit()
    late = await api.submit(region="us")
    assert [lease["job_id"] for lease in await api.lease(region="ap", capacity=1)] == [plain["id"]]
    assert await api.lease() == []
    assert await api.lease(region=None) == []
    assert [lease["job_id"] for lease in await follower.lease(region="eu")] == [eu["id"]]
    assert [lease["job_id"] for lease in await api.lease(region="us")] == [late["id"]]


async def test_lease_goes_by_the_names_that_the_worker_has_handlers_for(api: Api, follower: Api) -> None:
    refund, charge = await api.submit(name="refund", queue="pay"), await api.submit(name="charge", queue="pay")
    assert await api.lease(queues=["pay"], names=[]) == []
    assert [lease["job_id"] for lease in await follower.lease(queues=["pay"], names=["charge"])] == [charge["id"]]
    assert await api.lease(queues=["pay"], names=["charge"]) == []
    explained = (await api.get(f"jobs/{refund['id']}/explain")).json
    (reason,) = explained["reasons"]
    assert (reason["code"], reason["details"]["name"]) == ("no_handler", "refund")
    assert "no worker with a handler for refund" in reason["text"]
    assert [lease["job_id"] for lease in await api.lease(queues=["pay"])] == [refund["id"]]


async def test_lease_takes_many_queues_and_patterns(api: Api) -> None:
    """Case N05."""
    job = await api.submit(queue="tenant-42")
    queues = [*(f"q{number}" for number in range(900)), "tenant-*"]
    assert [lease["job_id"] for lease in await api.lease(queues=queues)] == [job["id"]]
    other = await api.submit(queue="quite-new")
    assert [lease["job_id"] for lease in await api.lease(queues=["*"])] == [other["id"]]


async def test_lease_goes_by_priority(api: Api) -> None:
    low, high = await api.submit(priority="low"), await api.submit(priority="high")
    assert [lease["job_id"] for lease in await api.lease()] == [high["id"], low["id"]]


@pytest.mark.parametrize("through_follower", [False, True])
async def test_waiting_lease_is_answered_when_a_job_arrives(api: Api, follower: Api, through_follower: bool) -> None:
    waiting = asyncio.create_task((follower if through_follower else api).lease(wait_seconds=60))
    await _until_waiting(api)
    job = await api.submit()
    assert [lease["job_id"] for lease in await waiting] == [job["id"]]


@pytest.mark.parametrize("through_follower", [False, True])
async def test_waiting_lease_ends_when_its_worker_goes_away(api: Api, follower: Api, through_follower: bool) -> None:
    gone = asyncio.create_task((follower if through_follower else api).lease(wait_seconds=60))
    await _until_waiting(api)
    gone.cancel()
    await _until_waiting(api, count=0)
    job = await api.submit()
    assert [lease["job_id"] for lease in await api.lease(worker="w2")] == [job["id"]]


async def test_waiting_lease_hears_that_the_lead_is_lost(api: Api) -> None:
    waiting = asyncio.create_task(api.post("leases", {"worker": "w1", "queues": ["x"], "wait_seconds": 60}))
    await _until_waiting(api, queue="x")
    await api.node.stop()
    answer = await waiting
    assert (answer.status, answer.code) == (503, "not_leader")


_WRONG: list[Fault] = [
    *malformed(
        {
            "worker": ["../../tmp/x"],
            "queues": [[], ["a"] * 1001],
            "queues[1]": [["a", "b c"]],
            "queues[0]": [["*a"], ["a**"]],
            "names": [["a"] * 1001],
            "names[1]": [["a", "b c"]],
            "capacity": [0, 1001],
            "region": ["", "a b", 7],
            "wait_seconds": [-1, 61],
            "wait": [5],
        }
    ),
]


async def test_lease_names_the_field_at_fault(api: Api) -> None:
    await api.submit()
    asked = {"worker": "w1", "queues": ["send_email"]}
    assert await misjudged(_WRONG, lambda fields: api.post("leases", asked | fields)) == []
    assert len(await api.lease()) == 1


async def test_heartbeat_tells_which_leases_hold(api: Api) -> None:
    await api.submit()
    await api.submit()
    first, second = await api.lease()
    await api.ask("DELETE", f"jobs/{second['job_id']}")
    held = [
        run_of(first),
        {"run_id": second["run_id"], "fencing_token": second["fencing_token"], "progress": {"percent": 50}},
        {"run_id": first["run_id"], "fencing_token": 99},
    ]
    answer = await api.post("leases/heartbeat", {"worker": "w1", "leases": held})
    assert answer.status == 200
    assert answer.json["leases"] == [
        {"run_id": first["run_id"], "valid": True, "cancel_requested": False},
        {"run_id": second["run_id"], "valid": True, "cancel_requested": True},
        {"run_id": first["run_id"], "valid": False, "cancel_requested": False},
    ]


async def test_heartbeat_of_an_idle_worker_is_fine(api: Api) -> None:
    assert (await api.post("leases/heartbeat", {"worker": "w1", "leases": []})).json == {"leases": []}


@pytest.mark.parametrize(
    ("lease", "field"),
    [
        ({"run_id": "x", "fencing_token": 1}, "leases[0].run_id"),
        ({"run_id": "01900000-0000-7000-8000-000000000000", "fencing_token": 1}, "leases[0].run_id"),
        ({"run_id": "01900000-0000-7000-8000-000000000000.1", "fencing_token": 0}, "leases[0].fencing_token"),
        ({"run_id": "01900000-0000-7000-8000-000000000000.1", "fencing_token": 2**63}, "leases[0].fencing_token"),
        ({"run_id": "01900000-0000-7000-8000-000000000000.1"}, "leases[0].fencing_token"),
    ],
)
async def test_heartbeat_names_the_field_at_fault(api: Api, lease: dict[str, Any], field: str) -> None:
    [state] = (await api.post("leases/heartbeat", {"worker": "w1", "leases": [lease]})).json["leases"]
    assert (state["valid"], state["problem"]["field"]) == (False, field)


async def test_heartbeat_of_a_leader_without_its_quorum_is_refused(api: Api) -> None:
    api.node.is_leading = False
    answer = await api.post("leases/heartbeat", {"worker": "w1", "leases": []})
    assert (answer.status, answer.code) == (503, "not_leader")


async def _until_waiting(api: Api, *, count: int = 1, queue: str = "send_email") -> None:
    """Return once `count` workers wait for jobs of `queue`."""
    await api.submit(name="marker", queue=queue, delay_seconds=60)
    async with asyncio.timeout(5):
        while await _waiting_count(api, queue) != count:
            pass


async def _waiting_count(api: Api, queue: str) -> int:
    queues = (await api.get("queues")).json["queues"]
    return next(int(found["waiting_workers"]) for found in queues if found["name"] == queue)
