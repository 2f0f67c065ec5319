"""New files are used for new connections, broken ones are refused, and nothing else changes."""

from __future__ import annotations

import asyncio
import hashlib
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop
from structlog.testing import capture_logs

from raftsched.client.http.client_tls import client_tls
from raftsched.errors import Invalid
from raftsched.tls import renewal
from raftsched.tls.authority import issue, new_authority, read_certificates
from raftsched.tls.contexts import ApiTlsFiles, api_contexts
from raftsched.tls.renewal import RenewedContexts, renewed_client_context

HOST = "127.0.0.1"

pytestmark = pytest.mark.filterwarnings("ignore:Overriding the .event_loop_policy:pytest.PytestDeprecationWarning")


@pytest.fixture(params=[asyncio.DefaultEventLoopPolicy, uvloop.EventLoopPolicy], ids=["asyncio", "uvloop"])
def event_loop_policy(request: pytest.FixtureRequest) -> Any:
    return request.param()


class Site:
    """The files of an API, and the contexts that follow them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        new_authority(directory / "ca1", days=100)
        new_authority(directory / "ca2", days=100)
        self.trusted = directory / "trusted.pem"
        self.files = ApiTlsFiles(directory / "own" / "api.crt", directory / "own" / "api.key", self.trusted)
        self.trust("ca1")
        self.issue("ca1")
        paths = (self.files.certificate, self.files.key, self.trusted)
        self.contexts = RenewedContexts("api_tls", paths, lambda: api_contexts(self.files, HOST))

    def issue(self, authority: str) -> None:
        issue(
            self.directory / authority,
            self.directory / "own",
            name="api",
            hosts=[HOST],
            days=90,
            is_client=False,
            replace=True,
        )

    def trust(self, *authorities: str) -> None:
        """Write the bundle of these authorities in place."""
        texts = [(self.directory / name / "ca.crt").read_text() for name in authorities]
        self.trusted.write_text("".join(texts))

    @property
    def fingerprint(self) -> str:
        return read_certificates(self.files.certificate)[0].fingerprint


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


Ask = Callable[[ssl.SSLContext], Awaitable[str]]


@asynccontextmanager
async def serving(context: ssl.SSLContext) -> AsyncIterator[tuple[int, Ask]]:
    """An echo server with this context; the function returns the fingerprint of the certificate that a client sees."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    async with await asyncio.start_server(echo, HOST, 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]

        async def ask(client: ssl.SSLContext) -> str:
            reader, writer = await asyncio.open_connection(HOST, port, ssl=client)
            certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            writer.write(b"x\n")
            assert await reader.readline() == b"x\n"
            writer.close()
            return hashlib.sha256(certificate).hexdigest()

        yield port, ask


async def test_a_new_certificate_is_shown_to_new_connections_and_old_ones_stay(site: Site) -> None:
    first = site.fingerprint
    async with serving(site.contexts.server) as (port, ask):
        reader, writer = await asyncio.open_connection(HOST, port, ssl=site.contexts.client)
        assert await ask(site.contexts.client) == first
        site.issue("ca1")
        assert await ask(site.contexts.client) == first, "nobody has looked yet"
        with capture_logs() as logs:
            site.contexts.look()
            site.contexts.look()
        assert [line["event"] for line in logs] == ["certificates_renewed"]
        assert await ask(site.contexts.client) == site.fingerprint != first
        writer.write(b"still here\n")
        assert await reader.readline() == b"still here\n"
        writer.close()


async def test_an_authority_is_replaced_in_three_steps_and_the_old_one_counts_for_nothing_then(site: Site) -> None:
    async with serving(site.contexts.server) as (_, ask):
        old = renewed_client_context(site.directory / "ca1" / "ca.crt")
        steps: list[Callable[[], object]] = [
            lambda: site.trust("ca1", "ca2"),
            lambda: site.issue("ca2"),
            lambda: site.trust("ca2"),
        ]
        for step in steps:
            step()
            site.contexts.look()
            assert await ask(site.contexts.client) == site.fingerprint
        with pytest.raises(ssl.SSLCertVerificationError):
            await ask(old)


async def test_broken_files_are_refused_once_and_the_old_ones_stay(site: Site) -> None:
    first = site.fingerprint
    good = {path: path.read_bytes() for path in (site.files.certificate, site.files.key, site.trusted)}
    breaks: list[Callable[[], object]] = [
        lambda: site.files.certificate.write_text("no certificate"),
        site.files.key.unlink,
        lambda: site.files.key.write_bytes((site.directory / "ca2" / "ca.key").read_bytes()),
        lambda: site.trust("ca2"),
        lambda: site.trusted.write_text(""),
        lambda: site.issue("ca2"),
    ]
    async with serving(site.contexts.server) as (_, ask):
        for broken in breaks:
            broken()
            site.contexts.look()
            with capture_logs() as logs:
                site.contexts.look()
                site.contexts.look()
            assert [(line["event"], line["log_level"]) for line in logs] == [("certificates_refused", "error")]
            assert "api_tls." in logs[0]["error"]
            assert await ask(site.contexts.client) == first
            for path, content in good.items():
                path.write_bytes(content)
            with capture_logs() as logs:
                site.contexts.look()
            assert [line["event"] for line in logs] == ["certificates_renewed"]


async def test_a_certificate_whose_key_follows_later_is_used_once_both_are_there(site: Site) -> None:
    before = {path: path.read_bytes() for path in (site.files.certificate, site.files.key)}
    site.issue("ca1")
    key = site.files.key.read_bytes()
    site.files.key.write_bytes(before[site.files.key])
    with capture_logs() as logs:
        site.contexts.look()
    assert logs == []
    async with serving(site.contexts.server) as (_, ask):
        assert await ask(site.contexts.client) != site.fingerprint
        stamp = site.files.key.stat()
        site.files.key.write_bytes(key)
        os.utime(
            site.files.key, ns=(stamp.st_atime_ns, stamp.st_mtime_ns)
        )  # in the same tick of the file system's clock
        site.contexts.look()
        assert await ask(site.contexts.client) == site.fingerprint


def test_an_expiry_that_is_near_is_warned_of_once_a_day(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.now(UTC).timestamp()
    days = 0.0
    monkeypatch.setattr("raftsched.tls.renewal.time.time", lambda: now + days * 86_400)
    warned = []
    for days in (0.0, 70.0, 77.0, 77.5, 78.1, 79.2):  # noqa: B007  # the clock reads it
        with capture_logs() as logs:
            site.contexts.look()
        warned.append([line["event"] for line in logs])
    assert warned == [[], [], ["certificate_expires"], [], ["certificate_expires"], ["certificate_expires"]]


# -- clients -----------------------------------------------------------------------------------------------------------


async def test_a_client_follows_its_ca_file_without_being_told(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(renewal, "_CLIENT_LOOK_SECONDS", 0.0)
    mine = site.directory / "mine.pem"
    mine.write_text((site.directory / "ca2" / "ca.crt").read_text())
    client = client_tls(None, ca_file=mine, client_certificate=None)
    assert client is not None
    async with serving(site.contexts.server) as (_, ask):
        with pytest.raises(ssl.SSLCertVerificationError):
            await ask(client)
        mine.write_text((site.directory / "ca1" / "ca.crt").read_text())
        assert await ask(client) == site.fingerprint
        mine.write_text("garbage")
        for _ in range(2):
            assert await ask(client) == site.fingerprint
        assert "ca_file" in caplog.text
        assert "the files of before are used" in caplog.text
        mine.write_text((site.directory / "ca2" / "ca.crt").read_text())
        with pytest.raises(ssl.SSLCertVerificationError):
            await ask(client)


def test_files_of_a_client_that_are_wrong_are_named(site: Site, tmp_path: Path) -> None:
    garbage = tmp_path / "garbage"
    garbage.write_text("garbage")
    ca, certificate, key = site.trusted, site.files.certificate, site.files.key
    cases: list[tuple[dict[str, Any], str]] = [
        ({"ca_file": tmp_path / "absent"}, "ca_file: .*absent: No such file"),
        ({"ca_file": garbage}, "ca_file: .*garbage: not a certificate"),
        ({"client_certificate": (garbage, key)}, "client_certificate: .*garbage"),
        ({"client_certificate": (certificate, garbage)}, "client_certificate: .*api.crt"),
        ({"client_certificate": (certificate, tmp_path / "absent")}, "client_key: .*absent"),
        ({"ca_file": ca, "tls": ssl.create_default_context()}, "tls: give it, or ca_file"),
    ]
    for given, words in cases:
        with pytest.raises(Invalid, match=words):
            client_tls(**{"tls": None, "environment": {}} | given)
    assert client_tls(None, ca_file=None, client_certificate=None) is None
    assert client_tls(None, ca_file=ca, client_certificate=(certificate, key)) is not None


def test_an_expired_certificate_is_not_used_by_a_start(tmp_path: Path) -> None:
    authority = trustme.CA()
    expired = datetime.now(UTC) - timedelta(days=1)
    issued = authority.issue_cert(HOST, not_before=expired - timedelta(days=1), not_after=expired)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "api.pem")
    files = ApiTlsFiles(tmp_path / "api.pem", tmp_path / "api.pem", tmp_path / "ca.pem")
    with pytest.raises(Invalid, match="certificate has expired"):
        api_contexts(files, HOST)
