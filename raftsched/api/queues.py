"""Queues: how many jobs of each status they hold, from counters that are part of the state."""

from __future__ import annotations

from aiohttp import web

from raftsched.api.backend import TENANT_DEFAULT, Backend
from raftsched.api.reading import Reading, read
from raftsched.api.replies import QueueReply, QueuesReply
from raftsched.api.requests import ReadQuery
from raftsched.api.routes import BASE_PATH, Answered, Route
from raftsched.core.job import Status
from raftsched.leader.depths import QueueDepth, queue_depths


class Queues:
    """The routes of queues."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def routes(self) -> tuple[Route, ...]:
        return (
            Route(
                method="GET",
                path=f"{BASE_PATH}/queues",
                handler=self.list_queues,
                answered=Answered.BY_LEADER_UNLESS_STALE,
                query=ReadQuery,
                reply=QueuesReply,
            ),
        )

    async def list_queues(self, request: web.Request) -> web.Response:
        """List the queues that hold jobs, with their counts by status."""
        _, reading = read(self._backend, request, ReadQuery)
        is_fresh = reading.age_ms is None
        depths = self._backend.leadership().queue_depths(TENANT_DEFAULT) if is_fresh else _stale_depths(reading)
        queues = [_queue_reply(depth, workers_known=is_fresh) for depth in depths]
        return reading.response(QueuesReply(queues=queues))


def _stale_depths(reading: Reading) -> list[QueueDepth]:
    return queue_depths(reading.state, reading.now_ms, waiting_workers=lambda _: 0, tenant=TENANT_DEFAULT)


def _queue_reply(depth: QueueDepth, *, workers_known: bool) -> QueueReply:
    return QueueReply(
        name=depth.queue,
        tenant=TENANT_DEFAULT,
        exact=depth.exact,
        oldest_wait_ms=depth.oldest_wait_ms,
        waiting_workers=depth.waiting_workers if workers_known else None,
        **{status.label: depth.counts.get(status, 0) for status in Status},
    )
