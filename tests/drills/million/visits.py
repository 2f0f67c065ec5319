"""Open pages on the leader as a browser does, and measure what they cost it, beside a light load of submits."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any, Final

import aiohttp

from raftsched.client import Client
from raftsched.dashboard.session import SESSION_COOKIE
from tests.drills.million.nodes import CountingNode, Use
from tests.drills.million.pages import Visited

CPU_MS_MAX: Final = 300.0
_REPEATS: Final = 5
_QUIET_REPEATS: Final = 2
_SUBMIT_SECONDS: Final = 0.05
_SECONDS_MAX: Final = 300.0
_STALLS: Final = re.compile(r'^raftsched_event_loop_stall_seconds_bucket\{le="([^"]+)"\} ([0-9.]+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a page cost the leader."""

    page: Visited
    status: int
    bytes: int
    steps: int
    """Calls of the store."""
    rows: int
    ms: float
    """Median from the request to the last byte, beside the load."""
    cpu_ms: float
    """Median of the CPU of the leader meanwhile, with what the load took."""

    @property
    def fault(self) -> str:
        """Return why it may not cost that; "" if it may."""
        if self.status not in self.page.statuses:
            return f"status {self.status}"
        if self.rows > self.page.rows_max:
            return f"more than {self.page.rows_max:,} rows"
        return f"more than {CPU_MS_MAX:.0f} ms of CPU" if self.cpu_ms > CPU_MS_MAX else ""


@dataclass(slots=True)
class Load:
    """Submits beside the pages: how long each took, in seconds."""

    seconds: list[float] = field(default_factory=list)

    def percentile_ms(self, percent: int) -> float:
        return quantiles(self.seconds, n=100)[percent - 1] * 1000

    @asynccontextmanager
    async def running(self, client: Client) -> AsyncIterator[None]:
        """Submit twenty jobs a second, each without waiting for the one before."""

        async def submit() -> None:
            began = time.monotonic()
            await client.submit("beside", queue="held-00000")
            self.seconds.append(time.monotonic() - began)

        async def submit_for_ever() -> None:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    tasks.create_task(submit())
                    await asyncio.sleep(_SUBMIT_SECONDS)

        submitting = asyncio.create_task(submit_for_ever())
        try:
            yield
        finally:
            submitting.cancel()
            with suppress(asyncio.CancelledError):
                await submitting  # raises the error of a submit


class Browser:
    """Somebody who has signed in at a node."""

    def __init__(self, node: CountingNode, session: aiohttp.ClientSession) -> None:
        self._node = node
        self._session = session
        self._headers = {"Cookie": f"{SESSION_COOKIE}={node.token}", "Authorization": f"Bearer {node.token}"}

    async def document(self, path: str) -> Any:
        """Return a document of the API."""
        async with self._session.get(f"{self._node.api}/api/v1{path}", headers=self._headers) as reply:
            assert reply.status == 200, (path, await reply.text())
            return await reply.json()

    async def open(self, path: str) -> tuple[int, int, float, Use]:
        """Return the status and the size of a page, its time in milliseconds, and what the node used meanwhile."""
        before, began = self._node.use(), time.monotonic()
        async with self._session.get(self._node.api + path, headers=self._headers, allow_redirects=False) as reply:
            size = len(await reply.read())
        return reply.status, size, (time.monotonic() - began) * 1000, self._node.use().since(before)

    async def stalls(self) -> dict[float, float]:
        """Return how many delays of the node's event loop were up to each time in seconds."""
        async with self._session.get(f"{self._node.api}/metrics", headers=self._headers) as reply:
            return {float(bound): float(count) for bound, count in _STALLS.findall(await reply.text())}


@asynccontextmanager
async def opened_browser(node: CountingNode) -> AsyncIterator[Browser]:
    timeout = aiohttp.ClientTimeout(total=_SECONDS_MAX)
    async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield Browser(node, session)


async def quiet(browser: Browser, pages: Sequence[Visited]) -> dict[str, tuple[int, int]]:
    """Return the steps and rows of each page by its path: the least of some, since a leader also works by itself."""
    found = {}
    for page in pages:
        uses = [(await browser.open(page.path))[3] for _ in range(_QUIET_REPEATS)]
        found[page.path] = (min(use.steps for use in uses), min(use.rows for use in uses))
    return found


async def beside_load(
    browser: Browser, pages: Sequence[Visited], reads: dict[str, tuple[int, int]]
) -> AsyncIterator[Cost]:
    """Yield what each page costs."""
    for page in pages:
        opened = [await browser.open(page.path) for _ in range(_REPEATS)]
        status, size, _, _ = opened[-1]
        ms, cpu_ms = (median(each) for each in zip(*((ms, use.cpu_ms) for _, _, ms, use in opened), strict=True))
        yield Cost(page, status, size, *reads[page.path], ms, cpu_ms)


def longest_stall(before: dict[float, float], after: dict[float, float]) -> str:
    """Return in words how long the longest delay was, as far as the buckets of the histogram tell."""
    counts = {bound: after[bound] - before.get(bound, 0.0) for bound in sorted(after)}
    longest = next(bound for bound, count in counts.items() if count == max(counts.values()))
    return f"up to {longest * 1000:.0f} ms" if longest != float("inf") else f"over {sorted(after)[-2]:.0f} s"
