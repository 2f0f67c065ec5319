"""Ask over HTTP without production's client: a request is sent once, to any node, and its answer is written down.

A reply decides by its status and code. A request that broke may have taken effect if it was sent (`Exchange.is_sent`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from chaos.sim.network.sockets import SimulatedPool
from chaos.sim.users.callers import PATIENCE_SECONDS, Refusal, Unknown
from chaos.sim.world.world import World
from raftsched.api.http.consistency import REVISION_HEADER
from raftsched.exchange import Broken, Exchange, Timeouts

_TIMEOUTS = Timeouts(connect_seconds=0.3, total_seconds=PATIENCE_SECONDS)
_REFUSED = 400
_UNKNOWN = ("outcome_unknown", "internal_error", "invariant_broken")


class HttpCaller:
    """A program's identity in the history, and its connections to all nodes."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self._lives = 0
        self._http = SimulatedPool()

    async def post(
        self, f: str, path: str, document: Any, *, headers: Mapping[str, str] | None = None, **fields: Any
    ) -> Any:
        """One operation: asked, answered, written down; return the reply. Raises `Refusal` or `Unknown`."""
        world = self._world
        op, process, node = world.recorder.new_op(), f"{self._name}.{self._lives}", world.random.choice(world.ids)
        world.recorder.invoke(process, op, f, node=node, **fields)
        host, port = world.hosts[node].api_address
        exchange = Exchange(
            "POST",
            f"http://{host}:{port}/api/v1{path}",
            headers={"Content-Type": "application/json", **(headers or {})},
            body=msgspec.json.encode(document),
        )
        try:
            reply = await self._http.send(exchange, _TIMEOUTS)
        except Broken as error:
            if exchange.is_sent:
                raise self._lost(process, op) from error
            world.recorder.reply(process, op, "fail", error="unreachable")
            raise Refusal("unreachable") from error
        told = msgspec.json.decode(reply.body)
        if reply.status >= _REFUSED:
            if told["code"] in _UNKNOWN:
                raise self._lost(process, op)
            world.recorder.reply(process, op, "fail", error=told["code"])
            raise Refusal(told["code"])
        revision = told.get("revision", 0)
        world.recorder.reply(process, op, "ok", applied=int(reply.headers.get(REVISION_HEADER, 0)), revision=revision)
        return told

    def _lost(self, process: str, op: int) -> Unknown:
        self._world.recorder.reply(process, op, "info")
        self._lives += 1
        return Unknown()

    async def close(self) -> None:
        await self._http.close()
