from __future__ import annotations

from raftsched.core.operations.codec import MarkWorkers, WorkerMark
from raftsched.core.records.ids import TimeMs
from tests.api.node import START_MS, Api


async def test_workers_are_listed_by_name(api: Api, follower: Api) -> None:
    regions = {"w2": "eu", "w1": ""}
    marks = tuple(WorkerMark(name, ("a", "b"), 4, TimeMs(START_MS), region) for name, region in regions.items())
    api.node.apply(MarkWorkers(marks))
    seen = {
        "queues": ["a", "b"],
        "capacity": 4,
        "first_seen_at": "2030-03-17T17:46:40.000Z",
        "seen_at": "2030-03-17T17:46:40.000Z",
    }
    expected = {"workers": [{"name": "w1", "region": None} | seen, {"name": "w2", "region": "eu"} | seen]}
    assert (await api.get("workers")).json == expected
    assert (await follower.get("workers")).json == expected
    assert (await follower.get("workers", consistency="stale")).json == expected
