"""How handlers in other processes tell a test what they do, and are told to go on: lines over loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.client.cluster import WAIT_SECONDS


class Ear:
    """Hears one line of each caller; `port` goes into payloads."""

    def __init__(self) -> None:
        self.port = 0
        self._heard: asyncio.Queue[tuple[str, asyncio.StreamWriter]] = asyncio.Queue()

    async def hear(self) -> str:
        """Return the next line."""
        return (await self._next())[0]

    async def hear_and_answer_later(self) -> tuple[str, asyncio.StreamWriter]:
        """Return the next line, and where to write for the caller to go on."""
        return await self._next()

    async def _next(self) -> tuple[str, asyncio.StreamWriter]:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self._heard.get()

    async def called(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        self._heard.put_nowait((line.decode().strip(), writer))


@asynccontextmanager
async def listening() -> AsyncIterator[Ear]:
    ear = Ear()
    server = await asyncio.start_server(ear.called, "127.0.0.1", 0)
    ear.port = server.sockets[0].getsockname()[1]
    async with server:
        yield ear


def say(port: int, line: str) -> socket.socket:
    """Say a line; return the connection, on which a test may answer."""
    connection = socket.create_connection(("127.0.0.1", port), WAIT_SECONDS)
    connection.sendall(f"{line}\n".encode())
    return connection
