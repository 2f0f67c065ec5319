"""A target of HTTP jobs, outside of all faults: it takes each run's effect once, and refuses tokens that are too old."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

from aiohttp import web

from chaos.checkers.history.events import Downstream
from chaos.drills.history.exchanges import digits
from chaos.drills.history.recorder import Recorder

_HOST: Final = "127.0.0.1"
_SECONDS_MAX: Final = 0.1
_LONG: Final = 0.03
_LONG_SECONDS: Final = 7.0
"""Longer than a lease, which heartbeats keep."""
_BUSY: Final = 0.05
"""Part of the requests that are answered 503, and are tried again."""


class Receiver:
    """Keeps the highest fencing token of each run, and refuses lower ones, as a downstream of RELIABILITY's G6."""

    def __init__(self, recorder: Recorder, random: Random) -> None:
        self._recorder = recorder
        self._random = random
        self._highest: dict[str, int] = {}
        self._effects: set[str] = set()
        self._runner: web.AppRunner | None = None
        self.is_calm = False
        """Requests take a moment only, and none is answered 503."""

    async def open(self) -> str:
        """Listen; return the URL of the target."""
        app = web.Application()
        app.router.add_post("/", self._receive)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, _HOST, 0).start()
        return f"http://{_HOST}:{self._runner.addresses[0][1]}/"

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _receive(self, request: web.Request) -> web.Response:
        run = digits(request.headers["Raftsched-Run-Id"])
        token = int(request.headers["Raftsched-Fencing-Token"])
        drawn = self._random.random()
        is_long = drawn < _LONG and not self.is_calm
        await asyncio.sleep(_LONG_SECONDS if is_long else _SECONDS_MAX * self._random.random())
        if _LONG <= drawn < _LONG + _BUSY and not self.is_calm:
            return web.Response(status=503)
        is_accepted = token >= self._highest.get(run, 0)
        self._recorder.add(Downstream, resource=run, token=token, accepted=is_accepted)
        if not is_accepted:
            return web.Response(status=409)
        self._highest[run] = token
        is_first = run not in self._effects
        self._effects.add(run)
        return web.json_response({"first": is_first})
