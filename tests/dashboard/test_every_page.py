"""Rules that every page keeps: accessibility, no scrolling sideways, reading without JavaScript, a small size."""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Final

from playwright.async_api import Page

from tests.dashboard.site import Site, Window

PATHS: Final = ("/", "/no-such-page")
"""A path of each page, below `/ui`; `{…}` is replaced by a thing that `SCENE` makes."""
WIDTHS: Final = (360, 1440)
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


async def _loaded(window: Window, path: str) -> Page:
    page = await window.open(path)
    await page.evaluate(_AXE)  # evaluated by the debugger, so the policy of the page stays as it is
    return page


async def test_pages_are_accessible_and_fit_in_light_and_dark_on_small_and_large_screens(site: Site) -> None:
    faults: list[str] = []
    for scheme in ("light", "dark"):
        async with site.window("admin", color_scheme=scheme) as window:
            for path in PATHS:
                page = await _loaded(window, path)
                for width in WIDTHS:
                    await page.set_viewport_size({"width": width, "height": 800})
                    faults += [f"{path} {scheme} {width}: {fault}" for fault in await faults_of(page)]
    assert faults == []


async def test_pages_are_read_without_javascript(site: Site) -> None:
    async with site.window("viewer", java_script_enabled=False) as window:
        for path in PATHS:
            page = await window.open(path)
            assert await page.locator("h1").count() == 1, path
            assert "This is a fault" not in await window.text(), path


async def test_first_page_is_below_100_kilobytes_in_all(site: Site) -> None:
    sizes: dict[str, int] = {}

    async with site.window("viewer") as window:

        async def measure(response: Any) -> None:
            if "/live" not in response.url:
                sizes[response.url] = len(await response.body())

        window.page.on("response", measure)
        page = await window.open()
        await page.wait_for_load_state("load")
    assert all(url.startswith(site.cluster.urls[0]) for url in sizes)
    assert sum(sizes.values()) < _BYTES_MAX, sizes
