"""A proxy between clients and a node, real HTTP on both sides, which refuses what a test tells it to refuse."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web

_PASSED_ON = ("Content-Type", "Retry-After", "ETag")
"""Not the address of the leader: whoever knows the proxy alone stays with it."""
Rule = Callable[[str, bytes], int]
"""From the path and the body of a request to the status that refuses it; 0 lets it pass."""


def larger_than(byte_count: int) -> Rule:
    return lambda _path, body: 413 if len(body) > byte_count else 0


class Proxy:
    """A proxy at `url`; what `rule` refuses is answered with a page in HTML."""

    def __init__(self, target: str, rule: Rule) -> None:
        self.url = ""
        self.rule = rule
        self.passed: list[tuple[str, bytes]] = []
        self.refused: list[tuple[str, bytes]] = []
        self._target = target

    async def answer(self, request: web.Request) -> web.Response:
        path, body = request.path.removeprefix("/api/v1"), await request.read()
        status = self.rule(path, body)
        if status:
            self.refused.append((path, body))
            page = f"<html><head><title>{status}</title></head><body><h1>refused by the gateway</h1></body></html>"
            return web.Response(text=page, status=status, content_type="text/html")
        self.passed.append((path, body))
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                request.method,
                self._target + request.raw_path,
                data=body or None,
                headers={name: value for name, value in request.headers.items() if name == "Content-Type"},
            ) as reply,
        ):
            headers = {name: reply.headers[name] for name in _PASSED_ON if name in reply.headers}
            return web.Response(body=await reply.read(), status=reply.status, headers=headers)


@asynccontextmanager
async def proxy_before(target: str, rule: Rule) -> AsyncIterator[Proxy]:
    """A proxy before the node at `target`."""
    proxy = Proxy(target, rule)
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", proxy.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    proxy.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield proxy
    finally:
        await runner.cleanup()
