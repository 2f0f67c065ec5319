"""An exchange is sent at most once, whatever the method and the age of its connection."""

from __future__ import annotations

import socket

import pytest

from raftsched.errors import InvariantBroken
from raftsched.exchange import Broken, Exchange, HttpPool, TimedOut, Timeouts
from tests.exchange.dying import DyingServer, dying_server

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
PATIENT = Timeouts(connect_seconds=10.0, total_seconds=10.0)


def _exchange(server: DyingServer, method: str, path: str = "/api/v1/x") -> Exchange:
    return Exchange(method, f"{server.url}{path}", headers={}, body=None if method in ("GET", "HEAD") else b"{}")


@pytest.mark.parametrize("method", METHODS)
async def test_exchange_over_a_kept_connection_that_breaks_is_sent_once(method: str) -> None:
    async with dying_server(survives=True) as server:
        pool = HttpPool()
        warming = _exchange(server, "GET", "/api/v1/cluster")
        assert (await pool.send(warming, PATIENT)).status == 200
        broken = _exchange(server, method)
        with pytest.raises(Broken) as caught:
            await pool.send(broken, PATIENT)
        assert (server.seen, server.connection_count, broken.is_sent) == ([method], 1, True)
        assert not isinstance(caught.value, TimedOut)
        await pool.close()


async def test_stream_over_a_kept_connection_that_breaks_is_sent_once() -> None:
    async with dying_server(survives=True) as server:
        pool = HttpPool()
        assert (await pool.send(_exchange(server, "GET", "/api/v1/cluster"), PATIENT)).status == 200
        with pytest.raises(Broken):
            async with pool.stream(_exchange(server, "GET"), PATIENT):
                raise AssertionError("no reply has come")
        assert server.seen == ["GET"]
        await pool.close()


async def test_exchange_is_refused_before_it_is_sent_a_second_time() -> None:
    async with dying_server() as server:
        pool = HttpPool()
        exchange = _exchange(server, "GET", "/api/v1/cluster")
        await pool.send(exchange, PATIENT)
        exchange.url = f"{server.url}/api/v1/x"
        with pytest.raises(InvariantBroken):
            await pool.send(exchange, PATIENT)
        assert server.seen == []
        await pool.close()


async def test_exchange_whose_connection_is_refused_is_not_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    pool = HttpPool()
    exchange = Exchange("DELETE", f"http://127.0.0.1:{port}/", headers={})
    with pytest.raises(Broken):
        await pool.send(exchange, PATIENT)
    assert not exchange.is_sent
    await pool.close()


async def test_exchange_that_waits_for_its_connection_too_long_is_not_sent() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, socket.socket() as first:
        first.connect(server.getsockname())  # who fills the queue, so that nobody else gets a connection
        pool = HttpPool()
        exchange = Exchange("DELETE", f"http://127.0.0.1:{server.getsockname()[1]}/", headers={})
        with pytest.raises(TimedOut):
            await pool.send(exchange, Timeouts(connect_seconds=0.01))
        assert not exchange.is_sent
        await pool.close()


async def test_exchange_whose_reply_does_not_come_in_time_was_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        pool = HttpPool()
        for timeouts in (Timeouts(10.0, total_seconds=0.05), Timeouts(10.0, silence_seconds=0.05)):
            exchange = Exchange("DELETE", f"http://127.0.0.1:{silent.getsockname()[1]}/", headers={})
            with pytest.raises(TimedOut):
                await pool.send(exchange, timeouts)
            assert exchange.is_sent
        await pool.close()
