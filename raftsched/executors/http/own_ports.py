"""Find the addresses and ports of the cluster's nodes, to which no request of a job may go.

They are those of the URLs that the executor was given, and of the nodes that the cluster names. They are looked up for
the first run, and for a later one if that was a while ago. If nobody answers, what was known stays.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from yarl import URL

from raftsched.client.http.connection import Connection
from raftsched.client.http.hedge import Request
from raftsched.client.http.nodes import Nodes
from raftsched.client.http.retries import Failure
from raftsched.client.http.settings import ClientSettings
from raftsched.executors.http.connector import Lookup
from raftsched.executors.http.targets import Address, literal_address
from raftsched.wire.cluster import ClusterStatus

_FRESH_SECONDS: Final = 30.0
_WAIT_SECONDS: Final = 2.0
_decode = msgspec.json.Decoder(ClusterStatus).decode


class OwnPorts:
    """The addresses and ports of the nodes that `urls` lead to; none without URLs."""

    def __init__(self, urls: Sequence[str], lookup: Lookup) -> None:
        self._urls = urls
        self._lookup = lookup
        self._known: frozenset[tuple[Address, int]] = frozenset()
        self._looked_at = -_FRESH_SECONDS
        self._looking = asyncio.Lock()

    async def current(self) -> frozenset[tuple[Address, int]]:
        """Return them, after a look if the last one was a while ago."""
        if self._urls and time.monotonic() - self._looked_at >= _FRESH_SECONDS:
            async with self._looking:
                if time.monotonic() - self._looked_at >= _FRESH_SECONDS:
                    await self._look()
                    self._looked_at = time.monotonic()
        return self._known

    async def _look(self) -> None:
        urls = {*self._urls, *(await self._named_by_the_cluster())}
        loop = asyncio.get_running_loop()
        lookups = [loop.run_in_executor(None, self._ports_of, url) for url in sorted(urls)]
        done, _ = await asyncio.wait(lookups, timeout=_WAIT_SECONDS)
        self._known |= {port for lookup in done for port in lookup.result()}

    async def _named_by_the_cluster(self) -> Iterable[str]:
        settings = ClientSettings()
        connection = Connection(Nodes(self._urls, avoid_seconds=settings.avoid_seconds, follow_leader=False), settings)
        try:
            reply = await connection.attempt(Request("GET", "/cluster"), timeout_seconds=_WAIT_SECONDS)
            if isinstance(reply, Failure):
                return []
            nodes = _decode(reply).nodes
            return [node.api for node in nodes if node.api] + [f"http://{node.raft}" for node in nodes if node.raft]
        except msgspec.DecodeError:
            return []
        finally:
            await connection.close()

    def _ports_of(self, text: str) -> list[tuple[Address, int]]:
        """Return the addresses and the port of a node's URL; none if its name has no address now."""
        url = URL(text)
        if url.raw_host is None or url.port is None:
            return []
        literal = literal_address(url.raw_host)
        if literal is not None:
            return [(literal, url.port)]
        try:
            names = [each[4][0] for each in self._lookup(url.raw_host, url.port)]
        except OSError:
            return []
        return [(address, url.port) for address in map(literal_address, names) if address is not None]
