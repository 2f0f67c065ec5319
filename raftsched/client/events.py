"""Stream committed changes as server-sent events, through elections and lost nodes.

Every event has a position in the log. A broken stream is opened again after the last received position, at the next
node, which serves its own copy. So no event is lost or repeated. If the following events are no longer known, the
stream yields an event of type `reset` and continues from there: the reader must reload its data.
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
"""Three heartbeats of the stream: after this time without a line, the node counts as lost."""


_decode = msgspec.json.Decoder(Event).decode


class EventStream:
    """One reader's stream, with its position and its current connection."""

    def __init__(self, connection: Connection, query: dict[str, Any], last_event_id: str | None) -> None:
        self._connection = connection
        self._query = query_of(query)
        self._position = last_event_id

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
                headers={"Accept": "text/event-stream"} | given(**{"Last-Event-ID": self._position}),
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
        """Yield the events of `lines`, and None for a heartbeat; both advance the position."""
        data = b""
        position = None
        async for raw in lines:
            field, _, value = raw.rstrip(b"\r\n").partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data":
                data += value
            elif field == b"id":
                position = value.decode("ascii", "replace")
            elif not field and not raw.strip():  # the end of a message
                event = _event(data, position) if data else None
                self._position = position or self._position
                data, position = b"", None
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
    """Return a stream of the events that match all filters."""
    return EventStream(connection, given(types=types, queue=queue, job=job, tenant=tenant), last_event_id)


async def _pause(failure: Failure, retries: Retries, left_seconds: float) -> None:
    """Wait before the stream is opened again; raise the failure if a retry can't help, or the time for retries is
    over.
    """
    error: RaftschedError = failure.error
    pause = retries.next_pause(failure.retry_after_seconds)
    if not error.retryable:
        raise error
    if pause >= left_seconds:
        raise given_up(error, maybe_applied=False)
    await asyncio.sleep(pause)


def _event(data: bytes, position: str | None) -> Event | None:
    try:
        event = _decode(data)
    except msgspec.DecodeError:  # of a later version
        return None
    return msgspec.structs.replace(event, id=position or "")
