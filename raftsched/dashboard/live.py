"""Tell an open page that what it shows has changed: a stream of server-sent events, `/ui/live`.

The stream carries no data. The page fetches its own fragments again, so that a page is rendered in one place, with the
rights that its reader has by then.

A page about one job names it, and gets a message for each of its events at once (the API's `/events`). For other pages the
stream looks every `_PULSE_SECONDS` at the position of this node in the log, since forwarding each of some thousand
events a second to every reader would cost more than rendering. Both also notice a new leader, and a revoked token. A page
about nodes gets a message at each look, since a node goes down, and clocks and disks change, without an entry in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import structlog
from aiohttp import web

from raftsched import limits
from raftsched.client import Client
from raftsched.dashboard.channel import NotingHttp
from raftsched.dashboard.session import read_session
from raftsched.dashboard.site import Site
from raftsched.errors import RaftschedError, Rejected, Unavailable

log = structlog.get_logger()
_PULSE_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.3
"""Shortest time between two messages, so that a page is not fetched for each of many changes."""
_BEAT_SECONDS: Final = 15.0
_CHANGED: Final = b"event: change\ndata:\n\n"
_SIGNED_OUT: Final = b"event: signed-out\ndata:\n\n"
_BEAT: Final = b":\n\n"


class Live:
    """The streams of one node."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._count = 0
        self._closing = asyncio.Event()

    def add_to(self, app: web.Application) -> None:
        """Add the route."""
        app.router.add_get("/live", self.stream, allow_head=False)  # a stream has no end
        app.on_shutdown.append(self._close)

    async def _close(self, app: web.Application) -> None:
        del app
        self._closing.set()

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Send a message for each change, until the reader or the node goes."""
        session = read_session(request, self._site.door)
        if not session.is_signed_in:
            return web.Response(status=401)
        if self._count >= limits.DASHBOARD_STREAMS_MAX:
            raise Unavailable(f"this node updates {limits.DASHBOARD_STREAMS_MAX} pages already; reload them by hand")
        self._count += 1
        try:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
            await response.prepare(request)
            job_id, is_about_nodes = request.query.get("job", ""), "nodes" in request.query
            async with self._watch(request, job_id, is_about_nodes=is_about_nodes) as watch:
                with suppress(ConnectionError):  # the reader is gone
                    await self._send(response, watch)
            return response
        finally:
            self._count -= 1

    async def _send(self, response: web.StreamResponse, watch: _Watch) -> None:
        while not self._closing.is_set():
            changed = await watch.change(_BEAT_SECONDS, self._closing)
            if watch.is_refused:
                await response.write(_SIGNED_OUT)
                return
            await response.write(_CHANGED if changed else _BEAT)
            await asyncio.sleep(_PAUSE_SECONDS)

    @asynccontextmanager
    async def _watch(self, request: web.Request, job_id: str, *, is_about_nodes: bool) -> AsyncIterator[_Watch]:
        noting = NotingHttp(self._site.http)

        def client() -> Client:
            # Made again each time: what a certificate is exchanged for is valid for a minute only.
            return self._site.client(read_session(request, self._site.door), noting)

        watch = _Watch(client, noting)
        tasks = [asyncio.create_task(watch.pulse(at_each_look=is_about_nodes))]
        if job_id:
            tasks.append(asyncio.create_task(watch.follow(job_id)))
        try:
            yield watch
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


class _Watch:
    """Notices changes for one open page."""

    def __init__(self, client: Callable[[], Client], noting: NotingHttp) -> None:
        self._client = client
        self._noting = noting
        self._changed = asyncio.Event()
        self.is_refused = False
        """Whether the reader's token is no longer valid."""

    async def change(self, seconds: float, closing: asyncio.Event) -> bool:
        """Wait for a change, or for the end; return False after `seconds` without one."""
        waits = [asyncio.ensure_future(each.wait()) for each in (self._changed, closing)]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        was_set = self._changed.is_set()
        self._changed.clear()
        return was_set

    async def pulse(self, *, at_each_look: bool) -> None:
        """Look at the position in the log, the leader and the health, and so at the token, again and again."""
        seen: tuple[str, ...] | None = None
        while not self.is_refused:
            found: tuple[str, ...] = ()
            try:
                cluster = await self._client().cluster()
                found = (self._noting.revision, cluster.get("leader", ""), cluster.get("health", ""))
            except Rejected as error:
                self._refuse(error)
            except RaftschedError as error:
                log.debug("pulse_failed", error=str(error))
            if seen is not None and (at_each_look or found != seen):
                self._changed.set()
            seen = found
            await asyncio.sleep(_PULSE_SECONDS)

    async def follow(self, job_id: str) -> None:
        """Wait for the events of a job."""
        while not self.is_refused:
            try:
                async for _ in self._client().events(job=job_id):
                    self._changed.set()
            except Rejected as error:
                self._refuse(error)
            except RaftschedError:
                await asyncio.sleep(_PULSE_SECONDS)
            else:
                return

    def _refuse(self, error: Rejected) -> None:
        if error.http_status == 401:
            self.is_refused = True
            self._changed.set()
