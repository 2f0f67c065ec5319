from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop
from structlog.testing import capture_logs

from raftsched.consensus.net.address import Address
from raftsched.consensus.net.framing import encode_frame
from raftsched.consensus.net.handshake import TransportSettings
from raftsched.consensus.raft.messages import Message
from raftsched.errors import Invalid
from raftsched.tls.contexts import (
    TlsFiles,
    api_client_context,
    node_client_context,
    node_contexts,
    node_server_context,
)
from raftsched.tls.names import certificate_names, is_certified
from tests.consensus.links import (
    QUICK,
    WAIT_SECONDS,
    Network,
    RawClient,
    Station,
    append,
    hello,
    network,
    raw_client,
    vote,
)

# The fixture's successor is a hook that would decide for the whole test suite, and older pytest-asyncio 1.x lack it.
pytestmark = pytest.mark.filterwarnings("ignore:Overriding the .event_loop_policy:pytest.PytestDeprecationWarning")


PEER_IDENTITY: Message = {
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


_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


class Authority:
    """A certificate authority in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ca = trustme.CA()
        directory.mkdir()
        self.path = directory / "ca.pem"
        self._ca.cert_pem.write_to_path(self.path)

    def issue(self, *names: str, expires: datetime | None = None) -> TlsFiles:
        """Certify `names`, under the first."""
        files = TlsFiles(self._directory / f"{names[0]}.pem", self._directory / f"{names[0]}.key", self.path)
        issued = self._ca.issue_cert(*names, not_before=_LONG_AGO, not_after=expires)
        files.certificate.unlink(missing_ok=True)
        for blob in issued.cert_chain_pems:
            blob.write_to_path(files.certificate, append=True)
        issued.private_key_pem.write_to_path(files.key)
        return files


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def stranger_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "theirs")


@pytest.fixture(params=[asyncio.DefaultEventLoopPolicy, uvloop.EventLoopPolicy], ids=["asyncio", "uvloop"])
def event_loop_policy(request: pytest.FixtureRequest) -> Any:
    return request.param()


@pytest.fixture
async def net() -> AsyncIterator[Network]:
    async with network() as made:
        yield made


def secured(files: TlsFiles) -> dict[str, ssl.SSLContext]:
    return {"ssl_server": node_server_context(files), "ssl_client": node_client_context(files)}


async def secure_station(net: Network, authority: Authority, node_id: str, *peers: str, **options: Any) -> Station:
    station = net.station(node_id, peers, **secured(authority.issue(node_id)), **options)
    await net.start(station)
    return station


async def until_refused(client: RawClient) -> bytes:
    try:
        return await client.until_closed()
    except OSError:
        return b""


# -- between nodes ----------------------------------------------------------------------------------------------------


async def test_nodes_with_their_own_certificates_exchange_messages(net: Network, authority: Authority) -> None:
    n1 = await secure_station(net, authority, "n1", "n2")
    n2 = await secure_station(net, authority, "n2", "n1")
    await net.until(lambda: n1.story() == ["up n2"] and n2.story() == ["up n1"])
    message = append(2 * 1024 * 1024)
    n1.send("n2", message)
    n2.send("n1", vote(7))
    await net.until(lambda: n1.story() == ["up n2", 7] and n2.story() == ["up n1", 1])
    assert n2.events[-1] == ("got", "n1", message)


async def test_member_under_its_own_name_is_heard(net: Network, authority: Authority) -> None:
    n1 = await secure_station(net, authority, "n1", "n2", "n3")
    async with raw_client(n1, node_client_context(authority.issue("n2"))) as member:
        member.write(hello("n2") + encode_frame(vote(1)))
        await net.until(lambda: n1.story() == ["up n2", 1])


@pytest.mark.parametrize("names", [("n3",), ("*.n2",), ("x.n2", "n22")], ids=["member", "wildcard", "similar"])
async def test_certificate_of_one_name_cannot_claim_another(
    net: Network, authority: Authority, names: tuple[str, ...]
) -> None:
    n1 = await secure_station(net, authority, "n1", "n2", "n3")
    with capture_logs() as logs:
        async with raw_client(n1, node_client_context(authority.issue(*names))) as impostor:
            impostor.write(hello("n2") + encode_frame(vote(1)))
            assert await until_refused(impostor) == b""
    assert [event["reason"] for event in logs if event["event"] == "peer_refused"] == ["wrong_certificate"]
    assert n1.transport.dispatch() == 0


@pytest.mark.parametrize(("name", "reason"), [("n9", ""), ("n3", "unknown_node")], ids=["its-own", "another"])
async def test_unknown_caller_is_admitted_under_the_name_of_its_certificate_only(
    net: Network, authority: Authority, name: str, reason: str
) -> None:
    n1 = await secure_station(net, authority, "n1", "n2")
    heard: list[str] = []

    def on_greeting(node_id: str, _greeting: Message) -> bool:
        heard.append(node_id)
        return True

    n1.transport.unknown_callers.open(lambda _node_id: True, on_greeting)
    with capture_logs() as logs:
        async with raw_client(n1, node_client_context(authority.issue(name))) as caller:
            caller.write(hello("n9") + encode_frame(PEER_IDENTITY))
            if reason:
                assert await until_refused(caller) == b""
            else:
                await net.until(lambda: heard == ["n9"])
    assert [event["reason"] for event in logs if event["event"] == "peer_refused"] == ([reason] if reason else [])
    assert n1.transport.dispatch() == 0


async def test_plaintext_client_gets_nothing_through(net: Network, authority: Authority) -> None:
    n1 = await secure_station(net, authority, "n1", "n2")
    async with raw_client(n1) as plain:
        plain.write(hello("n2") + encode_frame(vote(1)))
        answer = await until_refused(plain)
    assert b"hello" not in answer
    assert n1.transport.dispatch() == 0


async def test_client_without_a_certificate_gets_nothing_through(net: Network, authority: Authority) -> None:
    n1 = await secure_station(net, authority, "n1", "n2")
    async with raw_client(n1, api_client_context(authority.path)) as nameless:
        nameless.write(hello("n2") + encode_frame(vote(1)))
        assert await until_refused(nameless) == b""
    assert n1.transport.dispatch() == 0


async def test_certificate_of_another_authority_gets_nothing_through(
    net: Network, authority: Authority, stranger_authority: Authority
) -> None:
    n1 = await secure_station(net, authority, "n1", "n2")
    foreign = stranger_authority.issue("n2")
    context = node_client_context(TlsFiles(foreign.certificate, foreign.key, authority.path))
    async with raw_client(n1, context) as foreigner:
        foreigner.write(hello("n2") + encode_frame(vote(1)))
        assert await until_refused(foreigner) == b""
    assert n1.transport.dispatch() == 0


@pytest.mark.parametrize("days_left", [-1, 1], ids=["expired", "valid"])
async def test_expired_certificate_gets_nothing_through(net: Network, authority: Authority, days_left: int) -> None:
    n1 = await secure_station(net, authority, "n1", "n2")
    files = authority.issue("n2", expires=datetime.now(UTC) + timedelta(days=days_left))
    with capture_logs() as logs:
        async with raw_client(n1, node_client_context(files)) as peer:
            peer.write(hello("n2") + encode_frame(vote(1)))
            if days_left > 0:
                await net.until(lambda: n1.story() == ["up n2", 1])
                return
            assert await until_refused(peer) == b""
    assert any("certificate has expired" in event.get("error", "") for event in logs)
    assert n1.transport.dispatch() == 0


async def test_old_tls_version_gets_nothing_through(net: Network, authority: Authority) -> None:
    n1 = await secure_station(net, authority, "n1", "n2")
    context = node_client_context(authority.issue("n2"))
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    with capture_logs() as logs, pytest.raises(OSError):
        async with raw_client(n1, context):
            pass
    assert any(event["reason"] == "unsupported_protocol" for event in logs)
    assert n1.transport.dispatch() == 0


@pytest.mark.parametrize("impostor", ["another-name", "another-authority", "no-tls"])
async def test_dialer_tells_nothing_to_an_impostor(
    net: Network, authority: Authority, stranger_authority: Authority, impostor: str
) -> None:
    heard = b""
    calls = 0
    called_twice = asyncio.Event()
    contexts = {
        "another-name": node_server_context(authority.issue("n3")),
        "another-authority": node_server_context(stranger_authority.issue("n1")),
    }

    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal heard
        heard += await reader.read()
        writer.transport.abort()

    async def resolve(address: Address) -> list[Address]:
        nonlocal calls
        calls += 1
        if calls == 4:
            called_twice.set()
        return [address]

    listener = await asyncio.start_server(server, "127.0.0.1", 0, ssl=contexts.get(impostor))
    async with listener:
        settings = TransportSettings(handshake_seconds=0.2, redial_seconds_min=0.01, redial_seconds_max=0.02)
        files = secured(authority.issue("n2"))
        n2 = net.station("n2", ["n1"], **files, resolve=resolve, settings=settings)
        n2.transport.set_address("n1", Address("127.0.0.1", listener.sockets[0].getsockname()[1]))
        await net.start()
        async with asyncio.timeout(WAIT_SECONDS):
            await called_twice.wait()
        assert n2.transport.dispatch() == 0
        await n2.transport.close()
    assert b"hello" not in heard


async def test_unfinished_handshakes_are_bounded_and_keep_no_peer_out(net: Network, authority: Authority) -> None:
    n1 = await secure_station(net, authority, "n1", "n2")
    idle: list[socket.socket] = []
    try:
        loop = asyncio.get_running_loop()
        for _ in range(200):
            idle.append(socket.socket())
            idle[-1].setblocking(False)
            await loop.sock_connect(idle[-1], ("127.0.0.1", n1.transport.port))
        n2 = await secure_station(net, authority, "n2", "n1")
        await net.until(lambda: n1.story() == ["up n2"] and n2.story() == ["up n1"])
        assert len(n1.transport._listener._pending_handshakes) <= QUICK.pending_handshakes_max  # type: ignore[union-attr]  # it listens
    finally:
        for each in idle:
            each.close()


async def test_unfinished_handshake_is_closed_in_time(net: Network, authority: Authority) -> None:
    n1 = await secure_station(net, authority, "n1", "n2", settings=TransportSettings(handshake_seconds=0.05))
    async with raw_client(n1) as stranger:
        assert await until_refused(stranger) == b""


async def test_slow_peer_is_bounded_under_tls_too(net: Network, authority: Authority) -> None:
    settings = TransportSettings(peer_buffer_bytes_max=1_000_000, peer_buffer_bytes_hard_max=2_000_000)
    n1 = await secure_station(net, authority, "n1", "n2", settings=settings)
    async with raw_client(n1, node_client_context(authority.issue("n2"))) as peer:
        peer.write(hello("n2"))
        await net.until(lambda: n1.story() == ["up n2"])
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a stream's transport is a full one
        message = append(250_000)
        while n1.send("n2", message):
            await net.until(lambda: True)
        (status,) = n1.transport.peer_status()
        assert status.dropped_count == 1
        assert status.unsent_bytes < 1_400_000


async def test_half_a_tls_configuration_is_refused(authority: Authority) -> None:
    with pytest.raises(ValueError, match="both contexts"):
        Station("n1", [], lambda: None, ssl_server=node_server_context(authority.issue("n1")))


# -- contexts ---------------------------------------------------------------------------------------------------------


def test_node_contexts_require_certificates_and_tls_1_3(authority: Authority) -> None:
    for make in (node_server_context, node_client_context):
        context = make(authority.issue("n1"))
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert node_client_context(authority.issue("n1")).check_hostname


def test_contexts_refuse_files_that_are_none(authority: Authority, tmp_path: Path) -> None:
    files = authority.issue("n1")
    with pytest.raises(FileNotFoundError):
        node_server_context(TlsFiles(tmp_path / "missing.pem", files.key, files.authority))
    with pytest.raises(ssl.SSLError):
        node_server_context(TlsFiles(files.certificate, authority.issue("n2").key, files.authority))


@pytest.mark.parametrize(
    ("certificate", "names"),
    [
        (None, set()),
        ({}, set()),
        ({"subject": ((("commonName", "n1"),),)}, set()),
        ({"subjectAltName": (("DNS", "n1"), ("IP Address", "10.0.0.1"), ("DNS", "n1.example"))}, {"n1", "n1.example"}),
    ],
)
def test_names_of_a_certificate_are_its_dns_names_only(certificate: dict[str, object] | None, names: set[str]) -> None:
    assert certificate_names(certificate) == names
    assert is_certified(certificate, "n1") is ("n1" in names)
    assert not is_certified(certificate, "10.0.0.1")


# -- what is said of a refusal -----------------------------------------------------------------------------------------


Log = list[Any]
_NOWHERE = str(Address("127.0.0.1", 0))
"""Where a station looks for the other before it was told."""


async def said(net: Network, stations: tuple[Station, Station], *enough: tuple[str, str]) -> Log:
    """Start both; return the first line of each (event, node) once all were said."""
    with capture_logs() as logs:
        await net.start(*stations)
        async with asyncio.timeout(WAIT_SECONDS):
            while not set(enough) <= {
                (line["event"], line.get("node")) for line in logs if line.get("remote") != _NOWHERE
            }:
                await asyncio.sleep(0.01)
    return [
        next(line for line in logs if (line["event"], line.get("node")) == each and line.get("remote") != _NOWHERE)
        for each in enough
    ]


async def test_both_sides_say_address_and_reason_where_the_dialing_side_refuses(
    net: Network, authority: Authority, stranger_authority: Authority
) -> None:
    n1 = net.station("n1", ["n2"], **secured(authority.issue("n1")))
    n2 = net.station("n2", ["n1"], **secured(stranger_authority.issue("n2")))
    dialing, accepting = await said(net, (n1, n2), ("tls_refused", "n2"), ("handshake_failed", "n1"))
    assert (dialing["peer"], dialing["remote"]) == ("n1", f"127.0.0.1:{n1.transport.port}")
    assert dialing["reason"] == "certificate_verify_failed"
    assert "self-signed certificate in certificate chain" in dialing["error"]
    assert accepting["remote"].startswith("127.0.0.1:")
    assert "does not accept this node's certificate" in accepting["error"]


async def test_both_sides_say_address_and_reason_where_the_accepting_side_refuses(
    net: Network, authority: Authority, stranger_authority: Authority
) -> None:
    """With TLS 1.3 the dialing side's own handshake has succeeded by then."""
    stranger = stranger_authority.issue("n2")
    mixed = node_client_context(authority.issue("n1"))
    mixed.load_cert_chain(stranger.certificate, stranger.key)
    n1 = net.station("n1", ["n2"], **secured(authority.issue("n1")))
    n2 = net.station("n2", ["n1"], ssl_server=node_server_context(authority.issue("n2")), ssl_client=mixed)
    dialing, accepting = await said(net, (n1, n2), ("peer_unreachable", "n2"), ("tls_refused", "n1"))
    assert (dialing["peer"], dialing["remote"]) == ("n1", f"127.0.0.1:{n1.transport.port}")
    assert "does not accept this node's certificate" in dialing["error"]
    assert accepting["remote"].startswith("127.0.0.1:")
    assert accepting["reason"] == "certificate_verify_failed"
    assert "unable to get local issuer certificate" in accepting["error"]


async def test_a_certificate_for_another_name_is_named(net: Network, authority: Authority) -> None:
    n1 = net.station("n1", ["n2"], **secured(authority.issue("n1")))
    n2 = net.station("n2", ["n1"], **secured(authority.issue("n3", "other.example")))
    [refused] = await said(net, (n1, n2), ("peer_refused", "n1"))
    assert (refused["reason"], refused["certified"]) == ("wrong_certificate", "n3, other.example")
    assert refused["remote"].startswith("127.0.0.1:")


# -- files -------------------------------------------------------------------------------------------------------------


def test_files_that_other_nodes_would_refuse_are_named(
    authority: Authority, stranger_authority: Authority, tmp_path: Path
) -> None:
    good, other, stranger = authority.issue("n1"), authority.issue("n9"), stranger_authority.issue("n1")
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    assert node_contexts(good, "n1").client is not None
    expected = [
        (replace(good, key=other.key), f"peer_tls.key: {other.key} and {good.certificate}: the key is not"),
        (replace(good, authority=garbage), f"peer_tls.ca: {garbage}: not a certificate"),
        (replace(good, certificate=garbage), "not both in PEM"),
        (replace(good, key=tmp_path / "absent"), f"peer_tls.key: {tmp_path / 'absent'}: No such file"),
        (replace(good, key=tmp_path), f"peer_tls.key: {tmp_path}: Is a directory"),
        (replace(good, authority=stranger.authority), "other nodes would refuse it as n1's: certificate verify failed"),
        (other, "other nodes would refuse it as n1's: certificate verify failed: Hostname mismatch"),
    ]
    wrong = []
    for files, words in expected:
        try:
            node_contexts(files, "n1")
            wrong.append((files, "accepted"))
        except Invalid as error:
            if words not in str(error):
                wrong.append((files, str(error)))
    assert not wrong
