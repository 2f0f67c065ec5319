"""Addresses that the cluster names and that lead nowhere from here (case N08): probed beside the work, never in its way."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from raftsched.client import Client, ClientSettings
from raftsched.worker import Worker
from tests.client.cluster import WAIT_SECONDS, Cluster, running_cluster
from tests.client.dark import dark_address
from tests.worker.conftest import SETTINGS, serving

EAGER = ClientSettings(avoid_seconds=0.01, hedge_seconds=0.05, connect_timeout_seconds=60.0)
"""Probes as often as can be; a single request that waits for a connection lets the test fail."""


def unanswered(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The requests that got no reply."""
    return [text for record in caplog.records if "no_reply" in (text := record.getMessage())]


class Unreachable:
    """A node as it is named by the others."""

    def __init__(self, url: str) -> None:
        self.url = url


def advertise(cluster: Cluster, url: str) -> None:
    """Let the reachable node name `url` as the leader and as the only node."""
    named: Any = Unreachable(url)
    cluster.leader = named
    cluster.nodes.append(named)


async def test_client_stays_with_the_address_it_was_given(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "raftsched.client")
    with dark_address() as dark:
        async with running_cluster() as cluster:
            given = cluster.nodes[0]
            advertise(cluster, dark)
            async with Client(given.url, settings=EAGER) as client, asyncio.timeout(WAIT_SECONDS):
                for number in range(200):
                    job = await client.submit("a", number)
                    assert (await job.get()).id == job.id
                nodes = client._connection.nodes
        assert len(cluster.jobs) == 200
        assert unanswered(caplog) == []
        assert (nodes.known, nodes.current) == ((given.url, dark), given.url)


@pytest.mark.parametrize("follow_leader", [True, False])
async def test_worker_stays_with_the_address_it_was_given(
    caplog: pytest.LogCaptureFixture, *, follow_leader: bool
) -> None:
    caplog.set_level(logging.DEBUG, "raftsched.client")
    with dark_address() as dark, capture_logs() as logs:
        async with running_cluster(lease_seconds=1.0) as cluster:
            given = cluster.nodes[0]
            advertise(cluster, dark)
            settings = replace(SETTINGS, client=EAGER)
            worker = Worker(given.url, settings=settings, follow_leader=follow_leader)

            @worker.job("a")
            async def handler(payload: float) -> None:
                await asyncio.sleep(payload)  # the time that the handler's work takes

            async with serving(worker), asyncio.timeout(WAIT_SECONDS):
                await cluster.finished(*[await cluster.add_job("a", 0.0) for _ in range(50)])
                await cluster.finished(await cluster.add_job("a", 1.5))  # outlives its first lease
    assert unanswered(caplog) == []
    said = {event["event"] for event in logs}
    assert said.isdisjoint({"heartbeat_failed", "cluster_unavailable", "run_stopped"})
