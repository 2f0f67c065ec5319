"""Carry HTTP exchanges over one TCP connection, one after the other.

Bytes that come while nothing is asked end the connection: they can't be the answer to a later request.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, cast

import aiohappyeyeballs

from raftsched.exchange.message import BadReply, ReplyReader
from raftsched.exchange.port import Broken, Exchange, TimedOut

_STREAM_BYTES_MAX: Final = 256 * 1024
"""Bytes of a streamed reply that wait here for their reader; then the server waits."""
_LINE_BYTES_MAX: Final = 128 * 1024
_OTHER_ADDRESS_SECONDS: Final = 0.25
"""Time for one address of a name to answer before the next one is tried as well (RFC 8305)."""


class Connection(asyncio.Protocol):
    """A connection to one server; `start` begins an exchange, and `read` or `lines` end it."""

    def __init__(self) -> None:
        self.idle_since = 0.0
        """Monotonic time of the loop, for the pool."""
        self._transport: asyncio.Transport | None = None
        self._reply: ReplyReader | None = None
        """The reply of the present exchange, or of the one before."""
        self._body = bytearray()
        """Bytes of the present reply's body that nobody has read."""
        self._news: asyncio.Future[None] | None = None
        self._failure: Broken | None = None
        """The reason if this connection carries no exchange any more."""

    # -- asyncio calls these ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        reply = self._reply
        if self._failure is not None:
            return
        if reply is None or reply.is_complete:
            self._fail(Broken("the server sent bytes without a request"))
            return
        try:
            self._body += reply.feed(data)
        except BadReply as error:
            self._fail(Broken(f"the reply is not HTTP/1.1: {error}"))
            return
        if len(self._body) > _STREAM_BYTES_MAX and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._tell()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._reply is not None and self._failure is None and exc is None:
            self._reply.feed_end()
        self._fail(Broken(f"the connection broke: {exc}" if exc is not None else "the server closed the connection"))

    # -- the pool calls these -----------------------------------------------------------------------------------------

    @property
    def is_usable(self) -> bool:
        """Return whether another exchange may be started."""
        transport = self._transport
        if self._failure is not None or transport is None or transport.is_closing():
            return False
        return self._reply is None or (self._reply.keeps_alive and not transport.get_write_buffer_size())

    def start(self, exchange: Exchange, request: bytes) -> None:
        """Send `request`; raises as `Exchange.sending`, with nothing sent."""
        assert self._transport is not None
        exchange.sending()
        self._reply = ReplyReader(exchange.method)
        self._body.clear()
        self._transport.write(request)

    async def head(self, silence_seconds: float | None) -> ReplyReader:
        """Return the reply once its head has come; raises `Broken` and `TimedOut`."""
        assert self._reply is not None
        while not self._reply.status:
            await self._more(silence_seconds)
        return self._reply

    async def read(self, silence_seconds: float | None) -> bytes:
        """Return the rest of the body once it has come; raises `Broken` and `TimedOut`."""
        assert self._reply is not None
        pieces = []
        while not self._reply.is_complete:
            await self._more(silence_seconds)
            pieces.append(self._taken())
        pieces.append(self._taken())
        return b"".join(pieces)

    async def lines(self, silence_seconds: float | None) -> AsyncIterator[bytes]:
        """Yield the lines of the body with their ends; raises `Broken`, also for a line without end, and `TimedOut`."""
        assert self._reply is not None
        rest = b""
        while True:
            *lines, rest = (rest + self._taken()).split(b"\n")
            for line in lines:
                yield line + b"\n"
            if len(rest) > _LINE_BYTES_MAX:
                raise Broken(f"a line of more than {_LINE_BYTES_MAX} bytes")
            if self._reply.is_complete and not self._body:
                break
            await self._more(silence_seconds)
        if rest:
            yield rest

    def close(self) -> None:
        """End the connection at once; whoever waits for a reply gets `Broken`."""
        self._fail(Broken("the connection was closed here"))

    # -- within -------------------------------------------------------------------------------------------------------

    async def _more(self, silence_seconds: float | None) -> None:
        """Wait until something has come; raises `TimedOut` after `silence_seconds` without anything."""
        if self._failure is not None:
            raise self._failure
        loop = asyncio.get_running_loop()
        self._news = loop.create_future()
        if silence_seconds is None:
            await self._news
        else:
            timer = loop.call_later(silence_seconds, self._fail, TimedOut(f"nothing came for {silence_seconds:g} s"))
            try:
                await self._news
            finally:
                timer.cancel()
        # What has come before the end counts.
        if self._failure is not None and self._reply is not None and not (self._reply.is_complete or self._body):
            raise self._failure

    def _taken(self) -> bytes:
        """Return the unread bytes of the body."""
        if not self._body:
            return b""
        if len(self._body) > _STREAM_BYTES_MAX and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        body = bytes(self._body)
        self._body.clear()
        return body

    def _fail(self, failure: Broken) -> None:
        if self._failure is None:
            self._failure = failure
            if self._transport is not None:
                self._transport.abort()
        self._tell()

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


Connect = Callable[[str, int, ssl.SSLContext | None], Awaitable[Connection]]
"""Connect to a host and port, with TLS if there is a context; raises `OSError`."""


async def connect(host: str, port: int, tls: ssl.SSLContext | None) -> Connection:
    """Connect over TCP; see `Connect`. All addresses of the host are tried, since a loop may not do that by itself."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    connected = await aiohappyeyeballs.start_connection(found, happy_eyeballs_delay=_OTHER_ADDRESS_SECONDS)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    name = host if tls is not None else None
    _, connection = await loop.create_connection(Connection, sock=connected, ssl=tls, server_hostname=name)
    return connection
