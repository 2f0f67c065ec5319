"""Which state a read is answered from: as new as any answer so far, or, with `?consistency=stale`, what is here.

A linearizable read is answered by the leader, after a quorum was heard within the election timeout. A stale one is
answered by any node at once, and says in `Raftsched-Age-Ms` how long ago that node heard from a leader (-1 = it does
not know).
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeVar

import msgspec
from aiohttp import web

from raftsched.api.backend import TENANT_DEFAULT, Backend
from raftsched.api.parsing import job_id_in_path, parse_query
from raftsched.api.rendering import json_response
from raftsched.api.requests import ReadQuery
from raftsched.core.job import Job
from raftsched.errors import NotFound
from raftsched.storage.reader import StateReader

AGE_HEADER: Final = "Raftsched-Age-Ms"
REVISION_HEADER: Final = "Raftsched-Revision"

Q = TypeVar("Q", bound=ReadQuery)


class Reading(NamedTuple):
    """A state to answer from; good until the next `await`."""

    state: StateReader
    now_ms: int
    age_ms: int | None
    """None where the state is as new as any answer so far."""

    def response(self, reply: msgspec.Struct) -> web.Response:
        """Return the HTTP reply, which says how new it is."""
        response = json_response(reply)
        response.headers[REVISION_HEADER] = str(self.state.applied_index)
        if self.age_ms is not None:
            response.headers[AGE_HEADER] = str(self.age_ms)
        return response

    def job(self, request: web.Request) -> Job:
        """Return the job that the request's path names; raises `NotFound`, also for a job of somebody else."""
        job = self.state.job(job_id_in_path(request))
        if job is None or job.tenant != TENANT_DEFAULT:
            raise NotFound("there is no such job")
        return job


def open_reading(backend: Backend, query: ReadQuery) -> Reading:
    """Return the state to answer `query` from; raises `NotLeader` or `Unavailable` unless a stale one will do."""
    if query.consistency == "stale":
        state, age_ms = backend.stale_state()
        return Reading(state, backend.now_ms(), age_ms)
    return Reading(backend.fresh_state(), backend.now_ms(), None)


def read(backend: Backend, request: web.Request, kind: type[Q]) -> tuple[Q, Reading]:
    """Return the request's query and the state to answer it from."""
    query = parse_query(request, kind)
    return query, open_reading(backend, query)
