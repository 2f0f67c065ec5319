"""Requests to the API that no client makes, such as those of a worker that the test plays itself."""

from __future__ import annotations

from typing import Any

from aiohttp import ClientSession

from tests.dashboard.site import Site


async def posted_json(site: Site, path: str, document: Any) -> Any:
    """POST a document below `/api/v1` as the admin, and return the reply."""
    node = site.cluster.nodes[0]
    async with ClientSession(headers={"Authorization": f"Bearer {node.token}"}) as session:
        reply = await session.post(f"{node.api}/api/v1{path}", json=document)
        assert reply.status in (200, 201), await reply.text()
        return await reply.json()


async def leased(site: Site, queue: str, *, worker: str = "") -> Any:
    """Lease one job of `queue` once it is there."""
    asked = {"worker": worker or queue, "queues": [queue], "capacity": 1, "wait_seconds": 10}
    [lease] = (await posted_json(site, "/leases", asked))["leases"]
    return lease


async def ended(site: Site, lease: Any, *, worker: str = "", **outcome: Any) -> None:
    """Report how the run of a lease ended."""
    named = {"run_id": lease["run_id"], "fencing_token": lease["fencing_token"]}
    document = {"worker": worker or lease["queue"], "outcomes": [named | outcome]}
    await posted_json(site, "/leases/outcomes", document)
