from __future__ import annotations

import pytest

from raftsched import limits
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
        "tenant": None,
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
        "activity": None,
    }
    assert (second["name"], second["running"]) == ("q2", 1)


async def test_a_queue_shows_its_last_minutes_to_who_sees_its_jobs(api: Api, follower: Api) -> None:
    for tenant in ("acme", "acme", "zeta"):
        await api.submit(queue="mail", tenant=tenant)
    api.node.clock.now_ms += 40_000
    await api.end("mail", count=2)
    await api.end("mail", status="failed")
    for asked in (api, follower):
        activity = (await asked.get("queues/mail", consistency="stale")).json["activity"]
        assert (len(activity["periods"]), activity["period_seconds"], activity["wait_p99_ms"]) == (30, 10.0, 60_000)
        first, *_, last = [each for each in activity["periods"] if each["submitted"] or each["started"]]
        assert (first["submitted"], first["wait_p99_ms"]) == (3, None)
        assert [last[name] for name in ("started", "completed", "failed", "wait_p99_ms")] == [3, 2, 1, 60_000]
    seen = await api.ask("GET", "queues/mail", headers={"Raftsched-Tenant": "zeta"})
    assert sum(each["submitted"] for each in seen.json["activity"]["periods"]) == 1


async def test_activity_forgets_silent_queues_for_new_ones(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ACTIVITY_QUEUES_MAX", 2)
    for name in ("a", "b", "c"):
        await api.submit(queue=name)
    counts = [await _submitted(api, name) for name in ("a", "b", "c")]
    assert counts == [1, 1, 0]
    api.node.clock.now_ms += 301_000
    await api.submit(queue="c")
    assert [await _submitted(api, name) for name in ("a", "b", "c")] == [0, 0, 1]


async def _submitted(api: Api, queue: str) -> int:
    periods = (await api.get(f"queues/{queue}")).json["activity"]["periods"]
    return sum(each["submitted"] for each in periods)


async def test_stale_queues_are_counted_by_a_follower(api: Api, follower: Api) -> None:
    await api.submit(delay_seconds=1)
    api.node.clock.now_ms += 1_000
    [queue] = (await follower.get("queues", consistency="stale")).json["queues"]
    assert (queue["queued"], queue["waiting_workers"]) == (1, None)
    assert (await follower.get("queues")).json["queues"] == [queue | {"waiting_workers": 0}]


async def listed(api: Api, **query: str) -> list[list[str]]:
    """The names on each page."""
    return [[queue["name"] for queue in page] for page in await api.pages("queues", "queues", **query)]


async def test_queues_come_in_pages_by_name_whatever_changes_meanwhile(api: Api, follower: Api) -> None:
    for name in ("b", "d", "e", "zz", "f"):
        await api.submit(queue=name)
    for name in ("a", "d", "z"):
        assert (await api.ask("PATCH", f"queues/{name}", json={"concurrency": 2})).status == 200
    everything = ["a", "b", "d", "e", "f", "z", "zz"]
    assert await listed(api) == [everything]
    assert await listed(api, limit="3") == [everything[:3], everything[3:6], everything[6:]]
    assert await listed(follower, limit="7", consistency="stale") == [everything]
    first = (await api.get("queues", limit="2")).json
    assert [queue["settings"]["concurrency"] for queue in first["queues"]] == [2, None]
    await api.submit(queue="aa")
    await api.submit(queue="c")
    second = (await api.get("queues", limit="2", cursor=first["next_cursor"])).json
    assert [queue["name"] for queue in second["queues"]] == ["c", "d"]


async def test_a_page_of_queues_costs_what_is_on_it(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(300):
        await api.submit(queue=f"q{number:03}")
    counters, looked_at = api.node.state._counters, []
    of_queue = type(counters).of_queue

    def watched(self: object, queue: str, tenant: str | None = None) -> object:
        looked_at.append(queue)
        return of_queue(counters, queue, tenant)

    monkeypatch.setattr(type(counters), "of_queue", watched)
    for path, most in (("queues?limit=5", 12), ("queues/q100", 2), ("queues/q100/scale", 2)):
        looked_at.clear()
        assert (await api.get(path)).status == 200
        assert len(looked_at) <= most, path


@pytest.mark.parametrize("query", ["limit=0", f"limit={limits.PAGE_QUEUES_MAX + 1}", "cursor=x", "cursor=kwE"])
async def test_pages_of_queues_that_can_not_be_are_refused(api: Api, query: str) -> None:
    assert (await api.get(f"queues?{query}")).status in (400, 422)
