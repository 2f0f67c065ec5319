"""Read request bodies within limits of size and total size.

A body that is too large is rejected at its Content-Length, or as soon as it exceeds the limit, and is never read to its
end. The wait for a body is limited. The total size of all bodies is limited too: a hundred clients that upload at the
same time get 503, and do not fill the memory. A body counts from its first byte until its request is answered.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import HttpVersion11, web

from raftsched import limits
from raftsched.errors import Malformed, TooLarge, Unavailable, UnsupportedMediaType

_HELD: Final = web.RequestKey("raftsched_body_bytes", int)
_BODY: Final = web.RequestKey("raftsched_body", bytes)
_READ_SECONDS: Final = 30.0
"""Time for the whole body to arrive: enough for 8 MiB on a slow line, and a limit for a client that stops sending."""
_UTF8: Final = frozenset({"utf-8", "utf8"})


FRAMING_HEADER: Final = "Transfer-Encoding"


def check_framing(request: web.Request) -> None:
    """Raise `Malformed` for a body whose end two servers could read differently; the connection must be closed.

    Behind a proxy that reads it differently, the rest would be taken for another client's request (RFC 9112, 6.1).
    """
    codings = request.headers.getall(FRAMING_HEADER, [])
    if not codings:
        return
    if request.version < HttpVersion11:
        raise Malformed(f"{FRAMING_HEADER}: HTTP/1.0 has none", field=FRAMING_HEADER)
    if [coding.lower() for coding in codings] != ["chunked"]:
        raise Malformed(f"{FRAMING_HEADER}: expected chunked, once and alone", field=FRAMING_HEADER)


class Bodies:
    """The request bodies that this node holds."""

    def __init__(
        self,
        *,
        body_bytes_max: int = limits.BODY_BYTES_MAX,
        held_bytes_max: int = limits.UPLOADS_BYTES_MAX,
        read_seconds: float = _READ_SECONDS,
    ) -> None:
        self._body_bytes_max = body_bytes_max
        self._held_bytes_max = held_bytes_max
        self._read_seconds = read_seconds
        self.held_bytes = 0

    async def read_json(self, request: web.Request) -> bytes:
        """Return the body of a request that says it is JSON; raises `UnsupportedMediaType` and what `read` raises."""
        if request.content_type != "application/json" or (request.charset or "utf-8").lower() not in _UTF8:
            raise UnsupportedMediaType("the content type must be application/json, in UTF-8", field="Content-Type")
        return await self.read(request)

    async def read_optional_json(self, request: web.Request) -> bytes:
        """Return the body as `read_json` does; b"" if there is none."""
        return await self.read_json(request) if request.body_exists else b""

    async def read(self, request: web.Request) -> bytes:
        """Return the body; it is read once, and kept for further calls.

        Raises `TooLarge`, `Unavailable` if all bodies together are too large, `UnsupportedMediaType` for a compressed
        one, and `Malformed` if it ends too early or does not arrive in time.
        """
        body = request.get(_BODY)
        if body is None:
            body = request[_BODY] = await self._arrived(request)
        return body

    async def _arrived(self, request: web.Request) -> bytes:
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise UnsupportedMediaType("compressed bodies are not accepted", field="Content-Encoding")
        if (request.content_length or 0) > self._body_bytes_max:
            raise self._too_large()
        if request.content.is_eof():
            return await self._chunks(request)
        try:
            async with asyncio.timeout(self._read_seconds):
                return await self._chunks(request)
        except TimeoutError:
            raise Malformed(f"the body did not arrive within {self._read_seconds:g} seconds") from None

    def release(self, request: web.Request) -> None:
        """Stop counting the body of an answered request."""
        self.held_bytes -= request.pop(_HELD, 0)

    async def _chunks(self, request: web.Request) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while chunk := await self._next_chunk(request):
            size += len(chunk)
            if size > self._body_bytes_max:
                raise self._too_large()
            self._hold(request, len(chunk))
            chunks.append(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _hold(self, request: web.Request, size: int) -> None:
        if self.held_bytes + size > self._held_bytes_max:
            raise Unavailable("too many large requests at once; retry in a moment")
        self.held_bytes += size
        request[_HELD] = request.get(_HELD, 0) + size

    def _too_large(self) -> TooLarge:
        return TooLarge(f"the body is larger than {self._body_bytes_max} bytes")

    @staticmethod
    async def _next_chunk(request: web.Request) -> bytes:
        try:
            return await request.content.readany()
        except web.RequestPayloadError as error:
            raise Malformed("the body ended before it was complete, or its chunks are malformed") from error
