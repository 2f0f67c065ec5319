"""Watch what each node says of its readiness while a drill runs."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from chaos.drills.cluster import Cluster
from chaos.drills.history.recorder import Recorder
from chaos.drills.nodes import Node

_POLL_SECONDS: Final = 0.4


class Sight(NamedTuple):
    """The answer of a node from `t` on, in microseconds of the history."""

    t: int
    node: str
    status: int
    """Of HTTP; 0 = none."""
    words: str


class ReadinessWatch:
    """Asks all nodes again and again while it is entered; `sights` has each change."""

    def __init__(self, cluster: Cluster, recorder: Recorder) -> None:
        self.sights: Final[list[Sight]] = []
        self._cluster = cluster
        self._recorder = recorder
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> None:
        self._tasks = [asyncio.create_task(self._watch(node)) for node in self._cluster.nodes]

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch(self, node: Node) -> None:
        known: tuple[int, str] | None = None
        while True:
            t = self._recorder.t
            status, document = await self._cluster.get(node, "/readyz")
            words = str(document.get("detail") or document.get("status") or "")
            if known != (status, words):
                known = (status, words)
                self.sights.append(Sight(t, node.id, status, words))
            await asyncio.sleep(_POLL_SECONDS)
