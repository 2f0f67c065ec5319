"""The page of workers in a browser, and a drain that a new leader keeps."""

from __future__ import annotations

import asyncio
from typing import Any

from playwright.async_api import expect

from raftsched import Worker
from tests.dashboard.scene import ATTACK
from tests.dashboard.site import Site


async def test_a_worker_is_drained_stays_so_under_a_new_leader_and_works_again(site: Site, queue: str) -> None:
    assert site.cluster.token_file is not None
    token = site.cluster.token_file.read_text().strip()
    release, started = asyncio.Event(), asyncio.Event()
    worker = Worker(*site.cluster.urls, token=token, queues=[queue], concurrency=4, name=queue)

    @worker.job("step")
    async def step(ctx: Any, payload: Any) -> None:
        started.set()
        await release.wait()

    serving = asyncio.create_task(worker.serve())
    try:
        first = await site.admin.submit("step", queue=queue)
        await started.wait()
        async with site.window(token=token) as window:
            page = await window.open(f"/workers?text={queue}")
            row = page.locator("#workers tbody tr")
            await expect(row).to_contain_text("active")
            await expect(row).to_contain_text("1 of 4")
            await expect(row).to_contain_text("step")
            await row.get_by_role("link", name=f"Drain {queue}").click()
            await expect(page.locator("main li").filter(has_text="continue to their end")).to_have_count(1)
            await page.fill("#reason", ATTACK)
            await page.get_by_role("button", name="Drain", exact=True).click()
            await expect(page.get_by_role("status")).to_contain_text("gets no further jobs")
            await window.open(f"/workers?text={queue}")
            await expect(row).to_contain_text("draining")
            await expect(row).to_contain_text(ATTACK)
            await site.admin.transfer_leadership()
            second = await site.admin.submit("step", queue=queue)
            release.set()
            await first.wait(timeout=20)
            await expect(row).to_contain_text("drained", timeout=20_000)  # by itself
            assert (await second.get()).status == "queued"
            await row.get_by_role("button", name="Undrain").click()
            await second.wait(timeout=20)
        for role in ("viewer", "operator"):  # of one tenant: the worker is of all
            async with site.window(role) as window:
                page = await window.open(f"/workers?text={queue}")
                await expect(page.locator("#workers tbody tr")).to_have_count(1)
                assert await page.get_by_text("Drain…").count() == 0
    finally:
        release.set()
        worker.drain()
        await serving
