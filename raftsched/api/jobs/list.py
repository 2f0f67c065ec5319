"""GET /jobs: pages over a stable order, whatever is added or removed meanwhile.

A page ends when it is full, when its payloads and results have grown to `limits.PAGE_BYTES_MAX`, or, once there is a job
on it, when `limits.PAGE_ROWS_MAX` rows were examined: where few of very many jobs match, a page can come back short, and
still have a next cursor. A page without a job is the last one. Lists by queue, name, tag, workflow, schedule or status
are read from indexes (`selection`), so their pages are full. What no index tells (a tenant, a reason, some pairs of
filters) is searched for until there is a match, for `_SEARCH_SECONDS_MAX` at most; only then is a page with a next
cursor empty, so that no client waits for ever.

Rows are examined in steps of at most `limits.SCAN_ROWS_MAX`, between which the loop goes on, so no request holds it for
long.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

from raftsched import limits
from raftsched.api.backend import Backend
from raftsched.api.http.consistency import Reading, open_reading
from raftsched.api.jobs.reply import job_reply
from raftsched.api.jobs.selection import Place, Selection, more_rows, next_jobs, selection_of
from raftsched.api.jobs.walk import WalkCursor, walk_cursor
from raftsched.api.json.cursors import encode_cursor
from raftsched.core.records.job import Job
from raftsched.wire.jobs import JobReply, JobsPage, ListQuery


async def list_response(backend: Backend, query: ListQuery) -> web.Response:
    """Return the page that `query` asks for; raises `Malformed` for a cursor that is not of this list.

    Its revision is the one at which it was begun: what it shows is at least as new. Where the node leads no more, it
    raises as `open_reading` does.
    """
    reading = open_reading(backend, query)
    revision = reading.revision
    selection = selection_of(query)
    cursor = walk_cursor(query.cursor, reading.state, selection, selection.digest(query.order))
    walk = _Walk(query, selection, cursor)
    walk.step(reading)
    while walk.goes_on:
        await asyncio.sleep(0)
        reading = open_reading(backend, query)  # a state is good until the next `await`
        walk.step(reading)
    return reading._replace(revision=revision).response(walk.page())


_SEARCH_SECONDS_MAX: Final = 5.0
"""Time to search for the first job of a page, some 300,000 records: followers wait twice as long for an answer."""


class _Walk:
    """The walk over what may be on one page, step by step."""

    def __init__(self, query: ListQuery, selection: Selection, cursor: WalkCursor) -> None:
        self._selection = selection
        self._cursor = cursor
        self._descending = query.order == "desc"
        self._page = _Page(query.limit)
        self._place: Place | None = cursor.place
        self._examined_count = 0
        self._step_count = 0
        self._end = asyncio.get_running_loop().time() + _SEARCH_SECONDS_MAX

    @property
    def goes_on(self) -> bool:
        if self._place is None or not self._page.has_room:
            return False
        if not self._page.jobs:
            return asyncio.get_running_loop().time() < self._end
        return self._examined_count < limits.PAGE_ROWS_MAX

    def step(self, reading: Reading) -> None:
        """Examine what comes next, at most `limits.SCAN_ROWS_MAX` rows."""
        place = self._place
        assert place is not None
        self._step_count = wanted_count = more_rows(self._page.jobs_left, self._step_count)
        step = next_jobs(
            reading.state,
            self._selection,
            place,
            newest=self._cursor.newest,
            now_ms=reading.now_ms,
            limit=wanted_count,
            descending=self._descending,
        )
        following = step.following
        for position, (behind, job) in enumerate(step.jobs):
            self._page.add(reading, job)
            if not self._page.has_room:
                following = behind if position + 1 < len(step.jobs) else following
                break
        in_next_part = following is not None and following.part > place.part
        self._examined_count += len(step.jobs) if in_next_part else wanted_count
        self._place = following

    def page(self) -> JobsPage:
        """Return what was found, and where the next page begins."""
        place = self._place
        return JobsPage(
            jobs=self._page.jobs, next_cursor=None if place is None else encode_cursor(self._cursor.at(place))
        )


class _Page:
    """Jobs with their texts, until there is no room for another."""

    def __init__(self, jobs_max: int) -> None:
        self._bytes_left = limits.PAGE_BYTES_MAX
        self.jobs_left = jobs_max
        self.jobs: list[JobReply] = []

    @property
    def has_room(self) -> bool:
        return self.jobs_left > 0 and self._bytes_left > 0

    def add(self, reading: Reading, job: Job) -> None:
        state = reading.state
        payload, result = state.payload(job.id), state.result(job.id)
        shown = state.dependencies(job.id)[: limits.DEPENDENCIES_SHOWN_MAX] if job.dependency_count else ()
        self.jobs.append(job_reply(job, payload, result, reading.now_ms, shown, queue=state.queue(job.spec.queue)))
        self.jobs_left -= 1
        self._bytes_left -= len(payload) + len(result)
