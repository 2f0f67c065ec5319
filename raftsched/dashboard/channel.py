"""Connect the dashboard to the API of its own node, inside the process.

Each connection is a pair of connected sockets, so it has no address: nothing else can connect, no certificate is
needed, and no file is left behind. Requests are parsed and answered as those from outside are.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
from aiohttp import web

from raftsched.exchange import Exchange, Http, HttpPool, Reply, StreamedReply, Timeouts

OWN_NODE: Final = "http://this-node"
"""The base URL of the node's own API; the name is never resolved."""
_REVISION_HEADER: Final = "Raftsched-Revision"
_AGE_HEADER: Final = "Raftsched-Age-Ms"

Accept = Callable[[], asyncio.Protocol]


class Channel(HttpPool):
    """Kept-alive connections to the server of this node."""

    def __init__(self) -> None:
        super().__init__()
        self.runner: web.BaseRunner | None = None
        """Runs the node's application; it is set before the first exchange."""

    def _connector(self) -> aiohttp.BaseConnector:
        assert self.runner is not None
        assert self.runner.server is not None, "the node's API is set up before the dashboard asks it"
        return _Pairs(self.runner.server)


class _Pairs(aiohttp.BaseConnector):
    def __init__(self, accept: Accept) -> None:
        super().__init__(limit=0, keepalive_timeout=15.0)
        self._accept = accept

    async def _create_connection(self, req: Any, traces: Any, timeout: Any) -> Any:  # noqa: ASYNC109  # aiohttp's name
        del req, traces, timeout
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        await loop.connect_accepted_socket(self._accept, theirs)
        _, protocol = await loop.create_unix_connection(self._factory, sock=ours)
        return protocol


class NotingHttp(Http):
    """Sends the exchanges of one page, and notes how old the state of the answers was."""

    def __init__(self, http: Http, headers: Callable[[], Mapping[str, str]] = dict) -> None:
        """`headers` returns what is sent with each exchange beside its own headers."""
        self._http = http
        self._headers = headers
        self.age_ms: int | None = None
        """Age of the oldest answer; -1 = unknown, None = all were current."""
        self.revision = ""
        """Position in the log of the node that answered last."""

    async def send(self, exchange: Exchange, timeouts: Timeouts) -> Reply:
        exchange.headers = {**exchange.headers, **self._headers()}
        reply = await self._http.send(exchange, timeouts)
        self._note(reply.headers)
        return reply

    @asynccontextmanager
    async def stream(self, exchange: Exchange, timeouts: Timeouts) -> AsyncIterator[StreamedReply]:
        async with self._http.stream(exchange, timeouts) as reply:
            yield reply

    async def close(self) -> None:
        """Do nothing: the connections belong to the dashboard."""

    def _note(self, headers: Mapping[str, str]) -> None:
        self.revision = headers.get(_REVISION_HEADER, "")
        age = headers.get(_AGE_HEADER)
        if age is not None:
            self.age_ms = -1 if self.age_ms == -1 or int(age) < 0 else max(int(age), self.age_ms or 0)
