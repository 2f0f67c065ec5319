"""Sessions under TLS, by certificates, and without access control; and rules that all templates keep."""

from __future__ import annotations

import re
import ssl
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from fnmatch import fnmatch
from pathlib import Path

import aiohttp
import trustme
from aiohttp import web

import raftsched.dashboard
from raftsched.api.access.door import Door, OpenDoor
from raftsched.api.app import create_app, create_runner
from raftsched.dashboard.app import add_dashboard
from raftsched.dashboard.session import ROOT, SESSION_COOKIE
from tests.api.access.test_client_certificates import door_of
from tests.api.node import SimulatedNode

FOLDER = Path(raftsched.dashboard.__file__).parent


@asynccontextmanager
async def served(node: SimulatedNode, door: Door, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Serve API and dashboard of a node in this process; yield the base URL."""
    app = create_app(node, door)
    channel = add_dashboard(app, door, node.node_id)
    channel.runner = runner = create_runner(app, stop_seconds=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    await node.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}{ROOT}"
    finally:
        await node.stop()
        await runner.cleanup()


async def test_under_tls_cookies_are_secure_and_a_certificate_takes_the_place_of_a_token(tmp_path: Path) -> None:
    authority = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(server)
    server.verify_mode = ssl.CERT_OPTIONAL

    def context(name: str = "") -> ssl.SSLContext:
        client = ssl.create_default_context()
        authority.configure_trust(client)
        if name:
            authority.issue_cert(name).configure_cert(client)
        return client

    node = SimulatedNode()
    jar = aiohttp.CookieJar(unsafe=True)  # also of an address without a name
    async with served(node, door_of(node, tmp_path), server) as url, aiohttp.ClientSession(cookie_jar=jar) as session:
        for name, wanted in (("mail.example", 200), ("other.example", 303), ("", 303)):
            reply = await session.get(f"{url}/jobs", ssl=context(name), allow_redirects=False)
            assert (name, reply.status) == (name, wanted)
        viewed = await session.get(f"{url}/", ssl=context("mail.example"))
        assert "mail.example" in await viewed.text()
        refused = await session.get(f"{url}/submit", ssl=context("mail.example"))
        assert refused.status == 403
        form = await session.get(f"{url}/sign-in", ssl=context())
        found = re.search(r'name="csrf" value="([0-9a-f]{64})"', await form.text())
        assert found is not None
        fields = {"csrf": found[1], "token": "s" * 32}
        signed = await session.post(f"{url}/sign-in", data=fields, ssl=context(), allow_redirects=False)
        assert signed.status == 303
        cookie = signed.cookies[SESSION_COOKIE]
        assert cookie["secure"]
        assert cookie["httponly"]


async def test_no_redirect_leaves_the_dashboard(tmp_path: Path) -> None:
    node = SimulatedNode()
    jar = aiohttp.CookieJar(unsafe=True)
    async with served(node, door_of(node, tmp_path)) as url, aiohttp.ClientSession(cookie_jar=jar) as session:
        for wanted in (
            "https://evil.example/",
            "//evil.example",
            "/\\evil.example",
            "/ui//evil",
            "javascript:alert(1)",
            "/x",
        ):
            jar.clear()
            form = await session.get(f"{url}/sign-in")
            found = re.search(r'name="csrf" value="([0-9a-f]{64})"', await form.text())
            assert found is not None
            fields = {"csrf": found[1], "token": "s" * 32, "next": wanted}
            reply = await session.post(f"{url}/sign-in", data=fields, allow_redirects=False)
            assert (reply.status, reply.headers["Location"][:4]) == (303, f"{ROOT}/"), wanted


async def test_a_link_from_another_site_is_followed_by_who_has_signed_in(tmp_path: Path) -> None:
    node = SimulatedNode()
    async with served(node, door_of(node, tmp_path)) as url, aiohttp.ClientSession() as session:
        # Browsers leave a strict cookie out of this request, and put it into the one that the page then makes.
        reply = await session.get(f"{url}/jobs?queue=q", headers={"Sec-Fetch-Site": "cross-site"})
        assert f'content="0; url={ROOT}/jobs?queue=q"' in await reply.text()
        reply = await session.get(f"{url}/jobs", headers={"Sec-Fetch-Site": "same-origin"}, allow_redirects=False)
        assert reply.headers["Location"] == f"{ROOT}/sign-in?next=%2Fui%2Fjobs"


async def test_without_access_control_nobody_signs_in_and_replies_tell_strangers_nothing_of_the_cluster() -> None:
    node = SimulatedNode()
    async with served(node, OpenDoor()) as url, aiohttp.ClientSession() as session:
        reply = await session.get(f"{url}/jobs")
        assert "Access control is off" in await reply.text()
        sign_in = await session.get(f"{url}/sign-in", allow_redirects=False)
        assert (sign_in.status, sign_in.headers["Location"]) == (303, f"{ROOT}/")
        first = await session.get(url.removesuffix(ROOT) + "/", allow_redirects=False)
        assert first.headers["Location"] == f"{ROOT}/"
        missing = await session.get(f"{url}/static/style.000000000000.css")
        assert (missing.status, missing.headers["Cache-Control"]) == (404, "no-store")
        for each in (reply, missing):
            assert each.headers["Content-Security-Policy"].startswith("default-src 'self';")
            assert not [name for name in each.headers if name.startswith("Raftsched-")]


def test_templates_have_neither_scripts_nor_styles_within_and_a_token_in_each_form() -> None:
    faults = []
    for path in (FOLDER / "templates").rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        if re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\son[a-z]+=|https?://(?!\")", text):
            faults.append(f"{path.name}: something inline, or from elsewhere")
        forms = re.findall(r'<form[^>]*method="post".*?</form>', text, re.DOTALL)
        faults += [f"{path.name}: a form without its token" for form in forms if "csrf_field()" not in form]
        faults += [f"{path.name}: a text that is not escaped" for _ in re.findall(r"\|\s*safe\b", text)]
    assert faults == []


def test_every_template_and_asset_is_in_the_wheel() -> None:
    project = tomllib.loads((FOLDER.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["raftsched.dashboard"]
    files = [path.relative_to(FOLDER) for path in FOLDER.rglob("*") if path.is_file()]
    assert [
        str(path)
        for path in files
        if path.suffix not in (".py", ".pyc")
        and not any(fnmatch(str(path), pattern) and str(path).count("/") == pattern.count("/") for pattern in patterns)
    ] == []
