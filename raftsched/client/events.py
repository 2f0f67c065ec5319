"""What is committed, as it happens: a stream of server-sent events that goes on through elections and lost nodes.

Every event has a place in the log. A stream that breaks is opened again behind the last place that was heard of, at
the next node, which serves its own copy; so no event is lost or comes twice. Where what came behind it is no longer
known, there is an event of type `reset`: read anew what you keep, the stream goes on from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from raftsched.client.http.calls import given, query_of
from raftsched.client.http.connection import Connection
from raftsched.client.http.retries import Failure, Retries, given_up
from raftsched.client.records import Event
from raftsched.errors import OutcomeUnknown, RaftschedError

RESET = "reset"
_SILENCE_SECONDS = 45.0
"""Three heartbeats of the stream: a node that is silent for longer is gone."""


_decode = msgspec.json.Decoder(Event).decode


class EventStream:
    """One reader's stream: its place, and the connection it comes over for the time being."""

    def __init__(self, connection: Connection, query: dict[str, Any], last_event_id: str | None) -> None:
        self._connection = connection
        self._query = query_of(query)
        self._place = last_event_id

    async def events(self) -> AsyncIterator[Event]:
        """Yield events without end; see `Client.events`."""
        connection = self._connection
        retries: Retries | None = None
        give_up_at = 0.0
        while True:
            failure = Failure(OutcomeUnknown("the stream ended"))
            is_served = False
            async with connection.stream(
                "/events",
                query=self._query,
                headers={"Accept": "text/event-stream"} | given(**{"Last-Event-ID": self._place}),
                silence_seconds=_SILENCE_SECONDS,
            ) as lines:
                if isinstance(lines, Failure):
                    failure = lines
                else:
                    async for event in self._read(lines):
                        is_served = True
                        if event is not None:
                            yield event
            now = connection.clock.monotonic()
            if retries is None or is_served:
                retries, give_up_at = Retries(connection.settings, connection.randomness), now
                give_up_at += connection.settings.retry_seconds
            await _pause(failure, retries, give_up_at - now)

    async def _read(self, lines: AsyncIterator[bytes]) -> AsyncIterator[Event | None]:
        """Yield the events of `lines`, and None for what only says that the stream lives; both move the place on."""
        data = b""
        place = None
        async for raw in lines:
            field, _, value = raw.rstrip(b"\r\n").partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data":
                data += value
            elif field == b"id":
                place = value.decode("ascii", "replace")
            elif not field and not raw.strip():  # the end of a message
                event = _event(data, place) if data else None
                self._place = place or self._place
                data, place = b"", None
                yield event


def event_stream(
    connection: Connection,
    *,
    types: Sequence[str] | None,
    queue: str | None,
    job: str | None,
    tenant: str | None,
    last_event_id: str | None,
) -> EventStream:
    """Return a stream of the events for which all of this holds."""
    return EventStream(connection, given(types=types, queue=queue, job=job, tenant=tenant), last_event_id)


async def _pause(failure: Failure, retries: Retries, left_seconds: float) -> None:
    """Wait before the stream is opened again; raise where that won't help, or has been tried for long enough."""
    error: RaftschedError = failure.error
    pause = retries.next_pause(failure.retry_after_seconds)
    if not error.retryable:
        raise error
    if pause >= left_seconds:
        raise given_up(error, maybe_applied=False)
    await asyncio.sleep(pause)


def _event(data: bytes, place: str | None) -> Event | None:
    try:
        event = _decode(data)
    except msgspec.DecodeError:  # of a version to come
        return None
    return msgspec.structs.replace(event, id=place or "")
