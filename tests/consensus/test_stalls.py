"""An event loop that stands still while a link is opened, on the real uvloop and on asyncio's own.

uvloop never calls `connection_lost` of a connection whose opening was cancelled after `connection_made`, and raises at
every later use of its transport. Stalls are made inside a callback, so they always strike at the same place.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvloop

from raftsched.consensus.net.connection import Connection
from raftsched.consensus.net.framing import FrameError
from raftsched.consensus.net.handshake import TransportSettings
from raftsched.consensus.net.transport import Transport
from raftsched.consensus.raft.messages import Message
from tests.consensus.links import WAIT_SECONDS, Network, network, vote

pytestmark = pytest.mark.filterwarnings("ignore:Overriding the .event_loop_policy:pytest.PytestDeprecationWarning")

SOON = TransportSettings(
    handshake_seconds=0.2, redial_seconds_min=0.01, redial_seconds_max=0.05, silence_seconds=0.4, dial_back_seconds=0.1
)


@pytest.fixture(params=[uvloop.EventLoopPolicy, asyncio.DefaultEventLoopPolicy], ids=["uvloop", "asyncio"])
def event_loop_policy(request: pytest.FixtureRequest) -> Any:
    return request.param()


@pytest.fixture
async def net() -> AsyncIterator[Network]:
    async with network() as made:
        yield made


class Stalls:
    """Holds the loop up past the deadline of an introduction, just as a connection is made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        self.struck = 0
        self.strikes_dialed = True
        original = Transport.on_open

        def on_open(transport: Transport, connection: Connection) -> None:
            original(transport, connection)
            if self.left and connection.dialed is self.strikes_dialed:
                self.left -= 1
                self.struck += 1
                time.sleep(2 * SOON.handshake_seconds)  # the stall itself; nobody waits for anything

        monkeypatch.setattr(Transport, "on_open", on_open)


@pytest.fixture
def stalls(monkeypatch: pytest.MonkeyPatch) -> Stalls:
    return Stalls(monkeypatch)


class Owner:
    """Counts what a connection tells."""

    def __init__(self) -> None:
        self.lost_count = 0
        self.opening: asyncio.Task[Any] | None = None

    def on_open(self, _connection: Connection) -> None:
        if self.opening is not None:
            self.opening.cancel()  # the deadline, or a stop, falls between connection_made and the waiter's wake-up

    def on_hello(self, _connection: Connection, _hello: Message) -> bool:
        return True

    def on_identified(self, _connection: Connection) -> bool:
        return True

    def on_messages(self, _connection: Connection, _messages: list[Message], _byte_count: int) -> None: ...

    def on_bad_bytes(self, _connection: Connection, _error: FrameError) -> None: ...

    def on_lost(self, _connection: Connection) -> None:
        self.lost_count += 1


async def given_up_while_opened(owner: Owner) -> Connection:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    connection = Connection(owner, peer_id="n1")
    port = server.sockets[0].getsockname()[1]
    owner.opening = asyncio.create_task(loop.create_connection(lambda: connection, "127.0.0.1", port))
    await asyncio.wait({owner.opening}, timeout=WAIT_SECONDS)
    assert owner.opening.cancelled()
    server.close()
    return connection


async def test_a_connection_that_is_given_up_is_lost_at_once_and_once() -> None:
    owner = Owner()
    connection = await given_up_while_opened(owner)
    connection.abort()
    assert connection.lost.done()
    assert owner.lost_count == 1
    connection.abort()
    connection.queue(b"late", early=False)
    connection.flush(early=False)
    connection.tick()
    connection.pause_reading()
    connection.resume_reading()
    assert connection.unsent_bytes == 0
    await asyncio.sleep(0)
    assert owner.lost_count == 1


@pytest.mark.parametrize("use", ["tick", "flush", "send_now"])
async def test_a_write_on_a_dead_handle_is_a_lost_connection(use: str) -> None:
    """Nobody aborts it: the write itself finds out."""
    owner = Owner()
    connection = await given_up_while_opened(owner)
    if use == "tick":
        connection.tick()
    elif use == "flush":
        connection.queue(b"frame", early=False)
        connection.flush(early=False)
    else:
        connection.send_now({"type": "ping"})
    async with asyncio.timeout(WAIT_SECONDS):
        await connection.lost
    assert owner.lost_count == 1


async def test_a_connection_that_is_made_after_it_was_given_up_is_closed_and_never_opened() -> None:
    owner = Owner()
    loop = asyncio.get_running_loop()
    closed = loop.create_future()

    class Server(asyncio.Protocol):
        def connection_lost(self, _error: Exception | None) -> None:
            closed.set_result(None)

    server = await loop.create_server(Server, "127.0.0.1", 0)
    connection = Connection(owner, peer_id="n1")
    connection.abort()
    await loop.create_connection(lambda: connection, "127.0.0.1", server.sockets[0].getsockname()[1])
    async with asyncio.timeout(WAIT_SECONDS):
        await closed
    assert owner.lost_count == 1
    server.close()


@pytest.mark.parametrize("dialed", [True, False], ids=["the dialer stalls", "the accepting side stalls"])
async def test_links_come_back_after_stalls_while_they_are_opened(net: Network, stalls: Stalls, dialed: bool) -> None:
    """And all is closed in order afterwards."""
    stalls.left, stalls.strikes_dialed = 3, dialed
    n1, n2 = await net.mesh("n1", "n2", settings=SOON)
    assert stalls.struck == 3
    assert n1.send("n2", vote(1))
    assert n2.send("n1", vote(2))
    await net.until(lambda: (n1.terms(), n2.terms()) == ([2], [1]))
    for station in (n1, n2):
        async with asyncio.timeout(WAIT_SECONDS):
            await station.transport.close()
        assert not station.transport._open


async def test_a_stop_that_comes_with_a_stall_ends(net: Network, stalls: Stalls) -> None:
    n1 = net.station("n1", ["n2"], settings=SOON)
    n2 = net.station("n2", ["n1"], settings=SOON)
    stalls.left = 1
    await net.start()
    opened = asyncio.Event()
    original = n2.transport.on_open

    def on_open(connection: Connection) -> None:
        original(connection)
        opened.set()

    n2.transport.on_open = on_open  # type: ignore[method-assign]
    async with asyncio.timeout(WAIT_SECONDS):
        await opened.wait()
        await n2.transport.close()
        await n1.transport.close()
    assert not n2.transport._open


async def test_whatever_a_tick_meets_it_comes_again(net: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = []
    failed, ticked = asyncio.Event(), asyncio.Event()

    def fail(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        failures.append(context["exception"])
        failed.set()

    asyncio.get_running_loop().set_exception_handler(fail)
    _, n2 = await net.mesh("n1", "n2", settings=SOON)
    with monkeypatch.context() as patch:
        patch.setattr(Connection, "tick", lambda _self: 1 // 0)
        async with asyncio.timeout(WAIT_SECONDS):
            await failed.wait()
    original = Connection.tick

    def tick(connection: Connection) -> int:
        ticked.set()
        return original(connection)

    monkeypatch.setattr(Connection, "tick", tick)
    async with asyncio.timeout(WAIT_SECONDS):
        await ticked.wait()
    assert isinstance(failures[0], ZeroDivisionError)
    assert n2.transport.connected == {"n1"}
