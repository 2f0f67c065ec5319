"""Queues: how many jobs of each status they hold, what operators said about them, and numbers for autoscalers.

The counts come from counters that are part of the state. Every queue exists; one that nobody uses has zeros.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from raftsched.api.backend import TENANT_DEFAULT, Backend
from raftsched.api.queue_rendering import named_queue, settings_reply
from raftsched.api.reading import Reading, read
from raftsched.api.rendering import json_response
from raftsched.api.replies import QueueReply, QueuesReply
from raftsched.api.replies.queues import ScaleReply
from raftsched.api.requests import ReadQuery
from raftsched.api.routes import BASE_PATH, Answered, Route
from raftsched.core.job import Status
from raftsched.core.queue import Queue
from raftsched.leader.depths import QueueDepth, queue_depths

_NO_COUNTS: Final[dict[Status, int]] = {}


class Queues:
    """The routes by which queues are read."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def routes(self) -> tuple[Route, ...]:
        any_node = Answered.BY_LEADER_UNLESS_STALE
        return (
            Route(
                method="GET",
                path=f"{BASE_PATH}/queues",
                handler=self.list_queues,
                answered=any_node,
                query=ReadQuery,
                reply=QueuesReply,
            ),
            Route(
                method="GET",
                path=f"{BASE_PATH}/queues/{{name}}",
                handler=self.get_queue,
                answered=any_node,
                query=ReadQuery,
                reply=QueueReply,
            ),
            Route(
                method="GET",
                path=f"{BASE_PATH}/queues/{{name}}/scale",
                handler=self.get_queue_scale,
                answered=Answered.BY_LEADER,
                reply=ScaleReply,
            ),
        )

    async def list_queues(self, request: web.Request) -> web.Response:
        """List the queues that hold jobs or have settings, with their counts by status."""
        _, reading = read(self._backend, request, ReadQuery)
        depths = self._depths(reading)
        for queue in reading.state.queues():
            depths.setdefault(queue.name, _empty(queue.name))
        queues = [_queue_reply(reading, depth) for _, depth in sorted(depths.items())]
        return reading.response(QueuesReply(queues=queues))

    async def get_queue(self, request: web.Request) -> web.Response:
        """Read a queue: its counts by status, and its settings."""
        name = named_queue(request)
        _, reading = read(self._backend, request, ReadQuery)
        return reading.response(_queue_reply(reading, self._depths(reading).get(name) or _empty(name)))

    async def get_queue_scale(self, request: web.Request) -> web.Response:
        """Read how many workers a queue should have, and the numbers that say so."""
        scale = self._backend.leadership().queue_scale(named_queue(request))
        return json_response(
            ScaleReply(
                queue=scale.queue,
                ready=scale.ready_count,
                exact=scale.exact,
                running=scale.running_count,
                oldest_wait_ms=scale.oldest_wait_ms,
                waiting_workers=scale.waiting_workers,
                worker_slots=scale.worker_slots,
                wanted_workers=scale.wanted_workers,
            )
        )

    def _depths(self, reading: Reading) -> dict[str, QueueDepth]:
        if reading.age_ms is None:
            depths = self._backend.leadership().queue_depths(TENANT_DEFAULT)
        else:
            depths = queue_depths(reading.state, reading.now_ms, waiting_workers=lambda _: 0, tenant=TENANT_DEFAULT)
        return {depth.queue: depth for depth in depths}


def _empty(name: str) -> QueueDepth:
    return QueueDepth(queue=name, counts=_NO_COUNTS, exact=True, oldest_wait_ms=0, waiting_workers=0)


def _queue_reply(reading: Reading, depth: QueueDepth) -> QueueReply:
    return QueueReply(
        name=depth.queue,
        tenant=TENANT_DEFAULT,
        exact=depth.exact,
        oldest_wait_ms=depth.oldest_wait_ms,
        waiting_workers=depth.waiting_workers if reading.age_ms is None else None,
        settings=settings_reply(reading.state.queue(depth.queue) or Queue(depth.queue)),
        **{status.label: depth.counts.get(status, 0) for status in Status},
    )
