"""Tokens are made, rotated and revoked; their text is shown once."""

from __future__ import annotations

import asyncio
import re

from playwright.async_api import expect

from raftsched.client import Client
from raftsched.dashboard.session import SESSION_COOKIE
from raftsched.errors import Rejected
from tests.dashboard.site import Site, Window


async def _text(window: Window) -> str:
    return await window.page.get_by_label("Text of the token").input_value()


async def _works(site: Site, text: str) -> bool:
    async with Client(*site.cluster.urls, token=text) as client:
        try:
            await client.whoami()
        except Rejected:
            return False
        return True


async def test_a_token_is_made_shown_once_rotated_and_revoked_without_javascript(site: Site) -> None:
    async with site.window(token=site.admin_token, java_script_enabled=False) as window:
        page = await window.open("/tokens")
        await page.get_by_role("radio", name="worker").check()
        await page.get_by_label("Name", exact=True).fill("mailer <b>")
        await page.get_by_label("Tenant", exact=True).fill("acme")
        await page.fill("#f-queues", "mail, billing-*")
        await page.get_by_label("Expires after days").fill("30")
        await page.get_by_role("button", name="Make the token").click()
        first = await _text(window)
        assert re.fullmatch(r"rs_[0-9a-f]{16}_\S{43}", first)
        assert await _works(site, first)
        await page.get_by_role("link", name="I have stored it").click()
        row = page.locator("tbody tr", has_text="mailer <b>")
        used = row.locator("[data-label='Last used']")
        async with asyncio.timeout(20):
            while await used.locator("time").count() == 0:  # noted within some seconds
                await page.reload()
        await expect(row).to_contain_text(re.compile(r"worker\s+acme\s+mail billing-\*"))
        assert first.split("_", 2)[2] not in await page.content()
        await row.get_by_role("link", name="Rotate").click()
        await page.get_by_label("The present text ends").select_option("in 1 day")
        await page.get_by_role("button", name="Rotate it").click()
        second = await _text(window)
        assert second != first
        assert [await _works(site, text) for text in (first, second)] == [True, True], "they overlap"
        await page.get_by_role("link", name="I have stored it").click()
        await expect(row).to_contain_text("former text until")
        await row.get_by_role("link", name="Revoke").click()
        await expect(page.locator("main")).to_contain_text("This can't be undone.")
        await page.get_by_role("button", name="Revoke it").click()
        await expect(page.get_by_role("status")).to_contain_text("The token mailer <b> was revoked")
        await expect(row).to_have_count(0)
        assert [await _works(site, text) for text in (first, second)] == [False, False]
        page = await window.open("/audit?action=token.revoke")
        await expect(page.locator("tbody tr").first).to_contain_text("127.0.0.1")  # the browser's, not the node's own


async def test_a_wrong_field_is_named_and_the_others_are_kept(site: Site) -> None:
    async with site.window(token=site.admin_token) as window:
        page = await window.open("/tokens")
        await page.get_by_label("Name", exact=True).fill("kept")
        await page.get_by_label("Tenant", exact=True).fill("no such name!")
        await page.get_by_role("button", name="Make the token").click()
        await expect(page.get_by_role("alert")).to_contain_text("tenant: expected")
        await expect(page.get_by_label("Name", exact=True)).to_have_value("kept")
        await window.open("/tokens/0000000000000000/revoke")
        await expect(page.get_by_role("heading", level=1)).to_have_text("There is no such page or object")


async def test_the_readers_own_token_is_marked_and_its_revocation_signs_out(site: Site) -> None:
    made = await site.admin.tokens.create("admin", tenant="default", name="short-lived")
    async with site.window(token=str(made.token)) as window:
        page = await window.open("/tokens")
        row = page.locator(f"#token-{made.id}")
        await expect(row).to_contain_text("yours")
        await expect(page.get_by_text("yours")).to_have_count(1)
        await row.get_by_role("link", name="Revoke").click()
        await expect(page.locator(".banner.bad:visible")).to_contain_text("you are signed out at once")
        await page.get_by_role("button", name="Revoke it").click()
        await expect(page.get_by_label("API token")).to_be_visible()
        assert SESSION_COOKIE not in {each["name"] for each in await window.context.cookies()}


async def test_the_text_of_a_token_is_copied_by_a_button(site: Site) -> None:
    async with site.window("admin") as window:
        await window.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = await window.open("/tokens")
        await page.get_by_label("Name", exact=True).fill("copied")
        await page.get_by_role("button", name="Make the token").click()
        await page.get_by_role("button", name="Copy").click()
        await expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert await page.evaluate("navigator.clipboard.readText()") == await _text(window)
