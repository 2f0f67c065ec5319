"""GET /jobs: pages over a stable order, whatever is added or removed meanwhile.

A page ends when it is full, when its payloads and results have grown to `limits.PAGE_BYTES_MAX`, or when
`limits.SCAN_ROWS_MAX` jobs were examined, so no request holds the loop for long; so a page can come back short, or
empty, and still have a next cursor. How the jobs are walked over stands in `selecting`.
"""

from __future__ import annotations

from raftsched import limits
from raftsched.api.rendering import job_reply
from raftsched.api.replies import JobReply, JobsPage
from raftsched.api.requests import ListQuery
from raftsched.api.selecting import Place, next_jobs, selection_of
from raftsched.api.walk_cursors import encode_cursor, walk_cursor
from raftsched.core.job import Job
from raftsched.storage.reader import StateReader


def list_page(state: StateReader, query: ListQuery, now_ms: int) -> JobsPage:
    """Return the page that `query` asks for; raises `Malformed` for a cursor that is not of this list."""
    selection = selection_of(query, now_ms)
    cursor = walk_cursor(query.cursor, state, selection, selection.digest(query.order))
    page = _Page(state, query.limit, now_ms)
    place: Place | None = cursor.place
    examined_count = 0
    while place is not None and page.has_room and examined_count < limits.SCAN_ROWS_MAX:
        wanted_count = limits.SCAN_ROWS_MAX if selection.looks_at_records else page.jobs_left
        step = next_jobs(
            state,
            selection,
            place,
            newest=cursor.newest,
            now_ms=now_ms,
            limit=wanted_count,
            descending=query.order == "desc",
        )
        following = step.following
        for position, (behind, job) in enumerate(step.jobs):
            page.add(job)
            if not page.has_room:
                following = behind if position + 1 < len(step.jobs) else following
                break
        in_next_part = following is not None and following.part > place.part
        examined_count += len(step.jobs) if in_next_part else wanted_count
        place = following
    return JobsPage(jobs=page.jobs, next_cursor=None if place is None else encode_cursor(cursor.at(place)))


class _Page:
    """Jobs with their texts, until there is no room for another."""

    def __init__(self, state: StateReader, jobs_max: int, now_ms: int) -> None:
        self._state = state
        self._now_ms = now_ms
        self._bytes_left = limits.PAGE_BYTES_MAX
        self.jobs_left = jobs_max
        self.jobs: list[JobReply] = []

    @property
    def has_room(self) -> bool:
        return self.jobs_left > 0 and self._bytes_left > 0

    def add(self, job: Job) -> None:
        state = self._state
        payload, result = state.payload(job.id), state.result(job.id)
        shown = state.dependencies(job.id)[: limits.DEPENDENCIES_SHOWN_MAX] if job.dependency_count else ()
        self.jobs.append(job_reply(job, payload, result, self._now_ms, shown))
        self.jobs_left -= 1
        self._bytes_left -= len(payload) + len(result)
