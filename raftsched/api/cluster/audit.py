"""List the audit trail, which the log entries of the changes wrote."""

from __future__ import annotations

from aiohttp import web

from raftsched import limits
from raftsched.api.access.principal import Principal, principal_of
from raftsched.api.access.rules import Access
from raftsched.api.backend import Backend
from raftsched.api.http.consistency import read
from raftsched.api.http.json_reply import time_text
from raftsched.api.http.routes import Route, route
from raftsched.api.json.cursors import read_cursor, write_cursor
from raftsched.core.state.entries import AuditEntry
from raftsched.storage.reader import StateReader
from raftsched.wire.observing import AuditLine, AuditPage, AuditQuery


class Audit:
    """The route of the audit trail."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def routes(self) -> tuple[Route, ...]:
        return (route(Access.AUDIT, "GET", "/audit", self.list_audit, AuditPage, query=AuditQuery),)

    async def list_audit(self, request: web.Request) -> web.Response:
        """List audit entries, the latest first; a page may hold few although `next_cursor` leads to more."""
        query, reading = read(self._backend, request, AuditQuery)
        return reading.response(_page(reading.state, query, principal_of(request)))


def _page(state: StateReader, query: AuditQuery, reader: Principal) -> AuditPage:
    filters = (query.actor, query.action, query.subject, query.tenant)
    listed = ("audit", *filters, query.order)
    page = state.list_audit(
        after=read_cursor(query.cursor, *listed),
        limit=query.limit if filters == (None,) * len(filters) else limits.SCAN_ROWS_MAX,
        descending=query.order == "desc",
    )
    found: list[AuditLine] = []
    next_key = page.next_cursor
    for position, (key, entry) in enumerate(page.items):
        if not _matches(entry, query):
            continue
        found.append(_line(entry, reader))
        if len(found) == query.limit:
            next_key = key if position + 1 < len(page.items) else next_key
            break
    return AuditPage(entries=found, next_cursor=write_cursor(next_key, *listed))


def _matches(entry: AuditEntry, query: AuditQuery) -> bool:
    return (
        query.actor in (None, entry.actor)
        and query.action in (None, entry.action, entry.action.partition(".")[0])
        and query.subject in (None, entry.subject, entry.subject.partition(":")[0])
        and query.tenant in (None, entry.tenant)
    )


def _line(entry: AuditEntry, reader: Principal) -> AuditLine:
    origin = entry.origin
    shows_origin = origin is not None and (not reader.is_bound or origin.tenant == reader.scope)
    return AuditLine(
        at=time_text(entry.at_ms),
        actor=entry.actor,
        action=entry.action,
        subject=entry.subject,
        tenant=entry.tenant or None,
        detail=entry.detail or None,
        revision=entry.revision,
        origin=origin.address if origin is not None and shows_origin else None,
    )
