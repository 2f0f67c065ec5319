"""Submit jobs, one or many, and list them.

A reply of 200 or 201 means that the job is in the log of a majority, synced, and applied. The jobs of a batch are
independent: a rejected job, or one with an unknown outcome, has its problem in its place, and the others are stored. A
submission that finds an existing job for the same key returns that job with `duplicate`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeGuard

import msgspec
from aiohttp import web

from raftsched.api.access.principal import Principal, principal_of
from raftsched.api.access.requests import query_in, require_queues, within
from raftsched.api.access.rules import Access
from raftsched.api.backend import Backend
from raftsched.api.http.actor import signed
from raftsched.api.http.bodies import Bodies
from raftsched.api.http.idempotency_key import key_named
from raftsched.api.http.json_reply import json_response
from raftsched.api.http.problems import problem_of
from raftsched.api.http.proposals import Answer, answers_of, granted
from raftsched.api.http.routes import BASE_PATH, KEY_HEADER, Route, change, route
from raftsched.api.http.submit_relay import RelayedSubmit, submit_in
from raftsched.api.jobs.convert import fingerprint_of, submit_operation
from raftsched.api.jobs.lists.pages import list_response
from raftsched.api.jobs.reply import job_response
from raftsched.api.json.decode import StructDecoder
from raftsched.api.json.items import Item, ItemsDecoder
from raftsched.api.tenants.quotas import SubmitQuotas, slow_down
from raftsched.core.operations.codec import RejectCode, SubmitJob
from raftsched.core.records.ids import JobId, job_id_text
from raftsched.core.records.job import Job
from raftsched.core.records.spec import JobSpec
from raftsched.core.state.results import Refused, Submitted
from raftsched.errors import Forbidden, Invalid, QuotaExceeded, RaftschedError, Rejected, Unavailable
from raftsched.tracing import is_set_up, record
from raftsched.wire.jobs import (
    BatchItem,
    BatchReply,
    BatchRequest,
    JobReply,
    JobRequest,
    JobsPage,
    ListQuery,
)

_SLICE: Final = 100
"""Jobs of a batch that are read before other tasks run."""
_CONFLICTS_MAX: Final = 3
"""Attempts of a submission whose conflicting job is gone each time when it is read."""


class Jobs:
    """The routes that submit jobs and list them."""

    def __init__(self, backend: Backend, bodies: Bodies, quotas: SubmitQuotas) -> None:
        self._backend = backend
        self._bodies = bodies
        self._quotas = quotas
        self._job = StructDecoder(JobRequest)
        self._batch = ItemsDecoder(BatchRequest, "jobs")

    def routes(self) -> tuple[Route, ...]:
        return (
            change(
                Access.SUBMIT,
                "POST",
                "/jobs",
                self.submit_job,
                JobReply,
                body=JobRequest,
                headers=(KEY_HEADER,),
                statuses=(201, 200),
                is_relayed=True,
            ),
            change(Access.SUBMIT, "POST", "/jobs/batch", self.submit_batch, BatchReply, body=BatchRequest),
            route(Access.READ, "GET", "/jobs", self.list_jobs, JobsPage, query=ListQuery),
        )

    async def submit_job(self, request: web.Request) -> web.Response:
        """Submit a job; 201 with the new job, 200 with the existing one for the same key."""
        sent = submit_in(request, await self._bodies.read_json(request))
        return await self.submit_text(sent, principal_of(request))

    async def submit_text(self, sent: RelayedSubmit, caller: Principal) -> web.Response:
        """Submit a job from the request of its client; see `submit_job`."""
        began_ns = time.time_ns()
        wanted, document = self._job.read(sent.body)
        if sent.traceparent is not None and wanted.traceparent is None:
            wanted = msgspec.structs.replace(wanted, traceparent=sent.traceparent)
        key = key_named(sent.keys, wanted.idempotency_key)
        fingerprint = fingerprint_of(document) if key else b""
        submitted = await self.submit(wanted, key=key, fingerprint=fingerprint, caller=caller)
        _record_spans("/jobs", began_ns, (submitted.job.spec,))
        response = submitted_response(self._backend, submitted)
        response.headers["Location"] = f"{BASE_PATH}/jobs/{job_id_text(submitted.job.id)}"
        return response

    async def submit(self, wanted: JobRequest, *, key: str, fingerprint: bytes, caller: Principal) -> Submitted:
        """Store `wanted`, and return the new job, or an existing one for the same key.

        Raises `Rejected` if it conflicts with a unique job and asks for rejection, and `QuotaExceeded`.
        """
        operation = self._operation(wanted, caller, key=key, fingerprint=fingerprint, now_ms=self._backend.now_ms())
        self._quotas.admit(operation)
        for _ in range(_CONFLICTS_MAX):
            result = await self._backend.propose(operation)
            holder = self._holder(result)
            if holder is not None and returns_holder(wanted):
                return Submitted(holder, duplicate=True)
            if holder is not None or not is_conflict(result):
                break
        return _granted(result, operation)

    async def submit_batch(self, request: web.Request) -> web.Response:
        """Submit up to 1,000 jobs, each stored or rejected on its own, with a result for each in order."""
        began_ns = time.time_ns()
        batch = self._batch.read(await self._bodies.read_json(request))
        now_ms, caller = self._backend.now_ms(), principal_of(request)
        prepared = []
        for position, item in enumerate(batch.items):
            prepared.append(self._prepared(item, caller, f"jobs[{position}]", now_ms))
            if position % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)  # other requests need not wait for all jobs of this one
        propose = self._backend.propose
        futures = [propose(each.operation) for each in prepared if isinstance(each, _Prepared)]
        answers = iter(await answers_of(futures))
        items = [
            self._item(each, next(answers)) if isinstance(each, _Prepared) else _refused_item(each) for each in prepared
        ]
        _record_spans(
            "/jobs/batch", began_ns, (each.operation.spec for each in prepared if isinstance(each, _Prepared))
        )
        if any(isinstance(each, QuotaExceeded) for each in prepared):
            self._bodies.release(request)
            await slow_down(self._backend)
        return json_response(BatchReply(results=items))

    async def list_jobs(self, request: web.Request) -> web.Response:
        """List jobs in a stable order: all pages together show each job that exists throughout exactly once."""
        return await list_response(self._backend, query_in(request, ListQuery))

    def _prepared(self, item: Item, caller: Principal, at: str, now_ms: int) -> _Prepared | RaftschedError:
        if item.flaw is not None:
            return item.flaw
        try:
            wanted = self._job.decode(item.text, at=at)
            key = wanted.idempotency_key or ""
            fingerprint = fingerprint_of(item.document) if key else b""
            operation = self._operation(wanted, caller, key=key, fingerprint=fingerprint, now_ms=now_ms, at=at)
            self._quotas.admit(operation)
            return _Prepared(operation, at, returns_holder(wanted))
        except (Forbidden, Invalid, QuotaExceeded) as error:
            return error

    def _operation(
        self, wanted: JobRequest, caller: Principal, *, key: str, fingerprint: bytes, now_ms: int, at: str = ""
    ) -> SubmitJob:
        job_id = self._backend.new_job_id()
        wanted = within(caller, wanted)
        operation = submit_operation(wanted, job_id=job_id, now_ms=now_ms, key=key, fingerprint=fingerprint, at=at)
        require_queues(caller, (operation.spec,), f"{at}." if at else "")
        return signed(operation, caller.name)

    def _item(self, prepared: _Prepared, answer: Answer) -> BatchItem:
        holder = self._holder(answer) if prepared.returns_holder else None
        if holder is not None:
            return _stored_item(Submitted(holder, duplicate=True))
        try:
            return _stored_item(_granted(answer, prepared.operation, at=prepared.at))
        except (Invalid, Rejected, Unavailable) as error:
            return _refused_item(error)

    def _holder(self, result: Answer) -> Job | None:
        """Return the current state of the job that conflicts with a unique one; None if there is none, or it is
        gone.
        """
        if not is_conflict(result):
            return None
        state, _ = self._backend.stale_state()
        return state.job(result.job_id)


class _Prepared(NamedTuple):
    """A job of a batch that can be proposed."""

    operation: SubmitJob
    at: str
    returns_holder: bool


def _record_spans(path: str, began_ns: int, submitted: Iterable[JobSpec]) -> None:
    """Record the request that stored these jobs in the trace of each that has one."""
    if not is_set_up():
        return
    ended_ns = time.time_ns()
    for spec in submitted:
        if spec.options is not None and (parent := spec.options.traceparent):
            route = f"{BASE_PATH}{path}"
            attributes = {"http.request.method": "POST", "http.route": route}
            record(
                f"POST {route}", "SERVER", parent=parent, began_ns=began_ns, ended_ns=ended_ns, attributes=attributes
            )


def submitted_response(backend: Backend, submitted: Submitted) -> web.Response:
    """Return the reply to a submission: 201 with the new job, 200 with an existing one."""
    if submitted.duplicate:
        return job_response(backend, submitted.job, duplicate=True)
    return job_response(backend, submitted.job, status=201)


def returns_holder(wanted: JobRequest) -> bool:
    """Return whether a submission that conflicts with a unique job gets that job as its answer."""
    return wanted.unique is not None and wanted.unique.on_conflict == "return"


def is_conflict(result: Answer) -> TypeGuard[Refused]:
    return isinstance(result, Refused) and result.code is RejectCode.UNIQUE_CONFLICT


def _granted(answer: Answer, operation: SubmitJob, *, at: str = "") -> Submitted:
    """Return the result; raises the error of a refusal, with the path of an unknown parent."""
    if isinstance(answer, Refused) and answer.code is RejectCode.UNKNOWN_DEPENDENCY:
        parents = [dependency.parent for dependency in operation.depends_on]
        field = f"{at}.depends_on" if at else "depends_on"
        raise unknown_parent(answer.job_id, f"{field}[{parents.index(answer.job_id)}]")
    return granted(answer, Submitted, at=at)


def unknown_parent(job_id: JobId, field: str) -> Rejected:
    """Return the error for an unknown parent, named at the path `field`."""
    text = job_id_text(job_id)
    detail = f"{field}: there is no job {text}"
    return Rejected("unknown_dependency", detail, http_status=422, field=field, job_id=text)


def _stored_item(submitted: Submitted) -> BatchItem:
    job = submitted.job
    if submitted.duplicate:
        return BatchItem(status=200, id=job_id_text(job.id), revision=job.revision, duplicate=True)
    return BatchItem(status=201, id=job_id_text(job.id), revision=job.revision)


def _refused_item(error: RaftschedError) -> BatchItem:
    """Return the result of a rejected job; a malformed one has 422, since the batch itself is well-formed."""
    status = 422 if isinstance(error, Invalid) else error.http_status
    return BatchItem(status=status, problem=problem_of(error, status=status))
