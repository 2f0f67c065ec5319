"""Connect to checked addresses only.

A name is resolved once, each answer is checked, and aiohttp connects to one that passed: it asks nobody else for
addresses of a name. A literal address never gets here: `hops` has checked it. A kept connection leads to an address
that was checked when it was made.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection

from raftsched.executors.http.targets import Targets, literal_address
from raftsched.executors.http.verdicts import TargetRefused

Lookup = Callable[[str, int], Sequence[tuple[Any, ...]]]
"""Resolve a name and port, as `socket.getaddrinfo` does."""
_LOOKUPS_MAX: Final = 32
"""Threads for lookups of names: a name server that hangs must not hold up the lookups of other names."""
_KEEPALIVE_SECONDS: Final = 1.0
"""Shorter than servers keep idle connections. One that the server has just closed would cost the run its attempt."""

peer: ContextVar[str] = ContextVar("raftsched_http_peer", default="")
"""Address of the latest connection of this task."""


class Connector(aiohttp.TCPConnector):
    """A pool of connections; it notes the address of each connection in `peer`."""

    def __init__(self, resolver: AbstractResolver | None) -> None:
        super().__init__(limit=0, resolver=resolver, keepalive_timeout=_KEEPALIVE_SECONDS)

    async def connect(
        self,
        req: ClientRequest,
        traces: list[Any],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109  # a name of aiohttp
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        name = None if connection.transport is None else connection.transport.get_extra_info("peername")
        peer.set(name[0] if name else "")
        return connection


class CheckedResolver(AbstractResolver):
    """Resolve names to the addresses that `targets` allow; raises `TargetRefused` if there is none."""

    def __init__(self, targets: Targets, lookup: Lookup) -> None:
        self._targets = targets
        self._lookup = lookup
        self._threads = ThreadPoolExecutor(_LOOKUPS_MAX, "raftsched-lookup")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        del family  # either: the connector tries them in turn
        found = await asyncio.get_running_loop().run_in_executor(self._threads, self._lookup, host, port)
        checked, faults = [], []
        for each_family, _, proto, _, (name, *_) in found:
            address = literal_address(name)
            fault = f"{name} is no address" if address is None else self._targets.address_fault(host, address, port)
            if fault:
                faults.append(fault)
            else:
                checked.append(
                    ResolveResult(
                        hostname=host,
                        host=name,
                        port=port,
                        family=each_family,
                        proto=proto,
                        flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                    )
                )
        if faults and not checked:
            raise TargetRefused(f"{host}: {faults[0]}")
        return checked

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def lookup_name(host: str, port: int) -> Sequence[tuple[Any, ...]]:
    """Resolve by the operating system."""
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
