"""List, requeue and purge the jobs of the dead-letter queue."""

from __future__ import annotations

from collections import Counter
from typing import Final, Literal

from aiohttp import web
from msgspec import structs

from raftsched.api.access.principal import principal_of
from raftsched.api.access.requests import query_in
from raftsched.api.access.rules import Access
from raftsched.api.backend import Backend
from raftsched.api.http.bodies import Bodies
from raftsched.api.http.consistency import read
from raftsched.api.http.json_reply import json_response
from raftsched.api.http.routes import Route, change, route
from raftsched.api.jobs.bulk.routes import Bulk, DeadLetterScope
from raftsched.api.jobs.lists.pages import list_response
from raftsched.api.json.decode import StructDecoder
from raftsched.errors import Invalid
from raftsched.wire.bulk import (
    BulkReply,
    BulkRequest,
    DeadLetterFilter,
    DeadLetterReasonsReply,
    DeadLettersQuery,
    DeadLettersRequest,
    JobFilter,
)
from raftsched.wire.common import ReadQuery
from raftsched.wire.jobs import JobsPage, ListQuery

_STATUS: Final = "dead_letter"


class DeadLetters:
    """The routes of the dead-letter queue."""

    def __init__(self, backend: Backend, bodies: Bodies, bulk: Bulk) -> None:
        self._backend = backend
        self._bodies = bodies
        self._bulk = bulk
        self._request = StructDecoder(DeadLettersRequest)

    def routes(self) -> tuple[Route, ...]:
        return (
            route(Access.READ, "GET", "/dead-letters", self.list_dead_letters, JobsPage, query=DeadLettersQuery),
            route(
                Access.READ,
                "GET",
                "/dead-letters/reasons",
                self.count_dead_letters,
                DeadLetterReasonsReply,
                query=ReadQuery,
            ),
            change(
                Access.OPERATE,
                "POST",
                "/dead-letters/requeue",
                self.requeue_dead_letters,
                BulkReply,
                body=DeadLettersRequest,
            ),
            change(
                Access.OPERATE,
                "POST",
                "/dead-letters/purge",
                self.purge_dead_letters,
                BulkReply,
                body=DeadLettersRequest,
            ),
        )

    async def list_dead_letters(self, request: web.Request) -> web.Response:
        """List the jobs of the dead-letter queue, the latest first."""
        query = query_in(request, DeadLettersQuery)
        return await list_response(self._backend, ListQuery(status=[_STATUS], **structs.asdict(query)))

    async def count_dead_letters(self, request: web.Request) -> web.Response:
        """Count the dead letters of all queues by reason, from counters."""
        _, reading = read(self._backend, request, ReadQuery)
        caller = principal_of(request)
        counts: Counter[str] = Counter()
        for (tenant, reason), count in reading.state.dead_letter_counts().items():
            if caller.sees(tenant):
                counts[reason] += count
        return reading.response(DeadLetterReasonsReply(reasons=dict(sorted(counts.items()))))

    async def requeue_dead_letters(self, request: web.Request) -> web.Response:
        """Requeue jobs of the dead-letter queue, up to 10,000 at a time; a dry run searches up to 5,000."""
        return await self._change(request, "retry")

    async def purge_dead_letters(self, request: web.Request) -> web.Response:
        """Remove jobs of the dead-letter queue permanently, up to 10,000 at a time; a dry run searches up to 5,000."""
        return await self._change(request, "delete")

    async def _change(self, request: web.Request, action: Literal["retry", "delete"]) -> web.Response:
        body, _ = self._request.read(await self._bodies.read_json(request))
        scope = DeadLetterScope(_reason_of(body))
        if body.ids is not None and (body.all or body.filter is not None):
            raise Invalid("ids: give exactly one of ids, filter and all", field="ids")
        wanted = BulkRequest(
            action=action,
            ids=body.ids,
            filter=_filter_of(body, scope.reason) if body.ids is None else None,
            dry_run=body.dry_run,
            limit=body.limit,
            cursor=body.cursor,
        )
        reply = await self._bulk.run(wanted, caller=principal_of(request), dead_letters=scope)
        return json_response(reply)


def _reason_of(body: DeadLettersRequest) -> str:
    inner = body.filter.reason if body.filter is not None else None
    if body.reason is not None and inner is not None:
        raise Invalid("reason: give it once, outside the filter or in it", field="reason")
    return body.reason or inner or ""


def _filter_of(body: DeadLettersRequest, reason: str) -> JobFilter:
    """Return the filter of the request; raises `Invalid` unless exactly one selection is given."""
    if body.all and body.filter is not None:
        raise Invalid("filter: give exactly one of ids, filter and all", field="filter")
    filter_ = body.filter or DeadLetterFilter()
    if not body.all and not reason and filter_ == DeadLetterFilter():
        field = "ids" if body.filter is None else "filter"
        raise Invalid(f'{field}: give ids, a filter or a reason; or say "all": true for every dead letter', field=field)
    return JobFilter(status=_STATUS, **structs.asdict(filter_) | {"reason": reason or None})
