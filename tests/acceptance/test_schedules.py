"""A schedule keeps its grid, and a stream of events its thread, while the leader is killed (cases D01, D02, C47)."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from raftsched.cli.local.cluster import LocalCluster, LocalNode
from tests.acceptance.http import call

PERIOD_MS = 1_000
SCHEDULE = {"name": "kept", "every": "1s", "overlap": "allow", "misfire": "run_all", "job": {"name": "kept"}}


def test_every_fire_time_fires_once_while_the_leader_is_killed(cluster: LocalCluster) -> None:
    leader = cluster.wait_for_leader()
    first, second = (node for node in cluster.nodes if node is not leader)
    status, schedule = call(first.api, "POST", "/api/v1/schedules", SCHEDULE)
    assert status == 201
    anchor_ms = _ms(schedule["next_at"])
    seen, last_id = _fired(first, count=2)
    leader.kill()
    later, _ = _fired(second, count=6, last_id=last_id)  # another node goes on where the first stopped
    fire_times = [*seen, *later]
    assert fire_times == [fire_times[0] + k * PERIOD_MS for k in range(len(fire_times))]
    call(first.api, "POST", "/api/v1/schedules/kept/pause", {})
    ledger = call(first.api, "GET", "/api/v1/schedules/kept/firings?order=asc&limit=1000")[1]["firings"]
    decided = [_ms(line["instant"]) for line in ledger]
    assert decided == [anchor_ms + k * PERIOD_MS for k in range(len(ledger))]
    assert set(fire_times) <= set(decided)
    assert all(line["fired"] for line in ledger)
    jobs = call(first.api, "GET", "/api/v1/jobs?name=kept&limit=1000")[1]["jobs"]
    assert {job["id"] for job in jobs} == {line["job_id"] for line in ledger}
    cluster.start_node(leader)
    cluster.wait_until_ready(leader)


def _fired(node: LocalNode, *, count: int, last_id: str = "") -> tuple[list[int], str]:
    """Return the instants of the next `count` firings that the node's stream tells of, and where it stood then.

    The cluster has schedules of other tests, too.
    """
    request = urllib.request.Request(f"{node.api}/api/v1/events?types=schedule.fired")
    if last_id:
        request.add_header("Last-Event-ID", last_id)
    fire_times: list[int] = []
    with urllib.request.urlopen(request, timeout=30) as stream:
        for place, event in _events(stream):
            assert event["type"] == "schedule.fired", event
            if event["name"] == SCHEDULE["name"]:
                fire_times.append(_ms(event["instant"]))
            if len(fire_times) == count:
                return fire_times, place
    raise AssertionError("the stream has ended")


def _events(stream: Any) -> Iterator[tuple[str, Any]]:
    last_id = ""
    for raw in stream:
        name, _, value = raw.decode().rstrip("\n").partition(": ")
        if name == "id":
            last_id = value
        elif name == "data":
            yield last_id, json.loads(value)


def _ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)
