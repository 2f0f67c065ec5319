"""How fresh an answer is: `?consistency=quorum` asks a majority before every read, on the node that leads."""

from __future__ import annotations

from typing import Any

import pytest

from raftsched.client import Client, ClientSettings
from tests.api.node import Api

NOBODY = "00000000-0000-7000-8000-000000000000"


async def _reads(api: Api) -> list[str]:
    """Paths of all reads that can be asked how fresh they are, of things that don't exist."""
    document = (await api.get("openapi.json")).json
    names = {
        path: {parameter["name"] for parameter in methods["get"].get("parameters", ())}
        for path, methods in document["paths"].items()
        if "get" in methods
    }
    return [
        path.replace("{id}", NOBODY).replace("{name}", "nobody")
        for path, each in names.items()
        if "consistency" in each
    ]


async def test_every_read_asks_a_majority_where_it_is_wanted_and_only_there(api: Api) -> None:
    reads = await _reads(api)
    assert len(reads) > 12
    asked: dict[str, Any] = {}
    for consistency in ("linearizable", "quorum", "stale"):
        for path in reads:
            before = api.node.confirmed
            answer = await api.ask("GET", path, params={"consistency": consistency})
            assert answer.status in (200, 404), (path, answer.body)
            asked.setdefault(consistency, set()).add(api.node.confirmed - before)
    assert asked == {"linearizable": {0}, "quorum": {1}, "stale": {0}}


async def test_a_follower_has_the_leader_ask(api: Api, follower: Api) -> None:
    assert (await follower.get("jobs", consistency="quorum")).status == 200
    assert (api.node.confirmed, follower.node.confirmed) == (1, 0)


async def test_a_node_that_nobody_follows_answers_no_read_of_a_majority(api: Api) -> None:
    api.node.is_leading = False
    answer = await api.get("jobs", consistency="quorum")
    assert answer.status == 503


@pytest.mark.parametrize("consistency", ["quorum", "stale"])
async def test_a_client_reads_as_its_settings_say(api: Api, consistency: Any) -> None:
    async with Client(api.node.api_url, settings=ClientSettings(consistency=consistency)) as client:
        job = await client.submit("report")
        await job.get()
        await client.queue("report").scale()
        await client.queues()
        assert [each.id async for each in client.list()] == [job.id]
    assert api.node.confirmed == (3 if consistency == "quorum" else 0)
