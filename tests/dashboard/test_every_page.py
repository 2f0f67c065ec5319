"""Rules that every page keeps: accessibility, no scrolling sideways, reading without JavaScript, a small size."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

import pytest
from playwright.async_api import Page, expect

from tests.dashboard.scene import ATTACK, PATHS
from tests.dashboard.site import Site

_READ_PLAINLY: Final = ("/", "/jobs", "/jobs/{failed}", "/jobs/{running}")
_AXE: Final = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
_BYTES_MAX: Final = 100_000


async def faults_of(page: Page, options: str = "") -> list[str]:
    """Return what axe-core finds, and how far the page is too wide."""
    found: dict[str, Any] = await page.evaluate(f"axe.run(document, {{resultTypes: ['violations'], {options}}})")
    faults = [
        f"{rule['id']}: {node['target']} {node['failureSummary']}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]
    wide = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return [*faults, *([f"{wide} px too wide"] if wide > 0 else [])]


@pytest.mark.timeout(600)
async def test_pages_are_accessible_and_fit_in_light_and_dark_on_large_and_small_screens(
    site: Site, scene: Mapping[str, str]
) -> None:
    faults: list[str] = []
    async with site.window("admin", color_scheme="light", width=1440) as window:
        for path in PATHS:
            page = await window.open(path.format(**scene))
            if "This is a fault" in await window.text():
                faults.append(f"{path}: a fault")
            await page.evaluate(_AXE)  # by the debugger, so the policy of the page stays as it is
            faults += [f"{path} light: {fault}" for fault in await faults_of(page)]
            await page.set_viewport_size({"width": 360, "height": 800})
            await page.emulate_media(color_scheme="dark")
            faults += [f"{path} dark: {fault}" for fault in await faults_of(page, "runOnly: ['color-contrast']")]
            await page.set_viewport_size({"width": 1440, "height": 800})
            await page.emulate_media(color_scheme="light")
    assert faults == []


async def test_pages_are_read_without_javascript_and_show_hostile_texts_as_texts(
    site: Site, scene: Mapping[str, str]
) -> None:
    hostile = set()
    for enabled in (False, True):
        async with site.window("admin", java_script_enabled=enabled) as window:
            for path in _READ_PLAINLY:
                page = await window.open(path.format(**scene))
                assert await page.locator("h1").count() == 1, path
                if ATTACK in await window.text():
                    hostile.add((path, enabled))
    assert hostile >= {(path, enabled) for path in ("/jobs/{failed}", "/jobs/{running}") for enabled in (False, True)}


async def test_first_page_is_below_100_kilobytes_in_all_and_from_this_node_alone(site: Site) -> None:
    sizes: dict[str, int] = {}

    async with site.window("viewer") as window:

        async def measure(request: Any) -> None:
            sizes[request.url] = (await request.sizes())["responseBodySize"]

        window.page.on("requestfinished", measure)
        page = await window.open()
        await page.wait_for_load_state("load")
        await expect(page.locator("html")).to_have_attribute("data-stream", "open")
    assert len(sizes) > 4
    assert all(url.startswith(site.cluster.urls[0]) for url in sizes)
    assert sum(sizes.values()) < _BYTES_MAX, sizes
