"""`chaos.sim.network.links`: links like TCP's, and harsh ones."""

from __future__ import annotations

from random import Random

import pytest
from pysyncobj.node import Node

from chaos.sim.machine.clock import Timeline
from chaos.sim.network.links import LinkRates, Network, SimulatedTransport
from raftsched.consensus.net.address import Address
from raftsched.consensus.net.framing import FrameError
from raftsched.consensus.raft.messages import Message


class Pair:
    """Two nodes, and what each of them heard."""

    def __init__(self, rates: LinkRates) -> None:
        self.timeline = Timeline()
        self.network = Network(self.timeline, Random(3), rates, lambda *_: None)
        self.heard: dict[str, list[object]] = {"a": [], "b": []}
        self.ends = {name: self._join(name) for name in ("a", "b")}
        self.run(1.0)

    def _join(self, name: str) -> SimulatedTransport:
        addresses = {each: Address(each, 1) for each in ("a", "b")}
        own = addresses.pop(name)
        end = SimulatedTransport(self.network, name, lambda: None, address=own, peers=addresses)
        heard = self.heard[name]
        end.setOnMessageReceivedCallback(lambda _node, message: heard.append(message["term"]))
        end.setOnNodeConnectedCallback(lambda _node: heard.append("up"))
        end.setOnNodeDisconnectedCallback(lambda _node: heard.append("down"))
        self.network.attach(end)
        return end

    def run(self, seconds: float) -> None:
        self.timeline.run_until(self.timeline.now + seconds)
        for end in self.ends.values():
            end.dispatch()

    def send(self, *terms: int, early: bool = False) -> None:
        for term in terms:
            self.ends["a"].send(Node("b"), {"type": "pre_vote_ok", "term": term})
        self.ends["a"].flush(early=early)


@pytest.fixture
def pair() -> Pair:
    return Pair(LinkRates())


def test_messages_arrive_once_and_in_order(pair: Pair) -> None:
    pair.send(*range(50))
    pair.run(1.0)
    assert pair.heard["b"] == ["up", *range(50)]


def test_what_is_not_early_waits_for_the_second_flush(pair: Pair) -> None:
    pair.send(1, early=True)
    pair.run(1.0)
    assert pair.heard["b"] == ["up"]
    pair.send()
    pair.run(1.0)
    assert pair.heard["b"] == ["up", 1]


def test_a_cut_holds_what_is_sent_until_it_heals(pair: Pair) -> None:
    pair.network.cut("a", "b")
    pair.send(1, 2)
    pair.run(5.0)
    assert pair.heard["b"] == ["up"]
    pair.network.heal("a", "b")
    pair.run(1.0)
    assert pair.heard["b"] == ["up", 1, 2]


def test_a_broken_link_loses_what_is_on_its_way_and_comes_back(pair: Pair) -> None:
    pair.send(1)
    pair.network.break_link("a", "b")
    pair.run(1.0)
    assert pair.heard == {"a": ["up", "down", "up"], "b": ["up", "down", "up"]}


def test_a_harsh_link_reorders_repeats_and_loses() -> None:
    pair = Pair(LinkRates(reorder=0.3, repeat=0.3, lose=0.1))
    pair.send(*range(300))
    pair.run(5.0)
    heard = [term for term in pair.heard["b"] if isinstance(term, int)]
    assert heard != sorted(heard)
    assert len(set(heard)) < len(heard)
    assert len(set(heard)) < 300
    assert pair.network.counts.keys() == {"net_reorder", "net_repeat", "net_lose"}


def test_a_message_of_the_wrong_shape_never_leaves(pair: Pair) -> None:
    message: Message = {"type": "apply_command", "term": 1}
    with pytest.raises(FrameError):
        pair.ends["a"].send(Node("b"), message)


def test_a_node_that_nobody_knows_is_refused_until_it_is_added(pair: Pair) -> None:
    heard: list[object] = []
    end = SimulatedTransport(pair.network, "c", lambda: None, address=Address("c", 1), peers={"a": Address("a", 1)})
    end.setOnNodeConnectedCallback(lambda node: heard.append(node.id))
    pair.network.attach(end)
    pair.run(5.0)
    end.dispatch()
    assert not heard
    assert pair.network.counts["hello: unknown_node"] > 5
    pair.ends["a"].addNode(Node("c"))
    pair.run(1.0)
    end.dispatch()
    assert heard == ["a"]


def test_a_node_of_another_cluster_or_address_is_never_linked(pair: Pair) -> None:
    for name, address, cluster in (("c", Address("c", 1), "other"), ("d", Address("elsewhere", 1), "simulated")):
        a = pair.ends["a"]
        a.set_address(name, Address(name, 1))
        a.addNode(Node(name))
        known = {"a": Address("a", 2 if name == "d" else 1)}
        pair.network.attach(
            SimulatedTransport(pair.network, name, lambda: None, address=address, peers=known, cluster=cluster)
        )
    pair.run(5.0)
    assert pair.heard["a"] == ["up"]
    assert pair.network.counts["hello: wrong_cluster"] > 5
    assert pair.network.counts["hello: no_address"] > 5


def test_a_node_that_is_dropped_is_cut_off_and_not_heard(pair: Pair) -> None:
    pair.send(1)
    pair.timeline.run_until(pair.timeline.now + 0.5)
    pair.ends["b"].dropNode(Node("a"))
    pair.run(1.0)
    assert pair.heard == {"a": ["up", "down"], "b": ["up", "down"]}
