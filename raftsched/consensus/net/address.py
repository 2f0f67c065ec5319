"""Parse and resolve addresses of nodes: a host name or IP address, and a port.

Names are resolved at every dial, and never cached: a node can start while names do not resolve yet, and finds a peer
again whose address has changed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from raftsched.errors import Invalid


class Address(NamedTuple):
    """A host (name, IPv4 or IPv6 address) and a TCP port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, *, field: str = "address") -> Address:
        """Read `host:port` or `[ipv6]:port`; raises `Invalid` naming `field`."""
        host, colon, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        host = host[1:-1] if bracketed else host
        if not colon or not host or (":" in host) is not bracketed:
            raise Invalid(f"{field}: {text!r} is not host:port", field=field)
        if not port.isascii() or not port.isdecimal() or len(port) > 5 or int(port) > 65535:
            raise Invalid(f"{field}: {port!r} is not a port", field=field)
        return cls(host, int(port))

    @property
    def is_loopback(self) -> bool:
        """Return whether only this machine can reach it; a name other than `localhost` counts as reachable by others."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


Resolve = Callable[[Address], Awaitable[list[Address]]]
"""Return at least one numeric address; raises OSError for an unknown name."""


async def resolve(address: Address) -> list[Address]:
    """Ask the system's resolver for all addresses of a name, in its order of preference."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise socket.gaierror(socket.EAI_NONAME, f"not a host name: {address.host}") from error
    return list(dict.fromkeys(Address(str(where[0]), int(where[1])) for *_, where in found))
