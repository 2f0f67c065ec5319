"""Which state a read is answered from: as new as any answer so far, or, with `?consistency=stale`, what is here.

A linearizable read is answered by the leader, after a quorum was heard within the election timeout. For one with
`?consistency=quorum` the leader has asked a quorum before the handler runs (`forwarding.py`), so no clock matters. A stale
one is answered by any node at once, and says in `Raftsched-Age-Ms` how long ago that node heard from a leader (-1 = it does
not know).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from aiohttp import web

from raftsched.api.backend import Backend
from raftsched.api.parsing import job_id_in_path, parse_query
from raftsched.api.rendering import job_reply, json_response
from raftsched.api.replies import JobReply
from raftsched.api.requests import ReadQuery
from raftsched.core.ids import JobId
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
    revision: int
    """What the state reflected when it was opened: what is shown is at least as new."""

    def response(self, reply: msgspec.Struct) -> web.Response:
        """Return the HTTP reply, which says how new it is."""
        response = json_response(reply)
        response.headers[REVISION_HEADER] = str(self.revision)
        if self.age_ms is not None:
            response.headers[AGE_HEADER] = str(self.age_ms)
        return response

    def job(self, request: web.Request) -> Job:
        """Return the job that the request's path names; raises `NotFound`."""
        return found_job(self.state, job_id_in_path(request))


def found_job(state: StateReader, job_id: JobId) -> Job:
    """Return the job; raises `NotFound` where there is none."""
    job = state.job(job_id)
    if job is None:
        raise NotFound("there is no such job")
    return job


def full_job_reply(state: StateReader, job: Job, now_ms: int, **fields: Any) -> JobReply:
    """Return the job with its texts and all that it depends on."""
    dependencies = state.dependencies(job.id) if job.dependency_count else ()
    result = state.result(job.id) if job.finished_at_ms else b""
    return job_reply(job, state.payload(job.id), result, now_ms, dependencies, queue=state.queue(job.queue), **fields)


def job_response(backend: Backend, job: Job, *, status: int = 200, **fields: Any) -> web.Response:
    """Return the reply to what was just applied on this node: the job as it is now, and its revision as its ETag."""
    state, _ = backend.stale_state()
    response = json_response(full_job_reply(state, job, backend.now_ms(), **fields), status=status)
    response.headers["ETag"] = etag(job.revision)
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
