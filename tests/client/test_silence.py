"""Nodes that take connections and say nothing, or not now: others are asked, soon, and within bounds."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Literal

import pytest

from raftsched.client import Client, ClientSettings
from raftsched.client.http.connection import Connection
from raftsched.client.http.hedge import ATTEMPTS_MAX
from raftsched.client.http.nodes import Nodes
from raftsched.errors import OutcomeUnknown, Rejected, Unavailable
from tests.client.cluster import QUICK, WAIT_SECONDS, Cluster, Fault, running_cluster

BATCH = "/jobs/batch"
HEDGING = replace(QUICK, hedge_seconds=0.05, request_timeout_seconds=60.0, retry_seconds=60.0, avoid_seconds=60.0)
"""Timeouts so long that a test which needs it fails."""


def client_of(cluster: Cluster, settings: ClientSettings = HEDGING) -> Client:
    return Client(*(node.url for node in cluster.nodes), settings=settings)


async def test_submit_to_a_silent_node_is_answered_by_another_and_stored_once() -> None:
    async with running_cluster(3) as cluster, client_of(cluster) as client, asyncio.timeout(WAIT_SECONDS):
        cluster.nodes[0].is_silent = True
        await client.submit("a")
        assert (len(cluster.jobs), cluster.nodes[0].seen.count(BATCH)) == (1, 1)
        await client.submit("b")  # the silent one is suspected, whatever others call it
        await client.cluster()
        assert cluster.nodes[0].seen.count(BATCH) == 1


async def test_nodes_that_failed_before_are_asked_if_no_other_node_answers() -> None:
    """After an outage of all nodes each is suspected until it is probed; meanwhile the one that answered falls silent."""
    async with running_cluster(3) as cluster, client_of(cluster) as client, asyncio.timeout(WAIT_SECONDS):
        for node in cluster.nodes[1:]:
            client._connection.nodes.failed(node.url, time.monotonic())
        cluster.nodes[0].is_silent = True
        await client.submit("a")
        assert (len(cluster.jobs), cluster.nodes[0].seen.count(BATCH)) == (1, 1)


@pytest.mark.parametrize("consistency", ["linearizable", "stale"])
async def test_nodes_that_are_cut_off_and_name_their_leader_hold_no_client(
    consistency: Literal["linearizable", "stale"],
) -> None:
    """A leader of five and a follower on its side; stale reads there succeed meanwhile."""
    settings = replace(HEDGING, consistency=consistency)
    async with running_cluster(5) as cluster, client_of(cluster, settings) as client, asyncio.timeout(WAIT_SECONDS):
        job = await client.submit("before")
        former, follower = cluster.nodes[:2]
        for node in (former, follower):
            node.is_cut_off, node.named = True, former
        cluster.leader = cluster.nodes[2]

        async def read() -> None:
            while True:
                await job.get()

        reading = asyncio.create_task(read())
        assert (await client.submit("after")).id != job.id
        reading.cancel()


async def test_node_that_is_elected_while_it_forwards_is_asked_again_at_once() -> None:
    """It had forwarded the submit to its predecessor, who is far away now, so that it does not know its outcome."""
    settings = replace(HEDGING, retry_seconds=0.9)  # less than the second of the Retry-After, which is not obeyed here
    async with running_cluster(3) as cluster, client_of(cluster, settings) as client, asyncio.timeout(WAIT_SECONDS):
        await client.submit("before")
        cluster.faults[BATCH].append(Fault.UNKNOWN)
        await client.submit("a")
        assert [node.seen.count(BATCH) for node in cluster.nodes] == [3, 0, 0]


async def test_later_submits_do_not_wait_for_one_that_gets_no_answer() -> None:
    """All nodes but the last are silent to the first submit; the next ones go past it."""
    async with running_cluster(1) as cluster, client_of(cluster) as client, asyncio.timeout(WAIT_SECONDS):
        cluster.faults[BATCH].append(Fault.HANGS)
        first = asyncio.create_task(client.submit("first"))
        await cluster.until(lambda: BATCH in cluster.nodes[0].seen)
        jobs = [await client.submit("next", number) for number in range(3)]
        assert len({job.id for job in jobs}) == 3
        assert not first.done()
        first.cancel()


async def test_read_from_a_silent_node_is_answered_by_another() -> None:
    async with running_cluster(3) as cluster, client_of(cluster) as client, asyncio.timeout(WAIT_SECONDS):
        job = await client.submit("a")
        cluster.nodes[0].is_silent = True
        assert (await job.get()).id == job.id


async def test_change_without_a_key_is_not_doubled_but_given_up_where_its_node_is_gone() -> None:
    async with running_cluster(2) as cluster, client_of(cluster) as client, asyncio.timeout(WAIT_SECONDS):
        job = await client.submit("a")
        cluster.nodes[0].is_silent = True
        assert (await job.cancel()).status == "cancelled"
        path = f"/jobs/{job.id}"
        assert [node.seen.count(path) for node in cluster.nodes] == [1, 1]
        seen = cluster.nodes[0].seen
        assert "/healthz" in seen[seen.index(path) :]


async def test_change_without_a_key_waits_for_a_slow_node_that_lives() -> None:
    async with running_cluster(2) as cluster, client_of(cluster) as client, asyncio.timeout(WAIT_SECONDS):
        job = await client.submit("a")
        cluster.faults[f"/jobs/{job.id}"].append(Fault.HANGS)
        cancel = asyncio.create_task(client.cancel(job.id))
        await cluster.until(lambda: cluster.nodes[0].seen.count("/healthz") >= 3)
        assert (cancel.done(), f"/jobs/{job.id}" in cluster.nodes[1].seen) == (False, False)
        cancel.cancel()


async def test_nodes_asked_at_a_time_are_bounded() -> None:
    async with running_cluster(5) as cluster, client_of(cluster) as client, asyncio.timeout(WAIT_SECONDS):
        for node in cluster.nodes:
            node.is_silent = True
        submit = asyncio.create_task(client.submit("a"))
        await cluster.until(lambda: sum(BATCH in node.seen for node in cluster.nodes) == ATTEMPTS_MAX)
        late = asyncio.create_task(client.submit("b"))  # leaves once the first is late: all were asked by then
        await cluster.until(lambda: sum(node.seen.count(BATCH) for node in cluster.nodes) > ATTEMPTS_MAX)
        assert sum(node.seen.count(BATCH) for node in cluster.nodes) <= 2 * ATTEMPTS_MAX
        submit.cancel()
        late.cancel()


async def test_batch_whose_items_are_all_unknown_goes_to_another_node() -> None:
    """A leader that lost its majority answers 200, and of each item that nobody knows."""
    async with running_cluster(2) as cluster, client_of(cluster) as client, asyncio.timeout(WAIT_SECONDS):
        cluster.leader = None
        cluster.item_problems.append({"status": 503, "code": "outcome_unknown", "detail": "lost the lead"})
        await client.submit("a")
        assert [node.seen.count(BATCH) for node in cluster.nodes] == [1, 1]


async def test_refusal_is_not_definite_while_a_silent_node_may_still_act() -> None:
    async with running_cluster(2) as cluster, client_of(cluster) as client, asyncio.timeout(WAIT_SECONDS):
        cluster.nodes[0].is_silent = True
        cluster.item_problems.append({"status": 409, "code": "unique_conflict", "detail": "there is one"})
        with pytest.raises(OutcomeUnknown, match="there is one"):
            await client.submit("a")
        cluster.item_problems.append({"status": 409, "code": "unique_conflict", "detail": "there is one"})
        with pytest.raises(Rejected):
            await client.submit("b")


async def test_silence_without_another_node_lasts_as_long_as_patience_does(cluster: Cluster) -> None:
    settings = replace(HEDGING, request_timeout_seconds=0.2, retry_seconds=0.1)
    async with Client(cluster.nodes[0].url, settings=settings) as client, asyncio.timeout(WAIT_SECONDS):
        cluster.nodes[0].is_silent = True
        with pytest.raises(OutcomeUnknown):
            await client.submit("a")
        with pytest.raises(Unavailable):
            await client.cluster()
        assert cluster.nodes[0].seen.count(BATCH) == 1


async def test_address_of_somebody_else_gets_neither_work_nor_token() -> None:
    """A learned address may be a stranger's here; whatever it answers, it is none of ours."""
    async with running_cluster(1) as cluster, running_cluster(1) as strangers:
        stranger = strangers.nodes[0]
        stranger.health = {"hello": "world"}
        cluster.leader = stranger
        cluster.nodes.append(stranger)
        async with Client(cluster.nodes[0].url, settings=HEDGING, token="secret") as client:
            await client.submit("a")
            await strangers.until(lambda: "/healthz" in stranger.seen)
            for _ in range(3):
                await client.submit("b")
        assert (stranger.seen, stranger.authorization) == (["/healthz"], None)


async def test_client_that_follows_nobody_stays_with_its_addresses() -> None:
    async with running_cluster(3) as cluster:
        settings = replace(HEDGING, follow_leader=False)
        async with Client(cluster.nodes[2].url, settings=settings) as client:
            for _ in range(5):
                await client.submit("a")
        assert [len(node.seen) for node in cluster.nodes[:2]] == [0, 0]


async def test_probe_of_a_node_that_is_gone_holds_up_no_work(cluster: Cluster) -> None:
    connection = Connection(Nodes(["http://127.0.0.1:1", cluster.nodes[0].url], avoid_seconds=0.001), QUICK)
    assert not await connection.probe("http://127.0.0.1:1")
    assert connection.nodes.current == cluster.nodes[0].url
    assert await connection.probe(cluster.nodes[0].url)
    for _ in range(20):
        await connection.call("GET", "/cluster")
    assert cluster.nodes[0].seen.count("/cluster") >= 20
    await connection.close()
