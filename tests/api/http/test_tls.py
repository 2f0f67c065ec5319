"""The API's port with TLS: who is answered, and what the names in a client's certificate are."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme
from aiohttp import web

from raftsched.api.access.client_certificate import client_certificate_names
from raftsched.api.app import create_runner
from raftsched.tls.contexts import ApiTlsFiles, api_contexts, api_server_context
from raftsched.tls.renewal import RenewedContext

HOST = "127.0.0.1"
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


class Authority:
    """A certificate authority in a directory."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._ca = trustme.CA()
        self.name = name
        self.path = directory / f"{name}.pem"
        self._ca.cert_pem.write_to_path(self.path)

    def issue(self, *names: str, common_name: str | None = None, days_left: float = 1) -> Path:
        """Certify the names; return the file of certificate and key."""
        expires = datetime.now(UTC) + timedelta(days=days_left)
        issued = self._ca.issue_cert(
            *names, common_name=common_name, not_before=datetime(2000, 1, 1, tzinfo=UTC), not_after=expires
        )
        path = self._directory / f"{self.name}-{names[0] if names else common_name}-{days_left}.pem"
        issued.private_key_and_cert_chain_pem.write_to_path(path)
        return path


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"), "ours")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"), "theirs")


@asynccontextmanager
async def api(context: ssl.SSLContext | None) -> AsyncIterator[int]:
    """Serve the names of each client's certificate, by the server that nodes use; the value is its port."""

    async def names(request: web.Request) -> web.Response:
        return web.json_response(client_certificate_names(request))

    app = web.Application()
    app.router.add_get("/", names)
    runner = create_runner(app)
    await runner.setup()
    site = web.TCPSite(runner, HOST, 0, ssl_context=context)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def server_of(authority: Authority, *, clients: Authority | None = None) -> ssl.SSLContext:
    path = authority.issue(HOST)
    files = ApiTlsFiles(path, path, authority.path, clients.path if clients else None)
    return api_contexts(files, HOST).server


def client_of(authority: Authority, shown: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.path)
    if shown is not None:
        context.load_cert_chain(shown)
    return context


async def ask(port: int, context: ssl.SSLContext, url: str = "https") -> Any:
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
        session.get(f"{url}://{HOST}:{port}/") as reply,
    ):
        return await reply.json()


async def raw(port: int, said: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(said)
    try:
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_plaintext_is_not_answered_on_a_port_with_tls(authority: Authority) -> None:
    async with api(server_of(authority)) as port:
        assert b"HTTP" not in await raw(port, REQUEST)
        assert await ask(port, client_of(authority)) == []
    async with api(None) as port:
        assert (await raw(port, REQUEST)).startswith(b"HTTP/1.1 200")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
async def test_versions_before_1_2_are_refused(authority: Authority) -> None:
    def old(context: ssl.SSLContext) -> ssl.SSLContext:
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = ssl.TLSVersion.TLSv1
        return context

    client = old(client_of(authority))
    client.maximum_version = ssl.TLSVersion.TLSv1_1
    planted = old(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    planted.load_cert_chain(authority.issue(HOST))
    async with api(planted) as port:
        assert await ask(port, client) == []
    willing = server_of(authority)
    willing.set_ciphers("ALL:@SECLEVEL=0")  # only the version is left to refuse
    async with api(willing) as port:
        with pytest.raises(aiohttp.ClientConnectorError):
            await ask(port, client)
        client.maximum_version = ssl.TLSVersion.TLSv1_2
        assert await ask(port, client) == []
    assert api_server_context().minimum_version is ssl.TLSVersion.TLSv1_2


async def test_clients_refuse_an_api_that_is_not_certified_for_its_host(
    authority: Authority, stranger: Authority
) -> None:
    shown = {
        "good": authority.issue(HOST),
        "expired": authority.issue(HOST, days_left=-1),
        "another authority": stranger.issue(HOST),
        "another node": authority.issue("127.0.0.2"),
    }
    answered = []
    for name, path in shown.items():
        context = api_server_context()
        context.load_cert_chain(path)
        async with api(context) as port:
            try:
                await ask(port, client_of(authority))
                answered.append(name)
            except aiohttp.ClientConnectorCertificateError:
                continue
    assert answered == ["good"]


async def test_a_client_is_known_by_the_names_in_its_certificate(authority: Authority, stranger: Authority) -> None:
    """TLS 1.3 refuses a client after the client's own handshake."""
    clients = {
        "none": (None, []),
        "names": (
            stranger.issue("mail.example", "b.example", common_name="mailer"),
            ["mail.example", "b.example", "mailer"],
        ),
        "common name": (stranger.issue(common_name="alone"), ["alone"]),
        "expired": (stranger.issue("mail.example", days_left=-1), "refused"),
        "another authority": (authority.issue("mail.example"), "refused"),
    }
    found = {}
    async with api(server_of(authority, clients=stranger)) as port:
        for name, (shown, _) in clients.items():
            try:
                found[name] = await ask(port, client_of(authority, shown))
            except aiohttp.ClientError:
                found[name] = "refused"
    assert found == {name: expected for name, (_, expected) in clients.items()}


async def test_without_an_authority_of_clients_no_certificate_counts(authority: Authority) -> None:
    async with api(server_of(authority)) as port:
        assert await ask(port, client_of(authority, authority.issue("mail.example"))) == []


async def test_no_session_outlives_the_files_by_which_it_was_checked(authority: Authority) -> None:
    """With TLS 1.3 none is resumed at all; with 1.2 none that another context has begun."""
    loop = asyncio.get_running_loop()

    def connect(port: int, version: ssl.TLSVersion) -> bool:
        """Return whether the second connection, after a renewal, resumes the session of the first."""
        context = client_of(authority)
        context.minimum_version = context.maximum_version = version
        session = None
        for _ in range(2):
            with context.wrap_socket(
                socket.create_connection((HOST, port)), server_hostname=HOST, session=session
            ) as connection:
                connection.sendall(REQUEST)
                while connection.recv(4096):
                    pass
                session = connection.session
                resumed = connection.session_reused
            if renew is not None:
                renew()
        return bool(resumed)

    renewed = RenewedContext.of(server_of(authority))

    def renew_context() -> None:
        renewed.newest = server_of(authority)

    renew: Callable[[], None] | None = renew_context
    versions = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    async with api(renewed) as port:
        for version in versions:
            assert not await loop.run_in_executor(None, connect, port, version), version
        renew = None
        assert not await loop.run_in_executor(None, connect, port, ssl.TLSVersion.TLSv1_3)
    planted = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    planted.load_cert_chain(authority.issue(HOST))
    async with api(planted) as port:
        for version in versions:
            assert await loop.run_in_executor(None, connect, port, version), version
