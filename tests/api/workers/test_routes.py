from __future__ import annotations

import asyncio

from raftsched.core.operations.codec import MarkWorkers, WorkerMark
from raftsched.core.records.ids import TimeMs
from tests.api.node import START_MS, Api, run_of


async def test_workers_are_listed_by_name(api: Api, follower: Api) -> None:
    regions = {"w2": "eu", "w1": ""}
    marks = tuple(WorkerMark(name, ("a", "b"), 4, TimeMs(START_MS), region) for name, region in regions.items())
    api.node.apply(MarkWorkers(marks))
    seen: dict[str, object] = {
        "queues": ["a", "b"],
        "capacity": 4,
        "first_seen_at": "2030-03-17T17:46:40.000Z",
        "seen_at": "2030-03-17T17:46:40.000Z",
        "state": "active",
        **dict.fromkeys(("tenant", "version", "drained_at", "drained_by", "drain_reason", "slots", "names")),
    }
    expected = {"workers": [{"name": "w1", "region": None} | seen, {"name": "w2", "region": "eu"} | seen]}
    for asked, query, running in ((api, {}, 0), (follower, {}, 0), (follower, {"consistency": "stale"}, None)):
        shown = {"workers": [each | {"running": running} for each in expected["workers"]]}
        assert (await asked.get("workers", **query)).json == shown


async def test_a_drained_worker_ends_its_jobs_and_gets_no_others_until_it_is_undrained(api: Api, follower: Api) -> None:
    await api.submit(name="x")
    [lease] = await api.lease("x", version="1.2", names=["x"])
    api.node.apply(MarkWorkers((WorkerMark("w1", ("x",), 10, TimeMs(START_MS), version="1.2"),)))
    shown = (await follower.post("workers/w1/drain", {"reason": "new kernel"}, Raftsched_Actor="anna")).json
    assert (shown["state"], shown["running"], shown["drained_by"]) == ("draining", 1, "anna")
    assert (shown["version"], shown["names"], shown["slots"], shown["drain_reason"]) == ("1.2", ["x"], 10, "new kernel")
    await api.submit(name="x")
    assert await api.lease("x") == []
    assert [each["job_id"] for each in await api.lease("x", worker="w2", capacity=1)] != [lease["job_id"]]
    await api.report(run_of(lease, status="completed"))
    assert [each["state"] for each in (await api.get("workers")).json["workers"] if each["name"] == "w1"] == ["drained"]
    api.node.apply(MarkWorkers((WorkerMark("w1", (), 4, TimeMs(START_MS)),)))
    [kept] = [each for each in (await api.get("workers")).json["workers"] if each["name"] == "w1"]
    assert (kept["state"], kept["queues"]) == ("drained", ["x"])
    await api.submit(name="x")
    waiting = asyncio.ensure_future(api.lease("x", wait_seconds=20))
    assert (await api.post("workers/w1/undrain", {})).json["state"] == "active"
    assert len(await waiting or await api.lease("x")) == 1  # a request that waited ends at once, without jobs
    assert (await api.post("workers/nobody/drain", {})).code == "not_found"
    [entry] = [each for each in (await api.get("audit")).json["entries"] if each["action"] == "worker.drain"]
    assert (entry["subject"], entry["actor"], entry["detail"]) == ("worker:w1", "anna", "new kernel")
