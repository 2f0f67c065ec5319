"""Links between nodes as proxies: each direction can be cut, and what was sent meanwhile arrives after the heal."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from chaos.drills.backends import Quality, Unfit
from chaos.drills.backends.proxies import Proxies

_SECONDS = 5.0
_NOT_WITHIN = 0.3


def _raft(proxies: Proxies, dialler: int, listener: int) -> tuple[str, int]:
    """The address of a node in the configuration of another."""
    nodes = {node["id"]: node["raft"] for node in tomllib.loads(proxies.config(dialler, {"n1": 1, "n2": 2}))["nodes"]}
    host, _, port = nodes[f"n{listener}"].rpartition(":")
    return host, int(port)


@asynccontextmanager
async def _echo(proxies: Proxies) -> AsyncIterator[None]:
    """Node 2 sends back whatever it gets."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    async with await asyncio.start_server(answer, *_raft(proxies, 2, 2)):
        yield


async def _arrives(reader: asyncio.StreamReader, data: bytes, *, seconds: float) -> bool:
    try:
        return await asyncio.wait_for(reader.readexactly(len(data)), seconds) == data
    except TimeoutError:
        return False


def test_a_link_that_is_cut_in_either_direction_delivers_once_it_is_healed_in_each_drill() -> None:
    proxies = Proxies((1, 2))
    for _ in range(2):  # each drill has an event loop of its own
        asyncio.run(_cut_and_heal(proxies))


async def _cut_and_heal(proxies: Proxies) -> None:
    await proxies.open()
    try:
        async with _echo(proxies):
            reader, writer = await asyncio.open_connection(*_raft(proxies, 1, 2))
            writer.write(b"1")
            assert await _arrives(reader, b"1", seconds=_SECONDS)
            for sender, receiver in ((1, 2), (2, 1)):
                await proxies.cut(sender, receiver)
                writer.write(b"2")
                assert not await _arrives(reader, b"2", seconds=_NOT_WITHIN)
                await proxies.heal()
                assert await _arrives(reader, b"2", seconds=_SECONDS)
            await proxies.cut(2, 1)
            late_reader, late_writer = await asyncio.open_connection(*_raft(proxies, 1, 2))
            late_writer.write(b"3")
            assert not await _arrives(late_reader, b"3", seconds=_NOT_WITHIN)
            await proxies.heal()
            assert await _arrives(late_reader, b"3", seconds=_SECONDS)
            for each in (writer, late_writer):
                each.close()
    finally:
        await proxies.close()


async def test_a_bad_link_delays_and_narrows_a_stream_and_is_refused_if_it_is_to_lose_packets() -> None:
    proxies = Proxies((1, 2))
    await proxies.open()
    try:
        async with _echo(proxies):
            reader, writer = await asyncio.open_connection(*_raft(proxies, 1, 2))
            clock = asyncio.get_running_loop().time
            for quality, data in ((Quality(delay_ms=300), b"1"), (Quality(bytes_per_second=100_000), bytes(60_000))):
                await proxies.worsen({(1, 2): quality})
                began = clock()
                writer.write(data)
                assert await _arrives(reader, data, seconds=_SECONDS)
                assert clock() - began >= _NOT_WITHIN
                await proxies.heal()
            with pytest.raises(Unfit, match="lose no packets"):
                await proxies.worsen({(1, 2): Quality(lost=0.1)})
            writer.close()
    finally:
        await proxies.close()


async def test_a_reset_breaks_connections_that_either_node_dialled_and_no_new_ones() -> None:
    proxies = Proxies((1, 2))
    await proxies.open()
    try:
        async with _echo(proxies):
            for one, other in ((1, 2), (2, 1)):
                reader, writer = await asyncio.open_connection(*_raft(proxies, 1, 2))
                writer.write(b"1")
                assert await _arrives(reader, b"1", seconds=_SECONDS)
                await proxies.reset(one, other)
                with pytest.raises(ConnectionResetError):
                    await asyncio.wait_for(reader.read(1), _SECONDS)
                writer.close()
    finally:
        await proxies.close()
