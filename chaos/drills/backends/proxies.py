"""Nodes on the loopback, and a TCP proxy for each directed link between them: works on any system.

Each node's own configuration names the proxies as the Raft addresses of its peers, so each connection that one node
opens to another goes through the proxy of that pair. A link that is cut keeps what it is given, as TCP would, and
delivers it once it is healed; a connection that is opened meanwhile gets no further. The API of nodes is not behind
proxies: nodes that are cut off from each other still pass requests on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from chaos.drills.backends.port import Backend, Need, Unfit
from raftsched.cli.local.cluster import free_ports

_HOST: Final = "127.0.0.1"
_CHUNK_BYTES: Final = 64 * 1024


class Proxies(Backend):
    name = "proxies"
    about = "processes on the loopback; a proxy for each link of Raft can be cut, the API between nodes can't"
    offers = frozenset({Need.PROCESSES, Need.LINKS})

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = numbers
        ports = iter(free_ports(2 * len(numbers)))
        self._api = {number: next(ports) for number in numbers}
        self._raft = {number: next(ports) for number in numbers}
        self._open_links = {
            (sender, receiver): asyncio.Event() for sender in numbers for receiver in numbers if sender != receiver
        }
        """By (sender, receiver): set while nothing is lost."""
        self._servers: dict[tuple[int, int], asyncio.Server] = {}
        self._pumps: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        for link, is_open in self._open_links.items():
            is_open.set()
            self._servers[link] = await asyncio.start_server(_Door(self, *link).enter, _HOST, 0)

    async def close(self) -> None:
        for server in self._servers.values():
            server.close()
        self._servers.clear()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def config(self, number: int) -> str:
        return "".join(
            f'[[nodes]]\nid = "n{each}"\nraft = "{_HOST}:{self._raft_port(number, each)}"\napi = "{self.api(each)}"\n'
            for each in self._numbers
        )

    def _raft_port(self, dialler: int, listener: int) -> int:
        if dialler == listener:
            return self._raft[listener]
        return int(self._servers[dialler, listener].sockets[0].getsockname()[1])

    def api(self, number: int) -> str:
        return f"{_HOST}:{self._api[number]}"

    def command(self, number: int, *arguments: str) -> list[str]:  # noqa: ARG002  # all are on one host
        return list(arguments)

    async def cut(self, sender: int, receiver: int) -> None:
        self._open_links[sender, receiver].clear()

    async def heal(self) -> None:
        for is_open in self._open_links.values():
            is_open.set()

    def mount_small(self, directory: Path, size_bytes: int) -> None:
        raise Unfit(f"no disk of {size_bytes} bytes at {directory}: this backend has none")

    # -- connections ----------------------------------------------------------------------------------------------------

    async def carry(self, dialler: int, listener: int, near: _Ends) -> None:
        """Carry a connection that one node opened to another, until an end closes it."""
        reader, writer = near
        there, back = self._open_links[dialler, listener], self._open_links[listener, dialler]
        await there.wait()
        await back.wait()  # a handshake needs both directions
        try:
            far_reader, far_writer = await asyncio.open_connection(_HOST, self._raft[listener])
        except OSError:
            writer.transport.abort()
            return
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(_pump(reader, far_writer, there))
                pumps.create_task(_pump(far_reader, writer, back))
        except* OSError:
            pass
        finally:
            writer.transport.abort()
            far_writer.transport.abort()

    def keep(self, pump: asyncio.Task[None]) -> None:
        self._pumps.add(pump)
        pump.add_done_callback(self._pumps.discard)


_Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


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


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_open: asyncio.Event) -> None:
    while data := await reader.read(_CHUNK_BYTES):
        await is_open.wait()
        writer.write(data)
        await writer.drain()
    with suppress(OSError):
        writer.write_eof()
    raise _Closed
