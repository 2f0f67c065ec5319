"""Links between simulated nodes: FIFO like TCP, and they can be slow, cut in one direction or both, and broken.

This is the network of whole nodes (`chaos.sim`) and of bare engines (`chaos.sim.engine`). The node with the greater id dials
the address that it knows of the other, and both judge each other's hello by `handshake.objection`, as in production: a
node that was removed, or that nobody has added yet, is refused and tries again. Unknown callers are admitted by
the rule of production as well (`handshake.UnknownCallers`), and a node knocks at one that should dial it and doesn't know
it.

Messages travel as the frames of `raftsched.consensus.net.framing`, through a decoder for each connection and direction that
expects a hello first, so their shapes are checked on both sides as in production. A cut holds what is sent, as TCP would,
until it heals or the connection breaks; a broken connection loses what is on its way, both sides notice, and a new
one is made when nothing is cut. In the harsh mode a link also reorders, repeats and loses frames, which TCP never does:
Raft must bear it, and old messages of another connection look just like it.

Left out: `transport.py` itself, which is sockets (tests/consensus/net/test_transport.py).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from pysyncobj.node import Node
from pysyncobj.transport import Transport as TransportPort

from chaos.sim.machine.clock import Timeline
from raftsched.consensus.net.address import Address
from raftsched.consensus.net.framing import FrameDecoder, check_message, encode_frame
from raftsched.consensus.net.handshake import UNKNOWN_CALLER_SECONDS, UNKNOWN_NODE, UnknownCallers, hello_of, objection
from raftsched.consensus.ports import NodeId
from raftsched.consensus.raft.messages import Message
from raftsched.consensus.raft.peer_node import PeerNode
from raftsched.ports import Wake

Event = Message | bool
"""A message, or True for a connection that is up and False for one that is down."""
OnFrame = Callable[[NodeId, NodeId, Message], None]


class SimulatedTransport(TransportPort):  # type: ignore[misc]  # pysyncobj carries no types
    """One node's end of its links; `raftsched.consensus.net.transport.Transport` as the replica sees it.

    It listens on `address` and links to `peers`, of whom it knows the addresses, and to those that are added.
    """

    def __init__(
        self,
        network: Network,
        node_id: NodeId,
        wake: Wake,
        *,
        address: Address,
        peers: Mapping[NodeId, Address],
        cluster: str = "simulated",
    ) -> None:
        super().__init__(None, None, None)
        self.node_id = node_id
        self.address = address
        self.addresses = dict(peers)
        self.peers = set(peers)
        self.hello = hello_of(node_id, cluster)
        self.sent_count = 0
        self.unknown_callers = UnknownCallers()
        self._wake = wake
        self._network = network
        self._greetings: deque[tuple[NodeId, Message]] = deque()
        self._inbox: deque[tuple[NodeId, Event]] = deque()
        self._up: set[NodeId] = set()
        """Peers that the engine knows as connected."""
        self._outbox: list[tuple[NodeId, bytes, bool]] = []
        self._encoded: tuple[Message | None, bytes, bool] = (None, b"", False)

    async def start(self) -> None:
        self._network.attach(self)

    async def close(self) -> None:
        self._network.detach(self.node_id)

    # -- members ------------------------------------------------------------------------------------------------------

    def set_address(self, node_id: NodeId, address: Address) -> None:
        self.addresses[node_id] = address

    def addNode(self, node: Node) -> None:  # noqa: N802  # pysyncobj's name
        if node.id not in self.peers and node.id != self.node_id:
            self.peers.add(node.id)
            self._network.dial_later(self.node_id, node.id)

    def dropNode(self, node: Node) -> None:  # noqa: N802  # pysyncobj's name
        """Cut the link: no message of the peer is delivered any more, that it is down is."""
        if node.id in self.peers:
            self.peers.discard(node.id)
            self._inbox = deque(item for item in self._inbox if item[0] != node.id or item[1] is False)
            self._network.break_link(self.node_id, node.id)

    # -- messages -----------------------------------------------------------------------------------------------------

    def send(self, node: Node, message: Message) -> bool:
        known, frame, early = self._encoded
        if known is not message:
            early = check_message(message).early
            frame = encode_frame(message)
            self._encoded = (message, frame, early)
        self._outbox.append((node.id, frame, early))
        return True

    def flush(self, *, early: bool) -> None:
        outbox = self._outbox
        if not outbox:
            return
        leaving = [item for item in outbox if item[2]] if early else outbox
        self._outbox = [item for item in outbox if not item[2]] if early else []
        self._encoded = (None, b"", False)
        self.sent_count += len(leaving)
        # pysyncobj iterates over sets; by sorting, stably, a run is the same whatever their order is.
        for peer, frame, _ in sorted(leaving, key=lambda item: item[0]):
            self._network.transmit(self.node_id, peer, frame)

    def receive(self, peer: NodeId, event: Event) -> None:
        self._inbox.append((peer, event))
        self._wake()

    def receive_greeting(self, caller: NodeId, message: Message) -> None:
        self._greetings.append((caller, message))
        self._wake()

    @property
    def has_news(self) -> bool:
        return bool(self._inbox or self._greetings)

    def dispatch(self) -> int:
        count = len(self._inbox) + len(self._greetings)
        while self._greetings:
            caller, message = self._greetings.popleft()
            if caller not in self.peers:
                is_linked = self.unknown_callers.receive(caller, message)
                self._network.counts[
                    "hello: unknown caller linked" if is_linked else "hello: unknown caller not linked"
                ] += 1
            self._network.end_greeting(self.node_id, caller)
        while self._inbox:
            peer, event = self._inbox.popleft()
            node = PeerNode(peer)
            if event is True:
                self._up.add(peer)
                self._onNodeConnected(node)
            elif event is not False:
                self._onMessageReceived(node, event)
            elif peer in self._up:
                self._up.discard(peer)
                self._onNodeDisconnected(node)
        return count


@dataclass(slots=True)
class _Link:
    """The connection of a pair; `number` is 0 while there is none."""

    number: int = 0
    held: dict[NodeId, list[bytes]] = field(default_factory=dict)
    """Frames that wait behind a cut, by sender."""
    arrives_at: dict[NodeId, float] = field(default_factory=dict)
    decoders: dict[NodeId, FrameDecoder] = field(default_factory=dict)
    """By receiver."""
    is_dialing: bool = False
    is_knocking: bool = False
    host: NodeId = ""
    """The host of the other one, an unknown caller on this connection; "" if both are peers."""


@dataclass(frozen=True, slots=True)
class LinkRates:
    """The behaviour of links; the last three are not TCP's."""

    delay_seconds: tuple[float, float] = (0.0005, 0.005)
    reorder: float = 0.0
    """Part of the frames that may overtake others."""
    repeat: float = 0.0
    lose: float = 0.0


class Network:
    """All links; a node takes part while its transport is attached."""

    def __init__(
        self,
        timeline: Timeline,
        randomness: Random,
        rates: LinkRates | None = None,
        on_frame: OnFrame = lambda _sender, _receiver, _message: None,
    ) -> None:
        self._timeline = timeline
        self._random = randomness
        self._rates = rates or LinkRates()
        self._on_frame = on_frame
        self.loses: Callable[[NodeId, NodeId, Message], bool] = lambda _sender, _receiver, _message: False
        """Asked of each message right before it is delivered: one for which it says so is lost, as in the harsh mode."""
        self._transports: dict[NodeId, SimulatedTransport] = {}
        self._links: dict[tuple[NodeId, NodeId], _Link] = {}
        self._cuts: set[tuple[NodeId, NodeId]] = set()
        self._connection_count = 0
        self.slow_until: dict[tuple[NodeId, NodeId], float] = {}
        self.harsh = True
        """Whether reordering, repeating and losing continue."""
        self.counts: Counter[str] = Counter()

    # -- nodes --------------------------------------------------------------------------------------------------------

    def attach(self, transport: SimulatedTransport) -> None:
        """A node starts; links to the others come up after a moment."""
        node_id = transport.node_id
        self._transports[node_id] = transport
        for other in self._transports:
            if other != node_id:
                self.dial_later(node_id, other)

    def detach(self, node_id: NodeId) -> None:
        """A node is gone, and with it its links."""
        if self._transports.pop(node_id, None) is not None:
            for other in list(self._transports):
                self.break_link(node_id, other)

    # -- faults -------------------------------------------------------------------------------------------------------

    def cut(self, sender: NodeId, receiver: NodeId) -> None:
        """Hold everything in this direction."""
        self._cuts.add((sender, receiver))

    def is_cut(self, sender: str, receiver: str) -> bool:
        """Whether everything in this direction is held."""
        return (sender, receiver) in self._cuts

    def heal(self, sender: NodeId, receiver: NodeId) -> None:
        """Let pass again what is sent in this direction, and what was held."""
        self._cuts.discard((sender, receiver))
        for frame in self._link(sender, receiver).held.pop(sender, []):
            self.transmit(sender, receiver, frame)

    def heal_all(self) -> None:
        self.slow_until.clear()
        self.harsh = False
        for sender, receiver in sorted(self._cuts):
            self.heal(sender, receiver)
        if self._rates.lose:  # also greetings, which are said once: only a new connection says them again
            for one, other in sorted(self._links):
                self.break_link(one, other)

    def break_link(self, one: NodeId, other: NodeId) -> None:
        """The connection of the two ends; what is on its way is lost."""
        link = self._link(one, other)
        if not link.number:
            return
        link.number = 0
        link.host = ""
        link.held.clear()
        link.arrives_at.clear()
        for end, peer in ((one, other), (other, one)):
            if end in self._transports:
                self._transports[end].receive(peer, False)
        self.dial_later(one, other)

    # -- links --------------------------------------------------------------------------------------------------------

    def _link(self, one: NodeId, other: NodeId) -> _Link:
        return self._links.setdefault((one, other) if one < other else (other, one), _Link())

    def dial_later(self, one: NodeId, other: NodeId) -> None:
        """Have the one of the two whose part that is dial the other in a moment, and again until they are linked."""
        link = self._link(one, other)
        if not link.is_dialing:
            link.is_dialing = True
            dialer, called = max(one, other), min(one, other)
            self._timeline.after(self._random.uniform(0.01, 0.3), lambda: self._dial(link, dialer, called))

    def _dial(self, link: _Link, dialer: NodeId, called: NodeId) -> None:
        link.is_dialing = False
        caller, listener = self._transports.get(dialer), self._transports.get(called)
        if link.number or caller is None or listener is None:
            return
        if called not in caller.peers:
            self._knock_later(link, called, dialer)
        elif not self._connect(link, caller, listener):
            self.dial_later(dialer, called)

    def _knock_later(self, link: _Link, knocker: NodeId, host: NodeId) -> None:
        """Have a node dial another whose part it would be, if that one still doesn't in a while."""
        if not link.is_knocking:
            link.is_knocking = True
            self._timeline.after(self._random.uniform(1.0, 2.0), lambda: self._knock(link, knocker, host))

    def _knock(self, link: _Link, knocker: NodeId, host: NodeId) -> None:
        link.is_knocking = False
        caller, listener = self._transports.get(knocker), self._transports.get(host)
        if link.number or caller is None or listener is None or host not in caller.peers or knocker in listener.peers:
            return
        if not self._connect(link, caller, listener):
            self._knock_later(link, knocker, host)

    def _connect(self, link: _Link, caller: SimulatedTransport, listener: SimulatedTransport) -> bool:
        """Connect the two if they find each other and accept each other's hello, by production's own rule."""
        dialer, called = caller.node_id, listener.node_id
        if (dialer, called) in self._cuts or (called, dialer) in self._cuts:
            return False
        if caller.addresses.get(called) != listener.address:
            self.counts["hello: no_address"] += 1
            return False
        reason = objection(caller.hello, listener.hello, peers=listener.peers, dialed=None)
        is_unknown = reason == UNKNOWN_NODE and listener.unknown_callers.admit(dialer, self._timeline.now)
        if reason is None or is_unknown:
            reason = objection(listener.hello, caller.hello, peers=caller.peers, dialed=called)
        if reason is not None:
            self.counts[f"hello: {reason}"] += 1
            return False
        self._connection_count += 1
        number = link.number = self._connection_count
        for end, peer in ((caller, listener), (listener, caller)):
            link.decoders[end.node_id] = decoder = FrameDecoder()
            decoder.feed(encode_frame(peer.hello))
        caller.receive(called, True)
        if is_unknown:
            link.host = called
            self._timeline.after(UNKNOWN_CALLER_SECONDS, lambda: self._end_silent_greeting(link, dialer, number))
        else:
            listener.receive(dialer, True)
        return True

    def end_greeting(self, host: NodeId, caller: NodeId) -> None:
        """An unknown caller has sent its greeting."""
        if self._link(host, caller).host == host:
            self.break_link(host, caller)

    def _end_silent_greeting(self, link: _Link, caller: NodeId, number: int) -> None:
        if link.number == number:
            self.end_greeting(link.host, caller)

    def transmit(self, sender: NodeId, receiver: NodeId, frame: bytes) -> None:
        link = self._link(sender, receiver)
        if not link.number or link.host == sender:
            return
        if (sender, receiver) in self._cuts:
            link.held.setdefault(sender, []).append(frame)
            return
        if self._rates.lose and self.harsh and self._random.random() < self._rates.lose:
            self.counts["net_lose"] += 1
            return
        self._carry(link, sender, receiver, frame)
        if self._rates.repeat and self.harsh and self._random.random() < self._rates.repeat:
            self.counts["net_repeat"] += 1
            self._carry(link, sender, receiver, frame)

    def _carry(self, link: _Link, sender: NodeId, receiver: NodeId, frame: bytes) -> None:
        now = self._timeline.now
        low, high = self._rates.delay_seconds
        delay = low + (high - low) * self._random.random()
        if self.slow_until and self.slow_until.get((sender, receiver), 0.0) > now:
            delay += self._random.uniform(0.0, 1.0)
        if self._rates.reorder and self.harsh and self._random.random() < self._rates.reorder:
            self.counts["net_reorder"] += 1
            delay += self._random.choice((0.002, 0.05, 1.0)) * self._random.random()
        else:
            delay = max(delay, link.arrives_at.get(sender, 0.0) - now + 1e-6)
            link.arrives_at[sender] = now + delay
        number = link.number
        self._timeline.after(delay, lambda: self._deliver(link, sender, receiver, frame, number))

    def _deliver(self, link: _Link, sender: NodeId, receiver: NodeId, frame: bytes, number: int) -> None:
        if link.number != number or receiver not in self._transports:
            return
        for message in link.decoders[receiver].feed(frame):
            if self.loses(sender, receiver, message):
                continue
            self._on_frame(sender, receiver, message)
            if link.host == receiver:
                self._transports[receiver].receive_greeting(sender, message)
            else:
                self._transports[receiver].receive(sender, message)
