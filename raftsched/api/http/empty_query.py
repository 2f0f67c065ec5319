"""Reject the query of routes that take none.

A client that sends a parameter expects an effect; it must not get 200 for one that was ignored. Health checks are
excepted: load balancers add parameters of their own.
"""

from __future__ import annotations

from dataclasses import replace
from functools import wraps

from aiohttp import web

from raftsched.api.http.routes import BASE_PATH, Route
from raftsched.api.json.decode import parse_query
from raftsched.wire.common import Request


class _Nothing(Request, frozen=True):
    """A query without parameters."""


def refusing_queries(route: Route) -> Route:
    """Return the route; it raises `Malformed` for a parameter if it takes none."""
    if route.query is not None or not route.path.startswith(BASE_PATH):
        return route
    handler = route.handler

    @wraps(handler)
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.query_string:
            parse_query(request, _Nothing)
        return await handler(request)

    return replace(route, handler=answer)
