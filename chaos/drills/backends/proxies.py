"""Nodes on the loopback, and a TCP proxy for each directed link between them: works on any system.

Each node's own configuration names the proxies as the Raft addresses of its peers, so each connection that one node
opens to another goes through the proxy of that pair. A link that is cut keeps what it is given, as TCP would, and
delivers it once it is healed; a connection that is opened meanwhile gets no further. A bad link delays streams and limits
their bandwidth; it can't lose packets. The API of nodes is not behind proxies: nodes that are cut off from each other
still pass requests on.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Final

from chaos.drills.backends.local_process import LocalProcess
from chaos.drills.backends.port import Backend, Launch, Need, NodeProcess, Unfit
from chaos.drills.backends.quality import BACKLOG_SECONDS_MAX, Link, Quality
from raftsched.cli.local.cluster import free_ports

_HOST: Final = "127.0.0.1"
_CHUNK_BYTES: Final = 16 * 1024
_CHUNKS_MAX: Final = 256
"""On their way in one direction of a connection; beyond that its sender is held back."""
_RST_AT_CLOSE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER without a time."""


class Proxies(Backend):
    name = "proxies"
    about = "processes on the loopback; a proxy for each link of Raft can be cut, the API between nodes can't"
    offers = frozenset({Need.PROCESSES, Need.RELEASES, Need.NAMES, Need.ISOLATION, Need.LINKS, Need.SLOW_LINKS})

    def __init__(self, numbers: Sequence[int]) -> None:
        ports = iter(free_ports(2 * len(numbers)))
        self._api = {number: next(ports) for number in numbers}
        self._raft = {number: next(ports) for number in numbers}
        self._links = tuple(permutations(numbers, 2))
        """(sender, receiver) of each."""
        self._ways: dict[tuple[int, int], _Way] = {}
        self._servers: dict[tuple[int, int], asyncio.Server] = {}
        self._pumps: set[asyncio.Task[None]] = set()
        self._random = Random(1)

    def end(self) -> None:
        """Do nothing: all was made by `open`."""

    async def open(self) -> None:
        self._ways = {link: _Way() for link in self._links}  # made here, since each drill has an event loop of its own
        for link in self._links:
            self._servers[link] = await asyncio.start_server(_Door(self, *link).enter, _HOST, 0)

    async def close(self) -> None:
        for server in self._servers.values():
            server.close()
        self._servers.clear()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def config(self, number: int, hosts: Mapping[str, int]) -> str:
        return "".join(
            f'[[nodes]]\nid = "{node}"\nraft = "{_HOST}:{self._raft_port(number, host)}"\napi = "{self.api(host)}"\n'
            for node, host in hosts.items()
        )

    def addresses(self, number: int) -> tuple[str, str]:
        return f"{_HOST}:{self._raft[number]}", self.api(number)

    def _raft_port(self, dialler: int, listener: int) -> int:
        if dialler == listener:
            return self._raft[listener]
        return int(self._servers[dialler, listener].sockets[0].getsockname()[1])

    def api(self, number: int) -> str:
        return f"{_HOST}:{self._api[number]}"

    def start(self, number: int, launch: Launch) -> NodeProcess:  # noqa: ARG002  # all are on one host
        return LocalProcess(launch)

    async def cut(self, sender: int, receiver: int) -> None:
        self._ways[sender, receiver].is_open.clear()

    async def worsen(self, links: Mapping[tuple[int, int], Quality]) -> None:
        for link, quality in links.items():
            if quality.drops_packets:
                raise Unfit("proxies lose no packets")
            self._ways[link].link = Link(quality, self._random)

    async def reset(self, one: int, other: int) -> None:
        for link in ((one, other), (other, one)):
            for connection in tuple(self._ways[link].connections):
                _reset(connection)

    async def heal(self) -> None:
        for way in self._ways.values():
            way.heal()

    def mount_small(self, directory: Path, size_bytes: int) -> None:
        raise Unfit(f"no disk of {size_bytes} bytes at {directory}: this backend has none")

    # -- connections ----------------------------------------------------------------------------------------------------

    async def carry(self, dialler: int, listener: int, near: _Ends) -> None:
        """Carry a connection that one node opened to another, until an end closes it."""
        reader, writer = near
        there, back = self._ways[dialler, listener], self._ways[listener, dialler]
        for way in (there, back):  # a handshake needs both directions
            await way.crossed(0)
        try:
            far_reader, far_writer = await asyncio.open_connection(_HOST, self._raft[listener])
        except OSError:
            writer.transport.abort()
            return
        there.connections |= {writer, far_writer}
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(_pump(reader, far_writer, there))
                pumps.create_task(_pump(far_reader, writer, back))
        except* OSError:
            pass
        finally:
            there.connections -= {writer, far_writer}
            writer.transport.abort()
            far_writer.transport.abort()

    def keep(self, pump: asyncio.Task[None]) -> None:
        self._pumps.add(pump)
        pump.add_done_callback(self._pumps.discard)


_Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Way:
    """One direction between two nodes."""

    def __init__(self) -> None:
        self.is_open: Final = asyncio.Event()
        """Set while the way is not cut."""
        self.connections: set[asyncio.StreamWriter] = set()
        """Both ends of what its sender dialled."""
        self.link = _PERFECT
        self.heal()

    def heal(self) -> None:
        self.is_open.set()
        self.link = _PERFECT

    async def sent(self, size: int) -> float:
        """Send so many bytes, once those before have left; return when they arrive."""
        now = asyncio.get_running_loop().time()
        if (backlog := self.link.backlog_seconds(now)) > BACKLOG_SECONDS_MAX:
            await asyncio.sleep(backlog - BACKLOG_SECONDS_MAX)
        return self.link.arrivals(size, asyncio.get_running_loop().time())[0]

    async def arrived(self, at: float) -> None:
        """Wait until a moment, and for as long as the way is cut."""
        if (seconds := at - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(seconds)
        await self.is_open.wait()

    async def crossed(self, size: int) -> None:
        await self.arrived(await self.sent(size))


_PERFECT: Final = Link(Quality(), Random(0))


class _Door:
    """The listener of one link."""

    def __init__(self, proxies: Proxies, dialler: int, listener: int) -> None:
        self._proxies = proxies
        self._dialler = dialler
        self._listener = listener

    def enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        carried = self._proxies.carry(self._dialler, self._listener, (reader, writer))
        self._proxies.keep(asyncio.create_task(carried))


class _Closed(OSError):
    """One end closed the connection."""


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: _Way) -> None:
    """Carry one direction of a connection; what is on its way does not hold back what follows."""
    flying: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_CHUNKS_MAX)

    async def land() -> None:
        while True:
            at, data = await flying.get()
            await way.arrived(at)
            if not data:
                break
            writer.write(data)
            await writer.drain()
        with suppress(OSError):
            writer.write_eof()
        raise _Closed

    async with asyncio.TaskGroup() as both:
        both.create_task(land())
        data = b"any"
        while data:
            data = await reader.read(_CHUNK_BYTES)
            await flying.put((await way.sent(len(data)), data))


def _reset(connection: asyncio.StreamWriter) -> None:
    """Close a connection so that its peer gets RST, and so does the other end when its pumps end."""
    end = connection.get_extra_info("socket")
    if end is not None and end.fileno() >= 0:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST_AT_CLOSE)
    connection.transport.abort()
