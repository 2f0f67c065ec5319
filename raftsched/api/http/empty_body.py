"""Reject bodies of changes that take none; an empty body and `{}` are accepted.

A client that sends a field expects an effect; it must not get 200 for a field that was ignored.
"""

from __future__ import annotations

from dataclasses import replace
from functools import wraps
from typing import Final

from aiohttp import web

from raftsched.api.http.bodies import Bodies
from raftsched.api.http.routes import Route
from raftsched.api.json.decode import StructDecoder
from raftsched.wire.common import Request


class _Nothing(Request, frozen=True):
    """A body without fields."""


_nothing: Final = StructDecoder(_Nothing)


def refusing_bodies(route: Route, bodies: Bodies) -> Route:
    """Return the route; it raises `Malformed` for a body if it takes none. A route that only reads ignores bodies."""
    if route.body is not None or route.method == "GET":
        return route
    handler = route.handler

    @wraps(handler)
    async def answer(request: web.Request) -> web.StreamResponse:
        _nothing.read_optional(await bodies.read_optional_json(request))
        return await handler(request)

    return replace(route, handler=answer)
