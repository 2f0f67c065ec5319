"""Record the start, the progress and the log of a run while it lasts.

Each report counts with the current fencing token only, and belongs to one attempt: a report after the end of the lease
is rejected (case W16).
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from raftsched import limits
from raftsched.api.access.principal import principal_of
from raftsched.api.access.requests import may_report_on
from raftsched.api.access.rules import Access
from raftsched.api.backend import Backend
from raftsched.api.http.bodies import Bodies
from raftsched.api.http.json_reply import json_response
from raftsched.api.http.proposals import propose
from raftsched.api.http.routes import Route, route
from raftsched.api.json.decode import StructDecoder, run_id_in_path
from raftsched.core.jobs.callbacks import token_digest
from raftsched.core.operations.control import AppendLog, Progress, ReportProgress, StartRun
from raftsched.core.records.ids import FencingToken, JobId
from raftsched.core.state.results import Changed, Counted, Logged
from raftsched.errors import NotFound, Rejected, TooLarge
from raftsched.values import check_value
from raftsched.wire.workers import LoggedReply, LogRequest, ProgressReply, ProgressRequest, StartReply, StartRequest


class Runs:
    """The routes of runs."""

    def __init__(self, backend: Backend, bodies: Bodies) -> None:
        self._backend = backend
        self._bodies = bodies
        self._start = StructDecoder(StartRequest)
        self._log = StructDecoder(LogRequest)
        self._progress = StructDecoder(ProgressRequest)

    def routes(self) -> tuple[Route, ...]:
        return (
            route(Access.WORK, "POST", "/runs/{id}/start", self.start_run, StartReply, body=StartRequest),
            route(Access.WORK, "POST", "/runs/{id}/logs", self.append_log, LoggedReply, body=LogRequest),
            route(
                Access.WORK, "POST", "/runs/{id}/progress", self.report_progress, ProgressReply, body=ProgressRequest
            ),
        )

    async def start_run(self, request: web.Request) -> web.Response:
        """Record the start of a run before its first effect; a run that starts at most once never starts again."""
        wanted, _ = self._start.read(await self._bodies.read_json(request))
        job_id, run_number = self._run(request)
        digest = b"" if wanted.callback_token is None else token_digest(wanted.callback_token)
        operation = StartRun(job_id, run_number, FencingToken(wanted.fencing_token), digest)
        job = (await propose(self._backend, operation, Changed)).job
        return json_response(StartReply(run_id=request.match_info["id"], started=True, revision=job.revision))

    async def append_log(self, request: web.Request) -> web.Response:
        """Add lines to the log of a running attempt; a repeated piece, by its `sequence`, is stored once."""
        wanted, _ = self._log.read(await self._bodies.read_json(request))
        job_id, run_number = self._run(request)
        operation = AppendLog(
            job_id, run_number, FencingToken(wanted.fencing_token), _piece(wanted.lines), wanted.sequence or 0
        )
        logged = await propose(self._backend, operation, Logged)
        run_id = request.match_info["id"]
        return json_response(LoggedReply(run_id=run_id, byte_count=logged.byte_count, repeated=logged.repeated))

    async def report_progress(self, request: web.Request) -> web.Response:
        """Replace the progress of a running attempt."""
        wanted, _ = self._progress.read(await self._bodies.read_json(request))
        job_id, run_number = self._run(request)
        report = Progress(
            job_id, run_number, FencingToken(wanted.fencing_token), progress_text(wanted.progress, "progress")
        )
        counted = await propose(self._backend, ReportProgress((report,)), Counted)
        if not counted.count:
            raise Rejected("lease_lost", f"fencing token {wanted.fencing_token} is not the current one of this run")
        return json_response(ProgressReply(run_id=request.match_info["id"], accepted=True))

    def _run(self, request: web.Request) -> tuple[JobId, int]:
        """Return the run in the path; raises `NotFound` for one that its caller may not report on."""
        job_id, run_number = run_id_in_path(request)
        if not may_report_on(principal_of(request), self._backend.fresh_state, job_id):
            raise NotFound("there is no such job")
        return job_id, run_number


def progress_text(progress: Any, field: str) -> bytes:
    """Return the JSON text; raises `TooLarge` or `Malformed` naming `field`."""
    text = bytes(progress)
    check_value(text, bytes_max=limits.PROGRESS_BYTES_MAX, field=field)
    return text


def _piece(lines: list[str]) -> bytes:
    piece = "\n".join((*lines, "")).encode()
    if len(piece) > limits.LOG_PIECE_BYTES_MAX:
        detail = f"{len(piece)} bytes with line feeds, at most {limits.LOG_PIECE_BYTES_MAX} are allowed"
        raise TooLarge(f"lines: {detail}", field="lines")
    return piece
