"""When a connection carries another exchange, and when it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from raftsched.exchange import Broken, Exchange, HttpPool, TimedOut, Timeouts

PATIENT = Timeouts(connect_seconds=10.0, total_seconds=10.0)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]
"""Answers a request, of which it gets the head."""


class Server:
    """Answers each request by `answer`."""

    def __init__(self, answer: Answer) -> None:
        self.heads: list[bytes] = []
        self.connection_count = 0
        self.ended = asyncio.Event()
        """Set once a client has ended a connection."""
        self.authority = ""
        self._answer = answer

    async def speak(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        try:
            while True:
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                await self._answer(self.heads[-1], writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.ended.set()
        finally:
            writer.close()


@asynccontextmanager
async def served(answer: Answer) -> AsyncIterator[Server]:
    server = Server(answer)
    listening = await asyncio.start_server(server.speak, "127.0.0.1", 0)
    server.authority = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listening.close()


async def say_ok(_head: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(OK)


async def say_nothing(_head: bytes, _writer: asyncio.StreamWriter) -> None:
    """Keep the client waiting."""


def asking(server: Server, path: str = "/x", *, user: str = "") -> Exchange:
    return Exchange("GET", f"http://{user}{server.authority}{path}", headers={})


async def test_exchanges_one_after_the_other_share_a_connection() -> None:
    async with served(say_ok) as server:
        pool = HttpPool()
        replies = [await pool.send(asking(server), PATIENT) for _ in range(3)]
        assert [(reply.status, reply.body) for reply in replies] == [(200, b"ok")] * 3
        assert server.connection_count == 1
        await pool.close()
        await asyncio.wait_for(server.ended.wait(), 10)


@pytest.mark.parametrize(
    "reply",
    [
        OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
        OK + b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_connection_that_carries_no_further_reply_is_closed(reply: bytes) -> None:
    async def answer(_head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(reply)

    async with served(answer) as server:
        pool = HttpPool()
        for _ in range(2):
            assert (await pool.send(asking(server), PATIENT)).status == 200
        assert server.connection_count == 2
        await pool.close()


async def test_bytes_that_nobody_asked_for_are_not_the_next_reply() -> None:
    writers = []

    async def answer(_head: bytes, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        writer.write(OK)

    async with served(answer) as server:
        pool = HttpPool()
        await pool.send(asking(server), PATIENT)
        writers[0].write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        await asyncio.wait_for(server.ended.wait(), 10)
        assert (await pool.send(asking(server), PATIENT)).status == 200
        assert server.connection_count == 2
        await pool.close()


async def test_connection_that_the_server_has_closed_is_not_used() -> None:
    async def answer(_head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        writer.close()

    async with served(answer) as server:
        pool = HttpPool()
        exchange = asking(server)
        await pool.send(exchange, PATIENT)
        while server.connection_count == 1:
            try:
                await pool.send(asking(server), PATIENT)
            except Broken:  # the end has not arrived yet: then it is a break, and not sent again
                continue
        assert server.connection_count == 2
        await pool.close()


async def test_connection_that_is_idle_for_too_long_is_closed() -> None:
    async with served(say_ok) as server:
        pool = HttpPool(keepalive_seconds=0.01)
        await pool.send(asking(server), PATIENT)
        await asyncio.wait_for(server.ended.wait(), 10)
        await pool.close()


async def test_cancelled_exchange_ends_its_connection() -> None:
    async with served(say_nothing) as server:
        pool = HttpPool()
        sending = asyncio.create_task(pool.send(asking(server), PATIENT))
        while not server.heads:
            await asyncio.sleep(0)
        sending.cancel()
        await asyncio.wait_for(server.ended.wait(), 10)
        await pool.close()


async def test_closing_ends_the_exchanges_under_way() -> None:
    async with served(say_nothing) as server:
        pool = HttpPool()
        sending = asyncio.create_task(pool.send(asking(server), PATIENT))
        while not server.heads:
            await asyncio.sleep(0)
        await pool.close()
        with pytest.raises(Broken):
            await asyncio.wait_for(sending, 10)


async def test_no_more_connections_than_allowed_are_made() -> None:
    waiting: list[asyncio.StreamWriter] = []

    async def answer(_head: bytes, writer: asyncio.StreamWriter) -> None:
        waiting.append(writer)

    async with served(answer) as server:
        pool = HttpPool(connections_max=2)
        sending = [asyncio.create_task(pool.send(asking(server), PATIENT)) for _ in range(6)]
        while len(waiting) < 2:
            await asyncio.sleep(0)
        late = asking(server)
        with pytest.raises(TimedOut):
            await pool.send(late, Timeouts(connect_seconds=10.0, queue_seconds=0.01))
        assert not late.is_sent
        while not all(each.done() for each in sending):
            if waiting:
                waiting.pop().write(OK)
            await asyncio.sleep(0)
        assert [each.result().body for each in sending] == [b"ok"] * 6
        assert server.connection_count == 2
        await pool.close()


async def test_lines_of_a_long_reply_arrive_whole() -> None:
    line = b"x" * 999 + b"\n"

    async def answer(_head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(100):
            writer.write(b"%x\r\n%b\r\n" % (25_000, line * 25))
            await writer.drain()
        writer.write(b"4\r\nlast\r\n0\r\n\r\n")

    async with served(answer) as server:
        pool = HttpPool()
        async with pool.stream(asking(server), Timeouts(connect_seconds=10.0, silence_seconds=10.0)) as reply:
            lines = [each async for each in reply.lines()]
        assert lines == [line] * 2500 + [b"last"]
        await pool.send(asking(server), PATIENT)
        assert server.connection_count == 1
        await pool.close()


async def test_reply_that_breaks_off_is_no_reply() -> None:
    async def answer(_head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\none\ntwo")
        writer.close()

    async with served(answer) as server:
        pool = HttpPool()
        with pytest.raises(Broken):
            await pool.send(asking(server), PATIENT)
        lines = []
        with pytest.raises(Broken):  # the lines before the break count
            async with pool.stream(asking(server), PATIENT) as reply:
                async for line in reply.lines():
                    lines.append(line)  # noqa: PERF401  # as above
        assert lines == [b"one\n"]
        await pool.close()


async def test_user_in_the_url_is_sent_as_credentials_and_not_in_the_target() -> None:
    async with served(say_ok) as server:
        pool = HttpPool()
        await pool.send(asking(server, "/a?b=c", user="me:p%40ss@"), PATIENT)
        first, *headers = server.heads[0].decode().split("\r\n")
        assert first == "GET /a?b=c HTTP/1.1"
        assert "Authorization: Basic bWU6cEBzcw==" in headers
        assert f"Host: {server.authority}" in headers
        await pool.close()


async def test_name_that_no_server_can_have_is_refused_unsent() -> None:
    pool = HttpPool()
    for url in ("http://" + "ü" * 99 + "/", "http://a:99999/", "http://127.0.0.1:0x1/"):
        exchange = Exchange("GET", url, headers={})
        with pytest.raises(Broken):
            await pool.send(exchange, PATIENT)
        assert not exchange.is_sent
