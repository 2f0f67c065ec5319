"""Users of raw HTTP: each asks one node, submits, reads and cancels jobs."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

from chaos.drills.history.exchanges import OP_TAG
from chaos.drills.load.asking import Asker
from chaos.drills.nodes import Node

QUEUES: Final = ("raw", "sdk")
_PAUSE_SECONDS: Final = 0.15
_KEYED: Final = 0.6
_DELAYED: Final = 0.2
_HTTP: Final = 0.2
_ONCE: Final = 0.2
"""Part of the jobs for the SDK's workers that begin at most once."""
_ONCE_QUEUE: Final = "sdk"
_PATIENCE_SECONDS: Final = 20.0


class JobsKnown:
    """Jobs that any user has heard of; the latest ones are read and cancelled most."""

    def __init__(self) -> None:
        self._jobs: deque[str] = deque(maxlen=40)

    def add(self, job_id: str) -> None:
        self._jobs.append(job_id)

    def any(self, asker: Asker) -> str | None:
        return asker.random.choice(self._jobs) if self._jobs else None


def http_document(url: str, op: int) -> dict[str, Any]:
    """Return the job that sends a request to `url`."""
    return {
        "http": {"url": url, "timeout_seconds": 20, "body": {"n": op}},
        "max_attempts": 5,
        "retry_policy": {"backoff": "fixed", "base_seconds": 0.2},
        "tags": [f"{OP_TAG}{op}"],
    }


def document_of(queue: str, op: int) -> dict[str, Any]:
    """Return a job of `queue` that carries the number of its operation into the log."""
    return {
        "name": queue,
        "queue": queue,
        "payload": {"n": op},
        "max_attempts": 5,
        "retry_policy": {"backoff": "fixed", "base_seconds": 0.2},
        "tags": [f"{OP_TAG}{op}"],
    }


class User:
    """Asks `node`, whatever it answers."""

    def __init__(self, asker: Asker, node: Node, known: JobsKnown, target: str = "") -> None:
        """Make a user who also submits HTTP jobs to `target`, if there is one."""
        self._asker = asker
        self._node = node
        self._known = known
        self._target = target

    async def live(self) -> None:
        """Write, and read meanwhile: a write that waits for a leader must not keep anybody from reading old answers."""
        async with asyncio.TaskGroup() as doing:
            doing.create_task(self._again(_PAUSE_SECONDS, (self._submit, 6), (self._cancel, 0.5)))
            doing.create_task(self._again(2 * _PAUSE_SECONDS, (self._read, 3), (self._read_stale, 1)))

    async def _again(self, pause_seconds: float, *steps: tuple[Callable[[], Awaitable[None]], float]) -> None:
        random = self._asker.random
        kinds, weights = zip(*steps, strict=True)
        while True:
            await asyncio.sleep(pause_seconds * 2 * random.random())
            await random.choices(kinds, weights)[0]()

    async def _submit(self) -> None:
        document = self._document()
        if self._asker.random.random() >= _KEYED:
            await self._try(document, key="", node=self._node)
            return
        key = f"{self._asker.name}-{document['tags'][0]}"
        deadline = time.monotonic() + _PATIENCE_SECONDS
        node: Node | None = self._node
        while time.monotonic() < deadline and not await self._try(document, key=key, node=node):
            await asyncio.sleep(_PAUSE_SECONDS)
            node = None

    def _document(self) -> dict[str, Any]:
        random = self._asker.random
        op = self._asker.recorder.new_op()
        if self._target and random.random() < _HTTP:
            return http_document(self._target, op)
        document = document_of(random.choice(QUEUES), op) | {"priority": random.choice((0, 5, 9))}
        if document["queue"] == _ONCE_QUEUE and random.random() < _ONCE:
            document["start"] = "at_most_once"
        if random.random() < _DELAYED:
            document["delay_seconds"] = random.choice((1, 2, 3))
        return document

    async def _try(self, document: dict[str, Any], *, key: str, node: Node | None) -> bool:
        answer = await self._asker.ask("POST", "/jobs", document, node=node, key=key)
        if job_id := answer.document.get("id"):
            self._known.add(job_id)
        return answer.is_definite

    async def _read(self) -> None:
        if job_id := self._known.any(self._asker):
            await self._asker.ask("GET", f"/jobs/{job_id}", node=self._node)

    async def _read_stale(self) -> None:
        if job_id := self._known.any(self._asker):
            await self._asker.ask("GET", f"/jobs/{job_id}?consistency=stale", node=self._node)

    async def _cancel(self) -> None:
        if job_id := self._known.any(self._asker):
            await self._asker.ask("DELETE", f"/jobs/{job_id}", node=self._node)
