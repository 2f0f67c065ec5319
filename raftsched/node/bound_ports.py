"""Bind the two ports of a node before its disk is touched.

A port that another process has is then refused while nothing was written. Clients cannot connect before the owner of a
socket listens on it, so they do not wait for a node that is still reading its journal.

The Raft port may be bound later: its name may not resolve yet, or its address may not exist yet, when a machine starts.
"""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from typing import Final

from raftsched.config import NodeConfig
from raftsched.consensus.net.address import Address, Resolve, resolve
from raftsched.errors import RaftschedError

_NOT_HERE: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class PortRefused(RaftschedError):
    """A port can't be bound; nothing was written."""

    code = "port_refused"


@dataclass(frozen=True, slots=True)
class BoundPorts:
    """Sockets that are bound and don't listen."""

    api: tuple[socket.socket, ...]
    raft: tuple[socket.socket, ...]
    """None if the address does not exist yet; the listener keeps trying."""

    def close(self) -> None:
        for bound in (*self.api, *self.raft):
            bound.close()


async def bind_ports(config: NodeConfig, *, resolve: Resolve = resolve) -> BoundPorts:
    """Bind both ports; raises `PortRefused` naming the setting, the address and what to do."""
    api_setting, api = config.api_address
    raft_setting, raft = config.raft_address
    try:
        api_sockets = _bind(api_setting, api, await resolve(api))
    except OSError as error:
        raise PortRefused(f"{api_setting}: {api}: {error.strerror or error}") from error
    if not api_sockets:
        raise PortRefused(
            f"{api_setting}: this machine has no address {api}; set api_listen, for example to 0.0.0.0:{api.port}"
        )
    try:
        return BoundPorts(tuple(api_sockets), tuple(_bind(raft_setting, raft, await resolve(raft))))
    except socket.gaierror:
        return BoundPorts(tuple(api_sockets), ())
    except BaseException:
        BoundPorts(tuple(api_sockets), ()).close()
        raise


def _bind(setting: str, address: Address, numeric: list[Address]) -> list[socket.socket]:
    """Bind each address that this machine has."""
    bound: list[socket.socket] = []
    for each in numeric:
        try:
            bound.append(bind_socket(each))
        except OSError as error:
            if error.errno in _NOT_HERE:
                continue
            for other in bound:
                other.close()
            raise PortRefused(f"{setting}: {address}: {_reason(error)}") from error
    return bound


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the port is in use by another process: stop that one, or choose another port"
    if error.errno == errno.EACCES:
        return "the port may not be bound by this user: choose one above 1023"
    return error.strerror or str(error)


def bind_socket(address: Address) -> socket.socket:
    """Return a socket that is bound to a numeric address, does not block, and does not listen; raises OSError."""
    bound = socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if bound.family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.setblocking(False)
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    return bound
