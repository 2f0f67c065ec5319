"""The pages of dead letters in a browser: groups of errors, and what is requeued or purged after a preview."""

from __future__ import annotations

from playwright.async_api import expect

from raftsched.dashboard.error_groups import pattern_of
from tests.dashboard.raw import ended, leased
from tests.dashboard.scene import ATTACK
from tests.dashboard.site import Site


async def _given_up(site: Site, queue: str, errors: list[tuple[str, str]]) -> None:
    """Let jobs of `queue` fail for good, each with the type and the message of an error."""
    for kind, message in errors:
        await site.admin.submit("charge", {"error": message}, queue=queue, max_attempts=1)
        error = {"type": kind, "message": message, "trace": f"Traceback {ATTACK}"}
        await ended(site, await leased(site, queue), status="failed", error=error)


async def test_dead_letters_are_grouped_requeued_by_group_and_purged_by_filter(site: Site, queue: str) -> None:
    errors = [("CardDeclined", f"order {number} {ATTACK}") for number in (8127, 31, 450)]
    await _given_up(site, queue, [*errors, ("Timeout", "no answer after 30 s")])
    async with site.window("operator") as window:
        page = await window.open(f"/dead-letters?queue={queue}")
        rows = page.locator("#groups tbody tr")
        await expect(rows).to_have_count(2)
        await expect(rows.first).to_contain_text("3")
        await expect(rows.first).to_contain_text(f"CardDeclined: {pattern_of(errors[0][1])}")
        await rows.first.get_by_role("link").first.click()
        await expect(page.locator("#jobs tbody tr")).to_have_count(3)
        await expect(page.locator("#jobs")).to_contain_text("order 8127")
        await page.get_by_role("link", name="Requeue…", exact=True).click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text("Requeue 3 dead letters?")
        await page.get_by_role("button", name="Requeue them").click()
        await expect(page.get_by_role("status")).to_contain_text("3 of 3 dead letters requeued")
        assert (await site.admin.queue(queue).get()).dead_letter == 1
        await window.open(f"/dead-letters/purge?queue={queue}")
        await expect(page.get_by_role("heading", level=1)).to_contain_text("Purge 1 dead letter?")
        await page.get_by_role("button", name="Purge them").click()
        await expect(page.get_by_role("status")).to_contain_text("1 of 1 dead letters removed for good")
        assert (await site.admin.queue(queue).get()).dead_letter == 0
        await expect(page.locator("#groups")).to_contain_text("No dead letter matches")


async def test_nothing_is_changed_without_a_selection_and_viewers_are_offered_nothing(site: Site, queue: str) -> None:
    await _given_up(site, queue, [("Boom", "x")])
    async with site.window("operator") as window:
        page = await window.open("/dead-letters/purge")
        await expect(page.get_by_role("heading", level=1)).to_have_text("This was refused")
    async with site.window("viewer") as window:
        page = await window.open(f"/dead-letters?queue={queue}")
        await expect(page.locator("#groups tbody tr")).to_have_count(1)
        assert await page.get_by_role("link", name="Requeue").count() == 0
        await window.open(f"/dead-letters/requeue?queue={queue}")
        await expect(page.get_by_role("heading", level=1)).to_have_text("You may not do this")
