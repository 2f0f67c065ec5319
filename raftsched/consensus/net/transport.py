"""Link nodes: a transport for pysyncobj over asyncio, in place of its own, which unpickles data of any sender.

    send ──► encode ──► the peer's queue ──flush──► one write to its socket
    socket ──► frames, checked ──► inbox ──dispatch──► the engine's callbacks

- Each pair has one TCP connection; the node with the greater id dials. The dialer sends its hello first. The other side
  answers only a hello that it accepts: known id, same cluster, same protocol version, and with TLS a certificate of
  exactly that id. Another caller learns nothing, uses little memory, and is closed after `handshake_seconds`.
- With a cluster secret, a peer is linked only after it has proved that it holds it, and every frame has a MAC
  (`link_secret.py`).
- A caller whose only fault is that it is unknown may send one message (`handshake.UnknownCallers`); the engine sees no
  link.
- A dialer never gives up; it resolves the peer's name again at each attempt (`handshake.py`).
- A new connection of a peer replaces the old one, an accepted one as soon as the peer says more than hello: a dialer that
  wanted another node at this address hangs up before. Later messages of the old one are dropped, and the engine gets `down`
  and `up` in their order among the messages.
- The engine is stepped: only `dispatch` calls it, and its messages are sent at `flush`. Both directions have limits in
  bytes: a peer that does not read loses messages that Raft repeats, and then its connection; a peer that sends faster
  than the engine reads is not read for a while.
- An idle link carries pings, and a silent one is closed: after a partition, a new connection is open long before TCP
  would send again on the old one.

Time comes from the event loop only. Left out: read-only nodes and utility commands of pysyncobj (membership is an
operation of the API), forwarding of commands (the HTTP API forwards), and any delivery guarantee: Raft needs none.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import structlog
from pysyncobj.node import Node
from pysyncobj.transport import Transport as PysyncobjTransport

from raftsched.consensus.net.address import Address, Resolve, resolve
from raftsched.consensus.net.connection import Connection
from raftsched.consensus.net.framing import FrameError, Shape, check_message, encode_frame
from raftsched.consensus.net.handshake import (
    ENDED_IN_HANDSHAKE,
    UNKNOWN_CALLER_SECONDS,
    UNKNOWN_NODE,
    Handshakes,
    TransportSettings,
    UnknownCallers,
    hello_of,
    objection,
)
from raftsched.consensus.net.link_secret import LinkSeal, with_nonce
from raftsched.consensus.net.listener import Listener
from raftsched.consensus.net.throttled_log import ThrottledLog
from raftsched.consensus.raft.messages import Message
from raftsched.consensus.raft.peer_node import PeerNode
from raftsched.limits import LINKS_CLOSE_SECONDS_MAX
from raftsched.ports import Randomness, Wake
from raftsched.system import system_randomness
from raftsched.tls.contexts import TlsContexts
from raftsched.tls.names import certificate_names, is_certified

_SILENT_TICKS_MAX: Final = 4
_WRONG_CERTIFICATE: Final = "wrong_certificate"
_log = structlog.get_logger()

VerifyPeer = Callable[[Mapping[str, object] | None, str], bool]
"""(the peer's verified certificate, the id that it claims) → whether the certificate was issued to that id."""


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """The current state of a link."""

    node_id: str
    is_connected: bool
    unsent_bytes: int
    dropped_count: int
    """Messages dropped since the start because the peer was too slow."""


class _Event(Enum):
    UP = "up"
    DOWN = "down"


class _Peer:
    __slots__ = ("connection", "dialer", "dropped_count", "is_removed", "is_up", "node")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.connection: Connection | None = None
        self.dialer: asyncio.Task[None] | None = None
        self.dropped_count = 0
        self.is_up = False  # as the engine knows it
        self.is_removed = False


class Transport(PysyncobjTransport):  # type: ignore[misc]  # pysyncobj has no types
    """The links of node `node_id`, which listens on `address`, to `peers`, all of the cluster named `cluster`.

    `sockets`, if given, are bound to `address` already. `wake` is called when `dispatch` has something to deliver. TLS
    is used if both contexts are given; then `verify_peer` checks that a certificate belongs to an id. With
    `secrets`, each side of a link proves that it holds one of the other's.
    """

    def __init__(
        self,
        node_id: str,
        address: Address,
        peers: Mapping[str, Address],
        *,
        cluster: str,
        wake: Wake,
        ssl_server: ssl.SSLContext | None = None,
        ssl_client: ssl.SSLContext | None = None,
        verify_peer: VerifyPeer | None = None,
        secrets: Sequence[bytes] = (),
        settings: TransportSettings | None = None,
        randomness: Randomness | None = None,
        resolve: Resolve = resolve,
        sockets: Sequence[socket.socket] = (),
    ) -> None:
        super().__init__(None, None, None)
        if (ssl_server is None) is not (ssl_client is None):
            raise ValueError("TLS between nodes needs both contexts")
        self.node_id = node_id
        self._address = address
        self._addresses = dict(peers)
        self._wake = wake
        self._tls = TlsContexts(ssl_server, ssl_client) if ssl_server is not None and ssl_client is not None else None
        self._verify_peer = verify_peer or is_certified
        self._secrets = tuple(secrets)
        self._settings = settings = settings or TransportSettings()
        self._resolve = resolve
        self._sockets = sockets
        self._throttled_log = ThrottledLog(node=node_id)
        self._handshakes = Handshakes(
            self,
            self._addresses,
            settings=settings,
            tls=self._tls,
            is_sealed=bool(secrets),
            resolve=resolve,
            randomness=randomness or system_randomness(),
            throttled_log=self._throttled_log,
        )
        self._hello = hello_of(node_id, cluster)
        self._peers: dict[str, _Peer] = {}
        self.unknown_callers = UnknownCallers()
        """The engine opens it."""
        self._silent_callers: dict[Connection, float] = {}
        """Unknown callers without a message yet, and the time by which they must send one."""
        self._unconfirmed: dict[str, Connection] = {}
        """Id of a linked peer -> its newest connection, if that has said no more than hello."""
        self._greetings: deque[tuple[Connection, Message]] = deque()
        self._inbox: deque[tuple[_Peer, Message | _Event]] = deque()
        self._inbox_bytes = 0
        self._paused: set[Connection] = set()
        self._encoded: tuple[Message, Shape, bytes] | None = None
        self._has_queued = False
        """Something may wait for a flush."""
        self._open: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ticker: asyncio.TimerHandle | None = None
        self._failure: BaseException | None = None
        self._listener: Listener | None = None
        self._is_closed = False
        for peer_id in peers:
            self.addNode(PeerNode(peer_id))

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen and dial; return once the port is bound, or after `bind_seconds` if its name does not resolve.

        Raises OSError if the address cannot be bound, for example for a port in use; `close` must still be called.
        """
        if self._tls is None and not self._address.is_loopback:
            _log.warning(
                "peer_port_without_tls",
                node=self.node_id,
                address=str(self._address),
                secret=bool(self._secrets),
            )
        self._listener = Listener(
            self._address,
            self._handshakes.on_accepted,
            resolve=self._resolve,
            pending_handshakes_max=self._settings.pending_handshakes_max,
            throttled_log=self._throttled_log,
            sockets=self._sockets,
        )
        listening = self._spawn(self._listener.run())
        for peer in self._peers.values():
            self._start_dialer(peer)
        self._tick()
        await asyncio.wait(
            {listening, self._listener.bound},
            timeout=self._settings.bind_seconds,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if listening.done():
            listening.result()

    def replace_secrets(self, secrets: Sequence[bytes]) -> None:
        """Use other secrets for new links; a transport without secrets gets none, and one with secrets keeps some."""
        assert bool(secrets) is bool(self._secrets)
        self._secrets = tuple(secrets)

    async def close(self) -> None:
        """Close all sockets and end all tasks; nothing is delivered any more. Unsent messages are lost."""
        self.destroy()
        if self._tasks:
            _, stuck = await asyncio.wait(self._tasks, timeout=LINKS_CLOSE_SECONDS_MAX)
            if stuck:
                _log.error("transport_tasks_left", node=self.node_id, tasks=[repr(task.get_coro()) for task in stuck])

    def destroy(self) -> None:
        """Begin to close; pysyncobj calls it. `close` must still be called."""
        self._is_closed = True
        if self._ticker is not None:
            self._ticker.cancel()
        for task in self._tasks:
            task.cancel()
        for connection in list(self._open):
            connection.abort()
        self._inbox.clear()
        self._greetings.clear()

    @property
    def port(self) -> int:
        """Return the port that this node listens on; 0 while it is not bound."""
        return self._listener.port if self._listener is not None else 0

    @property
    def connected(self) -> frozenset[str]:
        """Return the ids of the linked peers; the engine may be notified of a change a moment later."""
        return frozenset(peer_id for peer_id, peer in self._peers.items() if peer.connection is not None)

    def peer_status(self) -> list[PeerStatus]:
        return [
            PeerStatus(
                peer_id,
                is_connected=peer.connection is not None,
                unsent_bytes=peer.connection.unsent_bytes if peer.connection is not None else 0,
                dropped_count=peer.dropped_count,
            )
            for peer_id, peer in self._peers.items()
        ]

    # -- members -------------------------------------------------------------------------------------------------------

    def set_address(self, node_id: str, address: Address) -> None:
        """Set the address of a node, before or after `addNode`; an open link is not changed."""
        self._addresses[node_id] = address

    def addNode(self, node: Node) -> None:  # noqa: N802  # pysyncobj's name
        """Link to `node`; adding it twice changes nothing. Without an address, the link waits for `set_address`."""
        if node.id in self._peers or node.id == self.node_id:
            return
        peer = self._peers[node.id] = _Peer(node)
        if self._listener is not None:
            self._start_dialer(peer)

    def dropNode(self, node: Node) -> None:  # noqa: N802  # pysyncobj's name
        """Close the link to `node`: no message of it is delivered any more, only `down` if the engine knows it as up."""
        peer = self._peers.get(node.id)
        if peer is None:
            return
        if peer.connection is not None:
            self._cut(peer.connection, "removed")
        if peer.dialer is not None:
            peer.dialer.cancel()
        peer.is_removed = True
        del self._peers[node.id]

    # -- the engine's side ---------------------------------------------------------------------------------------------

    def send(self, node: Node, message: Message) -> bool:
        """Queue `message` until the next flush; return False if it can't be sent: no link, or the peer is too slow.

        The message must not change afterwards: the same object sent to several peers is encoded once. Raises
        `FrameError`, with nothing queued, for a message that no peer would accept.
        """
        peer = self._peers.get(node.id)
        if peer is None or peer.connection is None:
            return False
        encoded = self._encoded
        if encoded is None or encoded[0] is not message:
            encoded = self._encoded = (message, check_message(message), encode_frame(message))
        _, shape, frame = encoded
        unsent_bytes = peer.connection.unsent_bytes
        if unsent_bytes > self._settings.peer_buffer_bytes_max and not self._has_room(peer, shape, unsent_bytes):
            return False
        peer.connection.queue(frame, early=shape.early)
        self._has_queued = True
        return True

    def _has_room(self, peer: _Peer, shape: Shape, unsent_bytes: int) -> bool:
        """Return whether a message may still be queued for a slow peer; beyond the hard limit its link is closed."""
        if shape.droppable:
            peer.dropped_count += 1
            self._throttled_log.warn(
                "messages_dropped", reason="slow_peer", peer=peer.node.id, unsent_bytes=unsent_bytes
            )
            return False
        if peer.connection is not None and unsent_bytes > self._settings.peer_buffer_bytes_hard_max:
            self._cut(peer.connection, "overflow")
            return False
        return True

    def flush(self, *, early: bool) -> None:
        """Write the queued messages, one write per peer; with `early`, only those allowed before the own log is
        synced.
        """
        if not self._has_queued:
            return
        for peer in self._peers.values():
            if peer.connection is not None:
                peer.connection.flush(early=early)
        if not early:
            self._encoded = None
            self._has_queued = False

    def dispatch(self) -> int:
        """Deliver all received messages and events to the engine, in order, and return their number.

        Raises the error that ended one of the transport's tasks: then the node must stop.
        """
        if self._failure is not None:
            raise self._failure
        inbox = self._inbox
        count = 0
        while self._greetings:
            self._receive_greeting(*self._greetings.popleft())
            count += 1
        while inbox:
            self._deliver(*inbox.popleft())
            count += 1
        self._inbox_bytes = 0
        while self._paused:
            self._paused.pop().resume_reading()
        return count

    def _deliver(self, peer: _Peer, item: Message | _Event) -> None:
        if item is _Event.DOWN:
            if peer.is_up:
                peer.is_up = False
                self._onNodeDisconnected(peer.node)
        elif peer.is_removed:
            return
        elif item is _Event.UP:
            peer.is_up = True
            self._onNodeConnected(peer.node)
        else:
            self._onMessageReceived(peer.node, item)

    def _receive_greeting(self, connection: Connection, message: Message) -> None:
        """Deliver an unknown caller's message to the engine, and close the connection: a new peer is linked anyway."""
        if connection.peer_id not in self._peers and not self.unknown_callers.receive(connection.peer_id, message):
            self._warn_of(connection, connection.peer_id, UNKNOWN_NODE)
        connection.abort()

    # -- the connections' side -----------------------------------------------------------------------------------------

    def on_open(self, connection: Connection) -> None:
        self._open.add(connection)
        connection.own_hello = with_nonce(self._hello) if self._secrets else self._hello
        if self._is_closed:
            connection.abort()
        elif connection.dialed:
            connection.send_now(connection.own_hello)

    def on_hello(self, connection: Connection, hello: Message) -> bool:
        claimed = hello["node"]
        objection = self._objection(connection, hello)
        if objection is not None and not (objection == UNKNOWN_NODE and self._may_be_unknown(connection, claimed)):
            self._warn_of(connection, claimed, objection)
            connection.abort()
            return False
        connection.peer_id = claimed
        if self._secrets:
            if not connection.dialed:
                connection.send_now(connection.own_hello)
            connection.secure(LinkSeal(self._secrets, own=connection.own_hello, other=hello, dialed=connection.dialed))
        return not connection.is_over

    def on_identified(self, connection: Connection) -> bool:
        peer = self._peers.get(connection.peer_id)
        if peer is None:
            return self._admit_unknown(connection)
        self._answer(connection)
        if connection.is_over:
            return False
        if peer.connection is not None and not connection.dialed and not self._secrets:
            former = self._unconfirmed.get(connection.peer_id)
            self._unconfirmed[connection.peer_id] = connection
            if former is not None:
                former.abort()
        else:
            self._link(peer, connection)
        return True

    def _link(self, peer: _Peer, connection: Connection) -> None:
        if peer.connection is not None:
            self._cut(peer.connection, "replaced")
        peer.connection = connection
        self._post(peer, _Event.UP)
        _log.info("peer_up", node=self.node_id, peer=connection.peer_id, remote=connection.remote)

    def _answer(self, connection: Connection) -> None:
        """Send the hello to a caller that is accepted now; with a secret it has it already."""
        if not connection.dialed and not self._secrets:
            connection.send_now(connection.own_hello)

    def _objection(self, connection: Connection, hello: Message) -> str | None:
        """Return the reason why the other side of `connection` is not the peer that it claims to be, or None."""
        dialed = connection.peer_id if connection.dialed else None
        reason = objection(hello, connection.own_hello, peers=self._peers, dialed=dialed)
        if reason is None and self._tls is not None:
            return None if self._verify_peer(connection.certificate, hello["node"]) else _WRONG_CERTIFICATE
        return reason

    def _may_be_unknown(self, connection: Connection, claimed: str) -> bool:
        """Return whether an unknown caller may continue: with TLS, only under the name of its certificate."""
        return not connection.dialed and (self._tls is None or self._verify_peer(connection.certificate, claimed))

    def _admit_unknown(self, connection: Connection) -> bool:
        """Admit an unknown caller, if there is a place for one; else refuse it."""
        now = asyncio.get_running_loop().time()
        if connection.dialed or not self.unknown_callers.admit(connection.peer_id, now):
            self._warn_of(connection, connection.peer_id, UNKNOWN_NODE)
            connection.abort()
            return False
        self._silent_callers[connection] = now + UNKNOWN_CALLER_SECONDS
        self._answer(connection)
        return True

    def _warn_of_silence(self, connection: Connection) -> None:
        """Warn that the peer closed before its hello: so it rejects a node, or with TLS 1.3 a certificate."""
        refused = "it refused this node: its log says why"
        self._throttled_log.warn(
            "peer_unreachable",
            reason="closed_without_greeting",
            peer=connection.peer_id,
            remote=connection.remote,
            error=ENDED_IN_HANDSHAKE if self._tls is not None else refused,
        )

    def _warn_of(self, connection: Connection, claimed: str, reason: str) -> None:
        fields = {"claimed": f"{claimed!a:.80}", "remote": connection.remote}
        if reason == _WRONG_CERTIFICATE:
            fields["certified"] = ", ".join(sorted(certificate_names(connection.certificate))) or "no DNS name"
        self._throttled_log.warn("peer_refused", reason=reason, **fields)

    def on_messages(self, connection: Connection, messages: list[Message], byte_count: int) -> None:
        if connection in self._silent_callers:
            self._on_unknown_messages(connection, messages)
            return
        peer = self._peers.get(connection.peer_id)
        if peer is not None and self._unconfirmed.get(connection.peer_id) is connection:
            del self._unconfirmed[connection.peer_id]
            self._link(peer, connection)
        if peer is None or peer.connection is not connection or self._is_closed:
            return
        for message in messages:
            if message["type"] != "ping":
                self._post(peer, message)
        self._inbox_bytes += byte_count
        if self._inbox_bytes > self._settings.inbound_bytes_max and self._inbox:
            self._paused.add(connection)
            connection.pause_reading()

    def _on_unknown_messages(self, connection: Connection, messages: list[Message]) -> None:
        said = [message for message in messages if message["type"] != "ping"]
        if said and not self._is_closed:
            del self._silent_callers[connection]
            self._greetings.append((connection, said[0]))
            self._wake()

    def on_bad_bytes(self, connection: Connection, error: FrameError) -> None:
        self._throttled_log.warn("bad_bytes", reason=error.code, remote=connection.remote, error=str(error))
        self._cut(connection, "bad_bytes")

    def on_lost(self, connection: Connection) -> None:
        self._open.discard(connection)
        self._paused.discard(connection)
        if self._unconfirmed.get(connection.peer_id) is connection:
            del self._unconfirmed[connection.peer_id]
        self._silent_callers.pop(connection, None)
        if connection.dialed and not connection.identified.done():
            self._warn_of_silence(connection)
        self._detach(connection, "closed")

    def _cut(self, connection: Connection, reason: str) -> None:
        self._detach(connection, reason)
        connection.abort()

    def _detach(self, connection: Connection, reason: str) -> None:
        """Ignore `connection` from now on, and note that its peer is down."""
        peer = self._peers.get(connection.peer_id)
        if peer is not None and peer.connection is connection:
            peer.connection = None
            self._post(peer, _Event.DOWN)
            _log.info("peer_down", node=self.node_id, peer=connection.peer_id, reason=reason)

    def _post(self, peer: _Peer, item: Message | _Event) -> None:
        if not self._is_closed:
            self._inbox.append((peer, item))
            self._wake()

    def _tick(self) -> None:
        """Ping idle links, and close silent links and unknown callers; the next tick is scheduled first."""
        loop = asyncio.get_running_loop()
        self._ticker = loop.call_later(self._settings.silence_seconds / _SILENT_TICKS_MAX, self._tick)
        for peer in self._peers.values():
            connection = peer.connection
            if connection is not None and connection.tick() > _SILENT_TICKS_MAX:
                self._cut(connection, "silent")
        for caller in [caller for caller, until in self._silent_callers.items() if until <= loop.time()]:
            caller.abort()

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def _start_dialer(self, peer: _Peer) -> None:
        if self._is_closed:
            return
        if self.node_id > peer.node.id:
            peer.dialer = self._spawn(self._handshakes.keep_dialing(peer.node.id))
        else:
            knocking = self._handshakes.keep_dialing_back(peer.node.id, lambda: peer.connection is not None)
            peer.dialer = self._spawn(knocking)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failure = task.exception()
            _log.error("transport_failed", node=self.node_id, exc_info=self._failure)
            self._wake()
