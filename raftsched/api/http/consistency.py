"""Which state a read is answered from: as new as any answer so far, or, with `?consistency=stale`, what is here.

A linearizable read is answered by the leader, after a quorum was heard within the election timeout. For one with
`?consistency=quorum` the leader has asked a quorum before the handler runs (`api/forwarder.py`), so no clock matters. A
stale one is answered by any node at once, and says in `Raftsched-Age-Ms` how long ago that node heard from a leader (-1
= it does not know).
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeVar

import msgspec
from aiohttp import web

from raftsched.api.backend import Backend
from raftsched.api.http.json_reply import json_response
from raftsched.api.json.decode import parse_query
from raftsched.storage.reader import StateReader
from raftsched.wire.common import ReadQuery

AGE_HEADER: Final = "Raftsched-Age-Ms"
REVISION_HEADER: Final = "Raftsched-Revision"

Q = TypeVar("Q", bound=ReadQuery)


class Reading(NamedTuple):
    """A state to answer from; good until the next `await`."""

    state: StateReader
    now_ms: int
    age_ms: int | None
    """None where the state is as new as any answer so far."""
    revision: int
    """What the state reflected when it was opened: what is shown is at least as new."""

    def response(self, reply: msgspec.Struct) -> web.Response:
        """Return the HTTP reply, which says how new it is."""
        response = json_response(reply)
        response.headers[REVISION_HEADER] = str(self.revision)
        if self.age_ms is not None:
            response.headers[AGE_HEADER] = str(self.age_ms)
        return response


def etag(revision: int) -> str:
    return f'"{revision}"'


def open_reading(backend: Backend, query: ReadQuery) -> Reading:
    """Return the state to answer `query` from; raises `NotLeader` or `Unavailable` unless a stale one will do."""
    if query.consistency == "linearizable":
        state, age_ms = backend.fresh_state(), None
    else:
        state, age_ms = backend.stale_state()
    is_stale = query.consistency == "stale"
    return Reading(state, backend.now_ms(), age_ms if is_stale else None, state.applied_index)


def read(backend: Backend, request: web.Request, kind: type[Q]) -> tuple[Q, Reading]:
    """Return the request's query and the state to answer it from."""
    query = parse_query(request, kind)
    return query, open_reading(backend, query)
