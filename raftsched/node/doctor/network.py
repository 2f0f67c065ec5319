"""Check the network of a node: its own ports, and the other nodes, their clocks and their releases."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from raftsched.config import Member, NodeConfig
from raftsched.consensus.net.address import Address, resolve
from raftsched.errors import RaftschedError
from raftsched.exchange import Broken, Exchange, Http, HttpPool, Timeouts
from raftsched.node.bound_ports import bind_socket
from raftsched.node.certificates import own_api_contexts
from raftsched.node.doctor.finding import Finding, fail, ok, skip, warn
from raftsched.node.doctor.listeners import listener_on
from raftsched.wire.cluster import HealthReply, NodeFacts

_SECONDS: Final = 2.0
_OK: Final = 200
_R = TypeVar("_R", bound=msgspec.Struct)
_WIDE_MS: Final = 1_000.0
"""A round trip that takes longer tells nothing of the clock."""


async def network_findings(config: NodeConfig) -> AsyncIterator[Finding]:
    """Check the ports of this node and each other node; a node that does not answer costs some seconds."""
    try:
        contexts = own_api_contexts(config)
    except RaftschedError:
        contexts = None  # reported with the files
    http = HttpPool(tls=contexts.client if contexts else None)
    try:
        own = await _read(http, config.url_of(config.member.api) + "/healthz", {}, HealthReply)
        runs = own is not None and own.node == config.node_id
        for setting, address in (config.api_address, config.raft_address):
            yield await _port(setting, address, runs=runs)
        others = [member for member in config.nodes if member.id != config.node_id]
        found = await asyncio.gather(*(_peer(http, config, member) for member in others))
        for findings in found:
            for finding in findings:
                yield finding
    finally:
        await http.close()


async def _port(setting: str, address: Address, *, runs: bool) -> Finding:
    """Check that the node can bind an address, or has it; `runs` says that the node answers there."""
    check = f"port {address.port}"
    try:
        for numeric in await resolve(address):
            bind_socket(numeric).close()
    except OSError as error:
        owner = listener_on(address.port)
        by = f"process {owner.pid} ({owner.command})" if owner else "a process of another user, or nothing that listens"
        if runs:
            return ok(check, f"{setting} = {address} is in use by this node, which runs: {by}")
        found = f"{setting} = {address}: {error.strerror or error}; it is in use by {by}"
        return fail(check, found, "Stop that process, or choose another port.")
    return ok(check, f"{setting} = {address} is free")


async def _peer(http: Http, config: NodeConfig, member: Member) -> list[Finding]:
    return [await _raft_port(member), *await _api(http, config, member)]


async def _raft_port(member: Member) -> Finding:
    check = f"node {member.id}, raft"
    address = Address.parse(member.raft)
    try:
        async with asyncio.timeout(_SECONDS):
            _, writer = await asyncio.open_connection(address.host, address.port)
    except (OSError, TimeoutError) as error:
        reason = getattr(error, "strerror", None) or str(error) or f"no answer in {_SECONDS:g} s"
        return warn(check, f"{member.raft} can't be reached: {reason}", _unreached("8401"))
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return ok(check, f"{member.raft} accepts connections")


async def _api(http: Http, config: NodeConfig, member: Member) -> list[Finding]:
    """Check that the node answers under its id, and compare its clock and its release with ours."""
    check = f"node {member.id}, API"
    url = config.url_of(member.api)
    began, began_at = time.time(), time.perf_counter()
    try:
        health = await _answer(http, url + "/healthz", {}, HealthReply)
    except (Broken, msgspec.DecodeError) as error:
        return [warn(check, f"{url} does not answer as a node: {error}", _unreached("8400"))]
    round_trip_ms = 1000 * (time.perf_counter() - began_at)
    if health.node != member.id:
        cure = "Correct the addresses in the settings: each node must be reached under its own id."
        return [fail(check, f"{url} answers as node {health.node}", cure)]
    answered = ok(check, f"{url} answers in {round_trip_ms:.0f} ms")
    middle = began + round_trip_ms / 2000
    clock = _clock(member.id, health.time, middle, round_trip_ms, config.max_clock_skew_ms)
    facts = await _read(http, f"{url}/api/v1/cluster/node", _credentials(config), NodeFacts)
    return [answered, clock, _release(member.id, facts)]


def _clock(node_id: str, text: str, middle: float, round_trip_ms: float, skew_ms_max: int) -> Finding:
    check = f"node {node_id}, clock"
    if not text or round_trip_ms > _WIDE_MS:
        return skip(check, "its answer does not tell, or took too long")
    offset_ms = 1000 * (datetime.fromisoformat(text).timestamp() - middle)
    found = f"{offset_ms:+.0f} ms from ours, give or take {round_trip_ms / 2:.0f} ms"
    if abs(offset_ms) > skew_ms_max + round_trip_ms / 2:
        return fail(check, found, f"More than max_clock_skew_ms ({skew_ms_max}): synchronise both clocks.")
    if abs(offset_ms) > skew_ms_max / 2 + round_trip_ms / 2:
        return warn(
            check, found, f"Near max_clock_skew_ms ({skew_ms_max}): look at the synchronisation of both clocks."
        )
    return ok(check, found)


def _release(node_id: str, facts: NodeFacts | None) -> Finding:
    check = f"node {node_id}, release"
    if facts is None:
        return skip(check, "it tells that to admins only")
    own = version("raftsched")
    if facts.release != own:
        return warn(check, f"{facts.release}, and {own} here", "Finish the upgrade, if there is one.")
    return ok(check, facts.release)


def _credentials(config: NodeConfig) -> dict[str, str]:
    """Return the header of an admin, by the file that the settings name."""
    try:
        lines = Path(config.admin_token_file).read_text(encoding="ascii").split() if config.admin_token_file else []
    except (OSError, UnicodeDecodeError):
        return {}  # reported with the files
    return {"Authorization": f"Bearer {lines[0]}"} if lines else {}


async def _read(http: Http, url: str, headers: Mapping[str, str], kind: type[_R]) -> _R | None:
    """Return a document; None if there is none."""
    try:
        return await _answer(http, url, headers, kind)
    except (Broken, msgspec.DecodeError):
        return None


async def _answer(http: Http, url: str, headers: Mapping[str, str], kind: type[_R]) -> _R:
    exchange = Exchange("GET", url, headers=headers)
    reply = await http.send(exchange, Timeouts(_SECONDS, total_seconds=_SECONDS))
    if reply.status != _OK:
        raise Broken(f"status {reply.status}")
    decode: Callable[[bytes], _R] = msgspec.json.Decoder(kind).decode
    return decode(reply.body)


def _unreached(port: str) -> str:
    return f"Start it, or look at names, routes and firewalls (port {port} by default)."
