"""Serve GET /jobs: pages in a stable order, independent of jobs that are added or removed meanwhile.

A page ends when it is full, when its payloads and results reach `limits.PAGE_BYTES_MAX`, or when `limits.PAGE_ROWS_MAX`
rows were examined. So if few of very many jobs match, a page can be short, or empty, and still have a next cursor. Only a
page without a next cursor is the last one. Lists by queue, name, tag, tenant, workflow, schedule, status or reason are
read from indexes (`selection`), so their pages are full. Other conditions (some pairs of filters) are searched for.

Rows are examined in steps of at most `limits.SCAN_ROWS_MAX`. Other work runs between the steps, so no request blocks
the event loop for long.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from raftsched import limits
from raftsched.api.backend import Backend
from raftsched.api.http.consistency import Reading, open_reading
from raftsched.api.jobs.lists.cursor import WalkCursor, walk_cursor
from raftsched.api.jobs.lists.selection import Place, Selection, more_rows, next_jobs, selection_of
from raftsched.api.jobs.reply import job_reply
from raftsched.api.json.cursors import encode_cursor
from raftsched.core.records.job import Job
from raftsched.wire.jobs import JobReply, JobsPage, ListQuery


async def list_response(backend: Backend, query: ListQuery) -> web.Response:
    """Return the page that `query` asks for; raises `Malformed` for a cursor of another list.

    Its revision is that of its start: its jobs are at least as new. Raises as `open_reading` does, if the node stops
    leading meanwhile.
    """
    reading = open_reading(backend, query)
    revision = reading.revision
    selection = selection_of(query)
    cursor = walk_cursor(query.cursor, reading.state, selection, selection.digest(query.order))
    walk = _Walk(query, selection, cursor)
    walk.step(reading)
    while walk.has_next_step:
        await asyncio.sleep(0)
        reading = open_reading(backend, query)  # a state is valid until the next `await`
        walk.step(reading)
    return reading._replace(revision=revision).response(walk.page())


class _Walk:
    """The walk over the jobs of one page, step by step."""

    def __init__(self, query: ListQuery, selection: Selection, cursor: WalkCursor) -> None:
        self._selection = selection
        self._cursor = cursor
        self._descending = query.order == "desc"
        self._page = _Page(query.limit)
        self._place: Place | None = cursor.place
        self._examined_count = 0
        self._step_count = 0

    @property
    def has_next_step(self) -> bool:
        return self._place is not None and self._page.has_room and self._examined_count < limits.PAGE_ROWS_MAX

    def step(self, reading: Reading) -> None:
        """Examine the next rows, at most `limits.SCAN_ROWS_MAX`."""
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
        """Return the found jobs, and the cursor of the next page."""
        place = self._place
        return JobsPage(
            jobs=self._page.jobs, next_cursor=None if place is None else encode_cursor(self._cursor.at(place))
        )


class _Page:
    """Jobs with their payloads and results, up to a number and a size."""

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
