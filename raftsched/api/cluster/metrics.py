"""Serve the metrics of this node, in Prometheus' text format."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

from raftsched.api.access.rules import Access
from raftsched.api.backend import Backend
from raftsched.api.http.routes import Answered, Route
from raftsched.metrics.exposition import CONTENT_TYPE, exposition

METRICS_TYPE: Final = "text/plain"


class MetricsPage:
    """The route for Prometheus, at the root."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def routes(self) -> tuple[Route, ...]:
        return (
            Route(
                method="GET",
                path="/metrics",
                handler=self.get_metrics,
                access=Access.METRICS,
                answered=Answered.HERE,
                reply=None,
                reply_type=METRICS_TYPE,
            ),
        )

    async def get_metrics(self, request: web.Request) -> web.Response:
        """Read the metrics of this node, and of the cluster if this node leads, in Prometheus' text format."""
        del request
        parts = []
        for part in exposition(self._backend.readings()):
            parts.append(part)
            await asyncio.sleep(0)  # large clusters have thousands of lines
        return web.Response(body=b"".join(parts), headers={"Content-Type": CONTENT_TYPE})
