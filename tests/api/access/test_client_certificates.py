"""Client certificates in place of tokens: who is let in by one, and what a node tells the leader of it."""

from __future__ import annotations

import ssl
from pathlib import Path

import aiohttp
import trustme
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

from raftsched.api.access.admin_file import AdminFile
from raftsched.api.access.door import CertifiedClient, TokenDoor
from raftsched.api.app import create_app, create_runner
from raftsched.core.records.api_token import EVERY_TENANT, Role
from raftsched.errors import Unauthorized
from tests.api.node import SimulatedNode

CLIENTS = (
    CertifiedClient("mail.example", Role.VIEWER, "acme"),
    CertifiedClient("ops.example", Role.ADMIN, EVERY_TENANT),
)


def door_of(node: SimulatedNode, directory: Path, *, secret: str = "s" * 32) -> TokenDoor:
    path = directory / f"admin.{secret[0]}"
    path.write_text(secret)
    admin = AdminFile(path)
    admin.load()
    return TokenDoor(node, admin, CLIENTS)


def headers_with(credentials: str) -> CIMultiDictProxy[str]:
    return CIMultiDictProxy(CIMultiDict({"Authorization": credentials}))


async def test_certificates_let_in_by_their_names_through_tls(tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(server)
    server.verify_mode = ssl.CERT_OPTIONAL
    node = SimulatedNode()
    runner = create_runner(create_app(node, door_of(node, tmp_path)), stop_seconds=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server)
    await site.start()
    await node.start()

    async def status(issuer: trustme.CA | None, name: str, method: str, path: str) -> object:
        client = ssl.create_default_context()
        authority.configure_trust(client)
        if issuer is not None:
            issuer.issue_cert(name).configure_cert(client)
        url = f"https://127.0.0.1:{runner.addresses[0][1]}/api/v1{path}"
        async with aiohttp.ClientSession() as session:
            try:
                async with session.request(
                    method, url, ssl=client, json={"name": "x"} if method != "GET" else None
                ) as reply:
                    return reply.status
            except (aiohttp.ClientConnectionError, OSError):
                return "no connection"

    try:
        cases = {
            "a viewer reads": (await status(authority, "mail.example", "GET", "/jobs"), 200),
            "a viewer does not submit": (await status(authority, "mail.example", "POST", "/jobs"), 403),
            "an admin submits": (await status(authority, "ops.example", "POST", "/jobs"), 201),
            "another name": (await status(authority, "other.example", "GET", "/jobs"), 401),
            "no certificate": (await status(None, "", "GET", "/jobs"), 401),
            "another authority": (await status(stranger, "ops.example", "GET", "/jobs"), "no connection"),
        }
        assert {name: found for name, (found, wanted) in cases.items() if found != wanted} == {}
    finally:
        await node.stop()
        await runner.cleanup()


async def test_nodes_believe_what_a_node_of_the_cluster_says_of_a_certificate_for_a_minute(tmp_path: Path) -> None:
    follower, leader = SimulatedNode(), SimulatedNode()
    voucher = door_of(follower, tmp_path).voucher(("other.example", "mail.example"))
    assert voucher is not None
    decides = door_of(leader, tmp_path)
    client = decides.principal(headers_with(voucher))
    assert (client.name, client.role, client.scope, client.is_bound) == ("mail.example", Role.VIEWER, "acme", True)
    stated, _, mac = voucher.rpartition("-")
    tag, _, until_ms = stated.partition("-")
    forged = {
        "another name": f"{door_of(follower, tmp_path).voucher(('ops.example',)).rpartition('-')[0]}-{mac}",  # type: ignore[union-attr]
        "a later end": f"{tag}-{int(until_ms) + 1}-{mac}",
        "no MAC": stated + "-",
        "another cluster's": door_of(follower, tmp_path, secret="t" * 32).voucher(("mail.example",)),
        "not even numbers": "Bearer rs_certificate_a-b-c",
    }

    def is_refused(credentials: str | None) -> bool:
        try:
            decides.principal(headers_with(str(credentials)))
        except Unauthorized:
            return True
        return False

    assert [name for name, credentials in forged.items() if not is_refused(credentials)] == []
    leader.clock.now_ms += 61_000
    assert is_refused(voucher)
