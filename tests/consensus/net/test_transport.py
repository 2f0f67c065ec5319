from __future__ import annotations

import asyncio
import random
import socket
import struct
from pathlib import Path
from typing import Any

import msgpack
import psutil
import pysyncobj.pickle as stock_pickle
import pytest
import uvloop
from pysyncobj.node import Node
from structlog.testing import capture_logs

from raftsched.consensus.net import transport as transport_module
from raftsched.consensus.net.address import Address
from raftsched.consensus.net.framing import FrameError, encode_frame
from raftsched.consensus.net.handshake import TransportSettings
from raftsched.consensus.raft.messages import Message
from raftsched.errors import Invalid
from tests.consensus.links import (
    QUICK,
    WAIT_SECONDS,
    Network,
    Station,
    append,
    free_port,
    hello,
    network,
    raw_client,
    vote,
)

# The fixture's successor is a hook that would decide for the whole test suite, and older pytest-asyncio 1.x lack it.
pytestmark = pytest.mark.filterwarnings("ignore:Overriding the .event_loop_policy:pytest.PytestDeprecationWarning")


@pytest.fixture(params=[asyncio.DefaultEventLoopPolicy, uvloop.EventLoopPolicy], ids=["asyncio", "uvloop"])
def event_loop_policy(request: pytest.FixtureRequest) -> Any:
    return request.param()


# -- exchange ---------------------------------------------------------------------------------------------------------


async def test_two_nodes_exchange_messages_in_order(net: Network) -> None:
    n1, n2 = await net.mesh("n1", "n2")
    for term in range(100):
        assert n1.send("n2", vote(term))
        assert n2.send("n1", vote(1000 + term))
    await net.until(lambda: len(n1.terms()) == len(n2.terms()) == 100)
    assert n1.story() == ["up n2", *range(1000, 1100)]
    assert n2.story() == ["up n1", *range(100)]


async def test_three_nodes_are_linked_pair_by_pair(net: Network) -> None:
    stations = await net.mesh("n1", "n2", "n3")
    for station in stations:
        for other in stations:
            assert other is station or station.send(other.id, vote(int(station.id[1:])))
    await net.until(lambda: all(len(station.terms()) == 2 for station in stations))
    assert [sorted(station.terms()) for station in stations] == [[2, 3], [1, 3], [1, 2]]
    assert stations[0].transport.connected == {"n2", "n3"}


async def test_entries_of_megabytes_arrive_whole(net: Network) -> None:
    n1, n2 = await net.mesh("n1", "n2")
    message = append(4 * 1024 * 1024)
    assert n2.send("n1", message)
    await net.until(lambda: bool(n1.terms()))
    assert n1.events[-1] == ("got", "n2", message)


async def test_nothing_is_delivered_outside_dispatch(net: Network) -> None:
    n1, n2 = await net.mesh("n1", "n2")
    n1.transport.send(Node("n2"), vote(1))
    woken = asyncio.Event()
    n2.transport._wake = woken.set
    n1.transport.flush(early=False)
    await woken.wait()
    assert n2.terms() == []
    assert n2.transport.dispatch() == 1
    assert n2.terms() == [1]
    assert n2.transport.dispatch() == 0


async def test_early_flush_lets_only_entries_leave(net: Network) -> None:
    n1, n2 = await net.mesh("n1", "n2")
    n1.transport.send(Node("n2"), vote(1))
    n1.transport.send(Node("n2"), append(10, term=2))
    n1.transport.flush(early=True)
    await net.until(lambda: bool(n2.terms()))
    assert n2.terms() == [2]
    n1.transport.flush(early=False)
    await net.until(lambda: n2.terms() == [2, 1])


async def test_one_message_to_two_peers_is_encoded_once(net: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    n1, n2, n3 = await net.mesh("n1", "n2", "n3")
    encoded: list[Message] = []

    def counting(message: Message) -> bytes:
        encoded.append(message)
        return encode_frame(message)

    monkeypatch.setattr(transport_module, "encode_frame", counting)
    message = append(1000)
    n1.transport.send(Node("n2"), message)
    n1.transport.send(Node("n3"), message)
    n1.transport.flush(early=True)
    await net.until(lambda: n2.terms() == n3.terms() == [1])
    assert encoded == [message]


async def test_send_says_where_a_message_cannot_go(net: Network) -> None:
    n1, _ = await net.mesh("n1", "n2")
    assert n1.send("n2", vote(1))
    assert not n1.send("n3", vote(1))
    with pytest.raises(FrameError):
        n1.transport.send(Node("n2"), {"type": "apply_command", "command": b"x"})


# -- connections come and go ------------------------------------------------------------------------------------------


async def test_peer_that_restarts_is_linked_again(net: Network) -> None:
    port = free_port()
    n1 = net.station("n1", ["n2"], address=Address("127.0.0.1", port))
    n2 = net.station("n2", ["n1"])
    await net.start()
    await net.until(lambda: n2.story() == ["up n1"])
    await n1.transport.close()
    net.stations.remove(n1)
    await net.until(lambda: n2.story() == ["up n1", "down n1"])
    assert not n2.send("n1", vote(1))

    again = net.station("n1", ["n2"], address=Address("127.0.0.1", port))
    await net.start(again)
    await net.until(lambda: n2.story() == ["up n1", "down n1", "up n1"])
    assert n2.send("n1", vote(2))
    await net.until(lambda: again.story() == ["up n2", 2])


async def test_peer_that_moves_is_found_by_its_name(net: Network) -> None:
    addresses: dict[str, Address] = {}

    async def resolve(address: Address) -> list[Address]:
        return [addresses.get(address.host, address)]

    n1 = net.station("n1", ["n2"])
    n2 = net.station("n2", [], resolve=resolve)
    n2.transport.set_address("n1", Address("n1.test", 1))
    n2.transport.addNode(Node("n1"))
    await n1.transport.start()
    addresses["n1.test"] = Address("127.0.0.1", n1.transport.port)
    await n2.transport.start()
    await net.until(lambda: n2.story() == ["up n1"])
    await n1.transport.close()
    net.stations.remove(n1)
    moved = net.station("n1", ["n2"])
    await moved.transport.start()
    addresses["n1.test"] = Address("127.0.0.1", moved.transport.port)
    await net.until(lambda: n2.story() == ["up n1", "down n1", "up n1"])


async def test_every_address_of_a_name_is_tried(net: Network) -> None:
    dead, port = free_port(), free_port()

    async def resolve(address: Address) -> list[Address]:
        return [Address("127.0.0.1", dead), Address("127.0.0.1", port)] if address.host == "n1.test" else [address]

    n1 = net.station("n1", ["n2"], address=Address("127.0.0.1", port))
    n2 = net.station("n2", [], resolve=resolve)
    n2.transport.set_address("n1", Address("n1.test", 1))
    n2.transport.addNode(Node("n1"))
    await n1.transport.start()
    await n2.transport.start()
    await net.until(lambda: n1.story() == ["up n2"])


async def test_nodes_start_before_names_resolve(net: Network) -> None:
    known = False
    asked: dict[str, int] = {}
    port = free_port()
    asked_thrice = asyncio.Event()

    async def resolve(address: Address) -> list[Address]:
        asked[address.host] = asked.get(address.host, 0) + 1
        if asked.get("n1.test", 0) >= 3:
            asked_thrice.set()
        if address.host.endswith(".test") and not known:
            raise socket.gaierror(socket.EAI_NONAME, "not known yet")
        return [Address("127.0.0.1", address.port)]

    settings = TransportSettings(redial_seconds_min=0.01, redial_seconds_max=0.05, bind_seconds=0.01)
    n1 = net.station("n1", ["n2"], address=Address("n1.test", port), resolve=resolve, settings=settings)
    n2 = net.station("n2", [], resolve=resolve)
    n2.transport.set_address("n1", Address("n1.test", port))
    n2.transport.addNode(Node("n1"))
    with capture_logs() as logs:
        await n1.transport.start()
        await n2.transport.start()
        assert n1.transport.port == 0
        await asked_thrice.wait()
    assert {("not_listening", "unresolved"), ("peer_unreachable", "unresolved")} <= kinds(logs)
    known = True
    await net.until(lambda: n1.story() == ["up n2"] and n2.story() == ["up n1"])


async def test_start_raises_where_the_port_is_taken(net: Network) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        station = net.station("n1", [], address=Address("127.0.0.1", server.getsockname()[1]))
        with pytest.raises(OSError, match="in use"):
            await station.transport.start()


async def test_new_connection_of_a_peer_fences_the_old_one(net: Network, n1: Station) -> None:
    async with raw_client(n1) as old, raw_client(n1) as new:
        old.write(hello("n2") + encode_frame(vote(1)))
        await net.until(lambda: n1.story() == ["up n2", 1])
        old.write(encode_frame(vote(2)))
        new.write(hello("n2"))
        assert (await new.read_message())["type"] == "hello"
        old.write(encode_frame(vote(3)))
        new.write(encode_frame(vote(4)))
        await old.until_closed()
        await net.until(lambda: 4 in n1.story())
    assert [event for event in n1.story() if event not in (2, 3)] == ["up n2", 1, "down n2", "up n2", 4]
    assert not {2, 3}.intersection(n1.story()[n1.story().index("down n2") :])


async def test_a_caller_that_wanted_another_node_at_this_address_breaks_no_link(net: Network, n1: Station) -> None:
    """A node that still knows a former member dials it, where a new node has its host, and reads another name."""
    async with raw_client(n1) as linked:
        linked.write(hello("n2"))
        await net.until(lambda: n1.story() == ["up n2"])
        async with raw_client(n1) as mistaken:
            mistaken.write(hello("n2"))
            assert (await mistaken.read_message())["node"] == "n1"
        linked.write(encode_frame(vote(1)))
        await net.until(lambda: n1.story() == ["up n2", 1])


async def test_late_bytes_of_a_replaced_connection_are_not_delivered(net: Network, n1: Station) -> None:
    """The same, one level below: bytes already read when the connection was replaced."""
    async with raw_client(n1) as old, raw_client(n1) as new:
        old.write(hello("n2"))
        await net.until(lambda: n1.story() == ["up n2"])
        stale = n1.transport._peers["n2"].connection
        assert stale is not None
        new.write(hello("n2") + encode_frame({"type": "ping"}))
        await net.until(lambda: n1.story() == ["up n2", "down n2", "up n2"])
        stale.data_received(encode_frame(vote(1)))
        stale.connection_lost(None)
        assert n1.transport.dispatch() == 0
        assert n1.transport.connected == {"n2"}


async def test_own_hello_is_answered_only_to_peers(net: Network, n1: Station) -> None:
    async with raw_client(n1) as peer:
        peer.write(hello("n2"))
        assert await peer.read_message() == {"type": "hello", "node": "n1", "cluster": "test", "version": 1}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        pytest.param(hello("n2", cluster="other"), "wrong_cluster", id="cluster"),
        pytest.param(hello("n2", version=2), "wrong_version", id="version"),
        pytest.param(hello("n9"), "unknown_node", id="unknown"),
        pytest.param(hello("n1"), "unknown_node", id="itself"),
        pytest.param(hello("n0"), "wrong_direction", id="direction"),
    ],
)
async def test_stranger_with_a_wrong_hello_is_closed_without_a_word(net: Network, said: bytes, reason: str) -> None:
    n1 = net.station("n1", ["n0", "n2"])
    await net.start()
    with capture_logs() as logs:
        for _ in range(3):
            async with raw_client(n1) as stranger:
                stranger.write(said + encode_frame(vote(1)))
                assert await stranger.until_closed() == b""
    assert [event["reason"] for event in logs if event["event"] == "peer_refused"] == [reason]
    assert n1.transport.dispatch() == 0


async def test_name_that_a_stranger_gives_cannot_break_the_log(net: Network, n1: Station) -> None:
    with capture_logs() as logs:
        async with raw_client(n1) as stranger:
            stranger.write(hello("n9\n\x1b[31m{}" + "x" * 200))
            await stranger.until_closed()
    (claimed,) = [event["claimed"] for event in logs if event["event"] == "peer_refused"]
    assert claimed.isascii()
    assert claimed.isprintable()
    assert len(claimed) == 80


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(hello("n3"), id="another-node"),
        pytest.param(hello("n1", cluster="other"), id="another-cluster"),
        pytest.param(hello("n1", version=7), id="another-version"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="http"),
        pytest.param(b"", id="silence"),
    ],
)
async def test_dialer_wants_the_peer_it_dialed(net: Network, answer: bytes) -> None:
    calls = 0
    called_twice = asyncio.Event()

    async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            called_twice.set()
        writer.write(answer + encode_frame(vote(1)) * bool(answer))
        await reader.read()
        writer.transport.abort()

    server = await asyncio.start_server(impostor, "127.0.0.1", 0)
    async with server:
        settings = TransportSettings(handshake_seconds=0.1, redial_seconds_min=0.01, redial_seconds_max=0.02)
        n2 = net.station("n2", ["n1", "n3"], settings=settings)
        n2.transport.set_address("n1", Address("127.0.0.1", server.sockets[0].getsockname()[1]))
        await net.start()
        async with asyncio.timeout(WAIT_SECONDS):
            await called_twice.wait()
        assert n2.transport.dispatch() == 0
        assert n2.transport.connected == frozenset()
        await n2.transport.close()


async def test_silent_peer_is_cut(net: Network) -> None:
    n1 = net.station("n1", ["n2"], settings=TransportSettings(silence_seconds=0.1))
    await net.start()
    async with raw_client(n1) as peer:
        peer.write(hello("n2"))
        await net.until(lambda: n1.story() == ["up n2", "down n2"])
        await peer.until_closed()


async def test_idle_peer_is_pinged_and_kept(net: Network) -> None:
    n1 = net.station("n1", ["n2"], settings=TransportSettings(silence_seconds=0.1))
    await net.start()
    async with raw_client(n1) as peer:
        peer.write(hello("n2"))
        assert (await peer.read_message())["type"] == "hello"
        for _ in range(10):  # two and a half times the silence that is allowed
            assert await peer.read_message() == {"type": "ping"}
            peer.write(encode_frame({"type": "ping"}))
        await net.until(lambda: True)
        assert n1.story() == ["up n2"]
        peer.write(encode_frame(vote(1)))
        await net.until(lambda: n1.story() == ["up n2", 1])


async def test_stall_of_this_process_cuts_nobody(net: Network) -> None:
    """A tick that comes late counts once, however late it is."""
    n1, n2 = await net.mesh("n1", "n2", settings=TransportSettings(silence_seconds=3600))
    for _ in range(4):
        n1.transport._tick()
    assert n1.transport.connected == {"n2"}
    n2.send("n1", vote(1))
    await net.until(lambda: n1.terms() == [1])
    for _ in range(4):
        n1.transport._tick()
    assert n1.transport.connected == {"n2"}
    n1.transport._tick()
    assert n1.transport.connected == frozenset()


# -- members ----------------------------------------------------------------------------------------------------------


async def test_dropped_node_is_not_heard_and_not_let_in_again(net: Network) -> None:
    n1, n2 = await net.mesh("n1", "n2")
    woken = asyncio.Event()
    n1.transport._wake = woken.set
    n2.send("n1", vote(1))
    await woken.wait()
    n1.transport.dropNode(Node("n2"))
    n1.transport.dropNode(Node("n2"))
    n1.transport.dispatch()
    assert n1.story() == ["up n2", "down n2"]
    await net.until(lambda: n2.story() == ["up n1", "down n1"])
    async with raw_client(n1) as stranger:
        stranger.write(hello("n2"))
        assert await stranger.until_closed() == b""


async def test_dropped_node_is_dialed_no_more(net: Network) -> None:
    _, n2 = await net.mesh("n1", "n2")
    dialer = n2.transport._peers["n1"].dialer
    assert dialer is not None
    n2.transport.dropNode(Node("n1"))
    async with asyncio.timeout(WAIT_SECONDS):
        await asyncio.wait({dialer})
    assert dialer.cancelled()


async def test_dropped_node_that_was_up_for_nobody_stays_unheard_of(net: Network, n1: Station) -> None:
    async with raw_client(n1) as peer:
        peer.write(hello("n2"))
        assert (await peer.read_message())["type"] == "hello"
        n1.transport.dropNode(Node("n2"))
        n1.transport.dispatch()
    assert n1.story() == []


@pytest.mark.parametrize("at", ["n1", "n2"], ids=["accepting", "dialing"])
async def test_node_that_is_added_again_is_linked_again(net: Network, at: str) -> None:
    stations = {station.id: station for station in await net.mesh("n1", "n2")}
    here = stations.pop(at)
    (other,) = stations
    here.transport.dropNode(Node(other))
    here.transport.addNode(Node(other))
    here.transport.addNode(Node(other))
    await net.until(lambda: here.story() == [f"up {other}", f"down {other}", f"up {other}"])


async def test_node_without_an_address_is_linked_once_it_is_known(net: Network) -> None:
    n1, n2 = net.station("n1", []), net.station("n2", [])
    await n1.transport.start()
    with capture_logs() as logs:
        await n2.transport.start()
        n2.transport.addNode(Node("n1"))
        n2.transport.addNode(Node("n2"))
        n1.transport.addNode(Node("n2"))
        await asyncio.sleep(0)
    assert kinds(logs) >= {("peer_unreachable", "no_address")}
    n2.transport.set_address("n1", Address("127.0.0.1", n1.transport.port))
    await net.until(lambda: n1.story() == ["up n2"] and n2.story() == ["up n1"])


# -- backpressure -----------------------------------------------------------------------------------------------------


async def test_slow_peer_loses_what_raft_repeats_then_its_connection(net: Network) -> None:
    settings = TransportSettings(peer_buffer_bytes_max=1_000_000, peer_buffer_bytes_hard_max=2_000_000)
    n1 = net.station("n1", ["n2"], settings=settings)
    await net.start()
    async with raw_client(n1) as peer:
        peer.write(hello("n2"))
        await net.until(lambda: n1.story() == ["up n2"])
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a stream's transport is a full one
        message = append(250_000)
        while n1.send("n2", message):
            await net.until(lambda: True)
        (status,) = n1.transport.peer_status()
        assert status.is_connected
        assert status.dropped_count == 1
        assert 1_000_000 < status.unsent_bytes < 1_300_000
        assert not n1.send("n2", message)
        assert n1.transport.peer_status()[0].dropped_count == 2

        assert n1.send("n2", vote(1)), "what Raft does not repeat still passes"
        name = {"type": "request_vote", "term": 2, "last_log_index": 1, "last_log_term": 1}
        while n1.send("n2", name):
            assert n1.transport.peer_status()[0].unsent_bytes < 2_100_000
        await net.until(lambda: n1.story() == ["up n2", "down n2"])
        assert n1.transport.peer_status()[0].dropped_count == 2


async def test_fast_peer_is_not_read_until_the_engine_has_caught_up(net: Network) -> None:
    n1 = net.station("n1", ["n2"], settings=TransportSettings(inbound_bytes_max=1_000_000, silence_seconds=3600))
    await net.start()
    async with raw_client(n1) as peer:
        peer.write(hello("n2"))
        assert (await peer.read_message())["type"] == "hello"
        peer.write(b"".join(encode_frame(append(100_000, term=term)) for term in range(1, 401)))
        woken = asyncio.Event()
        n1.transport._wake = woken.set
        while not n1.transport._paused:
            woken.clear()
            await woken.wait()
        for _ in range(10):
            n1.transport._tick()  # a peer that is not read can't be taken for silent
        assert 10 <= len(n1.transport._inbox) < 30
        n1.transport._wake = net._woken.set
        await net.until(lambda: len(n1.terms()) == 400)
    assert n1.terms() == list(range(1, 401))


# -- unfriendly strangers ---------------------------------------------------------------------------------------------


def random_bytes() -> bytes:
    return random.Random(28).randbytes(100_000)


class Gadget:
    """Unpickling it creates a file."""

    def __init__(self, canary: Path) -> None:
        self._canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._canary,)


@pytest.mark.parametrize("identity", [b"", hello("n2")], ids=["stranger", "member"])
@pytest.mark.parametrize(
    "said",
    [
        pytest.param(random_bytes(), id="random"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: n1\r\n\r\n", id="http"),
        pytest.param(struct.pack(">I", 2**31), id="two-gigabytes"),
        pytest.param(struct.pack(">I", 2**32 - 1), id="minus-one"),
        pytest.param(struct.pack(">I", 0), id="empty-frame"),
        pytest.param(struct.pack(">I", 10) + b"\x91" * 10, id="nested-lists"),
    ],
)
async def test_garbage_closes_its_connection_and_disturbs_no_other(net: Network, identity: bytes, said: bytes) -> None:
    n1, n3 = net.station("n1", ["n2", "n3"]), net.station("n3", ["n1"])
    await net.start()
    await net.until(lambda: n1.story() == ["up n3"] and n3.story() == ["up n1"])
    async with raw_client(n1) as stranger:
        stranger.write(identity + said)
        await stranger.until_closed()
    assert n3.send("n1", vote(1))
    await net.until(lambda: n1.terms() == [1])
    assert n1.transport.connected == {"n3"}


async def test_pickle_gadget_from_the_network_is_never_executed(net: Network, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    gadget = stock_pickle.dumps(Gadget(canary))
    stock_pickle.loads(gadget)  # what pysyncobj's own transport does with every frame, from anybody
    assert canary.exists()
    canary.unlink()

    n1 = net.station("n1", ["n2"])
    await net.start()
    packed = msgpack.packb({"type": "apply_command", "command": gadget})
    for body in (gadget, packed):
        frame = struct.pack(">I", len(body)) + body
        for identity in (b"", hello("n2")):
            async with raw_client(n1) as attacker:
                attacker.write(identity + frame)
                await attacker.until_closed()
    async with raw_client(n1) as member:
        message = {**append(0), "entries": [[gadget, 1, 1]]}
        member.write(hello("n2") + encode_frame(message))
        await net.until(lambda: bool(n1.terms()))
        assert n1.events[-1] == ("got", "n2", message)
    assert not canary.exists()


@pytest.mark.parametrize("said", [b"", hello("n2")[:-1], b"\x00"], ids=["nothing", "half-a-hello", "half-a-length"])
async def test_stranger_without_a_hello_is_closed_in_time(net: Network, said: bytes) -> None:
    n1 = net.station("n1", ["n2"], settings=TransportSettings(handshake_seconds=0.05))
    await net.start()
    async with raw_client(n1) as stranger:
        stranger.write(said)
        assert await stranger.until_closed() == b""


async def test_thousand_idle_connections_keep_no_peer_out(net: Network, n1: Station) -> None:
    idle: list[socket.socket] = []
    try:
        loop = asyncio.get_running_loop()
        for _ in range(1000):
            idle.append(socket.socket())
            idle[-1].setblocking(False)
            await loop.sock_connect(idle[-1], ("127.0.0.1", n1.transport.port))
        n2 = net.station("n2", ["n1"])
        await net.start(n2)
        await net.until(lambda: n1.story() == ["up n2"] and n2.story() == ["up n1"])
        assert len(n1.transport._open) <= QUICK.pending_handshakes_max + 1
        assert n2.send("n1", vote(1))
        await net.until(lambda: n1.terms() == [1])
    finally:
        for each in idle:
            each.close()


# -- the end ----------------------------------------------------------------------------------------------------------


def tcp_sockets() -> int:
    return len(psutil.Process().net_connections("tcp"))


async def test_close_leaves_no_task_and_no_socket() -> None:
    sockets = tcp_sockets()
    async with network() as net:
        n1, *_ = await net.mesh("n1", "n2", "n3", settings=TransportSettings(silence_seconds=3600))
        unreachable = net.station("n9", ["n1"])
        unreachable.transport.set_address("n1", Address("127.0.0.1", free_port()))
        await unreachable.transport.start()
        async with raw_client(n1):
            for station in net.stations:
                await station.transport.close()
                await station.transport.close()
                assert station.transport.dispatch() == 0
                assert not station.send("n1", vote(1))
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert tcp_sockets() == sockets


async def test_close_without_a_start_is_nothing() -> None:
    async with network() as net:
        net.station("n1", ["n2"])


async def test_close_ends_a_dial_that_hangs() -> None:
    never: asyncio.Future[list[Address]] = asyncio.get_running_loop().create_future()
    asked = asyncio.Event()

    async def resolve(address: Address) -> list[Address]:
        if address.host == "127.0.0.1":
            return [address]
        asked.set()
        return await never

    async with network() as net:
        n2 = net.station("n2", ["n1"], resolve=resolve)
        n2.transport.set_address("n1", Address("n1.test", 1))
        await net.start()
        n2.transport.set_address("n1", Address("n1.test", 1))
        await asked.wait()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_fault_of_our_own_ends_the_node() -> None:
    async def resolve(address: Address) -> list[Address]:
        if address.host == "127.0.0.1":
            return [address]
        raise ZeroDivisionError

    async with network() as net:
        n2 = net.station("n2", [], resolve=resolve)
        n2.transport.set_address("n1", Address("n1.test", 1))
        n2.transport.addNode(Node("n1"))
        await net.start()
        with capture_logs(), pytest.raises(ZeroDivisionError):
            await net.until(lambda: False)


# -- addresses and warnings -------------------------------------------------------------------------------------------


def kinds(logs: list[Any]) -> set[tuple[str, str]]:
    return {(event["event"], event.get("reason", "")) for event in logs}


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("n1.example:8500", Address("n1.example", 8500)),
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        ("[::1]:65535", Address("::1", 65535)),
    ],
)
def test_address_reads_back_what_it_writes(text: str, address: Address) -> None:
    assert Address.parse(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["", "n1", "n1:", ":1", "n1:65536", "n1:-1", "n1:x", "n1:\u0661", "::1:1", "[::1]", "[n1]:1"]
)
def test_address_refuses_what_is_none(text: str) -> None:
    with pytest.raises(Invalid) as refused:
        Address.parse(text, field="raft")
    assert refused.value.field == "raft"


@pytest.mark.parametrize(("host", "expected"), [("0.0.0.0", True), ("127.0.0.1", False)])
async def test_port_open_to_the_network_without_tls_is_warned_of(net: Network, host: str, expected: bool) -> None:
    station = net.station("n1", [], address=Address(host, 0))
    with capture_logs() as logs:
        await net.start()
    assert (("peer_port_without_tls", "") in kinds(logs)) is expected
    assert station.transport.port > 0
