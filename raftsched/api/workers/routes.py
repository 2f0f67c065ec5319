"""List the workers that made a request lately, by their coarse marks in the log."""

from __future__ import annotations

from aiohttp import web

from raftsched.api.access.principal import principal_of
from raftsched.api.access.rules import Access
from raftsched.api.backend import Backend
from raftsched.api.http.consistency import read
from raftsched.api.http.routes import Route, route
from raftsched.api.jobs.reply import worker_reply
from raftsched.wire.common import ReadQuery
from raftsched.wire.workers import WorkersReply


class Workers:
    """The routes of workers."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def routes(self) -> tuple[Route, ...]:
        return (route(Access.READ, "GET", "/workers", self.list_workers, WorkersReply, query=ReadQuery),)

    async def list_workers(self, request: web.Request) -> web.Response:
        """List the workers that made a request lately."""
        _, reading = read(self._backend, request, ReadQuery)
        sees = principal_of(request).sees_worker
        workers = [worker_reply(worker) for worker in reading.state.workers() if sees(worker.name, worker.tenant)]
        return reading.response(WorkersReply(workers=workers))
