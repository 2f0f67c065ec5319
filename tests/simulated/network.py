"""Links between simulated nodes: FIFO like TCP, and they can be slow, cut in one direction or both, and broken.

A cut holds what is sent, as TCP would, until it heals or the connection breaks; a broken connection loses what is on its
way, both sides hear of it, and a new one is made when nothing is cut. Messages travel as real frames.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgpack
from pysyncobj.node import Node
from pysyncobj.transport import Transport as TransportPort

from raftsched.consensus.framing import check_message
from raftsched.consensus.messages import Message
from raftsched.consensus.ports import NodeId
from tests.simulated.clock import Timeline

Event = Message | bool
"""A message, or True for a connection that is up and False for one that is down."""


class SimulatedTransport(TransportPort):  # type: ignore[misc]  # pysyncobj carries no types
    """One node's end of its links; `raftsched.consensus.transport.Transport` as the engine and the pump see it."""

    def __init__(self, network: Network, node_id: NodeId, peers: Iterable[NodeId], wake: Callable[[], None]) -> None:
        super().__init__(None, None, None)
        self.node_id = node_id
        self.peers = set(peers)
        self.wake = wake
        self._network = network
        self._inbox: deque[tuple[NodeId, Event]] = deque()
        self._outbox: list[tuple[NodeId, bytes, bool]] = []
        self.sent_count = 0

    def send(self, node: Node, message: Message) -> bool:
        shape = check_message(message)
        self._outbox.append((node.id, msgpack.packb(message), shape.early))
        return True

    def addNode(self, node: Node) -> None:  # noqa: N802  # pysyncobj's name
        self.peers.add(node.id)
        self._network.dial_later(self.node_id, node.id)

    def dropNode(self, node: Node) -> None:  # noqa: N802  # pysyncobj's name
        self.peers.discard(node.id)
        self._network.break_link(self.node_id, node.id)

    def flush(self, *, early: bool) -> None:
        leaving = [item for item in self._outbox if item[2] or not early]
        self._outbox = [item for item in self._outbox if early and not item[2]]
        self.sent_count += len(leaving)
        # pysyncobj iterates over sets; by sorting, stably, a run is the same whatever their order is.
        for peer, frame, _ in sorted(leaving, key=lambda item: item[0]):
            self._network.transmit(self.node_id, peer, frame)

    def receive(self, peer: NodeId, event: Event) -> None:
        self._inbox.append((peer, event))
        self.wake()

    @property
    def has_news(self) -> bool:
        return bool(self._inbox)

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


class Network:
    """All links; a node takes part while its transport is `attached`."""

    def __init__(self, timeline: Timeline, randomness: Random) -> None:
        self._timeline = timeline
        self._random = randomness
        self._transports: dict[NodeId, SimulatedTransport] = {}
        self._links: dict[tuple[NodeId, NodeId], _Link] = {}
        self._cuts: set[tuple[NodeId, NodeId]] = set()
        self._connection_count = 0
        self.delay_seconds = (0.0005, 0.005)
        self.slow_until: dict[tuple[NodeId, NodeId], float] = {}

    # -- nodes --------------------------------------------------------------------------------------------------------

    def attach(self, node_id: NodeId, peers: Iterable[NodeId], wake: Callable[[], None]) -> SimulatedTransport:
        """A node starts; links to peers that know it too come up after a moment."""
        transport = self._transports[node_id] = SimulatedTransport(self, node_id, peers, wake)
        for other in self._transports:
            if other != node_id:
                self.dial_later(node_id, other)
        return transport

    def detach(self, node_id: NodeId) -> None:
        """A node is gone, and with it its links."""
        del self._transports[node_id]
        for other in list(self._transports):
            self.break_link(node_id, other)

    # -- faults -------------------------------------------------------------------------------------------------------

    def cut(self, sender: NodeId, receiver: NodeId) -> None:
        """Hold everything in this direction."""
        self._cuts.add((sender, receiver))

    def heal(self, sender: NodeId, receiver: NodeId) -> None:
        """Let pass again what is sent in this direction, and what was held."""
        self._cuts.discard((sender, receiver))
        link = self._link(sender, receiver)
        for frame in link.held.pop(sender, []):
            self.transmit(sender, receiver, frame)

    def heal_all(self) -> None:
        self.slow_until.clear()
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
        self.dial_later(one, other)

    # -- links --------------------------------------------------------------------------------------------------------

    def _link(self, one: NodeId, other: NodeId) -> _Link:
        return self._links.setdefault((min(one, other), max(one, other)), _Link())

    def dial_later(self, one: NodeId, other: NodeId) -> None:
        """Connect the two in a moment, if both run and know each other then."""
        self._timeline.after(self._random.uniform(0.01, 0.3), lambda: self._dial(one, other))

    def _dial(self, one: NodeId, other: NodeId) -> None:
        link = self._link(one, other)
        if link.number or one not in self._transports or other not in self._transports:
            return
        if other not in self._transports[one].peers or one not in self._transports[other].peers:
            return
        if (one, other) in self._cuts or (other, one) in self._cuts:
            self.dial_later(one, other)
            return
        self._connection_count += 1
        link.number = self._connection_count
        self._transports[one].receive(other, True)
        self._transports[other].receive(one, True)

    def transmit(self, sender: NodeId, receiver: NodeId, frame: bytes) -> None:
        link = self._link(sender, receiver)
        if not link.number:
            return
        if (sender, receiver) in self._cuts:
            link.held.setdefault(sender, []).append(frame)
            return
        now = self._timeline.now
        delay = self._random.uniform(*self.delay_seconds)
        if self.slow_until.get((sender, receiver), 0.0) > now:
            delay += self._random.uniform(0.0, 1.0)
        arrives_at = link.arrives_at[sender] = max(now + delay, link.arrives_at.get(sender, 0.0) + 1e-6)
        number = link.number
        self._timeline.after(arrives_at - now, lambda: self._deliver(sender, receiver, frame, number))

    def _deliver(self, sender: NodeId, receiver: NodeId, frame: bytes, number: int) -> None:
        if self._link(sender, receiver).number == number and receiver in self._transports:
            message: Any = msgpack.unpackb(frame)
            check_message(message)
            self._transports[receiver].receive(sender, message)
