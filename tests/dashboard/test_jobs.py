"""Jobs: the list and its filter, one job, and each action on them."""

from __future__ import annotations

import asyncio
from typing import Any

from playwright.async_api import Page, expect

from raftsched import Worker
from raftsched.client import JobInfo
from raftsched.dashboard.session import ROOT, SESSION_COOKIE
from tests.dashboard.site import Site, posted


async def press(page: Page, name: str) -> None:
    """Press the button or follow the link of this name in the main part of the page."""
    main = page.get_by_role("main")
    await (
        main.get_by_role("button", name=name, exact=True)
        .or_(main.get_by_role("link", name=name, exact=True))
        .first.click()
    )


async def _job_on(site: Site, page: Page) -> JobInfo:
    return await site.admin.get(page.url.rsplit("/", 1)[1])


async def test_a_job_is_submitted_changed_paused_resumed_cancelled_replayed_and_deleted_by_forms(
    site: Site, queue: str
) -> None:
    async with site.window("operator", java_script_enabled=False) as window:
        page = await window.open("/jobs")
        await press(page, "Submit a job")
        await page.fill("#f-name", "by_form")
        await page.fill("#f-queue", queue)
        await page.fill("#f-payload", "{not json")
        await page.fill("#f-tags", "one, two")
        await press(page, "Submit")
        await expect(page.get_by_role("alert")).to_contain_text("payload: this is not JSON")
        assert await page.input_value("#f-queue") == queue
        await page.fill("#f-payload", '{"n": 1}')
        await page.fill("#f-delay_seconds", "3600")
        await press(page, "Submit")
        await expect(page.get_by_role("status")).to_have_text("Submitted.")
        job = await _job_on(site, page)
        assert (job.payload, job.queue, job.status, sorted(job.tags)) == ({"n": 1}, queue, "scheduled", ["one", "two"])

        await press(page, "Change…")
        await page.select_option("#f-priority", "9")
        await page.fill("#f-payload", '{"n": 2}')
        await page.fill("#f-timeout_seconds", "60")
        await press(page, "Change it")
        await expect(page.get_by_role("status")).to_have_text("Changed: priority, timeout seconds, payload.")
        changed = await _job_on(site, page)
        assert (changed.priority, changed.payload, changed.timeout_seconds) == (9, {"n": 2}, 60)
        assert (changed.tags, changed.run_at) == (job.tags, job.run_at)

        await press(page, "Pause…")
        await page.fill("#f-why", "wait for Monday")
        await press(page, "Pause it")
        await expect(page.locator("#facts")).to_contain_text("wait for Monday")
        await press(page, "Resume")
        await expect(page.locator("#head")).to_contain_text("scheduled")

        await press(page, "Cancel…")
        assert (await site.admin.get(job.id)).status == "scheduled"  # the page only asks
        await press(page, "Cancel it")
        await expect(page.locator("#head")).to_contain_text("cancelled")

        await press(page, "Replay…")
        await page.fill("#f-payload", '{"n": 3}')
        await page.fill("#f-delay_seconds", "1800")
        await press(page, "Submit the clone")
        await expect(page.locator("#links")).to_contain_text(job.id)
        clone = await _job_on(site, page)
        assert (clone.payload, clone.replay_of, clone.queue) == ({"n": 3}, job.id, queue)

        await window.open(f"/jobs/{job.id}")
        await press(page, "Run again")
        await expect(page.locator("#head")).to_contain_text("queued")
        await expect(page.locator("#why")).to_contain_text("no worker")
        await site.admin.cancel(job.id)
        await window.open(f"/jobs/{job.id}/delete")
        await press(page, "Delete it")
        await expect(page.get_by_role("status")).to_have_text("Deleted.")
        await window.open(f"/jobs/{job.id}")
        await expect(page.get_by_role("heading", level=1)).to_have_text("There is no such page or object")
        await window.open(f"/jobs/{clone.id}")
        await expect(page.locator("#history")).to_contain_text("operator-of-tests")


async def test_many_jobs_are_changed_after_a_preview_of_those_that_are_ticked_or_match(site: Site, queue: str) -> None:
    jobs = [await site.admin.submit("later", queue=queue, delay_seconds=3600, tags=[f"t{n % 2}"]) for n in range(6)]
    async with site.window("operator") as window:
        page = await window.open("/jobs")
        await page.fill("#f-queue", queue)
        await press(page, "Filter")
        assert f"queue={queue}" in page.url
        await expect(page.locator("tbody tr")).to_have_count(6)
        await page.locator("tbody input[type=checkbox]").nth(0).check()
        await page.locator("tbody input[type=checkbox]").nth(1).check()
        await page.select_option("#f-action", "pause")
        await press(page, "Preview")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Pause 2 jobs?")
        await press(page, "Pause them")
        await expect(page.get_by_role("status")).to_have_text("2 jobs paused.")
        statuses = [(await site.admin.get(job.id)).status for job in jobs]
        assert statuses == ["scheduled"] * 4 + ["paused"] * 2  # the latest are first

        await window.open(f"/jobs?queue={queue}&tag=t0")
        await page.select_option("#f-action", "reprioritise")
        await press(page, "Preview")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Reprioritise 3 jobs?")
        await press(page, "Reprioritise them")
        await expect(page.get_by_role("alert")).to_contain_text("priority")
        await page.select_option("#f-priority", "1")
        await press(page, "Reprioritise them")
        await expect(page.get_by_role("status")).to_have_text("3 jobs reprioritised.")
        assert [(await site.admin.get(job.id)).priority for job in jobs] == [1, 5] * 3

        await window.open("/jobs/bulk?action=cancel")
        await expect(page.get_by_role("heading", level=1)).to_have_text("This was refused")
        await window.open(f"/jobs?queue={queue}")
        await page.get_by_label("Tick all jobs of this page").check()
        await press(page, "Preview")
        await press(page, "Cancel them")
        await expect(page.get_by_role("status")).to_have_text("6 jobs cancelled.")


async def test_a_running_job_shows_its_lease_and_is_asked_to_stop_or_stopped_at_once(site: Site, queue: str) -> None:
    ended = asyncio.Event()
    worker = Worker(*site.cluster.urls, token=site.admin_token, queues=[queue], name="slow-one")

    @worker.job("long")
    async def long(ctx: Any) -> None:
        await ended.wait()

    serving = asyncio.create_task(worker.serve())
    job = await site.admin.submit("long", queue=queue)
    async with site.window("operator") as window:
        page = await window.open(f"/jobs/{job.id}")
        await expect(page.locator("#attempts")).to_contain_text("slow-one")
        [run] = (await job.runs()).runs
        await expect(page.locator("#attempts")).to_contain_text(str(run.attempts[-1].fencing_token))
        await press(page, "Cancel…")
        await expect(page.get_by_role("main")).to_contain_text("until its worker has stopped it")
        await page.get_by_label("End running attempts at once").check()
        await press(page, "Cancel it")
        await expect(page.locator("#head .status")).to_have_text("cancelled")
        await expect(page.locator("#history")).to_contain_text("operator-of-tests")
    ended.set()
    worker.drain()
    await serving


async def test_viewers_see_no_buttons_and_the_api_refuses_their_forms(site: Site, queue: str) -> None:
    job = await site.admin.submit("later", queue=queue, delay_seconds=3600)
    async with site.window("viewer") as window:
        page = await window.open(f"/jobs/{job.id}")
        assert await page.get_by_role("main").locator("button, .button").count() == 0
        csrf = await page.locator("input[name=csrf]").first.get_attribute("value")
        page = await window.open(f"/jobs?queue={queue}")
        assert await page.locator("tbody input, #f-action").count() == 0
        await window.open(f"/jobs/{job.id}/cancel")
        await expect(page.get_by_role("heading", level=1)).to_have_text("You may not do this")
    url = site.cluster.urls[0]
    headers = {"Cookie": f"{SESSION_COOKIE}={await site.token('viewer')}", "Origin": url}
    for path in (f"/jobs/{job.id}/cancel", f"/jobs/{job.id}/pause", "/jobs/bulk", "/submit"):
        assert await posted(f"{url}{ROOT}{path}", {"csrf": csrf or "", "name": "x"}, headers) == 403, path
    assert (await site.admin.get(job.id)).status == "scheduled"


async def test_jobs_of_another_tenant_are_like_jobs_that_do_not_exist(site: Site, queue: str) -> None:
    job = await site.admin.submit("secret", queue=queue, tenant="acme", delay_seconds=3600)
    async with site.window("operator") as window:
        texts = set()
        for job_id in (job.id, job.id[:-4] + "0000"):
            for path in (f"/jobs/{job_id}", f"/jobs/{job_id}/cancel"):
                await window.open(path)
                texts.add(await window.text())
        assert len(texts) == 1
        await window.open(f"/search?q={job.id}")
        assert "Nothing is called" in await window.text()


async def test_search_leads_to_the_only_thing_that_is_meant(site: Site, queue: str) -> None:
    job = await site.admin.submit(f"only-{queue}", queue=queue, tags=[f"tag of {queue}"], delay_seconds=3600)
    expected = {
        job.id: f"/jobs/{job.id}",
        f"only-{queue}": f"/jobs?name=only-{queue}",
        queue: f"/jobs?queue={queue}",
        f"tag of {queue}": f"/jobs?tag={f'tag of {queue}'.replace(' ', '+')}",
    }
    async with site.window("viewer") as window:
        page = await window.open()
        for wanted, path in expected.items():
            await page.fill(".search input", wanted)
            await page.press(".search input", "Enter")
            await expect(page).to_have_url(f"{site.cluster.urls[0]}{ROOT}{path}")


async def test_keyboard_alone_signs_in_finds_a_job_and_cancels_it(site: Site, queue: str) -> None:
    job = await site.admin.submit("later", queue=queue, delay_seconds=3600)
    async with site.window() as window:
        page = await window.open()
        await page.keyboard.type(await site.token("submitter"))  # the field has the focus
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
        await page.keyboard.press("/")
        await page.keyboard.type(job.id)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("later")
        await _tab_to(page, "Cancel…")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Cancel later?")
        await _tab_to(page, "Cancel it")
        await page.keyboard.press("Enter")
        await expect(page.locator("#head")).to_contain_text("cancelled")


async def _tab_to(page: Page, text: str) -> None:
    """Press Tab until what has this text has the focus; each stop must be visible to somebody who looks."""
    for _ in range(40):
        await page.keyboard.press("Tab")
        focused = await page.evaluate(
            "[document.activeElement.innerText, getComputedStyle(document.activeElement).outlineStyle]"
        )
        if focused[0] == text:
            assert focused[1] != "none"
            return
    raise AssertionError(f"{text} is not reached by Tab")
