"""Links between simulated nodes: FIFO like TCP, and they can be slow, cut in one direction or both, and broken.

Messages travel as the frames of `raftsched.consensus.framing`, through a decoder for each connection and direction that
expects a hello first, so their shapes are checked on both sides as in production. A cut holds what is sent, as TCP would,
until it heals or the connection breaks; a broken connection loses what is on its way, both sides hear of it, and a new
one is made when nothing is cut. In the harsh mode a link also reorders, repeats and loses frames, which TCP never does:
Raft must bear it, and old messages of another connection look just like it.

Left out: `transport.py` itself, which is sockets (tests/consensus/test_transport.py).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from pysyncobj.node import Node
from pysyncobj.transport import Transport as TransportPort

from raftsched.consensus.framing import PROTOCOL_VERSION, FrameDecoder, check_message, encode_frame
from raftsched.consensus.messages import Message
from raftsched.consensus.ports import NodeId
from raftsched.ports import Wake
from tests.simulated.clock import Timeline

Event = Message | bool
"""A message, or True for a connection that is up and False for one that is down."""
OnFrame = Callable[[NodeId, NodeId, Message], None]


class SimulatedTransport(TransportPort):  # type: ignore[misc]  # pysyncobj carries no types
    """One node's end of its links; `raftsched.consensus.transport.Transport` as the replica sees it."""

    def __init__(self, network: Network, node_id: NodeId, wake: Wake) -> None:
        super().__init__(None, None, None)
        self.node_id = node_id
        self._wake = wake
        self._network = network
        self._inbox: deque[tuple[NodeId, Event]] = deque()
        self._outbox: list[tuple[NodeId, bytes, bool]] = []
        self._encoded: tuple[Message | None, bytes, bool] = (None, b"", False)

    async def start(self) -> None:
        self._network.attach(self)

    async def close(self) -> None:
        self._network.detach(self.node_id)

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
        # pysyncobj iterates over sets; by sorting, stably, a run is the same whatever their order is.
        for peer, frame, _ in sorted(leaving, key=lambda item: item[0]):
            self._network.transmit(self.node_id, peer, frame)

    def receive(self, peer: NodeId, event: Event) -> None:
        self._inbox.append((peer, event))
        self._wake()

    def dispatch(self) -> int:
        count = len(self._inbox)
        while self._inbox:
            peer, event = self._inbox.popleft()
            node = Node(peer)
            if event is True:
                self._onNodeConnected(node)
            elif event is False:
                self._onNodeDisconnected(node)
            else:
                self._onMessageReceived(node, event)
        return count


@dataclass(slots=True)
class _Link:
    """The connection of a pair; `number` is 0 while there is none."""

    number: int = 0
    held: dict[NodeId, list[bytes]] = field(default_factory=dict)
    """What waits behind a cut, by sender."""
    arrives_at: dict[NodeId, float] = field(default_factory=dict)
    decoders: dict[NodeId, FrameDecoder] = field(default_factory=dict)
    """By receiver."""


@dataclass(frozen=True, slots=True)
class LinkRates:
    """How links behave; the last three are not TCP's."""

    delay_seconds: tuple[float, float] = (0.0005, 0.005)
    reorder: float = 0.0
    """Part of the frames that may overtake others."""
    repeat: float = 0.0
    lose: float = 0.0


class Network:
    """All links; a node takes part while its transport is attached."""

    def __init__(self, timeline: Timeline, randomness: Random, rates: LinkRates, on_frame: OnFrame) -> None:
        self._timeline = timeline
        self._random = randomness
        self._rates = rates
        self._on_frame = on_frame
        self._transports: dict[NodeId, SimulatedTransport] = {}
        self._links: dict[tuple[NodeId, NodeId], _Link] = {}
        self._cuts: set[tuple[NodeId, NodeId]] = set()
        self._connection_count = 0
        self.slow_until: dict[tuple[NodeId, NodeId], float] = {}
        self.harsh = True
        """Whether reordering, repeating and losing go on."""
        self.counts: Counter[str] = Counter()

    # -- nodes --------------------------------------------------------------------------------------------------------

    def attach(self, transport: SimulatedTransport) -> None:
        """A node starts; links to the others come up after a moment."""
        node_id = transport.node_id
        self._transports[node_id] = transport
        for other in self._transports:
            if other != node_id:
                self._dial_later(node_id, other)

    def detach(self, node_id: NodeId) -> None:
        """A node is gone, and with it its links."""
        if self._transports.pop(node_id, None) is not None:
            for other in list(self._transports):
                self.break_link(node_id, other)

    # -- faults -------------------------------------------------------------------------------------------------------

    def cut(self, sender: NodeId, receiver: NodeId) -> None:
        """Hold everything in this direction."""
        self._cuts.add((sender, receiver))

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

    def break_link(self, one: NodeId, other: NodeId) -> None:
        """The connection of the two ends; what is on its way is lost."""
        link = self._link(one, other)
        if not link.number:
            return
        link.number = 0
        link.held.clear()
        link.arrives_at.clear()
        for end, peer in ((one, other), (other, one)):
            if end in self._transports:
                self._transports[end].receive(peer, False)
        self._dial_later(one, other)

    # -- links --------------------------------------------------------------------------------------------------------

    def _link(self, one: NodeId, other: NodeId) -> _Link:
        return self._links.setdefault((one, other) if one < other else (other, one), _Link())

    def _dial_later(self, one: NodeId, other: NodeId) -> None:
        self._timeline.after(self._random.uniform(0.01, 0.3), lambda: self._dial(one, other))

    def _dial(self, one: NodeId, other: NodeId) -> None:
        link = self._link(one, other)
        if link.number or one not in self._transports or other not in self._transports:
            return
        if (one, other) in self._cuts or (other, one) in self._cuts:
            self._dial_later(one, other)
            return
        self._connection_count += 1
        link.number = self._connection_count
        for end, peer in ((one, other), (other, one)):
            link.decoders[end] = FrameDecoder()
            link.decoders[end].feed(_hello(peer))
            self._transports[end].receive(peer, True)

    def transmit(self, sender: NodeId, receiver: NodeId, frame: bytes) -> None:
        link = self._link(sender, receiver)
        if not link.number:
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
            self._on_frame(sender, receiver, message)
            self._transports[receiver].receive(sender, message)


def _hello(node_id: NodeId) -> bytes:
    return encode_frame({"type": "hello", "node": node_id, "cluster": "simulated", "version": PROTOCOL_VERSION})
