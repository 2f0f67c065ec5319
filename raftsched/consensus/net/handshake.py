"""Establish connections: dial peers, accept connections, and complete both handshakes within a time limit.

A dialer never gives up. Each attempt resolves the peer's name again and tries the next of its addresses, with a short,
capped, jittered pause between attempts. Connecting, the TLS handshake and both hellos must fit into one
`handshake_seconds`, on either side; otherwise the connection is closed.

The connection's owner accepts or rejects the peer (`ConnectionOwner.on_hello`), by the rule of `objection`. If the
cluster has a secret, each side also proves that it holds it (`link_secret.py`).
`UnknownCallers` handles a caller whose only fault is that it is unknown. A node that should be dialed by a peer, and is
not, dials that peer now and then: the peer may not know it.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
from collections.abc import Callable, Container, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final

from raftsched import limits
from raftsched.consensus.net.address import Address, Resolve
from raftsched.consensus.net.connection import Connection, ConnectionOwner
from raftsched.consensus.net.framing import PROTOCOL_VERSION
from raftsched.consensus.net.throttled_log import ThrottledLog
from raftsched.consensus.raft.messages import PEER_IDENTITY, Message
from raftsched.ports import Randomness
from raftsched.tls.contexts import TlsContexts, reason_of, tls_kind

UNKNOWN_NODE: Final = "unknown_node"
ENDED_IN_HANDSHAKE: Final = "the other side ended the TLS handshake; if it is a node, it does not accept this node's certificate, and its log says why"
UNKNOWN_CALLER_SECONDS: Final = 2.0
"""Longest wait for an unknown caller's message, and the time until the same unknown caller is admitted again."""
_UNKNOWN_CALLERS_MAX: Final = 8
"""Maximum number of unknown callers in any `UNKNOWN_CALLER_SECONDS`."""

MayGreet = Callable[[str], bool]
OnGreeting = Callable[[str, Message], bool]
"""(its id, its greeting) → whether this node links to it from now on."""


@dataclass(frozen=True, slots=True)
class TransportSettings:
    """Times and limits of the links; the defaults suit nodes in one region."""

    handshake_seconds: float = 2.0
    """Time for connecting, the TLS handshake and both hellos together."""
    silence_seconds: float = 2.0
    """A peer without a byte for this long is disconnected; idle links are pinged four times as often."""
    redial_seconds_min: float = 0.05
    redial_seconds_max: float = 0.5
    dial_back_seconds: float = 1.0
    """Interval of checks for a peer that should dial this node; after two checks without a link it is dialed."""
    bind_seconds: float = 1.0
    """Time for which `start` waits for the node's own address; binding continues afterwards."""
    peer_buffer_bytes_max: int = limits.PEER_BUFFER_BYTES_MAX
    peer_buffer_bytes_hard_max: int = limits.PEER_BUFFER_BYTES_HARD_MAX
    inbound_bytes_max: int = limits.INBOUND_BYTES_MAX
    pending_handshakes_max: int = limits.PENDING_HANDSHAKES_MAX


def hello_of(node_id: str, cluster: str) -> Message:
    """Return the first message of a connection, in either direction."""
    return {"type": "hello", "node": node_id, "cluster": cluster, "version": PROTOCOL_VERSION}


def objection(hello: Message, own: Message, *, peers: Container[str], dialed: str | None) -> str | None:
    """Return the reason why the other side is not the peer that it claims to be, or None. `own` is this side's hello.

    `dialed` is the peer that this side has dialed; None on the accepting side. A side without a nonce has no secret.
    """
    claimed = hello["node"]
    if hello["version"] != own["version"]:
        return "wrong_version"
    if ("nonce" in hello) is not ("nonce" in own):
        return "no_secret" if "nonce" in own else "secret_needed"
    if hello["cluster"] != own["cluster"]:
        return "wrong_cluster"
    if dialed is not None and claimed != dialed:
        return "wrong_node"
    if claimed not in peers:
        return UNKNOWN_NODE
    if dialed is None and claimed < own["node"]:
        return "wrong_direction"
    return None


class UnknownCallers:
    """Callers with an unknown id; of each this node reads only one message, its greeting.

    A node that was down while members changed may know none of the present members, and could vote for none of them.
    Their greeting has the list of members (`peer_identity.py`); if that is newer, this node links to them as to any
    peer. An unknown caller receives only this node's hello, and its connection ends after its greeting.
    """

    def __init__(self) -> None:
        self._may_greet: MayGreet = lambda _node_id: False
        self._on_greeting: OnGreeting = lambda _node_id, _greeting: False
        self._refused_until: dict[str, float] = {}
        """The time at which each recent unknown caller may be admitted again."""

    def open(self, may_greet: MayGreet, on_greeting: OnGreeting) -> None:
        """Admit unknown callers from now on."""
        self._may_greet, self._on_greeting = may_greet, on_greeting

    def admit(self, node_id: str, now: float) -> bool:
        """Return whether to admit a caller to which the only `objection` is that it is unknown."""
        self._refused_until = {caller: until for caller, until in self._refused_until.items() if until > now}
        if (
            node_id in self._refused_until
            or len(self._refused_until) >= _UNKNOWN_CALLERS_MAX
            or not self._may_greet(node_id)
        ):
            return False
        self._refused_until[node_id] = now + UNKNOWN_CALLER_SECONDS
        return True

    def receive(self, node_id: str, message: Message) -> bool:
        """Process an unknown caller's message; return whether this node links to it from now on."""
        return message["type"] == PEER_IDENTITY and self._on_greeting(node_id, message)


class Handshakes:
    """Establishes the connections of `owner`; `addresses` is its address book, read at every attempt."""

    def __init__(
        self,
        owner: ConnectionOwner,
        addresses: Mapping[str, Address],
        *,
        settings: TransportSettings,
        tls: TlsContexts | None,
        is_sealed: bool = False,
        resolve: Resolve,
        randomness: Randomness,
        throttled_log: ThrottledLog,
    ) -> None:
        self._owner = owner
        self._is_sealed = is_sealed
        self._addresses = addresses
        self._settings = settings
        self._tls = tls
        self._resolve = resolve
        self._randomness = randomness
        self._throttled_log = throttled_log

    async def keep_dialing(self, peer_id: str) -> None:
        """Keep one connection to the peer until cancelled; an open connection is not closed then."""
        settings = self._settings
        delay = settings.redial_seconds_min
        for attempt in itertools.count():
            connection = await self._dial(peer_id, attempt)
            if connection is not None:
                delay = settings.redial_seconds_min
                await asyncio.wait({connection.lost})
            await asyncio.sleep(delay * (0.5 + self._randomness.random() / 2))
            delay = min(2 * delay, settings.redial_seconds_max)

    async def keep_dialing_back(self, peer_id: str, is_linked: Callable[[], bool]) -> None:
        """Dial a peer that should dial this node but has not for a while: it may not know this node."""
        is_away = False
        for attempt in itertools.count():
            await asyncio.sleep(self._settings.dial_back_seconds * (0.5 + self._randomness.random() / 2))
            was_away, is_away = is_away, not is_linked()
            if was_away and is_away:
                connection = await self._dial(peer_id, attempt)
                if connection is not None:
                    await asyncio.wait({connection.lost})

    async def _dial(self, peer_id: str, attempt: int) -> Connection | None:
        """Try one of the peer's addresses; return its connection once both sides said hello, else None."""
        target = await self._target(peer_id, attempt)
        if target is None:
            return None
        connection = Connection(self._owner, peer_id=peer_id, is_sealed=self._is_sealed)
        opening = asyncio.get_running_loop().create_connection(
            lambda: connection,
            target.host,
            target.port,
            ssl=self._tls.client if self._tls is not None else None,
            server_hostname=peer_id if self._tls is not None else None,
        )
        return connection if await self._shake_hands(connection, opening, peer=peer_id, remote=str(target)) else None

    async def _target(self, peer_id: str, attempt: int) -> Address | None:
        """Return the numeric address to try; None if there is none now.

        The resolver has no timeout, because giving up would not free its thread.
        """
        address = self._addresses.get(peer_id)
        if address is None:
            self._throttled_log.warn("peer_unreachable", reason="no_address", peer=peer_id)
            return None
        try:
            targets = await self._resolve(address)
        except OSError as error:
            self._throttled_log.warn("peer_unreachable", reason="unresolved", peer=peer_id, error=str(error))
            return None
        return targets[attempt % len(targets)]

    async def on_accepted(self, incoming: socket.socket) -> None:
        """Complete the handshake of an accepted socket; the connection stays open if it is a peer."""
        connection = Connection(self._owner, is_sealed=self._is_sealed)
        try:
            remote = str(Address(*incoming.getpeername()[:2]))
        except OSError:
            remote = "unknown"  # it is closed already
        opening = asyncio.get_running_loop().connect_accepted_socket(
            lambda: connection, incoming, ssl=self._tls.server if self._tls is not None else None
        )
        await self._shake_hands(connection, opening, remote=remote)

    async def _shake_hands(self, connection: Connection, opening: Coroutine[Any, Any, object], **whom: str) -> bool:
        """Wait for the connection and for the peer's hello; close the connection if they take too long.

        A cancelled opening has failed, even if the peer has sent hello meanwhile: the event loop has closed its socket.
        `whom` is for the log.
        """
        is_open = False
        try:
            async with asyncio.timeout(self._settings.handshake_seconds):
                await opening
                is_open = True
                await connection.identified
        except ssl.SSLError as error:
            self._throttled_log.warn("tls_refused", reason=tls_kind(error), error=reason_of(error), **whom)
        except TimeoutError:
            waited = "no hello" if is_open else "no connection"
            error_text = f"{waited} within {self._settings.handshake_seconds:g} s"
            self._throttled_log.warn("handshake_failed", reason="timeout", error=error_text, **whom)
        except ConnectionError as error:
            # The event loops send no TLS alert: the rejected side only sees that the handshake ends.
            in_handshake = self._tls is not None and not isinstance(error, ConnectionRefusedError)
            text = f"{str(error) or 'closed'}: {ENDED_IN_HANDSHAKE}" if in_handshake else str(error)
            self._throttled_log.warn("handshake_failed", reason=type(error).__name__, error=text, **whom)
        except OSError as error:
            self._throttled_log.warn("handshake_failed", reason=type(error).__name__, error=str(error), **whom)
        finally:
            if not (is_open and connection.is_identified):
                connection.abort()
        return connection.is_identified and not connection.is_over
