"""Serve the application's connections, and answer requests that are not valid HTTP with a problem.

aiohttp answers those before the application sees a request: as plain text with a part of the request, which may be a
token, and with its own version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from raftsched.api.http.problems import http_problem, problem_response

SERVER: Final = "raftsched"
_Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Runner(web.AppRunner):
    """Runs an application; `settings` are those of `aiohttp.web.RequestHandler`, of each connection."""

    def __init__(self, app: web.Application, *, shutdown_timeout: float, **settings: Any) -> None:
        super().__init__(app, handle_signals=False, shutdown_timeout=shutdown_timeout)
        self._settings = settings

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        return _Server(server.request_handler, request_factory=server.request_factory, settings=self._settings)


def _with_problems(handler: _Handler) -> _Handler:
    """Return the handler; it answers with a problem also if aiohttp rejects a request before the application's
    middlewares: for the header `Expect`.
    """

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as error:
            return problem_response(http_problem(error.status, error.reason))

    return answer


class _Server(web.Server):
    """Creates the connections; a handler is cancelled when its client disconnects."""

    def __init__(self, handler: Any, *, request_factory: Any, settings: dict[str, Any]) -> None:
        super().__init__(_with_problems(handler), request_factory=request_factory, handler_cancellation=True)
        self._settings = settings

    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=asyncio.get_running_loop(), **self._settings)


class _Connection(web.RequestHandler):
    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer, and end the connection; raises `ConnectionError` if a reply has begun already."""
        super().handle_error(request, status, exc, message)
        rule = (message or "").partition(":")[0]  # the rest is the faulty bytes
        detail = f"the request can't be read: {rule}".rstrip(": ") if status < 500 else "this is a fault of the server"
        response = problem_response(http_problem(status, detail))
        response.headers["Server"] = SERVER
        response.headers["Cache-Control"] = "no-store"
        response.force_close()
        return response
