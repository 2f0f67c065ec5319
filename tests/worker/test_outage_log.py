from __future__ import annotations

from typing import Any

import pytest

from raftsched.worker.outage_log import AGAIN_SECONDS, Outage
from tests.client.cluster import Cluster, Fault
from tests.worker.conftest import SetClock, serving, worker_of


def told(logs: list[Any]) -> list[Any]:
    """The name of each event of outages, and how long the outage had lasted."""
    return [(event["event"], event.get("seconds")) for event in logs if event["event"].startswith("cluster_")]


def test_outage_is_told_when_it_begins_seldom_while_it_lasts_and_when_it_is_over(logs: list[Any]) -> None:
    clock = SetClock()
    outage = Outage(clock)
    outage.answered()
    for _ in range(200):  # three times a second, in the first 67 seconds
        outage.failed("can't connect")
        clock.now += 1 / 3
    outage.answered()
    outage.answered()
    assert told(logs) == [
        ("cluster_unavailable", None),
        ("cluster_still_unavailable", AGAIN_SECONDS),
        ("cluster_still_unavailable", 2 * AGAIN_SECONDS),
        ("cluster_available", 66.7),
    ]


def test_each_outage_is_told_anew(logs: list[Any]) -> None:
    outage = Outage(SetClock())
    for _ in range(2):
        outage.failed("can't connect")
        outage.answered()
    assert told(logs) == [("cluster_unavailable", None), ("cluster_available", 0.0)] * 2


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.REFUSED])
async def test_worker_tells_of_many_failed_requests_once(cluster: Cluster, fault: Fault, logs: list[Any]) -> None:
    worker = worker_of(cluster, queues=["a"])
    cluster.faults["/leases"].extend([fault] * 10)
    async with serving(worker):
        await cluster.until(lambda: len(cluster.bodies("/leases")) >= 2)
    assert [name for name, _ in told(logs)] == ["cluster_unavailable", "cluster_available"]
