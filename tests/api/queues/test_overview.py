"""The overview counts what each caller sees, and names the queues that need a look."""

from __future__ import annotations

from typing import Any

from tests.api.node import Api


def _names(queues: list[Any]) -> list[str]:
    return [queue["name"] for queue in queues]


async def test_overview_counts_by_the_status_that_users_see_and_names_what_needs_a_look(
    api: Api, follower: Api
) -> None:
    await api.submit(queue="old")
    api.node.clock.now_ms += 5_000
    for _ in range(3):
        await api.submit(queue="busy")
    await api.submit(queue="soon", delay_seconds=1)
    await api.submit(queue="paused")
    await api.post("queues/paused/pause", {"reason": "night"})
    api.node.clock.now_ms += 2_000
    found = (await api.get("overview")).json
    assert {status: count for status, count in found["jobs"].items() if count} == {"queued": 6}
    assert _names(found["busiest"])[0] == "busy"
    assert _names(found["longest_waits"]) == ["old", "busy", "soon"]
    assert found["longest_waits"][0]["oldest_wait_ms"] == 7_000
    assert (_names(found["paused"]), found["paused_count"]) == (["paused"], 1)
    assert found["paused"][0]["settings"]["pause"]["reason"] == "night"
    assert (found["queue_count"], found["exact"], found["dead_letters"]) == (4, True, {})
    assert found["rates"] == {"submitted": 6 / 60, "completed": 0, "failed": 0, "dead_letter": 0, "over_seconds": 60}
    stale = (await follower.get("overview", consistency="stale")).json
    assert stale["jobs"] == found["jobs"]


async def test_overview_of_a_tenant_counts_its_own_jobs(api: Api) -> None:
    await api.submit(queue="q", tenant="acme")
    await api.submit(queue="q", tenant="acme", expires_in_seconds=1)
    await api.submit(queue="q", tenant="zeta", delay_seconds=60)
    await api.submit(queue="only-zeta", tenant="zeta")
    found = (await api.ask("GET", "overview", headers={"Raftsched-Tenant": "acme"})).json
    assert {status: count for status, count in found["jobs"].items() if count} == {"queued": 2}
    assert _names(found["busiest"]) == ["q"]
