"""Quotas of tenants are shown against what they use, set and removed."""

from __future__ import annotations

from playwright.async_api import expect

from tests.dashboard.site import Site


async def test_quotas_are_set_used_and_removed_without_javascript(site: Site) -> None:
    async with site.window(token=site.admin_token, java_script_enabled=False) as window:
        page = await window.open("/tenants")
        await page.fill("#f-name", "quota-acme")
        await page.get_by_role("button", name="Open").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Tenant quota-acme")
        await page.get_by_label("Unfinished jobs", exact=True).fill("4")
        await page.get_by_label("Weight").fill("3")
        await page.get_by_role("button", name="Set").click()
        await expect(page.get_by_role("status")).to_contain_text("The quotas were set.")
        for _ in range(4):
            await site.admin.submit("x", tenant="quota-acme", delay_seconds=3_600)
        await window.open("/tenants")
        row = page.locator("#tenant-quota-acme")
        await expect(row).to_contain_text("4 of 4 used up")
        await expect(row).to_contain_text("weight 3")
        await expect(page.locator("tbody tr").first).to_have_id("tenant-quota-acme")
        await row.get_by_role("link", name="Set quotas").click()
        await expect(page.get_by_label("Weight")).to_have_value("3")
        await page.get_by_label("Unfinished jobs", exact=True).fill("9" * 18)
        await page.get_by_role("button", name="Set").click()
        await expect(page.get_by_role("alert")).to_contain_text("unfinished_jobs")
        await expect(page.get_by_label("Unfinished jobs", exact=True)).to_have_value("9" * 18)
        await page.get_by_role("link", name="Remove its settings").click()
        await page.fill("#confirm", "quota-acme")
        await page.get_by_role("button", name="Remove its settings").click()
        await expect(page.get_by_role("status")).to_have_text("quota-acme has no quotas any more.")
        await expect(row).to_contain_text("4 no quota")
        assert (await site.admin.tenants.get("quota-acme")).revision is None


async def test_others_see_only_their_own_tenant_and_change_nothing(site: Site) -> None:
    await site.admin.tenants.configure("quota-zeta", weight=2)
    async with site.window("viewer") as window:
        page = await window.open("/tenants")
        await expect(page.locator("tbody tr")).to_have_count(1)
        await expect(page.locator("tbody tr")).to_contain_text("default")
        assert await page.locator("main form").count() == 0
        await window.open("/tenants/quota-zeta")
        await expect(page.get_by_role("heading", level=1)).to_have_text("There is no such page or object")
