"""Dead letters: the jobs that were given up, listed, requeued and purged by the reason."""

from __future__ import annotations

from typing import Final, Literal

from aiohttp import web
from msgspec import structs

from raftsched.api.backend import Backend
from raftsched.api.http.actor import actor_of
from raftsched.api.http.bodies import Bodies
from raftsched.api.http.json_reply import json_response
from raftsched.api.http.routes import Route, change, route
from raftsched.api.jobs.bulk import Bulk, DeadLetters
from raftsched.api.jobs.list import list_response
from raftsched.api.json.decode import Fitter, parse_query
from raftsched.errors import Invalid
from raftsched.wire.bulk import (
    BulkReply,
    BulkRequest,
    DeadLetterFilter,
    DeadLettersQuery,
    DeadLettersRequest,
    JobFilter,
)
from raftsched.wire.jobs import JobsPage, ListQuery

_STATUS: Final = "dead_letter"


class DeadLetterBox:
    """The routes of dead letters."""

    def __init__(self, backend: Backend, bodies: Bodies, bulk: Bulk) -> None:
        self._backend = backend
        self._bodies = bodies
        self._bulk = bulk
        self._request = Fitter(DeadLettersRequest)

    def routes(self) -> tuple[Route, ...]:
        return (
            route("GET", "/dead-letters", self.list_dead_letters, JobsPage, query=DeadLettersQuery),
            change("POST", "/dead-letters/requeue", self.requeue_dead_letters, BulkReply, body=DeadLettersRequest),
            change("POST", "/dead-letters/purge", self.purge_dead_letters, BulkReply, body=DeadLettersRequest),
        )

    async def list_dead_letters(self, request: web.Request) -> web.Response:
        """List the jobs that were given up, the latest first."""
        query = parse_query(request, DeadLettersQuery)
        return await list_response(self._backend, ListQuery(status=[_STATUS], **structs.asdict(query)))

    async def requeue_dead_letters(self, request: web.Request) -> web.Response:
        """Run dead letters again, up to 10,000 at a time."""
        return await self._change(request, "retry")

    async def purge_dead_letters(self, request: web.Request) -> web.Response:
        """Remove dead letters for good, up to 10,000 at a time."""
        return await self._change(request, "delete")

    async def _change(self, request: web.Request, action: Literal["retry", "delete"]) -> web.Response:
        asked, _ = self._request.read(await self._bodies.read_json(request))
        letters = DeadLetters(_reason_of(asked))
        if asked.ids is not None and (asked.all or asked.filter is not None):
            raise Invalid("ids: give exactly one of ids, filter and all", field="ids")
        wanted = BulkRequest(
            action=action,
            ids=asked.ids,
            filter=_filter_of(asked, letters.reason) if asked.ids is None else None,
            dry_run=asked.dry_run,
            limit=asked.limit,
            cursor=asked.cursor,
        )
        reply = await self._bulk.run(wanted, actor=actor_of(request), dead_letters=letters)
        return json_response(reply)


def _reason_of(asked: DeadLettersRequest) -> str:
    inner = asked.filter.reason if asked.filter is not None else None
    if asked.reason is not None and inner is not None:
        raise Invalid("reason: give it once, beside the filter or in it", field="reason")
    return asked.reason or inner or ""


def _filter_of(asked: DeadLettersRequest, reason: str) -> JobFilter:
    """What the request names; raises `Invalid` where it names nothing, or more than one thing."""
    if asked.all and asked.filter is not None:
        raise Invalid("filter: give exactly one of ids, filter and all", field="filter")
    filter_ = asked.filter or DeadLetterFilter()
    if not asked.all and not reason and filter_ == DeadLetterFilter():
        field = "ids" if asked.filter is None else "filter"
        raise Invalid(f'{field}: give ids, a filter or a reason; or say "all": true for every dead letter', field=field)
    return JobFilter(status=_STATUS, **structs.asdict(filter_) | {"reason": reason or None})
