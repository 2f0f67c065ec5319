"""Signing in and out, and forms that come from elsewhere."""

from __future__ import annotations

from playwright.async_api import expect

from raftsched.dashboard.csrf import form_token
from raftsched.dashboard.session import ROOT, SESSION_COOKIE
from tests.dashboard.site import Site, posted


async def test_a_token_signs_in_at_every_node_until_its_reader_signs_out(site: Site) -> None:
    async with site.window() as window:
        page = await window.open("/?a=1", node=1)
        await expect(page).to_have_url(f"{site.cluster.urls[1]}{ROOT}/sign-in?next=%2Fui%2F%3Fa%3D1")
        await page.fill("#token", "rs_nobody_nothing")
        await page.press("#token", "Enter")
        await expect(page.get_by_role("alert")).to_contain_text("not a valid token")
        await page.fill("#token", await site.token("viewer"))
        await page.press("#token", "Enter")
        await expect(page).to_have_url(f"{site.cluster.urls[1]}{ROOT}/?a=1")
        [cookie] = [each for each in await window.context.cookies() if each["name"] == SESSION_COOKIE]
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", ROOT)
        await window.open(node=2)
        await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        await page.click(".menu summary")
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_label("API token")).to_be_visible()
        await window.open(node=0)
        await expect(page.get_by_label("API token")).to_be_visible()


async def test_a_revoked_token_ends_an_open_page_at_once(site: Site) -> None:
    made = await site.admin.tokens.create("viewer", tenant="default")
    async with site.window(token=str(made.token)) as window:
        page = await window.open()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        await site.admin.tokens.revoke(made.id)
        await expect(page.get_by_role("alert").first).to_contain_text("no longer valid")
        assert SESSION_COOKIE not in {each["name"] for each in await window.context.cookies()}
    async with site.window("worker") as window:
        page = await window.open()
        await expect(page.get_by_role("heading", level=1)).to_have_text("You may not do this")


async def test_forms_from_elsewhere_and_without_their_token_change_nothing(site: Site) -> None:
    url = site.cluster.urls[0]
    cookie = f"{SESSION_COOKIE}={await site.token('operator')}"
    right, others = form_token(await site.token("operator")), form_token(await site.token("viewer"))
    refused = (
        ({"Origin": "https://evil.example"}, right),
        ({"Origin": "null"}, right),
        ({"Sec-Fetch-Site": "cross-site"}, right),
        ({"Origin": url}, ""),
        ({"Origin": url}, others),
    )
    for headers, token in refused:
        status = await posted(f"{url}{ROOT}/sign-out", {"csrf": token}, {"Cookie": cookie, **headers})
        assert (headers, token, status) == (headers, token, 403)
    assert await posted(f"{url}{ROOT}/sign-out", {"csrf": right}, {"Cookie": cookie, "Origin": url}) == 303
