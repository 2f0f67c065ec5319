from __future__ import annotations

from tests.api.node import Api


async def test_queues_count_by_the_status_that_users_see(api: Api) -> None:
    await api.submit(queue="q2")
    await api.submit(queue="q1", delay_seconds=60)
    await api.submit(queue="q1", delay_seconds=1)
    await api.submit(queue="q1")
    await api.lease("q2")
    api.node.clock.now_ms += 2_000
    first, second = (await api.get("queues")).json["queues"]
    assert first.pop("settings") == second["settings"]
    assert first == {
        "name": "q1",
        "tenant": "default",
        "scheduled": 1,
        "waiting_dependencies": 0,
        "queued": 2,
        "running": 0,
        "cancelling": 0,
        "paused": 0,
        "retrying": 0,
        "completed": 0,
        "failed": 0,
        "dead_letter": 0,
        "cancelled": 0,
        "skipped": 0,
        "exact": True,
        "oldest_wait_ms": 2_000,
        "waiting_workers": 0,
    }
    assert (second["name"], second["running"]) == ("q2", 1)


async def test_stale_queues_are_counted_by_a_follower(api: Api, follower: Api) -> None:
    await api.submit(delay_seconds=1)
    api.node.clock.now_ms += 1_000
    [queue] = (await follower.get("queues", consistency="stale")).json["queues"]
    assert (queue["queued"], queue["waiting_workers"]) == (1, None)
    assert (await follower.get("queues")).json["queues"] == [queue | {"waiting_workers": 0}]
