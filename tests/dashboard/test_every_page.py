"""Rules that every page keeps: accessibility, no scrolling sideways, reading without JavaScript, a small size."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

from playwright.async_api import Page, expect

from tests.dashboard.scene import ATTACK, PATHS
from tests.dashboard.site import Site

LOOKS: Final = (("light", 1440), ("dark", 360))
_AXE: Final = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
_BYTES_MAX: Final = 100_000


async def faults_of(page: Page) -> list[str]:
    """Return what axe-core finds, and how far the page is too wide."""
    found: dict[str, Any] = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    faults = [
        f"{rule['id']}: {node['target']} {node['failureSummary']}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]
    wide = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return [*faults, *([f"{wide} px too wide"] if wide > 0 else [])]


async def test_pages_are_accessible_and_fit_in_light_and_dark_on_small_and_large_screens(
    site: Site, scene: Mapping[str, str]
) -> None:
    faults: list[str] = []
    for scheme, width in LOOKS:
        async with site.window("admin", color_scheme=scheme, width=width) as window:
            for path in PATHS:
                page = await window.open(path.format(**scene))
                await page.evaluate(_AXE)  # by the debugger, so the policy of the page stays as it is
                faults += [f"{path} {scheme} {width}: {fault}" for fault in await faults_of(page)]
    assert faults == []


async def test_pages_are_read_without_javascript_and_show_hostile_texts_as_texts(
    site: Site, scene: Mapping[str, str]
) -> None:
    hostile = set()
    for enabled in (False, True):
        async with site.window("admin", java_script_enabled=enabled) as window:
            for path in PATHS:
                page = await window.open(path.format(**scene))
                assert await page.locator("h1").count() == 1, path
                text = await window.text()
                assert "This is a fault" not in text, path
                if ATTACK in text:
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
