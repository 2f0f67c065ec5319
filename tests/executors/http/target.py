"""A target of HTTP jobs that misbehaves on demand: a bare socket server, whose paths are its behaviours."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

BOMB = gzip.compress(bytes(16 << 20), 9) * 64
"""Each of its bytes becomes a thousand, 1 GiB in all."""
PIECE = b"x" * 65_536


@dataclass(slots=True)
class Received:
    """A request as it arrived."""

    method: str
    target: str
    head: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    """Names in lower case."""


@dataclass(slots=True)
class Target:
    """The server: `http://HOST:PORT/BEHAVIOUR?…` does what the behaviour says."""

    port: int = 0
    received: list[Received] = field(default_factory=list)
    connection_count: int = 0
    closed_count: int = 0
    """Connections that the client has closed while a reply was under way."""
    hanging: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    """Ends what hangs."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60), self.changed:
            await self.changed.wait_for(condition)

    async def _poke(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while (request := await _read(reader)) is not None:
                self.received.append(request)
                await self._poke()
                if not await self._answer(request, reader, writer):
                    break
        except ConnectionError:
            self.closed_count += 1
        except asyncio.CancelledError:
            pass  # by `stop`; asyncio would log it as an error
        finally:
            self._tasks.discard(task)
            await self._poke()
            with suppress(ConnectionError):
                writer.close()

    async def _answer(self, request: Received, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer, and return whether the connection lasts."""
        parts = urlsplit(request.target)
        options = {name: values[0] for name, values in parse_qs(parts.query).items()}
        behaviour: Callable[..., Awaitable[bool]] = getattr(self, f"_do_{parts.path.strip('/').replace('-', '_')}")
        return await behaviour(request, options, reader, writer)

    async def _do_status(
        self, request: Received, options: dict[str, str], _: object, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer with `code`, `fill` bytes before `body`, and a header that `h` gives as `Name: value`."""
        body = b"x" * int(options.get("fill", "0")) + options.get("body", "").encode()
        head = f"HTTP/1.1 {options.get('code', '200')} Whatever\r\nContent-Length: {len(body)}\r\n"
        head += f"{options['h']}\r\n" if "h" in options else ""
        writer.write(head.encode() + b"\r\n" + (b"" if request.method == "HEAD" else body))
        await writer.drain()
        return True

    async def _do_attempts(self, request: Received, options: dict[str, str], *rest: object) -> bool:
        """Answer the first attempt with a `code` and header, and the others with 200; `lost`: with nothing at first."""
        if request.headers["raftsched-attempt"] != "1":
            options = {"body": options.get("body", "")}
        elif "lost" in options:
            return False
        return await self._do_status(request, options, *rest)  # type: ignore[arg-type]  # as it was called

    async def _do_echo(
        self, request: Received, options: dict[str, str], _: object, writer: asyncio.StreamWriter
    ) -> bool:
        """Send back the head and body that came, with a `code`."""
        content = request.head.encode() + request.body if request.method != "HEAD" else b""
        head = (
            f"HTTP/1.1 {options.get('code', '200')} OK\r\nX-Request-Id: {request.headers.get('authorization', '-')}\r\n"
        )
        writer.write(head.encode())
        writer.write(b"Content-Length: %d\r\n\r\n" % len(content) + content)
        await writer.drain()
        return True

    async def _do_raw(self, _r: object, options: dict[str, str], _: object, writer: asyncio.StreamWriter) -> bool:
        """Send `bytes` as they are and `fill` more, then close."""
        writer.write(options.get("bytes", "").encode("latin-1") + b"y" * int(options.get("fill", "0")))
        await writer.drain()
        return False

    async def _do_hang(
        self, _r: object, _o: object, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Say nothing until the client goes, or the test releases it."""
        self.hanging += 1
        await self._poke()
        gone = asyncio.create_task(reader.read(1))
        released = asyncio.create_task(self.release.wait())
        await asyncio.wait((gone, released), return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        self.hanging -= 1
        if not self.release.is_set():
            self.closed_count += 1
            return False
        released.cancel()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        return False

    async def _do_drip(self, _r: object, options: dict[str, str], _: object, writer: asyncio.StreamWriter) -> bool:
        """Send a byte of the head, or of the body, now and then, for ever."""
        if options.get("part") == "body":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    async def _do_endless(self, _r: object, options: dict[str, str], _: object, writer: asyncio.StreamWriter) -> bool:
        """Send a body without end, or headers without end."""
        writer.write(b"HTTP/1.1 200 OK\r\n" + (b"" if options.get("part") == "head" else b"\r\n"))
        for number in itertools.count():
            writer.write(b"X-%d: %b\r\n" % (number, b"y" * 4_000) if options.get("part") == "head" else PIECE)
            await writer.drain()
        raise AssertionError

    async def _do_bomb(self, _r: object, _o: object, _: object, writer: asyncio.StreamWriter) -> bool:
        """Send a body that is far larger once decompressed."""
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB))
        writer.write(BOMB)
        await writer.drain()
        return True

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _read(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    method, target, _ = first.split(" ")
    return Received(method, target, head, body, headers)


@asynccontextmanager
async def running_target(host: str = "127.0.0.1", certificate: ssl.SSLContext | None = None) -> AsyncIterator[Target]:
    target = Target()
    server = await asyncio.start_server(target.connected, host, 0, ssl=certificate)
    target.port = server.sockets[0].getsockname()[1]
    try:
        yield target
    finally:
        server.close()
        await target.stop()
