"""TCP connections between simulated processes, in virtual time: what `ProcessLoop` connects and listens with.

Production's HTTP server and client run over these as they are: parsers, kept-alive connections, handlers that are
cancelled when their client goes away. Bytes arrive whole and in order, after a delay. A cut link holds them, as resent
segments are held, until it heals. A process that is stopped takes nothing, and a killed one resets its connections.

While anything may happen, some of what is sent befalls more: the connection breaks before it arrives, or right after,
or it is held for a while. So a request can be lost, and its reply can be.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Final

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest
from aiohttp.tracing import Trace

from chaos.sim.machine.clock import Timeline
from chaos.sim.machine.loop import ProcessLoop
from chaos.sim.network.links import Network
from raftsched.exchange import HttpPool

_DELAY_SECONDS = 0.001
_HELD_SECONDS = 2.0
_RESENT_SECONDS = 0.05
"""Bytes held behind a cut look this often if they can pass."""
_WORK_SECONDS = 0.05
_FATES = ("before", "after", "after", "held")
Call = Callable[[], None]
Factory = Callable[[], asyncio.BaseProtocol]
Address = tuple[str, int]


class Sockets:
    """All connections and listeners of a world."""

    def __init__(
        self,
        timeline: Timeline,
        randomness: Random,
        network: Network,
        *,
        break_rate: float = 0.0,
        count: Callable[[str], None] = lambda _what: None,
    ) -> None:
        self._timeline = timeline
        self._random = randomness
        self._network = network
        self._count = count
        self.break_rate = break_rate
        """Part of what is sent that something befalls."""
        self.places: dict[Address, str] = {}
        """Address -> its process, also while nobody listens there."""
        self._listeners: dict[Address, Listener] = {}
        self._ends: dict[SimulatedSocket, None] = {}
        self.connection_count = 0

    def listen(self, loop: ProcessLoop, factory: Factory, address: Address) -> Listener:
        if address in self._listeners:
            raise OSError(f"{address} is in use")
        listener = self._listeners[address] = Listener(self, loop, factory, address)
        return listener

    def forget(self, listener: Listener) -> None:
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]

    def dial(self, loop: ProcessLoop, factory: Factory, address: Address, connected: asyncio.Future[Any]) -> None:
        """Connect in a moment; what comes of it is set at `connected`, unless that is cancelled first."""

        def arrive() -> None:
            listener = self._listeners.get(address)
            place = listener.loop.place if listener is not None else self.places.get(address, "")
            if connected.cancelled() or loop.is_dead:
                return
            if self.is_cut(loop.place, place) or self.is_cut(place, loop.place):
                self._timeline.after(_RESENT_SECONDS, arrive)
            elif listener is None:
                self._call(loop, _refuse, connected)
            else:
                self._connect(loop, factory, listener, connected)

        self._timeline.after(self._delay(), arrive)

    def _connect(self, loop: ProcessLoop, factory: Factory, listener: Listener, connected: asyncio.Future[Any]) -> None:
        self.connection_count += 1
        near, far = SimulatedSocket(self, loop), SimulatedSocket(self, listener.loop)
        near.peer, far.peer = far, near
        self._ends[near] = self._ends[far] = None
        listener.loop.call_soon(far.begin, listener.factory)

        def open_near() -> None:
            if connected.cancelled():
                near.abort()
            else:
                connected.set_result((near, near.begin(factory)))

        self._call(loop, open_near)

    def _call(self, loop: ProcessLoop, call: Callable[..., None], *arguments: Any) -> None:
        def arrive() -> None:
            loop.call_soon(call, *arguments)

        self._timeline.after(self._delay(), arrive)

    def died(self, loop: ProcessLoop) -> None:
        """A process is gone: nobody listens, and its connections break."""
        for listener in [listener for listener in self._listeners.values() if listener.loop is loop]:
            self.forget(listener)
        for end in [end for end in self._ends if end.loop is loop]:
            end.break_off()

    def reset(self, one: str, other: str) -> None:
        """Break all connections between two nodes."""
        for end in [end for end in self._ends if (end.loop.place, end.peer.loop.place) == (one, other)]:
            end.break_off()

    def drop(self, end: SimulatedSocket) -> None:
        self._ends.pop(end, None)

    # -- links --------------------------------------------------------------------------------------------------------

    def is_cut(self, sender: str, receiver: str) -> bool:
        return self._network.is_cut(sender, receiver)

    def _delay(self) -> float:
        return _DELAY_SECONDS * self._random.random()

    def carry(self, end: SimulatedSocket, deliver: Call, *, is_data: bool) -> None:
        """Have `deliver` called when what `end` sends arrives; or something befalls it."""
        timeline = self._timeline
        delay = self._delay()
        fate = self._fate() if is_data else ""
        if fate == "held":
            delay += _HELD_SECONDS * self._random.random()
        end.arrives_at = max(end.arrives_at + 1e-6, timeline.now + delay)
        calls = {"before": (end.break_off,), "after": (deliver, partial(self._break_soon, end))}.get(fate, (deliver,))
        timeline.after(end.arrives_at - timeline.now, lambda: self._pass(end, calls))

    def _fate(self) -> str:
        """Draw the fate of some bytes: "" = none, or the connection breaks before or after they arrive, or they wait."""
        if not self.break_rate or self._random.random() >= self.break_rate:
            return ""
        fate = self._random.choice(_FATES)
        self._count(f"http: {fate}")
        return fate

    def _break_soon(self, end: SimulatedSocket) -> None:
        """Break the connection while what has arrived is being worked at."""
        self._timeline.after(_WORK_SECONDS * self._random.random(), end.break_off)

    def _pass(self, end: SimulatedSocket, calls: Sequence[Call]) -> None:
        """Deliver, in order, unless the link is cut."""
        is_first = not end.waiting
        end.waiting.extend(calls)
        if is_first:
            self._deliver(end)

    def _deliver(self, end: SimulatedSocket) -> None:
        if self.is_cut(end.loop.place, end.peer.loop.place):
            self._timeline.after(_RESENT_SECONDS, lambda: self._deliver(end))
            return
        while end.waiting:
            end.waiting.popleft()()


class Listener:
    """Takes connections until it is closed: an `asyncio.Server` as far as production's site needs it."""

    def __init__(self, sockets: Sockets, loop: ProcessLoop, factory: Factory, address: Address) -> None:
        self._sockets = sockets
        self.loop = loop
        self.factory = factory
        self.address = address
        self.sockets: tuple[()] = ()

    def close(self) -> None:
        self._sockets.forget(self)


class SimulatedSocket(asyncio.Transport):
    """One end of a connection."""

    peer: SimulatedSocket

    def __init__(self, sockets: Sockets, loop: ProcessLoop) -> None:
        super().__init__()
        self._sockets: Final = sockets
        self.loop: Final = loop
        self.arrives_at = 0.0
        """The time at which the last bytes sent from here arrive."""
        self.waiting: deque[Call] = deque()
        """Bytes that were sent from here and wait behind a cut."""
        self._protocol: Any = None
        self._inbox: deque[bytes] = deque()
        self._is_reading = True
        self._is_closing = False
        self._is_lost = False

    def begin(self, factory: Factory) -> asyncio.BaseProtocol:
        protocol = self._protocol = factory()
        protocol.connection_made(self)
        self._feed()
        return protocol

    # -- what the process does ----------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or self._is_lost or not data:
            return
        content = bytes(data)
        self._sockets.carry(self, lambda: self.peer.arrive(content), is_data=True)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if not self._is_closing and not self.loop.is_dead:
            self._is_closing = True
            self._sockets.carry(self, self.peer.hear_end, is_data=False)
            self.loop.call_soon(self._lose, None)

    def abort(self) -> None:
        if not self._is_lost and not self.loop.is_dead:
            self._is_closing = True
            self._sockets.carry(self, self.peer.hear_reset, is_data=False)
            self.loop.call_soon(self._lose, None)

    def is_closing(self) -> bool:
        return self._is_closing or self._is_lost

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        if self._inbox:
            self.loop.call_soon(self._feed)

    def is_reading(self) -> bool:
        return self._is_reading

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self.peer.loop.place, 0) if name == "peername" else default

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing: the other end takes whatever comes."""

    def can_write_eof(self) -> bool:
        return False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    # -- what it gets -------------------------------------------------------------------------------------------------

    def arrive(self, data: bytes) -> None:
        self._inbox.append(data)
        self.loop.call_soon(self._feed)

    def hear_end(self) -> None:
        self.loop.call_soon(self._end)

    def hear_reset(self) -> None:
        self.loop.call_soon(self._lose, ConnectionResetError("connection reset by peer"))

    def break_off(self) -> None:
        """The connection breaks; both ends notice."""
        self.hear_reset()
        self.peer.hear_reset()

    def _feed(self) -> None:
        while self._inbox and self._is_reading and self._protocol is not None and not self._is_lost:
            self._protocol.data_received(self._inbox.popleft())

    def _end(self) -> None:
        self._feed()
        if not self._is_lost and self._protocol is not None:
            self._protocol.eof_received()
            self._is_closing = True
            self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self._sockets.drop(self)
        if self._protocol is not None:
            self._protocol.connection_lost(error)


class SimulatedPool(HttpPool):
    """Production's pool, whose connections are those of the running loop."""

    def _connector(self) -> aiohttp.BaseConnector:
        return _Connector(limit=0, limit_per_host=self._connections_max, keepalive_timeout=self._keepalive_seconds)


class _Connector(aiohttp.BaseConnector):
    async def _create_connection(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109  # aiohttp's signature
    ) -> ResponseHandler:
        del traces
        host, port = req.url.host, req.url.port
        assert host is not None
        assert port is not None
        try:
            async with asyncio.timeout(timeout.sock_connect):
                _, protocol = await self._loop.create_connection(self._factory, host, port)
        except TimeoutError:
            raise
        except OSError as error:
            raise aiohttp.ClientConnectorError(req.connection_key, error) from error
        return protocol


def _refuse(connected: asyncio.Future[Any]) -> None:
    if not connected.done():
        connected.set_exception(ConnectionRefusedError("connection refused"))
