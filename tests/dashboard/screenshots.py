"""Make the pictures of the documentation: `python -m tests.dashboard.screenshots [DIRECTORY]`, or `make screenshots`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Final

from PIL import Image

from raftsched.cli.local.cluster import LocalCluster
from raftsched.client import Client
from tests.dashboard.scene import PATHS, played
from tests.dashboard.site import Site, opened_browser

DIRECTORY: Final = Path("docs/images/dashboard")
_SIZE: Final = (1280, 800)
_BYTES_MAX: Final = 100_000
_COLOURS: Final = 256
_DARK: Final = frozenset({"job-running"})
"""Shown in dark colours, so that both are seen."""


async def take(directory: Path) -> None:
    """Write a picture of each page."""
    with tempfile.TemporaryDirectory() as data, LocalCluster(Path(data), with_tokens=True) as cluster:
        cluster.wait_for_leader()
        assert cluster.token_file is not None
        token = cluster.token_file.read_text().strip()
        async with opened_browser() as browser, Client(*cluster.urls, token=token) as admin:
            site = Site(cluster, browser, admin)
            async with played(cluster.urls, token, text="") as ids:
                for path, name in PATHS.items():
                    await _picture(site, token, path.format(**ids), directory / f"{name}.png")
            await _picture(site, "", "/sign-in", directory / "sign-in.png")


async def _picture(site: Site, token: str, path: str, file: Path) -> None:
    scheme = "dark" if file.stem in _DARK else "light"
    width, height = _SIZE
    async with site.window(token=token, width=width, height=height, color_scheme=scheme) as window:
        page = await window.open(path)
        content = await page.screenshot()
    with Image.open(BytesIO(content)) as whole:
        whole.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)
    size = file.stat().st_size
    assert size < _BYTES_MAX, f"{file} has {size} bytes"
    sys.stdout.write(f"{file} {size:,} bytes\n")


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else DIRECTORY
    target.mkdir(parents=True, exist_ok=True)
    asyncio.run(take(target))
