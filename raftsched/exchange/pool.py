"""Send HTTP exchanges over kept-alive TCP connections.

A connection carries one exchange at a time, and the next one only if the reply came whole. Nothing is ever sent again: a
kept connection that the server closes just then breaks the exchange. This is the part of HTTP/1.1 that nodes and proxies
speak; a library for all of it cost three times as much CPU, in every submit.
"""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Final
from urllib.parse import unquote, urlsplit

from raftsched.exchange.connection import Connect, Connection, connect
from raftsched.exchange.message import ReplyReader, encode_request
from raftsched.exchange.port import Broken, Exchange, Http, Reply, StreamedReply, TimedOut, Timeouts

_PORTS: Final = {"http": 80, "https": 443}


class HttpPool(Http):
    """Keep connections open for `keepalive_seconds` and at most `connections_max` to one node (0 = without bound)."""

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        keepalive_seconds: float = 15.0,
        connections_max: int = 0,
        connect: Connect = connect,
    ) -> None:
        """Trust `tls`, by default the authorities of this machine; make connections by `connect`."""
        self._tls = tls
        self._connect = connect
        self._keepalive_seconds = keepalive_seconds
        self._connections_max = connections_max
        self._servers: dict[str, _Server] = {}
        """By scheme and authority, as in URLs."""
        self._sweep: asyncio.TimerHandle | None = None

    async def send(self, exchange: Exchange, timeouts: Timeouts) -> Reply:
        server, request = self._prepare(exchange)
        try:
            async with asyncio.timeout(timeouts.total_seconds):
                connection = await server.take(timeouts)
                try:
                    connection.start(exchange, request)
                    head = await connection.head(timeouts.silence_seconds)
                    return Reply(head.status, head.headers, await connection.read(timeouts.silence_seconds))
                finally:
                    self._give_back(server, connection)
        except TimeoutError:
            raise TimedOut(f"no whole reply in {timeouts.total_seconds:g} s") from None

    @asynccontextmanager
    async def stream(self, exchange: Exchange, timeouts: Timeouts) -> AsyncIterator[StreamedReply]:
        server, request = self._prepare(exchange)
        connection = await server.take(timeouts)
        try:
            connection.start(exchange, request)
            head = await connection.head(timeouts.silence_seconds)
            yield _Streamed(connection, head, timeouts.silence_seconds)
        finally:
            self._give_back(server, connection)

    async def close(self) -> None:
        servers, self._servers = self._servers, {}
        for server in servers.values():
            server.close()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        await asyncio.sleep(0)  # the event loop closes the sockets in its next turn

    def _prepare(self, exchange: Exchange) -> tuple[_Server, bytes]:
        """Return the server that the exchange is for, and the bytes to send; raises `Broken` for an impossible name."""
        scheme, _, rest = exchange.url.partition("://")
        authority, _, path = rest.partition("/")
        key = f"{scheme}://{authority}"
        server = self._servers.get(key)
        if server is None:
            try:
                server = self._new_server(key)
            except ValueError as error:
                raise Broken(f"not the address of a server: {key!r}: {error}") from None
            self._servers[key] = server
        headers = {**server.headers, **exchange.headers}
        return server, encode_request(exchange.method, f"/{path}", headers, exchange.body)

    def _new_server(self, url: str) -> _Server:
        return _Server(
            url,
            tls=self._tls,
            connections_max=self._connections_max,
            keepalive_seconds=self._keepalive_seconds,
            connect=self._connect,
        )

    def _give_back(self, server: _Server, connection: Connection) -> None:
        server.give_back(connection)
        if self._sweep is None and server.idle:
            self._sweep = asyncio.get_running_loop().call_later(self._keepalive_seconds, self._close_idle)

    def _close_idle(self) -> None:
        """Close the connections that have been idle for too long, and look again later."""
        self._sweep = None
        loop = asyncio.get_running_loop()
        for server in self._servers.values():
            server.close_idle(loop.time() - self._keepalive_seconds)
        if any(server.idle for server in self._servers.values()):
            self._sweep = loop.call_later(self._keepalive_seconds, self._close_idle)


class _Server:
    """The connections to one scheme, host and port."""

    def __init__(
        self,
        url: str,
        *,
        tls: ssl.SSLContext | None,
        connections_max: int,
        keepalive_seconds: float,
        connect: Connect,
    ) -> None:
        """Connect to the server of `url`; raises `ValueError` for a name that no server can have."""
        parts = urlsplit(url)
        name = parts.hostname or ""
        self._host = name if name.isascii() else name.encode("idna").decode()
        self._port = parts.port or _PORTS[parts.scheme]
        self._tls = None if parts.scheme == "http" else tls or _default_tls()
        self._keepalive_seconds = keepalive_seconds
        self._connect = connect
        self._turns = asyncio.Semaphore(connections_max) if connections_max else None
        self._is_closed = False
        self._open: dict[Connection, None] = {}
        self.idle: deque[Connection] = deque()
        """Connections without an exchange, the latest used last."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.headers = {
            "Host": host if self._port == _PORTS[parts.scheme] else f"{host}:{self._port}",
            "Accept": "*/*",
            "Accept-Encoding": "identity",
            "User-Agent": "raftsched",
        }
        """Headers of every request."""
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self.headers["Authorization"] = f"Basic {b64encode(user.encode()).decode()}"

    async def take(self, timeouts: Timeouts) -> Connection:
        """Return a connection without an exchange, for `give_back`; raises `Broken` and `TimedOut`."""
        if self._turns is None:
            return self._idle() or await self._connected(timeouts.connect_seconds)
        try:
            async with asyncio.timeout(timeouts.queue_seconds):
                await self._turns.acquire()
        except TimeoutError:
            raise TimedOut("no connection is free") from None
        try:
            return self._idle() or await self._connected(timeouts.connect_seconds)
        except BaseException:
            self._turns.release()
            raise

    def give_back(self, connection: Connection) -> None:
        """Keep a connection after its exchange, if it can carry another one."""
        if connection.is_usable and not self._is_closed:
            connection.idle_since = asyncio.get_running_loop().time()
            self.idle.append(connection)
        else:
            self._drop(connection)
        if self._turns is not None:
            self._turns.release()

    def close_idle(self, until: float) -> None:
        """Close the connections that have been idle since `until`, and those that the server has closed."""
        for connection in [each for each in self.idle if each.idle_since <= until or not each.is_usable]:
            self.idle.remove(connection)
            self._drop(connection)

    def close(self) -> None:
        """Close all connections, and those that are being made once their exchange ends."""
        self._is_closed = True
        self.idle.clear()
        for connection in [*self._open]:
            self._drop(connection)

    def _idle(self) -> Connection | None:
        oldest = asyncio.get_running_loop().time() - self._keepalive_seconds
        while self.idle:
            connection = self.idle.pop()
            if connection.is_usable and connection.idle_since >= oldest:
                return connection
            self._drop(connection)
        return None

    async def _connected(self, seconds: float) -> Connection:
        try:
            async with asyncio.timeout(seconds):
                connection = await self._connect(self._host, self._port, self._tls)
        except TimeoutError:
            raise TimedOut(f"no connection in {seconds:g} s") from None
        except OSError as error:
            raise Broken(f"no connection: {error}") from error
        self._open[connection] = None
        return connection

    def _drop(self, connection: Connection) -> None:
        self._open.pop(connection, None)
        connection.close()


@cache
def _default_tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class _Streamed(StreamedReply):
    def __init__(self, connection: Connection, head: ReplyReader, silence_seconds: float | None) -> None:
        self._connection = connection
        self._head = head
        self._silence_seconds = silence_seconds

    @property
    def status(self) -> int:
        return self._head.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._head.headers

    def lines(self) -> AsyncIterator[bytes]:
        return self._connection.lines(self._silence_seconds)

    async def read(self) -> bytes:
        return await self._connection.read(self._silence_seconds)
