"""GET /audit: who did what to what."""

from __future__ import annotations

from typing import Any

from tests.api.node import START_MS, Api
from tests.api.schedules.scene import at, saved


async def _acted(api: Api) -> None:
    await saved(api, tenant="acme")
    await api.post("schedules/report/pause?tenant=acme", {"reason": "why not"}, Raftsched_Actor="ann")
    await api.post("queues/mail/pause", {}, Raftsched_Actor="bob")
    await api.ask("POST", "queues/mail/resume", headers={"Raftsched-Actor": "bob"})


async def _actions(api: Api, **query: Any) -> list[str]:
    return [entry["action"] for entry in await api.all("audit", "entries", **query)]


async def test_the_trail_says_who_did_what_to_what(api: Api) -> None:
    await _acted(api)
    entries = (await api.get("audit", order="asc")).json["entries"]
    assert entries[1] == {
        "at": at(START_MS),
        "actor": "ann",
        "action": "schedule.pause",
        "subject": "schedule:report",
        "tenant": "acme",
        "detail": "why not",
        "revision": 2,
        "origin": "127.0.0.1",
    }
    assert entries[0]["actor"] == "anonymous"


async def test_the_trail_is_filtered_and_goes_on_by_cursor(api: Api, follower: Api) -> None:
    await _acted(api)
    everything = ["queue.resume", "queue.pause", "schedule.pause", "schedule.create"]
    for limit in (1, 3, 100):
        assert await _actions(api, limit=limit) == everything
        assert await _actions(follower, limit=limit, order="asc", consistency="stale") == everything[::-1]
    assert await _actions(api, actor="bob", limit=1) == everything[:2]
    assert await _actions(api, action="schedule", limit=1) == everything[2:]
    assert await _actions(api, action="queue.pause") == ["queue.pause"]
    assert await _actions(api, subject="queue:mail") == everything[:2]
    assert await _actions(api, subject="schedule") == everything[2:]
    assert await _actions(api, tenant="acme") == everything[2:]
    assert await _actions(api, actor="nobody") == []


async def test_cursors_belong_to_their_list(api: Api) -> None:
    await _acted(api)
    cursor = (await api.get("audit", limit=1)).json["next_cursor"]
    for query in ({"actor": "bob"}, {"order": "asc"}):
        assert (await api.get("audit", cursor=cursor, **query)).json["field"] == "cursor"
    assert (await api.get("audit", cursor="!")).json["field"] == "cursor"
    schedules = (await api.get("schedules", limit=1, tenant="acme")).json["next_cursor"]
    assert schedules is None or (await api.get("audit", cursor=schedules)).json["field"] == "cursor"


async def test_an_actor_must_be_a_name(api: Api) -> None:
    answer = await api.post("queues/mail/pause", {}, Raftsched_Actor="x" * 200)
    assert (answer.status, answer.json["field"]) == (400, "Raftsched-Actor")
