"""Open pages follow what happens, go on without a leader, and show times and colours as their reader wants."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping

from playwright.async_api import expect

from tests.dashboard.site import Site
from tests.dashboard.test_jobs import press


async def test_open_pages_follow_changes_without_being_loaded_again(site: Site, queue: str) -> None:
    job = await site.admin.submit("later", queue=queue, delay_seconds=3600)
    async with site.window("operator") as one, site.window("operator") as many:
        page, listed = await one.open(f"/jobs/{job.id}"), await many.open(f"/jobs?queue={queue}", node=1)
        for each in (page, listed):
            await each.evaluate("window.isTheSame = true")
        await expect(page.locator("html")).to_have_attribute("data-stream", "open")
        await page.locator("#head").get_by_role("link", name="Pause…").focus()
        await site.admin.job(job.id).pause(reason="from elsewhere")
        await expect(page.locator("#head .status")).to_have_text("paused")
        await expect(page.locator("#facts")).to_contain_text("from elsewhere")
        await expect(listed.locator("tbody .status")).to_have_text("paused")
        ticked = listed.locator("tbody input[type=checkbox]").first
        await ticked.check()
        await site.admin.cancel(job.id)
        await expect(page.locator("#head .status")).to_have_text("cancelled")
        assert await ticked.is_checked()  # what its reader is about to use stays
        for each in (page, listed):
            assert await each.evaluate("window.isTheSame")


async def test_log_and_progress_of_a_running_job_arrive(site: Site, scene: Mapping[str, str]) -> None:
    async with site.window("viewer") as window:
        page = await window.open(f"/jobs/{scene['running']}")
        await expect(page.locator("#lines")).to_contain_text("table 3 of 12")
        await expect(page.locator("progress")).to_have_attribute("value", "0.25")


async def test_without_a_leader_pages_show_what_the_node_has_and_say_since_when(site: Site, queue: str) -> None:
    job = await site.admin.submit("later", queue=queue, delay_seconds=3600)
    async with site.window(token=site.admin_token) as window, site.window("viewer") as other:
        page = await window.open(f"/jobs/{job.id}")
        await expect(page.locator("html")).to_have_attribute("data-stream", "open")
        viewed = await other.open(f"/jobs/{job.id}")
        await expect(viewed.locator("html")).to_have_attribute("data-stream", "open")
        try:
            for node in site.cluster.nodes[1:]:
                node.signal(signal.SIGSTOP)
            await expect(page.locator("#state")).to_contain_text(re.compile(r"No leader\. Stale since 2"))
            for path, wanted in (("/", "no leader"), (f"/jobs?queue={queue}", "later"), (f"/jobs/{job.id}", "later")):
                await window.open(path)
                await expect(page.locator("main")).to_contain_text(wanted)
                await expect(page.locator("#state")).to_contain_text("Stale since")
            # After ten seconds without a leader, a node can't know whether a token is still valid; only the admin's is.
            await expect(viewed.locator("#gone")).to_contain_text("has not been updated since")
        finally:
            for node in site.cluster.nodes:
                node.signal(signal.SIGCONT)
        await expect(page.locator("#state")).not_to_contain_text("Stale since")
        await expect(viewed.locator("#gone")).to_be_hidden()
        await press(page, "Cancel…")
        await press(page, "Cancel it")
        await expect(page.locator("#head .status")).to_have_text("cancelled")


async def test_times_and_colours_are_chosen_and_kept(site: Site, queue: str) -> None:
    job = await site.admin.submit("later", queue=queue, delay_seconds=3600)
    async with site.window("viewer", timezone_id="America/New_York", color_scheme="light") as window:
        page = await window.open(f"/jobs/{job.id}")
        time = page.locator("#facts time").first
        back = "getComputedStyle(document.body).backgroundColor"
        light = await page.evaluate(back)
        await expect(time).to_have_text(re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$"))
        for name, wanted in (("Local", r"E[SD]T$"), ("Relative", r"(ago|now)$")):
            await page.click(".menu summary")
            await page.get_by_label(name).check()
            await expect(time).to_have_text(re.compile(wanted))
        await page.click(".menu summary")
        await page.get_by_label("Dark").check()
        await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        assert await page.evaluate(back) != light
        await window.open("/jobs", node=1)
        assert await page.evaluate(back) != light
    async with site.window("viewer", java_script_enabled=False) as window:
        page = await window.open()
        await page.click(".menu summary")
        await page.get_by_label("Dark").check()
        await page.get_by_role("button", name="Save").click()
        await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
