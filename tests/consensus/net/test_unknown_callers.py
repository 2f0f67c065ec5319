"""Unknown callers over real sockets: callers of an unknown id, who may greet once, and those who knock."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from pysyncobj.node import Node
from structlog.testing import capture_logs

from raftsched.consensus.net import transport as transport_module
from raftsched.consensus.net.address import Address
from raftsched.consensus.net.framing import encode_frame
from raftsched.consensus.net.handshake import TransportSettings
from raftsched.consensus.raft.membership.members import Member, Membership, encode_membership
from raftsched.consensus.raft.messages import Message
from tests.consensus.links import WAIT_SECONDS, Network, Station, hello, raw_client, vote
from tests.consensus.subjects import MendedSubject

MEMBERS = Membership.of(map(Member, ("a", "b", "n0", "n1", "n9")))


def identity(index: int, members: Membership = MEMBERS) -> Message:
    return {
        "type": "peer_identity",
        "incarnation": "a disk",
        "term": 1,
        "blank": False,
        "asks": False,
        "members": encode_membership(members),
        "members_index": index,
        "operations_read": 1,
        "operations_in_force": 1,
    }


def open_to_unknown(station: Station) -> None:
    """Have the station link to unknown callers whose members stand behind index 6, as an engine would."""

    def on_greeting(node_id: str, message: Message) -> bool:
        if message["members_index"] <= 6:
            return False
        station.transport.addNode(Node(node_id))
        return True

    station.transport.unknown_callers.open(lambda node_id: node_id != station.id, on_greeting)


def refusals(logs: list[Any]) -> list[str]:
    return [event["reason"] for event in logs if event["event"] == "peer_refused"]


# -- the transport -----------------------------------------------------------------------------------------------------


async def test_an_unknown_caller_whose_members_are_newer_is_linked_when_it_returns(net: Network, n1: Station) -> None:
    open_to_unknown(n1)
    async with raw_client(n1) as caller:
        caller.write(hello("n9"))
        assert (await caller.read_message())["type"] == "hello"
        caller.write(encode_frame({"type": "ping"}))
        caller.write(encode_frame(identity(7)) + encode_frame(vote(1)))
        await net.until(lambda: len(n1.transport.peer_status()) == 2)
        assert await caller.until_closed() == b"", "an unknown caller receives nothing but hello"
    assert n1.story() == []
    async with raw_client(n1) as peer:
        peer.write(hello("n9") + encode_frame(vote(2)))
        await net.until(lambda: n1.story() == ["up n9", 2])


@pytest.mark.parametrize("said", [identity(6), vote(1)], ids=["no-newer-members", "no-greeting"])
async def test_an_unknown_caller_without_news_is_closed_and_not_admitted_again_at_once(
    net: Network, said: Message, n1: Station
) -> None:
    open_to_unknown(n1)
    with capture_logs() as logs:
        async with raw_client(n1) as caller:
            caller.write(hello("n9") + encode_frame(said))
            assert (await caller.read_message())["type"] == "hello"
            await net.until(lambda: refusals(logs) == ["unknown_node"])
            assert await caller.until_closed() == b""
    async with raw_client(n1) as caller:
        caller.write(hello("n9") + encode_frame(identity(7)))
        assert await caller.until_closed() == b""
    assert n1.transport.dispatch() == 0
    assert n1.story() == []
    assert [peer.node_id for peer in n1.transport.peer_status()] == ["n2"]


async def test_unknown_callers_are_few_and_silent_ones_do_not_stay(
    net: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport_module, "UNKNOWN_CALLER_SECONDS", 0.1)
    n1 = net.station("n1", ["n2"], settings=TransportSettings(silence_seconds=0.1))
    await net.start()
    open_to_unknown(n1)
    async with contextlib.AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(raw_client(n1)) for _ in range(8)]
        for number, caller in enumerate(callers, start=10):
            caller.write(hello(f"n{number}"))
            assert (await caller.read_message())["type"] == "hello"
        one_more = await stack.enter_async_context(raw_client(n1))
        one_more.write(hello("n9"))
        assert await one_more.until_closed() == b""
        for caller in callers:
            assert await caller.until_closed() == b""
    assert n1.transport.dispatch() == 0


async def test_no_unknown_caller_is_admitted_before_the_engine_allows_it(net: Network, n1: Station) -> None:
    async with raw_client(n1) as caller:
        caller.write(hello("n9") + encode_frame(identity(7)))
        assert await caller.until_closed() == b""


async def test_a_node_that_nobody_dials_knocks_and_is_dialed_from_then_on(net: Network) -> None:
    n1 = net.station("n1", ["n2"])
    n0 = net.station("n0", ["n1"], settings=TransportSettings(dial_back_seconds=0.02))

    def identify(node: Node) -> None:
        n0.events.append(("up", node.id))
        n0.send(node.id, identity(7))

    n0.transport.setOnNodeConnectedCallback(identify)
    await net.start()
    open_to_unknown(n1)
    await net.until(lambda: n1.story()[:1] == ["up n0"] and n0.story()[-1:] == ["up n1"])
    assert n0.story() == ["up n1", "down n1", "up n1"]
    assert n1.transport.connected == {"n0"}


async def test_a_knock_at_a_node_that_knows_the_caller_links_nobody(net: Network) -> None:
    """That one dials by itself, as soon as it can."""
    knocked_twice = asyncio.Event()
    calls = 0

    async def resolve(address: Address) -> list[Address]:
        nonlocal calls
        calls += address.port != 0
        if calls == 3:
            knocked_twice.set()
        return [address]

    n1 = net.station("n1", ["n0"])
    n0 = net.station("n0", ["n1"], settings=TransportSettings(dial_back_seconds=0.02), resolve=resolve)
    await n1.transport.start()
    await n0.transport.start()
    open_to_unknown(n1)
    n0.transport.set_address("n1", Address("127.0.0.1", n1.transport.port))
    with capture_logs() as logs:
        async with asyncio.timeout(WAIT_SECONDS):
            await knocked_twice.wait()
    assert refusals(logs) == ["wrong_direction"]
    assert (n0.transport.dispatch(), n1.transport.dispatch()) == (0, 0)
    n1.transport.set_address("n0", Address("127.0.0.1", n0.transport.port))
    await net.until(lambda: n0.story() == ["up n1"] and n1.story() == ["up n0"])


# -- the engine --------------------------------------------------------------------------------------------------------


def subject(directory: Path, *, former: tuple[str, ...] = ()) -> MendedSubject:
    """Node a, which goes by a configuration of a, b and c at index 2."""
    node = MendedSubject("bc", directory, incarnation="mine")
    node.transport._onMessageReceived(Node("b"), identity(0, Membership.of([])))
    known = Membership.of([Member("a"), Member("b"), Member("c")])
    entry = (b"\x02" + encode_membership(Membership(known.members, former)), 2, 1)
    node.give_append("b", 1, (1, 0), [entry], commit=1)
    assert node.engine.configuration.index == 2
    node.transport.sent.clear()
    return node


def test_an_engine_links_to_an_unknown_caller_of_a_newer_configuration(tmp_path: Path) -> None:
    node = subject(tmp_path)
    callers = node.transport.unknown_callers
    assert callers.admit("n9", 0.0)
    assert callers.receive("n9", identity(3))
    assert set(node.engine.configuration.nodes) == set(MEMBERS.ids) - {"a"} | {"c"}
    assert not node.engine.is_connected("n9"), "it greets again, on a connection of its own"
    assert node.engine.configuration.membership.ids == ("a", "b", "c"), "members are what the log says"
    assert not node.transport.sent


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(identity(2), id="not-newer"),
        pytest.param(identity(0), id="an-empty-disk"),
        pytest.param(identity(3, Membership.of([Member("b")])), id="not-a-member"),
        pytest.param({**identity(3), "members": b"x"}, id="no-members"),
        pytest.param({"type": "request_vote", "term": 9, "last_log_index": 9, "last_log_term": 9}, id="no-greeting"),
    ],
)
def test_an_engine_has_no_use_for_other_unknown_callers(tmp_path: Path, said: Message) -> None:
    node = subject(tmp_path)
    assert not node.transport.unknown_callers.receive("n9", said)
    assert set(node.engine.configuration.nodes) == {"b", "c"}
    assert node.term == 1


def test_neither_former_members_nor_a_double_are_admitted(tmp_path: Path) -> None:
    callers = subject(tmp_path, former=("n8",)).transport.unknown_callers
    assert not callers.admit("n8", 0.0)
    assert not callers.admit("a", 0.0)
    assert callers.admit("n9", 0.0)


def test_an_engine_whose_members_are_fixed_admits_no_unknown_caller(tmp_path: Path) -> None:
    node = MendedSubject("bc", tmp_path)
    assert not node.transport.unknown_callers.admit("n9", 0.0)
