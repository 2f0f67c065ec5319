"""What operators say about queues, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from raftsched import limits
from tests.api.node import START_MS, Answer, Api, Fault, malformed, misjudged
from tests.api.schedules.scene import at

_NOTHING: dict[str, Any] = {
    "pause": None,
    "rate": None,
    "concurrency": None,
    "key_concurrency": None,
    "ageing_seconds": None,
    "retention_seconds": None,
    "max_lost_workers": None,
    "weights": {},
    "on_failure": None,
    "on_success": None,
    "revision": None,
    "updated_at": None,
}


async def _patch(api: Api, name: str, changes: dict[str, Any]) -> Answer:
    return await api.patch(f"queues/{name}", changes, Raftsched_Actor="ann")


async def test_every_queue_exists(api: Api, follower: Api) -> None:
    for asked in (api, follower):
        queue = (await asked.get("queues/unheard_of")).json
        assert (queue["queued"], queue["settings"]) == (0, _NOTHING)
    assert (await api.get("queues/a b")).code == "not_found"


async def test_settings_are_changed_one_by_one_and_taken_away_with_null(api: Api) -> None:
    wanted = {
        "rate": {"count": 10, "per_seconds": 0.5, "burst": 4},
        "concurrency": 3,
        "key_concurrency": 2,
        "ageing_seconds": 60,
        "retention_seconds": 3_600,
        "max_lost_workers": 9,
        "weights": {"b": 2, "a": 1},
    }
    stored = await _patch(api, "mail", wanted)
    assert stored.json == _NOTHING | wanted | {"revision": 1, "updated_at": at(START_MS)}
    changed = (await _patch(api, "mail", {"concurrency": 5, "rate": None, "weights": None})).json
    assert changed == stored.json | {"concurrency": 5, "rate": None, "weights": {}, "revision": 2}
    assert (await _patch(api, "mail", {})).json == changed
    assert (await api.get("queues/mail")).json["settings"] == changed
    [line, _] = (await api.get("audit", subject="queue:mail")).json["entries"]
    assert (line["actor"], line["action"]) == ("ann", "queue.configure")


async def test_rate_without_a_burst_says_what_it_has_by_default(api: Api) -> None:
    for rate, burst in (({"count": 10}, 1), ({"count": 10, "burst": None}, 1), ({"count": 500}, 50)):
        assert (await _patch(api, "mail", {"rate": rate})).json["rate"]["burst"] == burst


async def test_job_shows_the_lost_workers_that_its_queue_allows(api: Api) -> None:
    plain, own = await api.submit(queue="mail"), await api.submit(queue="mail", max_lost_workers=1_000_000)
    assert (plain["max_lost_workers"], own["max_lost_workers"]) == (3, 1_000_000)
    await _patch(api, "mail", {"max_lost_workers": 9})
    assert (await api.get(f"jobs/{plain['id']}")).json["max_lost_workers"] == 9
    listed = {job["id"]: job["max_lost_workers"] for job in (await api.get("jobs", queue="mail")).json["jobs"]}
    assert listed == {plain["id"]: 9, own["id"]: 1_000_000}


async def test_queues_with_settings_are_listed_beside_those_with_jobs(api: Api) -> None:
    await _patch(api, "idle", {"concurrency": 1})
    await api.submit(queue="busy")
    busy, idle = (await api.get("queues")).json["queues"]
    assert (busy["name"], busy["queued"], busy["settings"]) == ("busy", 1, _NOTHING)
    assert (idle["name"], idle["queued"], idle["settings"]["concurrency"]) == ("idle", 0, 1)


async def test_a_paused_queue_gives_out_nothing_until_it_is_resumed(api: Api) -> None:
    await api.submit(queue="mail")
    pause = {"until": at(START_MS + 60_000), "reason": "provider is down"}
    for _ in range(2):
        paused = (await api.post("queues/mail/pause", pause)).json
        assert paused["pause"] == pause | {"since": at(START_MS), "by": "anonymous"}
    assert await api.lease("mail") == []
    for _ in range(2):
        assert (await api.ask("POST", "queues/mail/resume")).json["pause"] is None
    assert len(await api.lease("mail")) == 1
    assert (await api.ask("POST", "queues/mail/pause")).json["pause"]["until"] is None


@pytest.mark.parametrize("until_ms", [START_MS - 1, START_MS])
async def test_a_pause_until_a_time_that_has_passed_is_refused(api: Api, until_ms: int) -> None:
    refused = await api.post("queues/mail/pause", {"until": at(until_ms)})
    assert (refused.status, refused.json["field"]) == (422, "until")
    assert (await api.get("queues/mail")).json["settings"]["pause"] is None
    assert (await api.post("queues/mail/pause", {"until": at(START_MS + 1)})).status == 200


_WRONG: list[Fault] = [
    *malformed(
        {
            "concurency": [1],
            "concurrency": [0],
            "rate.per_seconds": [{"count": 1, "per_seconds": 0}],
            "rate.count": [{"per_seconds": 1}],
            "rate": [5],
            "rate.burst": [{"count": 1, "burst": 0}],
            "weights[...]": [{"a": 0}],
            "weights": [{"a b": 1}],
            "retention_seconds": [0],
        }
    ),
]


async def test_what_cannot_be_a_setting_is_refused(api: Api) -> None:
    assert await misjudged(_WRONG, lambda changes: _patch(api, "mail", changes)) == []
    assert api.node.proposed == []


async def test_queues_with_settings_are_bounded(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUEUES_CONFIGURED_MAX", 1)
    await _patch(api, "a", {"concurrency": 1})
    assert (await _patch(api, "a", {"concurrency": 2})).status == 200
    refused = await _patch(api, "b", {"concurrency": 1})
    assert (refused.status, refused.code) == (409, "limit_reached")
    assert (await api.ask("POST", "queues/b/pause")).code == "limit_reached"


async def test_scale_says_how_many_workers_a_queue_wants(api: Api, follower: Api) -> None:
    for _ in range(3):
        await api.submit(queue="mail")
    await api.lease("mail", capacity=1)
    scale = (await follower.get("queues/mail/scale")).json
    assert (scale["queue"], scale["ready"], scale["running"]) == ("mail", 2, 1)
    assert scale["wanted_workers"] >= 1
    assert (await api.get("queues/unheard_of/scale")).json["wanted_workers"] == 0


async def test_scale_has_the_numbers_for_autoscalers_and_none_without_a_leader(api: Api, follower: Api) -> None:
    for delay_seconds in (0, 0, 60):
        await api.submit(queue="mail", delay_seconds=delay_seconds)
    await api.lease("mail", capacity=1)
    api.node.clock.now_ms += 1_500
    scale = (await follower.get("queues/mail/scale")).json
    numbers = {"queue": "mail", "backlog": 2, "ready": 1, "delayed": 1, "leased": 1, "oldest_ready_seconds": 1.5}
    assert {name: scale[name] for name in (*numbers, "workers")} == numbers | {"workers": 1}
    api.node.is_leading = False
    for node in (api, follower):
        answer = await node.get("queues/mail/scale")
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1"), "never a false 0"
