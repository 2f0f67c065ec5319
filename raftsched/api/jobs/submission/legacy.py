"""Serve the routes of the first version, at the root: `POST /submit {"task"}` and `GET /jobs/{id}`."""

from __future__ import annotations

from aiohttp import web
from msgspec import UNSET
from msgspec.structs import replace

from raftsched.api.access.door import ACTOR_HEADER
from raftsched.api.access.principal import principal_of
from raftsched.api.access.rules import Access
from raftsched.api.backend import Backend
from raftsched.api.http.bodies import Bodies
from raftsched.api.http.consistency import etag, read
from raftsched.api.http.idempotency_key import key_of
from raftsched.api.http.json_reply import json_response
from raftsched.api.http.routes import KEY_HEADER, Answered, Route
from raftsched.api.jobs.convert import fingerprint_of
from raftsched.api.jobs.reply import full_job_reply, job_in_path
from raftsched.api.jobs.submission.routes import Jobs
from raftsched.api.json.decode import StructDecoder
from raftsched.core.records.ids import job_id_text
from raftsched.wire.common import ReadQuery
from raftsched.wire.jobs import JobReply, JobRequest, LegacyJobReply, LegacyJobRequest


class LegacyJobs:
    """The routes of jobs for older clients."""

    def __init__(self, backend: Backend, bodies: Bodies, jobs: Jobs) -> None:
        self._backend = backend
        self._bodies = bodies
        self._jobs = jobs
        self._request = StructDecoder(LegacyJobRequest)

    def routes(self) -> tuple[Route, ...]:
        return (
            Route(
                method="POST",
                path="/submit",
                handler=self.submit_task,
                access=Access.SUBMIT,
                answered=Answered.BY_LEADER,
                body=LegacyJobRequest,
                headers=(KEY_HEADER, ACTOR_HEADER),
                reply=LegacyJobReply,
                statuses=(201, 200),
            ),
            Route(
                method="GET",
                path="/jobs/{id}",
                handler=self.get_task,
                access=Access.READ,
                answered=Answered.BY_LEADER_UNLESS_STALE,
                query=ReadQuery,
                reply=JobReply,
            ),
        )

    async def submit_task(self, request: web.Request) -> web.Response:
        """Submit a job whose `task` is its name, for older clients."""
        legacy, document = self._request.read(await self._bodies.read_json(request))
        wanted = JobRequest(
            name=legacy.task,
            payload=legacy.payload,
            priority=legacy.priority,
            run_at=legacy.run_at,
            delay_seconds=legacy.delay_seconds,
            timeout_seconds=legacy.timeout_seconds,
            max_retries=legacy.max_retries,
        )
        key = key_of(request, legacy.idempotency_key)
        fingerprint = fingerprint_of(document) if key else b""
        submitted = await self._jobs.submit(wanted, key=key, fingerprint=fingerprint, caller=principal_of(request))
        job = submitted.job
        reply = LegacyJobReply(
            id=job_id_text(job.id),
            job_id=job_id_text(job.id),
            task=job.spec.name,
            status=job.status_at(self._backend.now_ms()).label,
            duplicate=True if submitted.duplicate else UNSET,
        )
        response = json_response(reply, status=200 if submitted.duplicate else 201)
        response.headers["Location"] = f"/jobs/{job_id_text(job.id)}"
        return response

    async def get_task(self, request: web.Request) -> web.Response:
        """Read a job as `GET /api/v1/jobs/{id}` does, but with its name in `task`, for older clients."""
        _, reading = read(self._backend, request, ReadQuery)
        job = job_in_path(reading, request)
        reply = full_job_reply(reading.state, job, reading.now_ms)
        response = reading.response(replace(reply, task=job.spec.name))
        response.headers["ETag"] = etag(job.revision)
        return response
