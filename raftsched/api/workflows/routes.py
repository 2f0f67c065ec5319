"""Submit, read, list and cancel workflows.

All jobs of a workflow are stored, or none. A large workflow enters the log in parts, one after another. None of its
jobs runs before the last part is stored; if a part fails, the stored ones are discarded. A second submission with the
same idempotency key finds the first workflow.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from aiohttp import web
from msgspec import UNSET

from raftsched.api.access.principal import principal_of
from raftsched.api.access.requests import require_queues, within
from raftsched.api.access.rules import Access
from raftsched.api.backend import Backend
from raftsched.api.http.actor import actor_of
from raftsched.api.http.bodies import Bodies
from raftsched.api.http.consistency import etag, read
from raftsched.api.http.idempotency_key import key_of
from raftsched.api.http.json_reply import json_response
from raftsched.api.http.proposals import granted, propose
from raftsched.api.http.routes import BASE_PATH, KEY_HEADER, Route, change, route
from raftsched.api.jobs.convert import fingerprint_of
from raftsched.api.jobs.submission.routes import unknown_parent
from raftsched.api.json.decode import StructDecoder, job_id_in_path
from raftsched.api.tenants.quotas import SubmitQuotas
from raftsched.api.workflows.graph import graph_page, workflow_fields, workflows_page
from raftsched.api.workflows.plan import Plan, plan_workflow
from raftsched.core.operations.queues import CancelWorkflow
from raftsched.core.records.ids import JobId, job_id_text
from raftsched.core.records.workflow import Workflow, WorkflowId
from raftsched.core.state.results import Refused, WorkflowSaved
from raftsched.errors import NotFound, Rejected, Unavailable
from raftsched.storage.reader import StateReader
from raftsched.wire.workflows import (
    GraphQuery,
    GraphReply,
    SubmittedWorkflowReply,
    WorkflowReply,
    WorkflowRequest,
    WorkflowsPage,
    WorkflowsQuery,
)

_YIELD_JOBS: Final = 1_000
"""Jobs that are read before other tasks run."""


class Workflows:
    """The routes of workflows."""

    def __init__(self, backend: Backend, bodies: Bodies, quotas: SubmitQuotas) -> None:
        self._backend = backend
        self._bodies = bodies
        self._quotas = quotas
        self._request = StructDecoder(WorkflowRequest)

    def routes(self) -> tuple[Route, ...]:
        return (
            change(
                Access.SUBMIT,
                "POST",
                "/workflows",
                self.submit_workflow,
                SubmittedWorkflowReply,
                body=WorkflowRequest,
                headers=(KEY_HEADER,),
                statuses=(201, 200),
                waits=True,
            ),
            route(Access.READ, "GET", "/workflows", self.list_workflows, WorkflowsPage, query=WorkflowsQuery),
            route(Access.RESULT, "GET", "/workflows/{id}", self.get_workflow, GraphReply, query=GraphQuery),
            change(Access.SUBMIT, "DELETE", "/workflows/{id}", self.cancel_workflow, WorkflowReply),
        )

    async def submit_workflow(self, request: web.Request) -> web.Response:
        """Submit jobs that depend on each other: all are stored, or none; 200 if the idempotency key was used before."""
        wanted, document = self._request.read(await self._bodies.read_json(request))
        key = key_of(request, wanted.idempotency_key)
        backend = self._backend
        caller = principal_of(request)
        plan = await plan_workflow(
            within(caller, wanted),
            new_id=backend.new_job_id,
            now_ms=backend.now_ms(),
            key=key,
            fingerprint=fingerprint_of(document),
            actor=caller.name,
        )
        require_queues(caller, (job.spec for part in plan.parts for job in part.jobs), "jobs.")
        self._quotas.take(plan.parts[0].tenant, plan.parts[0].job_count)
        saved = await self._store(plan)
        return await self._submitted(saved, plan)

    async def list_workflows(self, request: web.Request) -> web.Response:
        """List workflows, the latest first."""
        query, reading = read(self._backend, request, WorkflowsQuery)
        return reading.response(workflows_page(reading.state, query))

    async def get_workflow(self, request: web.Request) -> web.Response:
        """Read a workflow with its graph: its jobs, parents first, and their dependencies; large ones in pages."""
        query, reading = read(self._backend, request, GraphQuery)
        workflow = _found(reading.state, request)
        response = reading.response(graph_page(reading.state, workflow, query, reading.now_ms))
        response.headers["ETag"] = etag(workflow.revision)
        return response

    async def cancel_workflow(self, request: web.Request) -> web.Response:
        """Cancel all jobs of a workflow that are not finished."""
        workflow = _found(self._backend.fresh_state(), request)
        operation = CancelWorkflow(workflow.id, workflow.tenant, actor_of(request))
        saved = await propose(self._backend, operation, WorkflowSaved)
        # The operation itself cancels a small workflow, but its result is the record before the jobs ended.
        state, _ = self._backend.stale_state()
        return json_response(WorkflowReply(**workflow_fields(state.workflow(workflow.id) or saved.workflow)))

    async def _store(self, plan: Plan) -> WorkflowSaved:
        self._check_outside(plan)
        saved: WorkflowSaved | None = None
        for part in plan.parts:
            result = await self._backend.propose(part)
            if isinstance(result, Refused) and saved is not None:
                # The stored parts would be discarded after a while; discard them now.
                with contextlib.suppress(Unavailable):
                    await self._backend.propose(CancelWorkflow(part.id, part.tenant, part.actor))
            try:
                saved = granted(result, WorkflowSaved)
            except Rejected as error:
                raise _named(error, plan) from None
            if saved.duplicate and saved.workflow.id != part.id:
                break
        assert saved is not None
        return saved

    def _check_outside(self, plan: Plan) -> None:
        """Reject unknown parents outside the workflow before anything is stored.

        It does not check a workflow that may be a repetition: its former parents may be gone.
        """
        state = self._backend.fresh_state()
        tenant, key = plan.parts[0].tenant, plan.parts[0].idempotency_key
        if key and state.workflow_id_for_key(tenant, key) is not None:
            return
        for job_id, field in plan.outside.items():
            parent = state.job(job_id)
            if parent is None or parent.tenant != tenant:
                raise unknown_parent(job_id, field)

    async def _submitted(self, saved: WorkflowSaved, plan: Plan) -> web.Response:
        state, _ = self._backend.stale_state()
        workflow = state.workflow(saved.workflow.id) or saved.workflow
        is_known = workflow.id != plan.parts[0].id
        jobs = await self._job_ids(workflow) if is_known else {t: job_id_text(i) for t, i in plan.job_ids.items()}
        reply = SubmittedWorkflowReply(**workflow_fields(workflow), jobs=jobs, duplicate=True if is_known else UNSET)
        response = json_response(reply, status=200 if is_known else 201)
        response.headers["Location"] = f"{BASE_PATH}/workflows/{reply.id}"
        response.headers["ETag"] = etag(workflow.revision)
        return response

    async def _job_ids(self, workflow: Workflow) -> dict[str, str]:
        """Return the ids of its jobs by task name, for the jobs that are still kept."""
        found: dict[str, str] = {}
        after: JobId | None = None
        while True:
            state, _ = self._backend.stale_state()
            ids = state.workflow_jobs(workflow.id, after=after, limit=_YIELD_JOBS)
            for job_id in ids:
                job = state.job(job_id)
                if job is not None and job.spec.options is not None:
                    found[job.spec.options.task] = job_id_text(job_id)
            if len(ids) < _YIELD_JOBS:
                return found
            after = ids[-1]
            await asyncio.sleep(0)


def _found(state: StateReader, request: web.Request) -> Workflow:
    workflow = state.workflow(WorkflowId(job_id_in_path(request, noun="workflow")))
    if workflow is None or not principal_of(request).sees(workflow.tenant):
        raise NotFound("there is no such workflow")
    return workflow


def _named(error: Rejected, plan: Plan) -> Rejected:
    """Return the error with the path of the dependency at fault."""
    if error.code != "unknown_dependency":
        return error
    for job_id, field in plan.outside.items():
        if job_id_text(job_id) == error.job_id:
            return unknown_parent(job_id, field)
    return error
