"""The audit trail names who did what to what, leads to each object, and is filtered by the URL."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from playwright.async_api import expect

from raftsched.client.records import AuditEntry
from raftsched.dashboard.pages.audit import NOUNS, object_url
from tests.dashboard.site import Site


async def test_lines_name_actor_action_and_object_and_lead_there(site: Site, queue: str) -> None:
    job = await site.admin.submit("send_email", queue=queue, delay_seconds=3_600)
    await site.admin.job(job.id).cancel()
    await site.admin.queue(queue).pause(reason="provider is <b>down</b>")
    async with site.window(token=site.admin_token, java_script_enabled=False) as window:
        page = await window.open("/audit")
        row = page.locator("tbody tr", has_text=queue).first
        await expect(row).to_contain_text("queue.pause")
        await expect(row).to_contain_text("provider is <b>down</b>")
        await expect(row.get_by_role("link", name="admin")).to_be_visible()
        await page.fill("#f-subject", f"job:{job.id}")
        await page.get_by_role("button", name="Filter").click()
        await expect(page.locator("tbody tr")).to_have_count(1)
        await expect(page.locator("tbody tr")).to_contain_text("job.cancel")
        await page.get_by_role("link", name=job.id, exact=True).click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text("send_email")
        await window.open("/audit?actor=nobody-of-this-name")
        await expect(page.locator("#trail")).to_contain_text("No line matches this filter.")


async def test_the_trail_is_read_page_by_page(site: Site, queue: str) -> None:
    for number in range(60):
        await site.admin.queue(queue).pause(reason=str(number))
        await site.admin.queue(queue).resume()
    async with site.window("operator") as window:
        page = await window.open(f"/audit?subject=queue:{queue}")
        assert "forbidden" not in await window.text()
    async with site.window(token=site.admin_token) as window:
        page = await window.open(f"/audit?subject=queue:{queue}&order=asc")
        await expect(page.locator("tbody tr")).to_have_count(100)
        await page.get_by_role("link", name="Next page").click()
        await expect(page.locator("tbody tr")).to_have_count(20)
        await expect(page.locator("tbody tr").last).to_contain_text("queue.resume")


@pytest.mark.parametrize("noun", NOUNS)
def test_every_kind_of_object_has_a_page(noun: str) -> None:
    entry = AuditEntry(at=datetime.now(UTC), subject=f"{noun}:a:b", tenant="acme")
    link = object_url(entry, lambda _: True)
    assert link.startswith("/ui/")
    if noun == "schedule":
        assert link == "/ui/schedules/a%3Ab?tenant=acme"
