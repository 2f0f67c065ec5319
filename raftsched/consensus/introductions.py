"""How connections come about: dialing peers, welcoming strangers, and the time both have until each said hello.

A dialer never gives up. Each attempt resolves the peer's name anew and tries the next of its addresses, with a short,
capped, jittered pause between attempts. Connecting, the TLS handshake and both hellos must fit into one
`introduction_seconds`, on either side; what takes longer is closed.

Who may be introduced is the connection's owner to say (`ConnectionOwner.on_hello`).
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from raftsched import limits
from raftsched.consensus.address import Address, Resolve
from raftsched.consensus.complaints import Complaints
from raftsched.consensus.connection import Connection, ConnectionOwner
from raftsched.ports import Randomness


@dataclass(frozen=True, slots=True)
class TransportSettings:
    """Times and bounds of the links; the defaults suit nodes in one region."""

    introduction_seconds: float = 2.0
    """For connecting, the TLS handshake and hello together."""
    silence_seconds: float = 2.0
    """A peer without a byte for this long is cut off; idle links are pinged four times as often."""
    redial_seconds_min: float = 0.05
    redial_seconds_max: float = 0.5
    bind_seconds: float = 1.0
    """How long `start` waits for the node's own address; binding goes on afterwards."""
    peer_buffer_bytes_max: int = limits.PEER_BUFFER_BYTES_MAX
    peer_buffer_bytes_hard_max: int = limits.PEER_BUFFER_BYTES_HARD_MAX
    inbound_bytes_max: int = limits.INBOUND_BYTES_MAX
    strangers_max: int = limits.STRANGERS_MAX


@dataclass(frozen=True, slots=True)
class TlsContexts:
    """Both sides of mutual TLS; a node is a server to some peers and a client to others."""

    server: ssl.SSLContext
    client: ssl.SSLContext


class Introductions:
    """Makes the connections of `owner`; `addresses` is its address book, read at every attempt."""

    def __init__(
        self,
        owner: ConnectionOwner,
        addresses: Mapping[str, Address],
        *,
        settings: TransportSettings,
        tls: TlsContexts | None,
        resolve: Resolve,
        randomness: Randomness,
        complaints: Complaints,
    ) -> None:
        self._owner = owner
        self._addresses = addresses
        self._settings = settings
        self._tls = tls
        self._resolve = resolve
        self._randomness = randomness
        self._complaints = complaints

    async def keep_dialing(self, peer_id: str) -> None:
        """Keep one connection to the peer until cancelled; a connection that stands then is left alone."""
        settings = self._settings
        delay = settings.redial_seconds_min
        for attempt in itertools.count():
            connection = await self._dial(peer_id, attempt)
            if connection is not None:
                delay = settings.redial_seconds_min
                await asyncio.wait({connection.lost})
            await asyncio.sleep(delay * (0.5 + self._randomness.random() / 2))
            delay = min(2 * delay, settings.redial_seconds_max)

    async def _dial(self, peer_id: str, attempt: int) -> Connection | None:
        """Try one of the peer's addresses; return its connection once both sides said hello, else None."""
        target = await self._target(peer_id, attempt)
        if target is None:
            return None
        connection = Connection(self._owner, peer_id=peer_id)
        opening = asyncio.get_running_loop().create_connection(
            lambda: connection,
            target.host,
            target.port,
            ssl=self._tls.client if self._tls is not None else None,
            server_hostname=peer_id if self._tls is not None else None,
        )
        return connection if await self._introduce(connection, opening, f"{peer_id} at {target}") else None

    async def _target(self, peer_id: str, attempt: int) -> Address | None:
        """Return the numeric address to try, or None where there is none now.

        The resolver is waited for without a timeout, because giving up would not free the thread that it holds.
        """
        address = self._addresses.get(peer_id)
        if address is None:
            self._complaints.warn("peer_unreachable", reason="no_address", peer=peer_id)
            return None
        try:
            targets = await self._resolve(address)
        except OSError as error:
            self._complaints.warn("peer_unreachable", reason="unresolved", peer=peer_id, error=str(error))
            return None
        return targets[attempt % len(targets)]

    async def welcome(self, stranger: socket.socket) -> None:
        """Hear who has connected; the connection lives on where it is a peer."""
        connection = Connection(self._owner)
        opening = asyncio.get_running_loop().connect_accepted_socket(
            lambda: connection, stranger, ssl=self._tls.server if self._tls is not None else None
        )
        await self._introduce(connection, opening, "a stranger")

    async def _introduce(self, connection: Connection, opening: Coroutine[Any, Any, object], whom: str) -> bool:
        """Wait for the connection and for the peer's hello; close what is not introduced in time."""
        try:
            async with asyncio.timeout(self._settings.introduction_seconds):
                await opening
                await connection.introduced
        except OSError as error:
            self._complaints.warn("introduction_failed", reason=type(error).__name__, whom=whom, error=str(error))
        finally:
            if not connection.is_introduced:
                connection.abort()
        return connection.is_introduced
