"""A server on a real socket that takes a request, and then breaks the connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_ANSWERED = ("/api/v1/cluster", "/api/v1/queues")
_PROBLEM = (
    b'{"type":"urn:raftsched:problem:not_found","status":404,"code":"not_found","detail":"there is no such thing"}'
)


class DyingServer:
    """Answers GET of /cluster and /queues; breaks the connection over the first other request, with all of it read.

    Then it is gone, or, if it `survives`, answers 404: what was deleted is not there the second time.
    """

    def __init__(self, *, survives: bool) -> None:
        self.seen: list[str] = []
        """Methods of the requests that arrived whole, but for those that only open a connection."""
        self.connection_count = 0
        self.url = ""
        self._survives = survives
        self._server: asyncio.Server | None = None

    async def speak(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        try:
            while True:
                method, path = await _read_request(reader)
                if path in _ANSWERED:
                    writer.write(_reply(b"200 OK", b'{"nodes":[],"queues":[]}'))
                    continue
                self.seen.append(method)
                if len(self.seen) == 1:
                    if not self._survives:
                        self.stop_listening()
                    writer.transport.abort()
                    return
                writer.write(_reply(b"404 Not Found", _PROBLEM))
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    def stop_listening(self) -> None:
        assert self._server is not None
        self._server.close()

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self.speak, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def dying_server(*, survives: bool = False) -> AsyncIterator[DyingServer]:
    server = DyingServer(survives=survives)
    await server.listen()
    try:
        yield server
    finally:
        server.stop_listening()


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, str]:
    """Return method and path of the next request, once its body has come."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    for line in lines:
        name, _, value = line.partition(":")
        if name.lower() == "content-length":
            await reader.readexactly(int(value))
    method, path, _ = first.split(" ")
    return method, path


def _reply(status: bytes, body: bytes) -> bytes:
    head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
    return head + body
