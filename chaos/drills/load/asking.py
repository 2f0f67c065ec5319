"""Ask nodes over raw HTTP, each request once and recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple

import msgspec

from chaos.drills.history.recorded_pool import RecordedPool
from chaos.drills.history.recorder import Recorder
from chaos.drills.nodes import Node
from raftsched.api.http.routes import BASE_PATH, KEY_HEADER
from raftsched.exchange import Broken, Exchange, Timeouts

_TIMEOUTS: Final = Timeouts(connect_seconds=1.0, total_seconds=3.0)
_REFUSED: Final = 400
_RETRYABLE: Final = 500
_OUR_FAULT: Final = frozenset({"invalid", "malformed"})


class Answer(NamedTuple):
    """A reply; status 0 = there was none."""

    status: int
    document: Any

    @property
    def is_definite(self) -> bool:
        """The same request, repeated, would be answered alike."""
        return 0 < self.status < _RETRYABLE


class Asker:
    """One user of raw HTTP, with connections of its own to all nodes."""

    def __init__(self, recorder: Recorder, name: str, nodes: Sequence[Node], random: Random) -> None:
        self.recorder = recorder
        self.name = name
        self.nodes = nodes
        self.random = random
        self._pool = RecordedPool(recorder, name, self._id_at)

    async def ask(
        self, method: str, path: str, document: Any = None, *, node: Node | None = None, key: str = ""
    ) -> Answer:
        """Ask a node, any if none is named."""
        node = node or self.random.choice(self.nodes)
        headers: Mapping[str, str] = {"Content-Type": "application/json"} | ({KEY_HEADER: key} if key else {})
        body = None if document is None else msgspec.json.encode(document)
        exchange = Exchange(method, f"{node.url}{BASE_PATH}{path}", headers=headers, body=body)
        try:
            reply = await self._pool.send(exchange, _TIMEOUTS)
            answer = Answer(reply.status, msgspec.json.decode(reply.body) if reply.body else {})
        except (Broken, msgspec.DecodeError):
            return Answer(0, {})
        if answer.status >= _REFUSED and answer.document.get("code") in _OUR_FAULT:
            raise RuntimeError(f"the drill asks for what can't be: {method} {path}: {answer.document}")
        return answer

    def _id_at(self, api: str) -> str | None:
        """Return the id of the member that listens there now, None if there is none."""
        return next((node.id for node in self.nodes if node.api == api), None)

    async def close(self) -> None:
        await self._pool.close()
