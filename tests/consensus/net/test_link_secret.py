"""The cluster secret: who does not hold it is not linked, and no frame is changed, repeated or moved unseen."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgpack
import pytest
from structlog.testing import capture_logs

from raftsched.consensus.net.address import Address
from raftsched.consensus.net.framing import FrameDecoder, encode_frame
from raftsched.consensus.net.handshake import TransportSettings, hello_of
from raftsched.consensus.net.link_secret import MAC_BYTES, LinkSeal, read_secrets, with_nonce
from raftsched.consensus.raft.messages import Message
from raftsched.errors import Invalid
from tests.consensus.links import (
    CLUSTER,
    QUICK,
    WAIT_SECONDS,
    Network,
    RawClient,
    Station,
    append,
    hello,
    raw_client,
    vote,
)

SECRET = b"a secret of all nodes, long enough"
OTHER_SECRET = b"another secret of the same length."
PING = encode_frame({"type": "ping"})


@pytest.fixture
async def n1(net: Network) -> Station:
    """A started node with the secret, whose only peer is n2."""
    station = net.station("n1", ["n2"], secrets=[SECRET])
    await net.start(station)
    return station


class Caller:
    """A client that has sent and read a hello, and seals by a secret of its choice."""

    def __init__(self, client: RawClient, own: Message) -> None:
        self.client = client
        self.own = own
        self.sent = encode_frame(own)

    async def seal(self, secret: bytes = SECRET) -> LinkSeal:
        return LinkSeal([secret], own=self.own, other=await self.client.read_message(), dialed=True)

    def write(self, data: bytes) -> None:
        self.sent += data
        self.client.write(data)


@asynccontextmanager
async def caller(station: Station, node_id: str = "n2") -> AsyncIterator[Caller]:
    own = with_nonce(hello_of(node_id, CLUSTER))
    async with raw_client(station, is_sealed=True) as client:
        client.write(encode_frame(own))
        yield Caller(client, own)


def sealed(seal: LinkSeal, *messages: Message) -> list[bytes]:
    """The messages' frames, each with its MAC."""
    frames = [encode_frame(message) for message in messages]
    return [frame + mac for frame, mac in zip(*[iter(seal.sealed(frames))] * 2, strict=True)]


def reasons(logs: Any) -> list[str]:
    return [line["reason"] for line in logs if line["event"] in {"peer_refused", "bad_bytes"}]


async def refused(station: Station, client: RawClient, logs: Any, reason: str) -> None:
    """Wait until the station has closed the connection; it delivered nothing, and logged the reason."""
    await client.until_closed()
    assert reasons(logs) == [reason]
    station.transport.dispatch()
    assert not [event for event in station.events if event[0] == "got"]


# -- who is linked -----------------------------------------------------------------------------------------------------


async def test_nodes_with_the_same_secret_are_linked_and_exchange_messages(net: Network) -> None:
    n1, n2, _ = await net.mesh("n1", "n2", "n3", secrets=[SECRET])
    n1.send("n2", append(2 * 1024 * 1024, term=5))
    for term in range(6, 10):
        n1.send("n2", vote(term))
        n2.send("n1", vote(term))
    await net.until(lambda: n2.terms() == [5, 6, 7, 8, 9] and n1.terms() == [6, 7, 8, 9])


@pytest.mark.parametrize(
    ("of_n1", "of_n2", "accepting"),
    [
        ([SECRET], [OTHER_SECRET], "wrong_mac"),
        ([SECRET], [], "no_secret"),
        ([], [SECRET], "secret_needed"),
    ],
)
async def test_nodes_of_different_secrets_are_not_linked(
    net: Network, of_n1: list[bytes], of_n2: list[bytes], accepting: str
) -> None:
    n1, n2 = net.station("n1", ["n2"], secrets=of_n1), net.station("n2", ["n1"], secrets=of_n2)
    with capture_logs() as logs:
        await net.start()
        async with asyncio.timeout(WAIT_SECONDS):
            while not any(line.get("reason") == accepting for line in logs):
                await asyncio.sleep(0.01)
    assert n1.transport.dispatch() == n2.transport.dispatch() == 0
    assert not n1.transport.connected | n2.transport.connected


async def test_a_node_that_does_not_accept_the_first_secret_of_the_other_is_not_linked(net: Network) -> None:
    net.station("n1", ["n2"], secrets=[SECRET, OTHER_SECRET])
    n2 = net.station("n2", ["n1"], secrets=[OTHER_SECRET])
    with capture_logs() as logs:
        await net.start()
        async with asyncio.timeout(WAIT_SECONDS):
            while "wrong_mac" not in reasons(logs):
                await asyncio.sleep(0.01)
    assert n2.transport.dispatch() == 0
    assert not n2.transport.connected


@pytest.mark.parametrize("of_n1", [[SECRET, OTHER_SECRET], [OTHER_SECRET, SECRET], [OTHER_SECRET]])
async def test_nodes_that_each_accept_the_first_secret_of_the_other_are_linked(
    net: Network, of_n1: list[bytes]
) -> None:
    n1 = net.station("n1", ["n2"], secrets=of_n1)
    n2 = net.station("n2", ["n1"], secrets=[OTHER_SECRET, SECRET])
    await net.start()
    await net.until(lambda: n1.story() == ["up n2"] and n2.story() == ["up n1"])
    n1.transport.replace_secrets([b"of new links only, which are later"])
    for term in range(5, 9):
        n1.send("n2", vote(term))
        n2.send("n1", vote(term))
    await net.until(lambda: n1.terms() == n2.terms() == [5, 6, 7, 8])


async def test_a_link_that_began_by_one_secret_takes_no_frame_by_the_other(net: Network) -> None:
    n1 = net.station("n1", ["n2"], secrets=[SECRET, OTHER_SECRET])
    await net.start(n1)
    with capture_logs() as logs:
        async with caller(n1) as n2:
            other = await n2.client.read_message()
            first, second = (LinkSeal([each], own=n2.own, other=other, dialed=True) for each in (SECRET, OTHER_SECRET))
            n2.write(b"".join(sealed(first, {"type": "ping"}, vote(7))))
            await net.until(lambda: n1.story() == ["up n2", 7])
            n2.write(sealed(second, {"type": "ping"}, vote(8), vote(8))[2])
            await n2.client.until_closed()
    assert reasons(logs) == ["wrong_mac"]
    assert 8 not in n1.terms()


async def test_a_caller_that_proves_the_secret_is_linked(net: Network, n1: Station) -> None:
    async with caller(n1) as n2:
        await asyncio.wait_for(n2.seal(), WAIT_SECONDS)
        assert n1.transport.dispatch() == 0, "linked before it has proved anything"
    async with caller(n1) as n2:
        n2.write(b"".join(sealed(await n2.seal(), {"type": "ping"}, vote(7))))
        await net.until(lambda: n1.story() == ["up n2", 7])


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (lambda _seal, _wrong: hello("n2"), "no_secret"),
        (lambda _seal, wrong: b"".join(sealed(wrong, {"type": "ping"}, vote(7))), "wrong_mac"),
        (lambda _seal, _wrong: PING + bytes(MAC_BYTES), "wrong_mac"),
        (lambda _seal, _wrong: PING + encode_frame(vote(7)), "wrong_mac"),
        (lambda seal, _wrong: sealed(seal, append(100))[0], "bad_frame"),  # too large for what proves nothing yet
    ],
)
async def test_a_caller_that_proves_nothing_is_refused(
    net: Network, n1: Station, said: Callable[[LinkSeal, LinkSeal], bytes], reason: str
) -> None:
    with capture_logs() as logs:
        if reason == "no_secret":
            async with raw_client(n1) as client:
                client.write(hello("n2") + encode_frame(vote(7)))
                await refused(n1, client, logs, reason)
            return
        async with caller(n1) as n2:
            seal = await n2.seal()
            n2.write(said(seal, LinkSeal([OTHER_SECRET], own=n2.own, other=n2.own, dialed=True)))
            await refused(n1, n2.client, logs, reason)


@pytest.mark.parametrize("said", [PING[:3], b""], ids=["a part", "nothing"])
async def test_a_caller_that_never_proves_itself_is_closed_in_time(net: Network, said: bytes) -> None:
    n1 = net.station("n1", ["n2"], secrets=[SECRET], settings=TransportSettings(handshake_seconds=0.05))
    await net.start(n1)
    async with caller(n1) as n2:
        await n2.seal()
        n2.write(said)
        await n2.client.until_closed()
    assert n1.transport.dispatch() == 0


async def test_callers_that_wait_behind_their_hello_keep_no_peer_out(net: Network, n1: Station) -> None:
    idle: list[asyncio.StreamWriter] = []
    try:
        for _ in range(200):
            _, writer = await asyncio.open_connection("127.0.0.1", n1.transport.port)
            writer.write(encode_frame(with_nonce(hello_of("n2", CLUSTER))))
            idle.append(writer)
        n2 = net.station("n2", ["n1"], secrets=[SECRET])
        await net.start(n2)
        await net.until(lambda: n1.story() == ["up n2"] and n2.story() == ["up n1"])
        assert len(n1.transport._listener._pending_handshakes) <= QUICK.pending_handshakes_max  # type: ignore[union-attr]  # it listens
    finally:
        for writer in idle:
            writer.transport.abort()


async def test_callers_that_prove_nothing_take_no_place_of_unknown_ones(net: Network, n1: Station) -> None:
    heard: list[str] = []

    def on_greeting(node_id: str, _greeting: Message) -> bool:
        heard.append(node_id)
        return True

    n1.transport.unknown_callers.open(lambda _node_id: True, on_greeting)
    for number in range(20):
        async with caller(n1, f"n{number + 100}") as stranger:
            await stranger.seal()
            stranger.write(PING + bytes(MAC_BYTES))
            await stranger.client.until_closed()
    greeting: Message = {
        "type": "peer_identity",
        "incarnation": "a disk",
        "term": 1,
        "blank": False,
        "asks": False,
        "members": b"",
        "members_index": 1,
        "operations_read": 1,
        "operations_in_force": 1,
    }
    async with caller(n1, "n9") as member:
        member.write(b"".join(sealed(await member.seal(), {"type": "ping"}, greeting)))
        await net.until(lambda: heard == ["n9"])


async def test_a_dialing_node_tells_nothing_to_an_impostor(net: Network) -> None:
    heard: list[bytes] = []
    closed = asyncio.Event()

    async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder, own = FrameDecoder(), with_nonce(hello_of("n1", CLUSTER))
        [said] = decoder.feed(await reader.read(65536))
        seal = LinkSeal([OTHER_SECRET], own=own, other=said, dialed=False)
        writer.write(encode_frame(own) + b"".join(sealed(seal, {"type": "ping"}, vote(7))))
        heard.append(await reader.read())
        closed.set()
        writer.transport.abort()

    async with await asyncio.start_server(impostor, "127.0.0.1", 0) as listener:
        n2 = net.station("n2", ["n1"], secrets=[SECRET])
        n2.transport.set_address("n1", Address("127.0.0.1", listener.sockets[0].getsockname()[1]))
        await net.start()
        await asyncio.wait_for(closed.wait(), WAIT_SECONDS)
        assert n2.transport.dispatch() == 0
        await n2.transport.close()
    assert len(heard[0]) <= len(PING) + MAC_BYTES


# -- recorded and altered links ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_checked", [True, False], ids=["checked", "planted"])
async def test_a_replayed_handshake_is_refused(
    net: Network, n1: Station, is_checked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with caller(n1) as n2:
        n2.write(b"".join(sealed(await n2.seal(), {"type": "ping"}, vote(7))))
        await net.until(lambda: n1.story() == ["up n2", 7])
        recorded = n2.sent
    await net.until(lambda: n1.story() == ["up n2", 7, "down n2"])
    n1.events.clear()
    if not is_checked:
        monkeypatch.setattr(LinkSeal, "is_genuine", lambda *_: True)
    with capture_logs() as logs:
        async with raw_client(n1) as thief:
            thief.write(recorded)
            if is_checked:
                await refused(n1, thief, logs, "wrong_mac")
            else:
                await net.until(lambda: n1.story() == ["up n2", 7])


ALTERATIONS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "changed": lambda said: [said[0], said[1][: -MAC_BYTES - 1] + b"\x63" + said[1][-MAC_BYTES:], said[2]],
    "repeated": lambda said: [said[0], said[1], said[1]],
    "left out": lambda said: [said[0], said[2]],
    "exchanged": lambda said: [said[0], said[2], said[1]],
    "mac changed": lambda said: [said[0], said[1][:-1] + bytes([said[1][-1] ^ 1])],
    "length changed": lambda said: [said[0], said[1][:3] + bytes([said[1][3] - 1]) + said[1][4:]],
}


@pytest.mark.parametrize("how", [*ALTERATIONS, "as it was"])
async def test_a_link_whose_frames_are_altered_ends(net: Network, n1: Station, how: str) -> None:
    with capture_logs() as logs:
        async with caller(n1) as n2:
            said = sealed(await n2.seal(), {"type": "ping"}, vote(7), vote(8))
            first, *rest = ALTERATIONS.get(how, list)(said)
            n2.write(first)
            await net.until(lambda: n1.story() == ["up n2"])
            n2.write(b"".join(rest))
            if how == "as it was":
                await net.until(lambda: n1.story() == ["up n2", 7, 8])
                return
            await n2.client.until_closed()
    await net.until(lambda: n1.story()[-1] == "down n2")
    assert reasons(logs) == ["wrong_mac"]
    assert 8 not in n1.terms()
    assert n1.terms().count(7) <= 1


async def test_frames_sent_back_to_their_sender_are_refused(net: Network, n1: Station) -> None:
    with capture_logs() as logs:
        async with raw_client(n1) as mirror:
            mirror.write(encode_frame(with_nonce(hello_of("n2", CLUSTER))))
            echo = await mirror.reader.read(65536)
            while len(echo) < 4 + int.from_bytes(echo[:4], "big") + len(PING) + MAC_BYTES:
                echo += await mirror.reader.read(65536)
            mirror.write(echo[-len(PING) - MAC_BYTES :])
            await refused(n1, mirror, logs, "wrong_mac")


# -- the format, and the file ------------------------------------------------------------------------------------------


def test_the_mac_is_hmac_over_both_nonces_both_ids_the_cluster_and_the_direction() -> None:
    own, other = with_nonce(hello_of("n2", CLUSTER)), with_nonce(hello_of("n1", CLUSTER))
    said = ["raftsched link 1", "to the accepting node", CLUSTER, 1, "n2", "n1", own["nonce"], other["nonce"]]
    key = hmac.new(SECRET, msgpack.packb(said), hashlib.sha256).digest()
    seal = LinkSeal([SECRET], own=own, other=other, dialed=True)
    for number in range(3):
        expected = hmac.new(key, number.to_bytes(8, "big") + PING, hashlib.sha256).digest()[:16]
        assert list(seal.sealed([PING])) == [PING, expected]


def test_secrets_are_read_without_white_space_and_refused_by_their_line(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"\n" + SECRET + b"  \n\n" + OTHER_SECRET + b"\n")
    assert read_secrets(path) == (SECRET, OTHER_SECRET)
    for content, complaint in (
        (b"short\n", "line 1: 5 bytes.*openssl rand"),
        (b" " * 99, "line 1: 0 bytes"),
        (b"x" * 5000, "line 1: 5000 bytes, expected 32 to 4096"),
        (SECRET + b"\n\nshort", "line 3: 5 bytes"),
        (bytes(range(0x80, 0xA0)) * 2, "line 1: expected letters, digits and signs of ASCII"),
        (SECRET + b"\n" + SECRET, "line 2: it is the same secret as before"),
        (b"\n".join([SECRET, OTHER_SECRET, SECRET[::-1]]), "line 3: expected at most 2 secrets"),
    ):
        path.write_bytes(content)
        with pytest.raises(Invalid, match=f"cluster_secret_file: .*{complaint}") as error:
            read_secrets(path)
        assert error.value.field == "cluster_secret_file"
    with pytest.raises(Invalid, match="No such file"):
        read_secrets(tmp_path / "absent")
