"""HTTP exchanges over kept-alive connections of aiohttp.

By itself aiohttp silently sends GET, PUT and DELETE again on a new connection if a kept-alive connection breaks. A
client middleware sees each of its attempts and turns the break into `Broken`, which is not retried. `_Request` notes each
sending before the first byte leaves, and refuses a second one of the same exchange in any case. aiohttp's traces could
note it as well, but they cost as much as the rest of a request's bookkeeping.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
from yarl import URL

from raftsched.exchange.port import Broken, Exchange, Http, Reply, StreamedReply, TimedOut, Timeouts
from raftsched.tls.contexts import reason_of

_BROKEN: Final = (aiohttp.ClientError, TimeoutError, OSError)


class HttpPool(Http):
    """Keep connections open for `keepalive_seconds` and at most `connections_max` to one node (0 = without bound)."""

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        keepalive_seconds: float = 15.0,
        connections_max: int = 0,
        decompress: bool = True,
    ) -> None:
        self._tls = tls
        self._keepalive_seconds = keepalive_seconds
        self._connections_max = connections_max
        self._decompress = decompress
        self._session: aiohttp.ClientSession | None = None

    async def send(self, exchange: Exchange, timeouts: Timeouts) -> Reply:
        try:
            async with self._request(exchange, timeouts) as reply:
                return Reply(reply.status, reply.headers, await reply.read())
        except _BROKEN as error:
            raise _broken(error) from error

    @asynccontextmanager
    async def stream(self, exchange: Exchange, timeouts: Timeouts) -> AsyncIterator[StreamedReply]:
        try:
            reply = await self._request(exchange, timeouts)
        except _BROKEN as error:
            raise _broken(error) from error
        async with reply:
            yield _Streamed(reply)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _request(self, exchange: Exchange, timeouts: Timeouts) -> Any:
        """Make aiohttp's own request, which is awaited or entered."""
        return self._opened().request(
            exchange.method,
            URL(exchange.url, encoded=True),
            data=exchange.body,
            headers=exchange.headers,
            timeout=aiohttp.ClientTimeout(
                total=timeouts.total_seconds,
                connect=None if timeouts.queue_seconds is None else timeouts.queue_seconds + timeouts.connect_seconds,
                sock_connect=timeouts.connect_seconds,
                sock_read=timeouts.silence_seconds,
            ),
            allow_redirects=False,
            middlewares=(_Once(exchange),),
        )

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=self._connector(),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=self._decompress,
                request_class=_Request,
            )
        return self._session

    def _connector(self) -> aiohttp.BaseConnector:
        return aiohttp.TCPConnector(
            limit=0,
            limit_per_host=self._connections_max,
            keepalive_timeout=self._keepalive_seconds,
            ssl=self._tls or True,
        )


class _Streamed(StreamedReply):
    def __init__(self, reply: aiohttp.ClientResponse) -> None:
        self._reply = reply

    @property
    def status(self) -> int:
        return self._reply.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._reply.headers

    async def lines(self) -> AsyncIterator[bytes]:
        try:
            async for line in self._reply.content:
                yield line
        except (*_BROKEN, ValueError) as error:  # ValueError: a line without end
            raise _broken(error) from error

    async def parts(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._reply.content.iter_any():
                yield part
        except _BROKEN as error:
            raise _broken(error) from error

    async def read(self) -> bytes:
        try:
            return await self._reply.read()
        except _BROKEN as error:
            raise _broken(error) from error


class _Request(aiohttp.ClientRequest):
    """A request that notes its exchange as sent."""

    exchange: Exchange

    async def send(self, conn: Any) -> aiohttp.ClientResponse:
        """Send it over a connection that is there."""
        self.exchange.sending()
        return await super().send(conn)


class _Once:
    """Sends one exchange; makes the first break of a connection final, since aiohttp repeats after its own errors."""

    __slots__ = ("_exchange",)

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        assert isinstance(request, _Request)
        request.exchange = self._exchange
        try:
            return await handler(request)
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            raise _broken(error) from error


def _broken(error: Exception) -> Broken:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        reason = reason_of(error.certificate_error)
        return Broken(f"{reason}; --ca-file, RAFTSCHED_CA_FILE or ca_file names the authorities that certify it")
    kind = TimedOut if isinstance(error, TimeoutError) else Broken
    return kind(f"{type(error).__name__} {error}".rstrip())
