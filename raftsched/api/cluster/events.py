"""Serve GET /events: committed changes as a stream of server-sent events, from any node.

A message's id is its place in the log (`event_log`). A reader that returns with `Last-Event-ID`, to any node, continues
after it. If the later events are unknown, the stream starts with the event `reset`: the reader must reload its data,
and the stream continues from now. A reader that the ring overtakes gets `reset` within its stream. Heartbeats carry the
place too, so that a reader of few events is not overtaken. They also carry the time since a leader's last message (-1 =
unknown), since an isolated node has no new events.

The reader's token is checked again before each write, so a stream ends at its first event or heartbeat after its token
was revoked or has expired.

A reader that accepts nothing for `_STALLED_SECONDS` is disconnected. Readers have no queues: they share the ring.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog
from aiohttp import web

from raftsched import limits
from raftsched.api.access.principal import Principal, check_again, principal_of
from raftsched.api.access.requests import query_in
from raftsched.api.access.rules import Access
from raftsched.api.backend import Backend
from raftsched.api.event_log import EVENT_TYPES, Event, EventLog, Place
from raftsched.api.http.json_reply import encode, id_text, time_text
from raftsched.api.http.routes import STREAM_TYPE, Answered, Route, route
from raftsched.api.json.decode import job_id_at
from raftsched.errors import Malformed, Unauthorized, Unavailable
from raftsched.wire.observing import ChangeEvent, EventsQuery

LAST_ID: Final = "Last-Event-ID"
HEARTBEAT_SECONDS: Final = 15.0
_STALLED_SECONDS: Final = 30.0
_CATCH_UP_SECONDS: Final = 5.0
"""Time for a node to reach the reader's place, if the previous node had applied more."""
_POLL_SECONDS: Final = 0.2
_PLACE: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,10})", re.ASCII)

_log = structlog.get_logger()

Wanted = Callable[[Event], bool]


class Events:
    """The route of events."""

    def __init__(self, backend: Backend, *, heartbeat_seconds: float = HEARTBEAT_SECONDS) -> None:
        self._backend = backend
        self._heartbeat_seconds = heartbeat_seconds
        self._stream_counts: Counter[str | None] = Counter()
        """By the tenant of a token; None = of all tenants."""
        self._closing = asyncio.Event()

    def routes(self) -> tuple[Route, ...]:
        return (
            route(
                Access.READ,
                "GET",
                "/events",
                self.stream_events,
                ChangeEvent,
                answered=Answered.HERE,
                query=EventsQuery,
                headers=(LAST_ID,),
                reply_type=STREAM_TYPE,
            ),
        )

    async def close(self, app: web.Application) -> None:
        """End all streams when the node stops; readers continue at other nodes."""
        del app
        self._closing.set()

    async def stream_events(self, request: web.Request) -> web.StreamResponse:
        """Stream committed changes, from now on or after `Last-Event-ID` (server-sent events)."""
        caller = principal_of(request)
        wanted = _wanted(query_in(request, EventsQuery), caller)
        place = _last_place(request)
        tenant = caller.scope if caller.is_bound else None
        if tenant is not None and self._stream_counts[tenant] >= limits.TENANT_EVENT_STREAMS_MAX:
            raise Unavailable(f"this node serves {self._stream_counts[tenant]} streams of the tenant; ask another")
        if self._stream_counts.total() >= limits.EVENT_STREAMS_MAX:
            raise Unavailable(f"this node serves {limits.EVENT_STREAMS_MAX} streams of events already; ask another")
        self._stream_counts[tenant] += 1
        try:
            response = web.StreamResponse(headers={"Content-Type": STREAM_TYPE, "X-Accel-Buffering": "no"})
            await response.prepare(request)
            try:
                await self._serve(response, wanted, place, partial(check_again, request))
            except (Unauthorized, Unavailable) as error:
                _log.info("events_reader_refused", peer=request.remote, code=error.code)
            except ConnectionError:
                _log.debug("events_reader_gone")
            except TimeoutError:
                _log.info("events_reader_stalled", peer=request.remote)
                if request.transport is not None:
                    # The end of the reply would wait for the reader, too.
                    request.transport.abort()
            return response
        finally:
            self._stream_counts[tenant] -= 1
            if not self._stream_counts[tenant]:
                del self._stream_counts[tenant]

    async def _serve(
        self, response: web.StreamResponse, wanted: Wanted, place: Place | None, check: Callable[[], None]
    ) -> None:
        """Write events until the node stops; raises what `check` raises, which is called before each write."""
        log = self._log()
        clock = asyncio.get_running_loop().time
        found = log.end if place is None else await self._found(log, place)
        number = log.end if found is None else found
        data = _reset(log) if found is None else self._beat(log.head if number == log.end else None)
        beat_at = clock() + self._heartbeat_seconds
        while not self._closing.is_set():
            if data:
                check()
                async with asyncio.timeout(_STALLED_SECONDS):
                    await response.write(data)
                beat_at = clock() + self._heartbeat_seconds
            events = self._log().read(number, limits.EVENTS_PER_WRITE_MAX)
            if events is None:
                number, data = log.end, _reset(log)
            elif events:
                number += len(events)
                data = b"".join(map(_message, filter(wanted, events)))
                if not data and clock() >= beat_at:
                    data = self._beat(events[-1].place)
            else:
                fed = await self._waited(log, max(0.0, beat_at - clock()))
                data = b"" if fed or number != log.end else self._beat(log.head)

    async def _found(self, log: EventLog, place: Place) -> int | None:
        """Return the number of the next event after `place`, once this node has applied it; None if it is lost."""
        clock = asyncio.get_running_loop().time
        give_up_at = clock() + _CATCH_UP_SECONDS
        while place > log.head and clock() < give_up_at and not self._closing.is_set():
            await self._waited(log, _POLL_SECONDS)
            self._log()
        return log.next_behind(place)

    async def _waited(self, log: EventLog, seconds: float) -> bool:
        """Wait for an event, or for the stop of the node; return False after `seconds`."""
        waits = [asyncio.ensure_future(log.arrival()), asyncio.ensure_future(self._closing.wait())]
        try:
            done, _ = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return bool(done)

    def _beat(self, place: Place | None) -> bytes:
        """Return a heartbeat: the age of this node's state, and the place up to which the reader has seen all events."""
        age = b": age_ms=%d\n" % self._backend.stale_state()[1]
        return age + (b"\n" if place is None else b"id: %d-%d\n\n" % place)

    def _log(self) -> EventLog:
        """Return the ring, restarted if the state has been replaced."""
        log = self._backend.events
        log.follow(self._backend.stale_state()[0])
        return log


def _last_place(request: web.Request) -> Place | None:
    text = request.headers.get(LAST_ID)
    if not text:
        return None
    found = _PLACE.fullmatch(text)
    if found is None:
        raise Malformed(f"{LAST_ID}: not an id that a stream of events issued", field=LAST_ID)
    return Place(int(found[1]), int(found[2]))


def _known_types(named: list[str]) -> frozenset[str]:
    """Return the named types and nouns; raises `Malformed` for an unknown one."""
    nouns = tuple(dict.fromkeys(each.partition(".")[0] for each in EVENT_TYPES))
    for name in named:
        if name in EVENT_TYPES or name in nouns:
            continue
        noun = name.partition(".")[0]
        known = [each for each in EVENT_TYPES if each.startswith(f"{noun}.")] if noun in nouns else nouns
        raise Malformed(f"types: there are no events {name!r}; known are {', '.join(known)}", field="types")
    return frozenset(named)


def _wanted(query: EventsQuery, caller: Principal) -> Wanted:
    types = _known_types(query.types or [])
    tenant = query.tenant
    job_id = None if query.job is None else job_id_at(query.job, "job")

    def is_wanted(event: Event) -> bool:
        return (
            (not types or event.type in types or event.type.partition(".")[0] in types)
            and query.queue in (None, event.queue)
            and (job_id is None or job_id in (event.subject, event.job_id))
            and (tenant is None or event.tenant == tenant or (not event.tenant and caller.sees_queue(event.queue)))
        )

    return is_wanted


# -- messages ---------------------------------------------------------------------------------------------------------


def _message(event: Event) -> bytes:
    return b"id: %d-%d\ndata: %b\n\n" % (event.revision, event.number, encode(event_reply(event)))


def _reset(log: EventLog) -> bytes:
    return b'event: reset\nid: %d-%d\ndata: {"type":"reset","revision":%d}\n\n' % (*log.head, log.head.revision - 1)


def event_reply(event: Event) -> ChangeEvent:
    noun = event.type.partition(".")[0]
    subject = id_text(event.subject)
    return ChangeEvent(
        type=event.type,
        revision=event.revision,
        at=time_text(event.at_ms),
        tenant=event.tenant or None,
        job_id=subject if noun == "job" else id_text(event.job_id),
        schedule_id=subject if noun == "schedule" else None,
        workflow_id=subject if noun == "workflow" else None,
        name=event.name or None,
        queue=event.queue or None,
        status=None if event.status is None else event.status.label,
        previous=None if event.previous is None else event.previous.label,
        worker=event.worker or None,
        attempt_number=event.attempt_number or None,
        reason=event.reason or None,
        instant=time_text(event.fire_time_ms) if event.fire_time_ms else None,
        kind=event.kind or None,
    )
