"""What people make of one job: cancel, amend, pause, resume, retry, replay.

Each is one operation, which decides and leaves a note on the job and a line in the audit trail. A job that has changed
since its caller looked is protected by `If-Match` with the revision that he saw.
"""

from __future__ import annotations

import re
from typing import Final

from aiohttp import web

from raftsched.api.backend import Backend
from raftsched.api.http.actor import actor_of, signed
from raftsched.api.http.bodies import Bodies
from raftsched.api.http.proposals import propose
from raftsched.api.http.routes import BASE_PATH, Route, change
from raftsched.api.jobs.amend import amendment
from raftsched.api.jobs.convert import fingerprint_of
from raftsched.api.jobs.replay import changes_of, replay_operation
from raftsched.api.jobs.reply import found_job, job_response
from raftsched.api.jobs.routes import KEY_HEADER, key_of, submitted_response
from raftsched.api.json.decode import Fitter, job_id_in_path, parse_query
from raftsched.api.json.times import due_at_ms, due_or_now_ms, pause_end_ms
from raftsched.core.operations.codec import CancelJob
from raftsched.core.operations.control import PauseJob, RequeueJob, ResumeJob
from raftsched.core.records.ids import job_id_text
from raftsched.core.records.job import Job
from raftsched.core.state.results import Cancelled, Changed, Submitted
from raftsched.errors import Malformed
from raftsched.wire.jobs import AmendRequest, CancelQuery, JobReply, PauseRequest, ReplayRequest, RetryRequest

MATCH_HEADER: Final = "If-Match"
_match_etag: Final = re.compile(r'"?(?P<revision>[0-9]{1,18})"?').fullmatch


class Controls:
    """The routes by which people change a job."""

    def __init__(self, backend: Backend, bodies: Bodies) -> None:
        self._backend = backend
        self._bodies = bodies
        self._amend = Fitter(AmendRequest)
        self._pause = Fitter(PauseRequest)
        self._retry = Fitter(RetryRequest)
        self._replay = Fitter(ReplayRequest)

    def routes(self) -> tuple[Route, ...]:
        return (
            change("PATCH", "/jobs/{id}", self.amend_job, JobReply, body=AmendRequest, headers=(MATCH_HEADER,)),
            change("DELETE", "/jobs/{id}", self.cancel_job, JobReply, query=CancelQuery),
            change("POST", "/jobs/{id}/pause", self.pause_job, JobReply, optional=PauseRequest),
            change("POST", "/jobs/{id}/resume", self.resume_job, JobReply),
            change("POST", "/jobs/{id}/retry", self.retry_job, JobReply, optional=RetryRequest),
            change(
                "POST",
                "/jobs/{id}/replay",
                self.replay_job,
                JobReply,
                optional=ReplayRequest,
                headers=(KEY_HEADER,),
                statuses=(201, 200),
            ),
        )

    async def amend_job(self, request: web.Request) -> web.Response:
        """Change when and how a job runs that does not run yet; `If-Match` guards against a change in between."""
        wanted, _ = self._amend.read(await self._bodies.read_json(request))
        if_revision = _revision_of(request)
        job = self._job(request)
        operation = amendment(
            wanted, job, now_ms=self._backend.now_ms(), if_revision=if_revision, actor=actor_of(request)
        )
        return self._response((await propose(self._backend, operation, Changed)).job)

    async def cancel_job(self, request: web.Request) -> web.Response:
        """Cancel a job: one that waits at once; one that runs is told to stop, and its outcome no longer counts."""
        query = parse_query(request, CancelQuery)
        job = self._job(request)
        operation = CancelJob(job.id, job.tenant, force=query.force, actor=actor_of(request))
        return self._response((await propose(self._backend, operation, Cancelled)).job)

    async def pause_job(self, request: web.Request) -> web.Response:
        """Keep a job from running until it is resumed, or until a time."""
        wanted = self._pause.read_optional(await self._bodies.read_optional_json(request))
        until_ms = pause_end_ms(wanted.until, wanted.for_seconds, self._backend.now_ms())
        job = self._job(request)
        operation = PauseJob(job.id, job.tenant, until_ms, wanted.reason or "", actor_of(request))
        return self._response((await propose(self._backend, operation, Changed)).job)

    async def resume_job(self, request: web.Request) -> web.Response:
        """Let a paused job go on."""
        job = self._job(request)
        operation = ResumeJob(job.id, job.tenant, actor_of(request))
        return self._response((await propose(self._backend, operation, Changed)).job)

    async def retry_job(self, request: web.Request) -> web.Response:
        """Run a job again that ended otherwise than completed, as a new run; or hasten one that waits for a retry.

        A new run waits for parents that have not ended; while one has ended otherwise than it should, it is refused.
        """
        wanted = self._retry.read_optional(await self._bodies.read_optional_json(request))
        due_ms = due_or_now_ms(due_at_ms(wanted.run_at, wanted.delay_seconds, self._backend.now_ms(), ""))
        job = self._job(request)
        operation = RequeueJob(job.id, job.tenant, due_ms, actor=actor_of(request))
        return self._response((await propose(self._backend, operation, Changed)).job)

    async def replay_job(self, request: web.Request) -> web.Response:
        """Submit a clone of a job, with a link to it; 201 with the new job, 200 where its idempotency key was used."""
        wanted, document = self._replay.read(await self._bodies.read_optional_json(request) or b"{}")
        changes = changes_of(wanted, self._backend.now_ms())
        actor = actor_of(request)
        job, key = self._job(request), key_of(request, None)
        operation = replay_operation(
            job,
            self._backend.fresh_state().payload(job.id),
            changes,
            job_id=self._backend.new_job_id(),
            key=key,
            fingerprint=fingerprint_of({"replay_of": job_id_text(job.id), "changes": document}) if key else b"",
        )
        submitted = await propose(self._backend, signed(operation, actor), Submitted)
        response = submitted_response(self._backend, submitted)
        response.headers["Location"] = f"{BASE_PATH}/jobs/{job_id_text(submitted.job.id)}"
        return response

    def _job(self, request: web.Request) -> Job:
        return found_job(self._backend.fresh_state(), job_id_in_path(request))

    def _response(self, job: Job) -> web.Response:
        return job_response(self._backend, job)


def _revision_of(request: web.Request) -> int:
    """The revision that `If-Match` asks for, 0 = any; raises `Malformed` for what is neither a revision nor `*`."""
    values = request.headers.getall(MATCH_HEADER, [])
    if not values or values == ["*"]:
        return 0
    found = _match_etag(values[0].strip())
    if len(values) > 1 or found is None or not int(found["revision"]):
        raise Malformed(f'{MATCH_HEADER}: expected one revision, as in "42", or *', field=MATCH_HEADER)
    return int(found["revision"])
