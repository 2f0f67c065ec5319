"""The dashboard of a real cluster, and a browser that looks at it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from aiohttp import ClientSession
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from raftsched.cli.local.cluster import LocalCluster
from raftsched.client import Client
from raftsched.dashboard.session import ROOT, SESSION_COOKIE
from tests import tiers

CHROMIUM: Final = shutil.which("chromium")
_WAIT_MS: Final = 60_000
"""Time for a page to show what it should, also on a machine with much else to do."""
_EXPECTED: Final = "Failed to load resource"
"""The browser's word for every reply of 400 and above."""


@asynccontextmanager
async def opened_browser() -> AsyncIterator[Browser]:
    """Start Chromium; without it this fails with the command that installs it."""
    assert CHROMIUM, "these tests need Chromium: apt-get install chromium"
    expect.set_options(timeout=_WAIT_MS)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        await browser.close()


@asynccontextmanager
async def opened_site(directory: Path, **settings: Any) -> AsyncIterator[Site]:
    """Start three nodes with tokens, and a browser."""
    with tiers.shared():
        cluster = LocalCluster(directory, settings={"lease_seconds": 2.0, **settings}, with_tokens=True)
        cluster.start()
    with cluster:
        assert cluster.token_file is not None
        token = cluster.token_file.read_text().strip()
        async with opened_browser() as browser, Client(*cluster.urls, token=token) as admin:
            with tiers.shared():
                cluster.wait_for_leader()
                for node in cluster.nodes:
                    cluster.wait_until_ready(node)
            yield Site(cluster, browser, admin)


async def posted(url: str, fields: Mapping[str, str], headers: Mapping[str, str]) -> int:
    """Send a form without a browser, and return the status of the reply."""
    async with ClientSession() as session:
        reply = await session.post(url, data=fields, headers=headers, allow_redirects=False)
        return reply.status


def complaints_of(page: Page) -> list[str]:
    """Return a list to which every error of a script, every violation of the policy, and every dialog is added."""
    complaints: list[str] = []

    def on_console(message: Any) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(_EXPECTED):
            complaints.append(f"console: {message.text}")

    async def on_dialog(dialog: Any) -> None:
        complaints.append(f"dialog: {dialog.message}")
        await dialog.dismiss()

    page.on("console", on_console)
    page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
    page.on("dialog", on_dialog)
    return complaints


async def sign_in(context: BrowserContext, token: str) -> None:
    """Let a browser have the cookie of a token."""
    await context.add_cookies(
        [
            {
                "name": SESSION_COOKIE,
                "value": token,
                "domain": "127.0.0.1",
                "path": ROOT,
                "httpOnly": True,
                "sameSite": "Strict",
            }
        ]
    )


@dataclass(slots=True)
class Window:
    """A page in a browser of its own, and what the browser complained about."""

    site: Site
    context: BrowserContext
    page: Page
    complaints: list[str]

    async def open(self, path: str = "/", *, node: int = 0) -> Page:
        """Go to a path below `/ui`."""
        await self.page.goto(f"{self.site.cluster.urls[node]}{ROOT}{path}")
        return self.page

    async def text(self) -> str:
        return await self.page.inner_text("main")


@dataclass(slots=True)
class Site:
    """A cluster with tokens, and its admin."""

    cluster: LocalCluster
    browser: Browser
    admin: Client
    tokens: dict[str, str] = field(default_factory=dict)
    """Texts of tokens of the tenant `default` by their role, made when they are asked for."""

    @property
    def admin_token(self) -> str:
        """Return the text of the admin token file."""
        assert self.cluster.token_file is not None
        return self.cluster.token_file.read_text().strip()

    async def token(self, role: str) -> str:
        if role not in self.tokens:
            made = await self.admin.tokens.create(role, tenant="default", name=f"{role}-of-tests")  # type: ignore[arg-type]
            assert isinstance(made.token, str)
            self.tokens[role] = made.token
        return self.tokens[role]

    @asynccontextmanager
    async def window(
        self, role: str = "", *, token: str = "", width: int = 1280, height: int = 800, **options: Any
    ) -> AsyncIterator[Window]:
        """Open a window in which somebody with `role` or `token` has signed in; nobody with neither.

        It fails if a script failed, the policy was violated, or a dialog was opened.
        """
        context = await self.browser.new_context(viewport={"width": width, "height": height}, **options)
        token = token or (await self.token(role) if role else "")
        if token:
            await sign_in(context, token)
        page = await context.new_page()
        page.set_default_timeout(_WAIT_MS)
        window = Window(self, context, page, complaints_of(page))
        yield window
        await context.close()
        assert window.complaints == []
