"""Serve health checks: whether the process answers, and whether it can serve."""

from __future__ import annotations

from aiohttp import web
from msgspec import UNSET

from raftsched.api.access.rules import Access
from raftsched.api.backend import Backend
from raftsched.api.http.json_reply import json_response, time_text
from raftsched.api.http.routes import Answered, Route
from raftsched.errors import Unavailable
from raftsched.wire.cluster import HealthReply


class Health:
    """The routes for orchestrators and load balancers, at the root."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def routes(self) -> tuple[Route, ...]:
        paths = (
            ("/healthz", self.healthz, Access.PUBLIC),
            ("/health", self.health, Access.SIGNED_IN),
            ("/readyz", self.readyz, Access.PUBLIC),
        )
        return tuple(
            Route(method="GET", path=path, handler=handler, access=access, answered=Answered.HERE, reply=HealthReply)
            for path, handler, access in paths
        )

    async def healthz(self, request: web.Request) -> web.Response:
        """Answer while the process runs."""
        del request
        return json_response(HealthReply(status="ok", node=self._backend.node_id, time=self._time()))

    async def health(self, request: web.Request) -> web.Response:
        """Answer as /healthz, for older clients."""
        return await self.healthz(request)

    def _time(self) -> str:
        return time_text(self._backend.wall_ms())

    async def readyz(self, request: web.Request) -> web.Response:
        """Answer 200 while this node can serve, 503 with the reason while it can't."""
        del request
        is_ready, reason = self._backend.readiness()
        if not is_ready:
            raise Unavailable(reason)
        return json_response(
            HealthReply(status="ready", node=self._backend.node_id, time=self._time(), warning=reason or UNSET)
        )
