"""Serve a job and its records: its result, runs, history and logs, and the reasons why it waits."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

from raftsched.api.access.principal import check_again, principal_of
from raftsched.api.access.requests import query_in
from raftsched.api.access.rules import Access
from raftsched.api.backend import Backend
from raftsched.api.http.consistency import etag, open_reading, read
from raftsched.api.http.routes import Route, route
from raftsched.api.jobs.records.explain import explain_reply, marked_workers
from raftsched.api.jobs.records.history import history_reply, runs_reply
from raftsched.api.jobs.records.logs import LogPlace, behind, log_place, log_reply
from raftsched.api.jobs.reply import full_job_reply, job_in_path, result_reply
from raftsched.wire.common import ReadQuery
from raftsched.wire.jobs import JobReply, ResultReply
from raftsched.wire.runs import ExplainReply, HistoryReply, LogQuery, LogReply, RunsReply

_POLL_SECONDS: Final = 0.2
"""Interval at which a log is read for new lines while a reader waits: one look-up each."""


class JobRecords:
    """The routes of a job, its result, runs, history, logs and reasons to wait."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def routes(self) -> tuple[Route, ...]:
        return (
            route(Access.READ, "GET", "/jobs/{id}", self.get_job, JobReply, query=ReadQuery),
            route(Access.RESULT, "GET", "/jobs/{id}/result", self.get_result, ResultReply, query=ReadQuery),
            route(Access.READ, "GET", "/jobs/{id}/runs", self.get_runs, RunsReply, query=ReadQuery),
            route(Access.READ, "GET", "/jobs/{id}/history", self.get_history, HistoryReply, query=ReadQuery),
            route(Access.READ, "GET", "/jobs/{id}/explain", self.explain_job, ExplainReply, query=ReadQuery),
            route(Access.READ, "GET", "/jobs/{id}/logs", self.get_logs, LogReply, query=LogQuery, waits=True),
        )

    async def get_job(self, request: web.Request) -> web.Response:
        """Read a job."""
        _, reading = read(self._backend, request, ReadQuery)
        job = job_in_path(reading, request)
        response = reading.response(full_job_reply(reading.state, job, reading.now_ms))
        response.headers["ETag"] = etag(job.revision)
        return response

    async def get_result(self, request: web.Request) -> web.Response:
        """Read a job's status, result and latest error, without its payload."""
        _, reading = read(self._backend, request, ReadQuery)
        job = job_in_path(reading, request)
        return reading.response(result_reply(job, reading.state.result(job.id), reading.now_ms))

    async def get_runs(self, request: web.Request) -> web.Response:
        """Read a job's runs with their attempts, oldest first."""
        _, reading = read(self._backend, request, ReadQuery)
        return reading.response(runs_reply(reading.state, job_in_path(reading, request), reading.now_ms))

    async def get_history(self, request: web.Request) -> web.Response:
        """Read a job's history, in order: actions with their actors, attempts, and its end."""
        _, reading = read(self._backend, request, ReadQuery)
        return reading.response(history_reply(job_in_path(reading, request), reading.now_ms))

    async def explain_job(self, request: web.Request) -> web.Response:
        """Explain why a job is not running."""
        _, reading = read(self._backend, request, ReadQuery)
        job = job_in_path(reading, request)
        liveness = None
        if reading.age_ms is None:
            leadership = self._backend.leadership()
            workers, liveness = leadership.workers_for(job.spec.queue), leadership.lease_liveness(job.id)
        else:
            workers = marked_workers(reading.state, job.spec.queue, reading.now_ms)
        sees = principal_of(request).sees_worker
        workers = [worker for worker in workers if sees(worker.name, worker.tenant)]
        return reading.response(explain_reply(reading.state, job, reading.now_ms, workers, liveness))

    async def get_logs(self, request: web.Request) -> web.Response:
        """Read an attempt's log from a cursor on, and wait up to `wait_seconds` for lines if more may follow."""
        query = query_in(request, LogQuery)
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + query.wait_seconds
        place: LogPlace | None = None
        while True:
            reading = open_reading(self._backend, query)
            job = job_in_path(reading, request)
            # Set once, so that an attempt which starts and ends between two polls is read, too.
            place = place or log_place(job, query)
            reply = log_reply(reading.state, job, place, query.max_bytes)
            left = give_up_at - loop.time()
            if reply.text or reply.next_cursor is None or left <= 0:
                return reading.response(reply)
            place = behind(reply)
            await asyncio.sleep(min(_POLL_SECONDS, left))
            check_again(request)
