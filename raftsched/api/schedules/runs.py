"""Serve the fire times of schedules: the next ones, the ledger, manual runs, and previews of unsaved timings.

Reads change nothing. A preview needs no state, so any node answers it from its own zone data. The leader's zone data
decide the actual fire times, which the ledger shows.
"""

from __future__ import annotations

from aiohttp import web
from msgspec import UNSET

from raftsched import limits
from raftsched.api.access.requests import query_in
from raftsched.api.access.rules import Access
from raftsched.api.backend import Backend
from raftsched.api.http.actor import actor_of
from raftsched.api.http.bodies import Bodies
from raftsched.api.http.consistency import read
from raftsched.api.http.idempotency_key import key_of
from raftsched.api.http.json_reply import encode, json_response, time_text
from raftsched.api.http.proposals import propose
from raftsched.api.http.routes import Answered, Route, route, verb_route
from raftsched.api.jobs.calls import json_bytes
from raftsched.api.jobs.convert import digest_of, fingerprint_of
from raftsched.api.json.cursors import read_cursor, write_cursor
from raftsched.api.json.decode import StructDecoder
from raftsched.api.json.times import moment_ms
from raftsched.api.schedules.reply import (
    changed_schedule,
    firing_reply,
    found_schedule,
    job_id_text_of,
    skipped_replies,
)
from raftsched.api.schedules.timing import Preview, timing_of
from raftsched.core.operations.schedules import Decision, RunSchedule
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.schedule import Firing, FiringKind, Overlap, Schedule
from raftsched.core.state.results import Fired
from raftsched.leader.schedules.fire_times import fire_times_of
from raftsched.storage.reader import StateReader
from raftsched.wire.firings import (
    FiringReply,
    FiringsPage,
    FiringsQuery,
    NextQuery,
    NextReply,
    PreviewReply,
    PreviewRequest,
    TriggerRequest,
)
from raftsched.wire.schedules import TenantQuery
from raftsched.wire.verbs import SCHEDULE


class ScheduleRuns:
    """The routes of fire times and runs; `backfill` has the route for many runs."""

    def __init__(self, backend: Backend, bodies: Bodies) -> None:
        self._backend = backend
        self._bodies = bodies
        self._preview = StructDecoder(PreviewRequest)
        self._trigger = StructDecoder(TriggerRequest)

    def routes(self) -> tuple[Route, ...]:
        return (
            route(
                Access.READ,
                "POST",
                "/schedules/preview",
                self.preview_timing,
                PreviewReply,
                answered=Answered.HERE,
                body=PreviewRequest,
            ),
            route(Access.READ, "GET", "/schedules/{id}/next", self.get_next_instants, NextReply, query=NextQuery),
            route(Access.READ, "GET", "/schedules/{id}/firings", self.list_firings, FiringsPage, query=FiringsQuery),
            verb_route(Access.SUBMIT, SCHEDULE["trigger"], self.trigger_schedule),
        )

    # -- reading ------------------------------------------------------------------------------------------------------

    async def preview_timing(self, request: web.Request) -> web.Response:
        """Compute the next fire times of a timing; nothing is stored."""
        wanted, _ = self._preview.read(await self._bodies.read_json(request))
        after_ms = self._backend.now_ms() if wanted.after is None else moment_ms(wanted.after, "after")
        fire_times = fire_times_of(timing_of(wanted), from_ms=after_ms)
        preview = await Preview.of(fire_times, first_ms=fire_times.next_after(after_ms), count=wanted.count)
        return json_response(
            PreviewReply(
                firings=list(map(time_text, preview.fires_ms)),
                skipped=skipped_replies(preview.skipped),
                complete=preview.is_complete,
            )
        )

    async def get_next_instants(self, request: web.Request) -> web.Response:
        """Read the next fire times of a schedule."""
        query, reading = read(self._backend, request, NextQuery)
        schedule = found_schedule(reading.state, request, query.tenant)
        fire_times = fire_times_of(schedule.timing, from_ms=schedule.created_at_ms)
        preview = await Preview.of(
            fire_times, first_ms=schedule.next_at_ms or None, count=_count(schedule, query.count)
        )
        return reading.response(
            NextReply(
                id=job_id_text_of(schedule),
                name=schedule.name,
                paused=schedule.paused,
                firings=list(map(time_text, preview.fires_ms)),
                skipped=skipped_replies(preview.skipped),
                complete=preview.is_complete,
            )
        )

    async def list_firings(self, request: web.Request) -> web.Response:
        """List the ledger entries of a schedule, the latest first."""
        query, reading = read(self._backend, request, FiringsQuery)
        schedule = found_schedule(reading.state, request, query.tenant)
        return reading.response(_page(reading.state, schedule, query))

    # -- by hand ------------------------------------------------------------------------------------------------------

    async def trigger_schedule(self, request: web.Request) -> web.Response:
        """Answer 201 with the run, or 200 if it is skipped or known already."""
        wanted, document = self._trigger.read(await self._bodies.read_optional_json(request) or b"{}")
        tenant = query_in(request, TenantQuery).tenant
        schedule = changed_schedule(self._backend.fresh_state(), request, tenant)
        key = key_of(request, wanted.idempotency_key)
        now_ms = self._backend.now_ms()
        at_ms = TimeMs(now_ms) if wanted.instant is None else moment_ms(wanted.instant, "instant")
        decision = Decision(at_ms, self._backend.new_job_id(), TimeMs(now_ms))
        operation = RunSchedule(
            schedule.id,
            schedule.tenant,
            FiringKind.MANUAL,
            (decision,),
            schedule.overlap if wanted.overlap is None else Overlap[wanted.overlap.upper()],
            payload=None
            if wanted.payload is UNSET
            else json_bytes(wanted.payload, limits.PAYLOAD_BYTES_MAX, "payload"),
            actor=actor_of(request),
            call=fingerprint_of(document | {"instant": wanted.instant is not None}),
            key=_job_key(schedule, key),
            any_fire_time=wanted.instant is None,
            parameters=encode(wanted.parameters) if wanted.parameters else b"",
        )
        (firing,) = (await propose(self._backend, operation, Fired)).firings
        return json_response(firing_reply(firing), status=201 if firing.job_id == decision.job_id else 200)


def _job_key(schedule: Schedule, key: str) -> str:
    """Return the idempotency key of a trigger's job, distinct from keys of jobs and of other schedules' triggers."""
    return f"trigger:{schedule.id.hex()}:{digest_of(key).hex()}" if key else ""


def _count(schedule: Schedule, requested_count: int) -> int:
    """Return the number of fire times to show: at most those that `max_firings` still allows."""
    most = schedule.timing.max_firings
    return requested_count if not most else min(requested_count, max(0, most - schedule.fired_count))


def _page(state: StateReader, schedule: Schedule, query: FiringsQuery) -> FiringsPage:
    filters = ("firings", schedule.id, query.kind, query.fired, query.order)
    filtered = query.kind is not None or query.fired is not None
    page = state.list_firings(
        schedule.id,
        after=read_cursor(query.cursor, *filters),
        limit=limits.SCAN_ROWS_MAX if filtered else query.limit,
        descending=query.order == "desc",
    )
    found: list[FiringReply] = []
    next_key = page.next_cursor
    for position, (key, firing) in enumerate(page.items):
        if not _matches(firing, query):
            continue
        found.append(firing_reply(firing))
        if len(found) == query.limit:
            next_key = key if position + 1 < len(page.items) else next_key
            break
    return FiringsPage(firings=found, next_cursor=write_cursor(next_key, *filters))


def _matches(firing: Firing, query: FiringsQuery) -> bool:
    return query.kind in (None, firing.kind.label) and query.fired in (None, bool(firing.job_id))
