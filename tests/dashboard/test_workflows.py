"""The pages of workflows in a browser: progress, the graph, a cancel after a question, and a retry of what failed."""

from __future__ import annotations

from playwright.async_api import expect

from raftsched.client import Workflow
from tests.dashboard.raw import ended, leased
from tests.dashboard.site import Site


async def test_a_workflow_is_drawn_followed_retried_and_cancelled(site: Site, queue: str) -> None:
    flow = Workflow(f"flow-{queue}"[:60])
    first = flow.job("extract", queue=queue, max_attempts=1)
    second = flow.job("load", queue=queue, after=[first])
    flow.job("report", queue=queue, after=[second], on="completion")
    run = await site.admin.workflows.submit(flow)
    async with site.window("operator") as window:
        page = await window.open(f"/workflows?name={flow.name}")
        await expect(page.locator("#workflows tbody tr")).to_contain_text("0 of 3 ended")
        await page.get_by_role("link", name=flow.name).click()
        await expect(page.locator("#graph svg a")).to_have_count(3)
        await expect(page.locator("#graph svg path")).to_have_count(2)
        await expect(page.locator("#graph")).to_contain_text("waiting dependencies")
        await ended(site, await leased(site, queue), status="failed")
        await expect(page.locator("#graph .node-dead_letter")).to_have_count(1)  # by itself
        await page.get_by_role("link", name="Retry 1 failed…").click()
        await page.get_by_role("button", name="Retry them").click()
        await expect(page.get_by_role("status")).to_contain_text("1 job requeued")
        await window.open(f"/workflows/{run.id}")
        await page.get_by_role("link", name="Cancel…").click()
        await expect(page.locator("main li").first).to_contain_text("of its 3 jobs are unfinished")
        assert (await run.get()).status == "running"
        await page.get_by_role("button", name="Cancel the workflow").click()
        await expect(page.get_by_role("status")).to_contain_text("is being cancelled")
        await expect(page.locator("#graph .node-cancelled").first).to_be_visible()
    async with site.window("viewer") as window:
        page = await window.open(f"/workflows/{run.id}")
        await expect(page.locator("h1")).to_have_text(flow.name)
        assert await page.get_by_role("link", name="Cancel…").count() == 0


async def test_a_large_workflow_is_shown_in_parts(site: Site, queue: str) -> None:
    flow = Workflow(f"large-{queue}"[:60])
    root = flow.job("root", queue=queue, delay_seconds=3_600)
    for number in range(250):
        flow.job("leaf", queue=queue, task=f"leaf-{number}", after=[root])
    run = await site.admin.workflows.submit(flow)
    async with site.window("viewer") as window:
        page = await window.open(f"/workflows/{run.id}")
        await expect(page.locator("#graph svg a")).to_have_count(200)
        await expect(page.locator("#graph-title")).to_contain_text("200 of 251 jobs")
        await page.get_by_role("link", name="Next part").click()
        await expect(page.locator("#jobs tbody tr")).to_have_count(51)
    await run.cancel()
