"""Jobs: submit one or many, read, list, cancel.

A reply of 200 or 201 means that the job is in the log of a majority, synced, and applied. In a batch each job stands
for itself: one that is refused, or whose outcome is unknown, says so in its own place, and the others are stored.
"""

from __future__ import annotations

import re
from typing import Any, Final

from aiohttp import web

from raftsched.api.backend import TENANT_DEFAULT, Backend
from raftsched.api.bodies import Bodies
from raftsched.api.listing import list_page
from raftsched.api.parsing import Fitter, job_id_in_path
from raftsched.api.problems import problem_of, refusal
from raftsched.api.proposing import Answer, answers_of
from raftsched.api.reading import read
from raftsched.api.rendering import job_reply, json_response, result_reply
from raftsched.api.replies import BatchItem, BatchReply, JobReply, JobsPage, ResultReply
from raftsched.api.requests import KEY_PATTERN, KEY_RULE, BatchRequest, JobRequest, ListQuery, ReadQuery
from raftsched.api.routes import BASE_PATH, Answered, Route
from raftsched.api.submission import fingerprint_of, submit_operation
from raftsched.core.ids import job_id_text
from raftsched.core.operations import CancelJob, SubmitJob
from raftsched.core.view import Cancelled, Refused, Result, Submitted
from raftsched.errors import Invalid, InvariantBroken, Malformed, RaftschedError

KEY_HEADER: Final = "Idempotency-Key"
_match_key: Final = re.compile(KEY_PATTERN).match


class Jobs:
    """The routes of jobs."""

    def __init__(self, backend: Backend, bodies: Bodies) -> None:
        self._backend = backend
        self._bodies = bodies
        self._job = Fitter(JobRequest)
        self._batch = Fitter(BatchRequest)

    def routes(self) -> tuple[Route, ...]:
        leader, any_node = Answered.BY_LEADER, Answered.BY_LEADER_UNLESS_STALE
        return (
            Route(
                method="POST",
                path=f"{BASE_PATH}/jobs",
                handler=self.submit_job,
                answered=leader,
                body=JobRequest,
                headers=(KEY_HEADER,),
                reply=JobReply,
                statuses=(201, 200),
            ),
            Route(
                method="POST",
                path=f"{BASE_PATH}/jobs/batch",
                handler=self.submit_batch,
                answered=leader,
                body=BatchRequest,
                reply=BatchReply,
            ),
            Route(
                method="GET",
                path=f"{BASE_PATH}/jobs",
                handler=self.list_jobs,
                answered=any_node,
                query=ListQuery,
                reply=JobsPage,
            ),
            Route(
                method="GET",
                path=f"{BASE_PATH}/jobs/{{id}}",
                handler=self.get_job,
                answered=any_node,
                query=ReadQuery,
                reply=JobReply,
            ),
            Route(
                method="GET",
                path=f"{BASE_PATH}/jobs/{{id}}/result",
                handler=self.get_result,
                answered=any_node,
                query=ReadQuery,
                reply=ResultReply,
            ),
            Route(
                method="DELETE",
                path=f"{BASE_PATH}/jobs/{{id}}",
                handler=self.cancel_job,
                answered=leader,
                reply=JobReply,
            ),
        )

    async def submit_job(self, request: web.Request) -> web.Response:
        """Submit a job; 201 with the new job, 200 with the known one where its idempotency key was used before."""
        wanted, document = self._job.read(await self._bodies.read_json(request))
        operation = self._operation(wanted, document, key=_key(request, wanted))
        result = _submitted(await self._backend.propose(operation))
        response = json_response(self._reply(result, operation), status=200 if result.duplicate else 201)
        response.headers["Location"] = f"{BASE_PATH}/jobs/{job_id_text(result.job.id)}"
        return response

    async def submit_batch(self, request: web.Request) -> web.Response:
        """Submit up to 1,000 jobs, each stored or refused on its own, with a result for each in order."""
        batch, document = self._batch.read(await self._bodies.read_json(request))
        prepared = [
            self._prepared(raw, part, f"jobs[{position}]")
            for position, (raw, part) in enumerate(zip(batch.jobs, document["jobs"], strict=True))
        ]
        propose = self._backend.propose
        futures = [propose(operation) for operation in prepared if isinstance(operation, SubmitJob)]
        answers = iter(await answers_of(futures))
        items = [
            _batch_item(next(answers)) if isinstance(operation, SubmitJob) else _refused_item(operation)
            for operation in prepared
        ]
        return json_response(BatchReply(results=items))

    async def list_jobs(self, request: web.Request) -> web.Response:
        """List jobs in a stable order: a walk along the cursors sees each job that is there all the time once."""
        query, reading = read(self._backend, request, ListQuery)
        return reading.response(list_page(reading.state, query, reading.now_ms))

    async def get_job(self, request: web.Request) -> web.Response:
        """Read a job."""
        _, reading = read(self._backend, request, ReadQuery)
        job = reading.job(request)
        state = reading.state
        return reading.response(job_reply(job, state.payload(job.id), state.result(job.id), reading.now_ms))

    async def get_result(self, request: web.Request) -> web.Response:
        """Read a job's status, result and latest error, without its payload."""
        _, reading = read(self._backend, request, ReadQuery)
        job = reading.job(request)
        return reading.response(result_reply(job, reading.state.result(job.id), reading.now_ms))

    async def cancel_job(self, request: web.Request) -> web.Response:
        """Cancel a job: one that waits at once; one that runs is told to stop, and its outcome no longer counts."""
        operation = CancelJob(job_id_in_path(request), TENANT_DEFAULT)
        match await self._backend.propose(operation):
            case Cancelled(job):
                state, _ = self._backend.stale_state()
                payload, result = state.payload(job.id), state.result(job.id)
                return json_response(job_reply(job, payload, result, self._backend.now_ms()))
            case Refused() as refused:
                raise refusal(refused)
            case other:
                raise _unexpected(other)

    def _prepared(self, raw: Any, document: Any, at: str) -> SubmitJob | RaftschedError:
        try:
            wanted = self._job.fit(raw, at=at)
            return self._operation(wanted, document, key=wanted.idempotency_key or "", at=at)
        except Invalid as error:
            return error

    def _operation(self, wanted: JobRequest, document: Any, *, key: str, at: str = "") -> SubmitJob:
        backend = self._backend
        return submit_operation(
            wanted,
            job_id=backend.new_job_id(),
            now_ms=backend.now_ms(),
            key=key,
            fingerprint=fingerprint_of(document) if key else b"",
            at=at,
        )

    def _reply(self, submitted: Submitted, operation: SubmitJob) -> JobReply:
        job, now_ms = submitted.job, self._backend.now_ms()
        if not submitted.duplicate:
            return job_reply(job, operation.payload, b"", now_ms)
        # The operation was applied here, so the state of this node has the job's texts.
        state, _ = self._backend.stale_state()
        return job_reply(job, state.payload(job.id), state.result(job.id), now_ms)


def _key(request: web.Request, wanted: JobRequest) -> str:
    """Return the idempotency key, from header or body; "" where there is none."""
    values = request.headers.getall(KEY_HEADER, [])
    if not values:
        return wanted.idempotency_key or ""
    if len(values) > 1 or not _match_key(values[0]):
        raise Malformed(f"{KEY_HEADER}: expected {KEY_RULE}, once", field=KEY_HEADER)
    if wanted.idempotency_key not in (None, values[0]):
        raise Invalid(f"{KEY_HEADER}: is not the idempotency_key of the body; give one of them", field=KEY_HEADER)
    return values[0]


def _submitted(result: Result) -> Submitted:
    match result:
        case Submitted():
            return result
        case Refused():
            raise refusal(result)
        case _:
            raise _unexpected(result)


def _batch_item(answer: Answer) -> BatchItem:
    match answer:
        case Submitted(job, duplicate):
            return BatchItem(status=200 if duplicate else 201, id=job_id_text(job.id), revision=job.revision)
        case Refused():
            return _refused_item(refusal(answer))
        case RaftschedError():
            return _refused_item(answer)
        case _:
            raise _unexpected(answer)


def _refused_item(error: RaftschedError) -> BatchItem:
    """A job that is malformed in any way is 422 in a batch: the document as a whole was not."""
    status = 422 if isinstance(error, Invalid) else error.http_status
    return BatchItem(status=status, problem=problem_of(error, status=status))


def _unexpected(result: object) -> InvariantBroken:
    return InvariantBroken(f"an operation gave a result of another kind: {type(result).__name__}")
