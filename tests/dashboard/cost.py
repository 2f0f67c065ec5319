"""Count the rows of the store that a page reads, on a node without a disk, so that cost is a number and not a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from aiohttp import web

from raftsched.dashboard.app import add_dashboard
from raftsched.dashboard.session import ROOT
from raftsched.storage.state import State
from raftsched.storage.store.memory_store import MemoryStore
from raftsched.storage.store.port import Row, Table
from tests.api.node import SimulatedNode, serving

SELECTED: Final = {
    "/jobs/bulk": "?action=cancel&status=queued",
    "/dead-letters/requeue": "?reason=attempts_exhausted",
    "/dead-letters/purge": "?reason=attempts_exhausted",
}
"""Queries without which a page refuses to show anything."""


class CountingStore(MemoryStore):
    """A store that counts the rows it gives out."""

    def __init__(self) -> None:
        super().__init__()
        self.row_count = 0

    def get(self, table: Table, key: bytes) -> bytes | None:
        self.row_count += 1
        return super().get(table, key)

    def scan(self, table: Table, start: bytes, stop: bytes | None, *, limit: int, reverse: bool = False) -> list[Row]:
        rows = super().scan(table, start, stop, limit=limit, reverse=reverse)
        self.row_count += len(rows)
        return rows


@dataclass(slots=True)
class Pages:
    """The dashboard of a node, and its store."""

    node: SimulatedNode
    store: CountingStore
    session: aiohttp.ClientSession

    async def read(self, path: str) -> str:
        """Return a page below `/ui`."""
        async with self.session.get(f"{self.node.api_url}{ROOT}{path}") as reply:
            text = await reply.text()
            assert reply.status == 200, text
            return text

    async def rows(self, path: str) -> int:
        """Return the rows that a page reads."""
        before = self.store.row_count
        await self.read(path)
        return self.store.row_count - before

    async def fail(self, queue: str, count: int, **outcome: Any) -> None:
        """Lease `count` jobs of `queue`, and let their attempts fail; `outcome` has more fields of their outcomes."""
        api = f"{self.node.api_url}/api/v1"
        while count > 0:
            asked = {"worker": "w", "queues": [queue], "capacity": min(count, 100)}
            leases = (await (await self.session.post(f"{api}/leases", json=asked)).json())["leases"]
            outcomes = [
                {"run_id": each["run_id"], "fencing_token": each["fencing_token"], "status": "failed", **outcome}
                for each in leases
            ]
            await self.session.post(f"{api}/leases/outcomes", json={"worker": "w", "outcomes": outcomes})
            count -= len(leases)


def with_dashboard(app: web.Application, door: Any) -> Callable[[web.AppRunner], None]:
    """Add the pages to the application of a simulated node."""
    channel = add_dashboard(app, door, "n1")

    def on_runner(runner: web.AppRunner) -> None:
        channel.runner = runner

    return on_runner


@asynccontextmanager
async def pages() -> AsyncIterator[Pages]:
    """Serve the dashboard of a node that leads, without access control."""
    node, store = SimulatedNode(), CountingStore()
    node.state = State(store)
    async with serving(node, extend=with_dashboard) as api:
        yield Pages(node, store, api.session)
