"""Choose the state for a read: at least as new as any earlier answer, or with `?consistency=stale` this node's state.

The leader answers a linearizable read, if a quorum has responded to it within the election timeout. For
`?consistency=quorum` the leader has asked a quorum before the handler runs (`api/forwarder.py`), so this depends on no
clock. Any node answers a stale read at once; `Raftsched-Age-Ms` is the time since that node's last message from a
leader (-1 = unknown).
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeVar

import msgspec
from aiohttp import web

from raftsched.api.access.requests import query_in
from raftsched.api.backend import Backend
from raftsched.api.http.json_reply import json_response
from raftsched.storage.reader import StateReader
from raftsched.wire.common import ReadQuery

AGE_HEADER: Final = "Raftsched-Age-Ms"
REVISION_HEADER: Final = "Raftsched-Revision"

Q = TypeVar("Q", bound=ReadQuery)


class Reading(NamedTuple):
    """A state to answer from; valid until the next `await`."""

    state: StateReader
    now_ms: int
    age_ms: int | None
    """Age of a stale state; None if the state is at least as new as any earlier answer."""
    revision: int
    """Log index of the state when it was opened; the reply is at least as new."""

    def response(self, reply: msgspec.Struct) -> web.Response:
        """Return the HTTP reply, with the revision and age of its state."""
        response = json_response(reply)
        response.headers[REVISION_HEADER] = str(self.revision)
        if self.age_ms is not None:
            response.headers[AGE_HEADER] = str(self.age_ms)
        return response


def etag(revision: int) -> str:
    return f'"{revision}"'


def open_reading(backend: Backend, query: ReadQuery) -> Reading:
    """Return the state to answer `query` from; raises `NotLeader` or `Unavailable`, except for a stale read."""
    if query.consistency == "linearizable":
        state, age_ms = backend.fresh_state(), None
    else:
        state, age_ms = backend.stale_state()
    is_stale = query.consistency == "stale"
    return Reading(state, backend.now_ms(), age_ms if is_stale else None, state.applied_index)


def read(backend: Backend, request: web.Request, kind: type[Q]) -> tuple[Q, Reading]:
    """Return the request's query and the state to answer it from."""
    query = query_in(request, kind)
    return query, open_reading(backend, query)
