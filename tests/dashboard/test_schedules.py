"""The pages of schedules in a browser: what they show, and each action from its button to its effect."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from playwright.async_api import expect

from raftsched.client.records import ScheduleInfo
from tests.dashboard.site import Site, Window

ATTACK: Final = "<img src=x onerror=alert(1)><script>alert(2)</script>{{7*7}}"
NEVER: Final = "0 0 1 1 *"


async def _saved(site: Site, name: str, **options: object) -> ScheduleInfo:
    return await site.admin.schedules.save(
        name,
        {"name": "report", "queue": name},
        **({"cron": NEVER} | options),  # type: ignore[arg-type]
    )


async def _do(window: Window, name: str) -> None:
    await window.page.get_by_role("button", name=name, exact=True).click()


async def test_the_list_says_when_schedules_fire_and_how_the_latest_run_went(site: Site, queue: str) -> None:
    await _saved(site, f"{queue}-a", cron="30 2 * * mon-fri", timezone="Europe/Berlin", owner=ATTACK)
    paused = await _saved(site, f"{queue}-b", owner=ATTACK, labels={"team": queue})
    await site.admin.schedules.pause(paused.id, reason=ATTACK)
    fired = await site.admin.schedules.trigger(f"{queue}-a")
    async with site.window("viewer") as window:
        page = await window.open("/schedules")
        row = page.get_by_role("row").filter(has_text=f"{queue}-a")
        for text in ("at 02:30, Monday to Friday", "Europe/Berlin", "queued", ATTACK):
            await expect(row).to_contain_text(text)
        assert await row.locator(f"a[href$='{fired.job_id}']").count() == 1
        await page.get_by_label("Label").fill(f"team={queue}")
        await _do(window, "Filter")
        assert f"label=team%3D{queue}" in page.url
        assert await page.locator("tbody tr").count() == 1
        await expect(page.locator("tbody tr")).to_contain_text("paused")
        await window.open(f"/schedules?name={queue}-b")
        await expect(page.get_by_role("heading", level=1)).to_have_text(f"{queue}-b")
        await expect(page.locator("#pause")).to_contain_text(ATTACK)
        assert await page.get_by_role("button", name="Resume").count() == 0
        assert await page.get_by_role("link", name="Run now").count() == 0


async def test_a_schedule_is_previewed_created_changed_run_paused_and_deleted_by_forms(site: Site, queue: str) -> None:
    async with site.window("operator", java_script_enabled=False) as window:
        page = await window.open("/schedules/new")
        await page.fill("#name", queue)
        await page.fill("#when", "61 * * * *")
        await page.fill("#timezone", "Europe/Berlin")
        await page.fill("#job", f'{{"name": "{queue}", "payload": {{"a": 1}}, "tags": ["x"]}}')
        await _do(window, "Save")
        await expect(page.get_by_role("alert")).to_contain_text("cron")
        await page.fill("#when", "30 2 * * *")
        await _do(window, "Preview fire times")
        await expect(page.locator(".instants li")).to_have_count(10)
        await _do(window, "Save")
        await expect(page.get_by_role("status")).to_contain_text("is saved")
        await page.get_by_role("link", name="Edit").click()
        await page.fill("#owner", ATTACK)
        await page.fill("#job", f'{{"name": "{queue}", "payload": {{"a": 2}}}}')
        await _do(window, "Save")
        await expect(page.locator("#settings")).to_contain_text(ATTACK)
        schedule = await site.admin.schedules.get(queue)
        assert (schedule.job["payload"], schedule.job.get("tags", []), schedule.timezone) == (
            {"a": 2},
            [],
            "Europe/Berlin",
        )
        await page.fill("#reason", "moving house")
        await _do(window, "Pause")
        await expect(page.locator("#pause")).to_contain_text("moving house")
        await _do(window, "Resume")
        await expect(page.locator("#head")).to_contain_text("active")
        await page.get_by_role("link", name="Run now").click()
        await page.fill("#payload", '{"a": 3}')
        await _do(window, "Run now")
        [job] = [job async for job in site.admin.list(queue=queue)]
        assert job.payload == {"a": 3}
        await window.open(f"/schedules/{schedule.id}/delete")
        assert (await site.admin.schedules.get(queue)).name == queue
        await _do(window, "Delete")
        await expect(page.get_by_role("status")).to_contain_text("is deleted")


async def test_nobody_overwrites_a_change_that_they_did_not_see(site: Site, queue: str) -> None:
    schedule = await _saved(site, queue)
    async with site.window("operator") as window:
        page = await window.open(f"/schedules/{schedule.id}/edit")
        await site.admin.schedules.update(queue, owner="anna")
        await page.fill("#owner", "bert")
        await _do(window, "Save")
        await expect(page.get_by_role("alert").first).to_contain_text("revision")
        assert (await site.admin.schedules.get(queue)).owner == "anna"


async def test_a_backfill_shows_what_it_would_do_and_then_does_it_once(site: Site, queue: str) -> None:
    schedule = await _saved(site, queue, cron="0 * * * *")
    end = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    async with site.window("operator") as window:
        page = await window.open(f"/schedules/{schedule.id}/backfill")
        await page.fill("#from", f"{end - timedelta(hours=5):%Y-%m-%dT%H:%M}")
        await page.fill("#to", f"{end:%Y-%m-%dT%H:%M}")
        await _do(window, "Show what would happen")
        await expect(page.locator("tbody tr")).to_have_count(5)
        assert [job async for job in site.admin.list(queue=queue)] == []
        await _do(window, "Make 5 runs")
        await expect(page.get_by_role("status")).to_contain_text("5 runs were made")
        await expect(page.locator("#ledger tbody tr")).to_have_count(5)
        assert len([job async for job in site.admin.list(queue=queue)]) == 5
    async with site.window("submitter") as window:
        page = await window.open(f"/schedules/{schedule.id}")
        assert await page.get_by_role("link", name="Backfill", exact=True).count() == 0


async def test_the_month_is_turned_and_a_clock_change_is_explained(site: Site, queue: str) -> None:
    schedule = await _saved(site, queue, cron="30 2 * * *", timezone="Europe/Berlin", description=ATTACK)
    for number in range(3):
        await site.admin.schedules.trigger(queue, overlap="allow", payload={"n": number})
    async with site.window("viewer") as window:
        page = await window.open(f"/schedules/{schedule.id}?month=2035-03")
        await expect(page.locator(".month .mark-to-come")).to_have_count(31)
        await expect(page.locator(".month .mark-clock")).to_have_count(1)
        await page.get_by_role("link", name="Next month").click()
        await expect(page.locator("#calendar-title")).to_contain_text("April 2035")
        await page.get_by_role("link", name="Today").click()
        await expect(page.locator(".month .today .mark-fired")).to_contain_text("3")
        await expect(page.locator("#timing")).to_contain_text("Next clock change in Europe/Berlin")
        await site.admin.schedules.trigger(queue, overlap="allow")
        await expect(page.locator(".month .today .mark-fired")).to_contain_text("4")  # by itself
