"""What the tests of the transport share: stations (a transport and a record of what it delivered) and raw clients."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from pysyncobj.node import Node

from raftsched.consensus.net.address import Address
from raftsched.consensus.net.framing import FrameDecoder, encode_frame
from raftsched.consensus.net.handshake import TransportSettings
from raftsched.consensus.net.transport import Transport
from raftsched.consensus.raft.messages import Message

CLUSTER = "test"
LOOPBACK = Address("127.0.0.1", 0)
WAIT_SECONDS = 10.0
QUICK = TransportSettings(redial_seconds_min=0.01, redial_seconds_max=0.05)


def hello(node_id: str, *, cluster: str = CLUSTER, version: int = 1) -> bytes:
    return encode_frame({"type": "hello", "node": node_id, "cluster": cluster, "version": version})


def vote(term: int) -> Message:
    """A message that tests tell apart by its term."""
    return {"type": "response_vote", "term": term}


def append(size: int, *, term: int = 1) -> Message:
    return {
        "type": "append_entries",
        "term": term,
        "commit_index": 0,
        "prevLogIdx": 0,
        "prevLogTerm": 0,
        "entries": [[bytes(size), 1, term]],
        "sent_us": 1,
        "wall_ms": 1,
    }


class Station:
    """A transport whose deliveries are written down as ("up", id), ("down", id) and ("got", id, message)."""

    def __init__(self, node_id: str, peers: Iterable[str], wake: Callable[[], None], **options: Any) -> None:
        self.id = node_id
        self.events: list[tuple[Any, ...]] = []
        book = dict.fromkeys(peers, LOOPBACK)
        options = {"cluster": CLUSTER, "settings": QUICK, "address": LOOPBACK, **options}
        self.transport = Transport(node_id, peers=book, wake=wake, **options)
        self.transport.setOnNodeConnectedCallback(lambda node: self.events.append(("up", node.id)))
        self.transport.setOnNodeDisconnectedCallback(lambda node: self.events.append(("down", node.id)))
        self.transport.setOnMessageReceivedCallback(lambda node, got: self.events.append(("got", node.id, got)))

    def send(self, peer_id: str, message: Message) -> bool:
        """Send and flush."""
        sent = self.transport.send(Node(peer_id), message)
        self.transport.flush(early=False)
        return sent

    def terms(self) -> list[int]:
        """The terms of the messages delivered."""
        return [event[2]["term"] for event in self.events if event[0] == "got"]

    def story(self) -> list[Any]:
        """The events in short: "up n2", "down n2", or a message's term."""
        return [event[2]["term"] if event[0] == "got" else " ".join(event) for event in self.events]


class Network:
    """Stations on loopback that find each other, and the pump that steps them."""

    def __init__(self) -> None:
        self.stations: list[Station] = []
        self._woken = asyncio.Event()

    def station(self, node_id: str, peers: Iterable[str], **options: Any) -> Station:
        station = Station(node_id, peers, self._woken.set, **options)
        self.stations.append(station)
        return station

    async def start(self, *stations: Station) -> None:
        """Start the stations and tell each where the others listen."""
        for station in stations or self.stations:
            await station.transport.start()
        for station in self.stations:
            for other in self.stations:
                if other.transport.port:
                    station.transport.set_address(other.id, Address("127.0.0.1", other.transport.port))

    async def mesh(self, *ids: str, **options: Any) -> list[Station]:
        """Start one station for each id and wait until every pair is linked."""
        stations = [self.station(node_id, [other for other in ids if other != node_id], **options) for node_id in ids]
        await self.start()
        await self.until(lambda: all(len(station.transport.connected) == len(ids) - 1 for station in stations))
        return stations

    async def until(self, happened: Callable[[], bool]) -> None:
        """Dispatch whenever there is something to deliver, until it happened."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                self._woken.clear()
                for station in self.stations:
                    station.transport.dispatch()
                if happened():
                    return
                await self._woken.wait()

    async def close(self) -> None:
        for station in self.stations:
            await station.transport.close()


@contextlib.asynccontextmanager
async def network() -> AsyncIterator[Network]:
    made = Network()
    try:
        yield made
    finally:
        await made.close()


class RawClient:
    """A TCP client that says what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_sealed: bool) -> None:
        self.reader = reader
        self.writer = writer
        self._decoder = FrameDecoder(is_sealed=is_sealed)
        self._messages: list[Message] = []

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def read_message(self) -> Message:
        """The next message; fails where the other side closes."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not self._messages:
                data = await self.reader.read(65536)
                assert data, "closed by the other side"
                self._messages = self._decoder.feed(data)
        return self._messages.pop(0)

    async def until_closed(self) -> bytes:
        """All bytes that the other side sent before it closed."""
        received = b""
        async with asyncio.timeout(WAIT_SECONDS):
            try:
                while data := await self.reader.read(65536):
                    received += data
            except (ConnectionError, ssl.SSLError):
                pass
        return received


@contextlib.asynccontextmanager
async def raw_client(
    station: Station, tls: ssl.SSLContext | None = None, *, sni: str = "", is_sealed: bool = False
) -> AsyncIterator[RawClient]:
    """With `is_sealed`, it reads nothing behind the hello."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", station.transport.port, ssl=tls, server_hostname=(sni or station.id) if tls else None
    )
    try:
        yield RawClient(reader, writer, is_sealed=is_sealed)
    finally:
        writer.transport.abort()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
