"""Read queues: their counts by status, their settings, and numbers for autoscalers.

The counts are counters in the state. Every queue exists; an unused one has zeros. A list has pages by name, and costs
only the queues on the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import groupby, islice

from aiohttp import web
from msgspec.structs import replace

from raftsched.api.access.principal import Principal, principal_of
from raftsched.api.access.rules import Access
from raftsched.api.backend import Backend
from raftsched.api.http.consistency import Reading, read
from raftsched.api.http.json_reply import json_response
from raftsched.api.http.routes import Answered, Route, route
from raftsched.api.json.cursors import read_cursor, write_cursor
from raftsched.api.queues.reply import activity_reply, named_queue, settings_reply
from raftsched.core.records.job import Status
from raftsched.core.records.queue import Queue
from raftsched.errors import Malformed
from raftsched.leader.dispatch.depths import QueueDepth, queue_depths
from raftsched.wire.common import ReadQuery
from raftsched.wire.queues import QueueReply, QueuesQuery, QueuesReply, ScaleReply


class Queues:
    """The routes by which queues are read."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def routes(self) -> tuple[Route, ...]:
        return (
            route(Access.READ, "GET", "/queues", self.list_queues, QueuesReply, query=QueuesQuery),
            route(Access.READ, "GET", "/queues/{name}", self.get_queue, QueueReply, query=ReadQuery),
            route(
                Access.READ,
                "GET",
                "/queues/{name}/scale",
                self.get_queue_scale,
                ScaleReply,
                answered=Answered.BY_LEADER,
            ),
        )

    async def list_queues(self, request: web.Request) -> web.Response:
        """List the queues that hold jobs or have settings, with their counts by status."""
        query, reading = read(self._backend, request, QueuesQuery)
        after = _name_in(read_cursor(query.cursor, "queues"))
        caller = principal_of(request)
        names = list(islice(_names(reading, caller, after), query.limit + 1))
        shown, is_last = names[: query.limit], len(names) <= query.limit
        queues = self.replies(reading, caller, shown)
        next_cursor = None if is_last else write_cursor(shown[-1].encode(), "queues")
        return reading.response(QueuesReply(queues=queues, next_cursor=next_cursor))

    async def get_queue(self, request: web.Request) -> web.Response:
        """Read a queue: its counts by status, and its settings."""
        name, caller = named_queue(request), principal_of(request)
        _, reading = read(self._backend, request, ReadQuery)
        [reply] = self.replies(reading, caller, [name])
        activity = activity_reply(self._backend.events.activity, name, caller, reading.now_ms)
        return reading.response(replace(reply, activity=activity))

    async def get_queue_scale(self, request: web.Request) -> web.Response:
        """Read the number of workers that a queue should have, and the numbers behind it; 503 if no leader has them."""
        scale = self._backend.leadership().queue_scale(named_queue(request), principal_of(request).scope)
        return json_response(
            ScaleReply(
                queue=scale.queue,
                backlog=scale.ready_count + scale.running_count,
                ready=scale.ready_count,
                delayed=scale.delayed_count,
                leased=scale.running_count,
                oldest_ready_seconds=scale.oldest_wait_ms / 1000,
                workers=scale.worker_count,
                exact=scale.exact,
                running=scale.running_count,
                oldest_wait_ms=scale.oldest_wait_ms,
                waiting_workers=scale.waiting_workers,
                worker_slots=scale.worker_slots,
                wanted_workers=scale.wanted_workers,
            )
        )

    def replies(self, reading: Reading, caller: Principal, names: Sequence[str]) -> list[QueueReply]:
        """Return the documents of these queues, in their order."""
        return [_queue_reply(reading, caller, depth) for depth in self._depths(reading, caller, names)]

    def _depths(self, reading: Reading, caller: Principal, names: Sequence[str]) -> list[QueueDepth]:
        if reading.age_ms is None:
            return self._backend.leadership().queue_depths(names, caller.scope)
        return queue_depths(reading.state, names, reading.now_ms, waiting_workers=lambda _: 0, tenant=caller.scope)


def _names(reading: Reading, caller: Principal, after: str) -> Iterator[str]:
    """Return the queues that hold jobs of the caller or have settings, by name, after the name `after`."""
    state = reading.state
    names = merge(state.used_queues(caller.scope, after=after), state.configured_queues(after=after))
    return (name for name, _ in groupby(names) if caller.sees_queue(name))


def _name_in(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise Malformed("cursor: not one that this server issued", field="cursor") from None


def _queue_reply(reading: Reading, caller: Principal, depth: QueueDepth) -> QueueReply:
    return QueueReply(
        name=depth.queue,
        tenant=caller.scope,
        exact=depth.exact,
        oldest_wait_ms=depth.oldest_wait_ms,
        waiting_workers=depth.waiting_workers if reading.age_ms is None else None,
        settings=settings_reply(reading.state.queue(depth.queue) or Queue(depth.queue), caller),
        activity=None,
        **{status.label: depth.counts.get(status, 0) for status in Status},
    )
