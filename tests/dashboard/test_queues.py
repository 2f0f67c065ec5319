"""The pages of queues in a browser: the last minutes, the pause with its reason, the settings."""

from __future__ import annotations

from playwright.async_api import expect

from tests.dashboard.raw import ended, leased
from tests.dashboard.scene import ATTACK
from tests.dashboard.site import Site


async def test_a_queue_shows_its_minutes_and_is_paused_with_a_reason_and_resumed(site: Site, queue: str) -> None:
    queue = f"default:{queue}"  # one that the operator's tenant has alone
    for status in ("completed", "failed"):
        await site.admin.submit("x", queue=queue, max_attempts=1)
        await ended(site, await leased(site, queue), status=status)
    await site.admin.submit("x", queue=queue, delay_seconds=3_600)
    async with site.window("operator", java_script_enabled=False) as window:
        page = await window.open(f"/queues?name={queue}")
        await expect(page.locator("h1")).to_have_text(queue)
        await expect(page.locator("#activity")).to_contain_text("1 completed, 1 failed, 3 submitted")
        assert await page.locator("#activity svg rect").count() >= 3
        await page.fill("#reason", ATTACK)
        await page.get_by_role("button", name="Pause", exact=True).click()
        await expect(page.locator("#pause")).to_contain_text(f"by operator-of-tests: 0 jobs are due. Reason: {ATTACK}")
        await window.open("/queues")
        await expect(page.locator("#paused")).to_contain_text(ATTACK)
        await window.open(f"/queues/{queue}")
        await page.get_by_role("button", name="Resume", exact=True).click()
        await expect(page.get_by_role("status")).to_contain_text("is resumed")
        await page.get_by_role("link", name="Cancel 1 waiting…").click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text("Cancel 1")
    async with site.window("viewer") as window:
        page = await window.open(f"/queues/{queue}")
        await expect(page.locator("h1")).to_have_text(queue)
        assert await page.locator("main form").count() == 0


async def test_settings_are_changed_and_removed_by_the_form_and_faults_are_named(site: Site, queue: str) -> None:
    queue = f"default:{queue}"
    async with site.window("operator") as window:
        page = await window.open("/queues/shared-by-all")
        assert await page.get_by_role("button", name="Save settings").count() == 0
        await window.open(f"/queues/{queue}")
        for field, text in (
            ("rate_count", "100"),
            ("rate_per_seconds", "0.5"),
            ("concurrency", "7"),
            ("key_concurrency", "2"),
        ):
            await page.fill(f"#{field}", text)
        await page.get_by_role("button", name="Save settings").click()
        await expect(page.get_by_role("status")).to_contain_text("are saved")
        settings = (await site.admin.queue(queue).get()).settings
        assert settings.rate is not None
        assert (settings.rate.count, settings.rate.per_seconds, settings.concurrency) == (100, 0.5, 7)
        await page.fill("#concurrency", "0")
        await page.get_by_role("button", name="Save settings").click()
        await expect(page.get_by_role("alert").first).to_contain_text("concurrency")
        await window.open(f"/queues/{queue}")
        await page.fill("#rate_count", "")
        await page.fill("#rate_burst", "")
        await page.fill("#concurrency", "")
        await page.get_by_role("button", name="Save settings").click()
        await expect(page.get_by_role("status")).to_contain_text("are saved")
        settings = (await site.admin.queue(queue).get()).settings
        assert (settings.rate, settings.concurrency, settings.key_concurrency) == (None, None, 2)
