"""Receive the requests of the demo's HTTP jobs, and record each run once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from raftsched.cli.demo.ledger import Ledger, Superseded
from raftsched.cli.local.cluster import HOST

_PATH: Final = "/record"


@asynccontextmanager
async def receiver(ledger: Ledger) -> AsyncIterator[str]:
    """Serve on a free port; yields the address to which requests with a `text` are sent."""

    async def record(request: web.Request) -> web.Response:
        try:
            text = str((await request.json())["text"])
        except ConnectionResetError:  # its sender was killed with its node
            return web.Response(status=400)
        run_id, token = request.headers["Raftsched-Run-Id"], int(request.headers["Raftsched-Fencing-Token"])
        try:
            return web.json_response({"text": ledger.record(run_id, token, text)})
        except Superseded as error:
            return web.json_response({"error": str(error)}, status=409)

    app = web.Application()
    app.router.add_post(_PATH, record)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, 0)
        await site.start()
        _, port = runner.addresses[0][:2]
        yield f"http://{HOST}:{port}{_PATH}"
    finally:
        await runner.cleanup()
