"""Save, list, read, amend, control and delete schedules.

A schedule's name identifies it within its tenant. Saving it again changes nothing, so an application may do that at
every start. `If-None-Match: *` only creates; `If-Match` only changes a schedule that no user changed since it was read.
Reads change nothing.

The path takes an id or a name.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from aiohttp import web

from raftsched import limits
from raftsched.api.access.principal import principal_of
from raftsched.api.access.requests import query_in, within
from raftsched.api.access.rules import Access
from raftsched.api.backend import Backend
from raftsched.api.http.actor import actor_of
from raftsched.api.http.bodies import Bodies
from raftsched.api.http.consistency import read
from raftsched.api.http.json_reply import json_response
from raftsched.api.http.proposals import propose
from raftsched.api.http.routes import BASE_PATH, MATCH_HEADER, Route, change, route, verb_route
from raftsched.api.json.cursors import read_cursor, write_cursor
from raftsched.api.json.decode import StructDecoder
from raftsched.api.json.times import pause_end_ms
from raftsched.api.schedules.amend import amended
from raftsched.api.schedules.documents import named_schedule, schedule_document
from raftsched.api.schedules.preview import Budget, NextFireTimes
from raftsched.api.schedules.reply import (
    changed_schedule,
    found_schedule,
    job_id_text_of,
    latest_reply,
    schedule_reply,
    tagged,
)
from raftsched.api.schedules.save import Condition, Found, ScheduleSaver
from raftsched.core.operations.schedules import ControlSchedule, ScheduleAction
from raftsched.core.records.ids import TENANT_DEFAULT, TimeMs
from raftsched.core.records.schedule import Schedule
from raftsched.core.state.results import ScheduleSaved
from raftsched.errors import Invalid, Malformed
from raftsched.storage.reader import StateReader
from raftsched.wire.control import PauseRequest
from raftsched.wire.schedules import (
    DeletedReply,
    LatestDocument,
    SchedulePatch,
    ScheduleQuery,
    ScheduleReply,
    ScheduleRequest,
    SchedulesPage,
    SchedulesQuery,
    TenantQuery,
)
from raftsched.wire.verbs import SCHEDULE

IF_NONE_MATCH: Final = "If-None-Match"
_NEVER: Final = TimeMs(0)
_REVISION: Final = re.compile(r'(?:W/)?"?([1-9][0-9]{0,17})"?', re.ASCII)


class Schedules:
    """The routes of schedules; `runs` has those of fire times, `files` those of files."""

    def __init__(self, backend: Backend, bodies: Bodies, saver: ScheduleSaver) -> None:
        self._backend = backend
        self._bodies = bodies
        self._saver = saver
        self._next_fire_times = NextFireTimes()
        self._schedule = StructDecoder(ScheduleRequest)
        self._patch: StructDecoder[Any] = StructDecoder(SchedulePatch)
        self._pause = StructDecoder(PauseRequest)

    def routes(self) -> tuple[Route, ...]:
        return (
            change(
                Access.SUBMIT,
                "POST",
                "/schedules",
                self.save_schedule,
                ScheduleReply,
                body=ScheduleRequest,
                headers=(MATCH_HEADER, IF_NONE_MATCH),
                statuses=(201, 200),
            ),
            route(Access.READ, "GET", "/schedules", self.list_schedules, SchedulesPage, query=SchedulesQuery),
            route(Access.READ, "GET", "/schedules/{id}", self.get_schedule, ScheduleReply, query=ScheduleQuery),
            verb_route(Access.SUBMIT, SCHEDULE["amend"], self.amend_schedule),
            verb_route(Access.SUBMIT, SCHEDULE["delete"], self.delete_schedule),
            verb_route(Access.SUBMIT, SCHEDULE["pause"], self.pause_schedule),
            verb_route(Access.SUBMIT, SCHEDULE["resume"], self.resume_schedule),
        )

    # -- saving -------------------------------------------------------------------------------------------------------

    async def save_schedule(self, request: web.Request) -> web.Response:
        """Create a schedule (201), or replace the one of this name (200); a repeated request changes nothing."""
        read_body, _ = self._schedule.read(await self._bodies.read_json(request))
        caller = principal_of(request)
        wanted = within(caller, read_body)
        tenant = wanted.tenant or TENANT_DEFAULT
        saved = await self._saver.save(
            lambda state: (named_schedule(state, tenant, wanted.name), wanted),
            subject=(tenant, wanted.name),
            condition=_condition(request),
            caller=caller,
        )
        response = await self._response(saved.schedule, status=201 if saved.created else 200)
        response.headers["Location"] = f"{BASE_PATH}/schedules/{job_id_text_of(saved.schedule)}"
        return response

    async def amend_schedule(self, request: web.Request) -> web.Response:
        body = await self._bodies.read_json(request)
        _check_pause(self._patch.read(body)[0])
        tenant = query_in(request, TenantQuery).tenant

        def find(state: StateReader) -> Found:
            known = found_schedule(state, request, tenant)
            return known, self._schedule.decode(amended(schedule_document(known, state.payload(known.id)), body))

        saved = await self._saver.save(
            find,
            subject=(tenant or TENANT_DEFAULT, request.match_info["id"]),
            condition=_condition(request)._replace(create_only=False),
            caller=principal_of(request),
        )
        return await self._response(saved.schedule)

    # -- reading ------------------------------------------------------------------------------------------------------

    async def list_schedules(self, request: web.Request) -> web.Response:
        """List schedules by name."""
        query, reading = read(self._backend, request, SchedulesQuery)
        return reading.response(await self._page(_rows(reading.state, query, reading.now_ms)))

    async def _page(self, rows: _Rows) -> SchedulesPage:
        """Return the page; it ends early where calendars make looking ahead long."""
        budget = Budget()
        found: list[ScheduleReply] = []
        next_key = rows.next_key
        for position, (_, schedule, payload, latest) in enumerate(rows.rows):
            fires_ms = await self._next_fire_times.next_firing_ms(schedule, budget)
            if fires_ms is None:
                next_key = rows.rows[position - 1].key
                break
            found.append(schedule_reply(schedule, payload, fires_ms, latest))
        return SchedulesPage(schedules=found, next_cursor=write_cursor(next_key, *rows.filters))

    async def get_schedule(self, request: web.Request) -> web.Response:
        """Read a schedule."""
        query, reading = read(self._backend, request, ScheduleQuery)
        schedule = found_schedule(reading.state, request, query.tenant)
        payload = reading.state.payload(schedule.id)
        latest = latest_reply(reading.state, schedule, reading.now_ms)
        fires_ms = await self._next_fire_times.next_firing_ms(schedule, Budget())
        return tagged(reading.response(schedule_reply(schedule, payload, fires_ms or _NEVER, latest)), schedule)

    # -- control ------------------------------------------------------------------------------------------------------

    async def pause_schedule(self, request: web.Request) -> web.Response:
        wanted = self._pause.read_optional(await self._bodies.read_optional_json(request))
        until_ms = pause_end_ms(wanted.until, wanted.for_seconds, self._backend.now_ms())
        return await self._control(request, ScheduleAction.PAUSE, until_ms=until_ms, reason=wanted.reason or "")

    async def resume_schedule(self, request: web.Request) -> web.Response:
        return await self._control(request, ScheduleAction.RESUME)

    async def delete_schedule(self, request: web.Request) -> web.Response:
        schedule = await self._controlled(request, ScheduleAction.DELETE)
        return json_response(DeletedReply(id=job_id_text_of(schedule), name=schedule.name, deleted=True))

    async def _control(
        self, request: web.Request, action: ScheduleAction, *, until_ms: int = 0, reason: str = ""
    ) -> web.Response:
        return await self._response(await self._controlled(request, action, until_ms=until_ms, reason=reason))

    async def _controlled(
        self, request: web.Request, action: ScheduleAction, *, until_ms: int = 0, reason: str = ""
    ) -> Schedule:
        tenant = query_in(request, TenantQuery).tenant
        schedule = changed_schedule(self._backend.fresh_state(), request, tenant)
        operation = ControlSchedule(
            schedule.id, schedule.tenant, action, until_ms=TimeMs(until_ms), reason=reason, actor=actor_of(request)
        )
        return (await propose(self._backend, operation, ScheduleSaved)).schedule

    async def _response(self, schedule: Schedule, *, status: int = 200) -> web.Response:
        """Return the reply to a change that was just applied, so the state of this node has the payload."""
        state, _ = self._backend.stale_state()
        payload = state.payload(schedule.id)
        latest = latest_reply(state, schedule, self._backend.now_ms())
        fires_ms = await self._next_fire_times.next_firing_ms(schedule, Budget())
        reply = schedule_reply(schedule, payload, fires_ms or _NEVER, latest)
        return tagged(json_response(reply, status=status), schedule)


def _condition(request: web.Request) -> Condition:
    """Read `If-Match` and `If-None-Match`; raises `Malformed` for an invalid condition."""
    if_match, if_none_match = request.headers.get(MATCH_HEADER), request.headers.get(IF_NONE_MATCH)
    if if_none_match not in (None, "*"):
        raise Malformed(f"{IF_NONE_MATCH}: expected *, for creation only", field=IF_NONE_MATCH)
    found = None if if_match is None else _REVISION.fullmatch(if_match)
    if if_match is not None and (found is None or if_none_match is not None):
        raise Malformed(f"{MATCH_HEADER}: expected the revision that was read, alone", field=MATCH_HEADER)
    return Condition(since=int(found[1]) if found else 0, create_only=if_none_match is not None)


def _check_pause(patch: Any) -> None:
    """Raise `Invalid` for a patch with `pause_until: null`, which could mean no pause, or a pause without an end."""
    if patch.pause_until is None:
        fault = "null does not end a pause; POST .../resume ends it, and POST .../pause starts one without an end"
        raise Invalid(f"pause_until: {fault}", field="pause_until")


class _Row(NamedTuple):
    key: bytes
    """The next page starts after this key."""
    schedule: Schedule
    payload: bytes
    latest: LatestDocument[str] | None


class _Rows(NamedTuple):
    """The schedules of a page, read from one state."""

    rows: list[_Row]
    next_key: bytes
    filters: tuple[Any, ...]


def _rows(state: StateReader, query: SchedulesQuery, now_ms: int) -> _Rows:
    tenant = query.tenant or TENANT_DEFAULT
    filters = ("schedules", tenant, query.queue, query.paused, query.source, query.owner, query.label, query.order)
    filtered = any(wish is not None for wish in filters[2:-1])
    page = state.list_schedule_names(
        tenant,
        after=read_cursor(query.cursor, *filters),
        limit=limits.SCAN_ROWS_MAX if filtered else query.limit,
        descending=query.order == "desc",
    )
    rows: list[_Row] = []
    room = limits.PAGE_BYTES_MAX
    next_key = page.next_cursor
    for position, (key, schedule_id) in enumerate(page.items):
        schedule = state.schedule(schedule_id)
        if schedule is None or not _matches(schedule, query):
            continue
        payload = state.payload(schedule_id)
        rows.append(_Row(key, schedule, payload, latest_reply(state, schedule, now_ms)))
        room -= len(payload)
        if len(rows) == query.limit or room <= 0:
            next_key = key if position + 1 < len(page.items) else next_key
            break
    return _Rows(rows, next_key, filters)


def _matches(schedule: Schedule, query: SchedulesQuery) -> bool:
    return (
        query.queue in (None, schedule.template.spec.queue)
        and query.paused in (None, schedule.paused)
        and query.source in (None, schedule.source)
        and query.owner in (None, schedule.about.owner)
        and (query.label is None or tuple(query.label.split("=", 1)) in schedule.about.labels)
    )
