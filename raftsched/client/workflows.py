"""Build and submit workflows: jobs that depend on each other. All of them are stored, or none.

    nightly = Workflow("nightly")
    extract = nightly.job("extract", {"day": 3})
    load = nightly.job("load", after=[extract])
    nightly.job("tell", after=[load], on="failure")
    run = await client.workflows.submit(nightly)
    await run.wait()

Building does no I/O. The cluster reports faults of the whole workflow: a cycle, an unknown task.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, Literal, Unpack

import msgspec

from raftsched.client.blocking import Blocking, Runtime, blocking, blocking_each
from raftsched.client.errors import WorkflowNotCompleted, wait_timeout_error
from raftsched.client.http.calls import Calls, given, part
from raftsched.client.jobs import BlockingJob, Job
from raftsched.client.records import Graph, JobInfo, WorkflowInfo
from raftsched.client.specs import Condition, Dependency, JobOptions, JobSpec
from raftsched.errors import Invalid, NotFound
from raftsched.wire.workflows import SubmittedWorkflowReply

_POLL_SECONDS_MIN = 0.02
_POLL_SECONDS_MAX = 2.0


class Task:
    """A job of a workflow that is being built."""

    __slots__ = ("depends_on", "name", "spec")

    def __init__(self, name: str, spec: JobSpec) -> None:
        self.name = name
        """Its name within the workflow."""
        self.spec = spec
        self.depends_on: list[dict[str, Any]] = []

    def __repr__(self) -> str:
        return f"Task({self.name!r})"

    def after(self, *parents: Parent, on: Condition = "success") -> Task:
        """Make it wait until all of `parents` have ended as `on` requires, and return it.

        A parent is a task, or the name of one that may be added later, or a job outside the workflow: its handle, or a
        `Dependency`.
        """
        self.depends_on += [_dependency(parent, on) for parent in parents]
        return self


Parent = Task | Job | str | Dependency


class Workflow:
    """A workflow that is being built; submit it with `Client.workflows.submit`."""

    def __init__(self, name: str, *, tenant: str | None = None, idempotency_key: str | None = None) -> None:
        self.name = name
        self.tenant = tenant
        self.idempotency_key = idempotency_key
        """A second submission with the same key and workflow finds the first."""
        self.tasks: dict[str, Task] = {}

    def job(
        self,
        name: str,
        payload: Any = None,
        *,
        task: str | None = None,
        after: Iterable[Parent] | Parent = (),
        on: Condition = "success",
        **options: Unpack[JobOptions],
    ) -> Task:
        """Add the job called `name` and return its task, which can be a parent of others.

        `task` is its name within the workflow; default: the job's name, with a number if that is taken. It waits until
        all of `after` have ended as `on` requires; add other conditions with `Task.after`. Options are those of
        `JobSpec`. Raises `Invalid` for a task name that is taken.
        """
        if options.pop("depends_on", None) is not None:
            raise Invalid("depends_on: give parents as `after`", field="depends_on")
        if task is not None and task in self.tasks:
            raise Invalid(f"task: there is a task {task!r} already", field="task")
        added = Task(task or self._free_name(name), JobSpec(name=name, payload=payload, **options))
        parents = (after,) if isinstance(after, Task | Job | str | Dependency) else after
        self.tasks[added.name] = added.after(*parents, on=on)
        return added

    def document(self, idempotency_key: str | None = None) -> dict[str, Any]:
        """Return the workflow as the API takes it; raises `Invalid`."""
        jobs = {name: _task_text(task) for name, task in self.tasks.items()}
        key = self.idempotency_key or idempotency_key
        return given(tenant=self.tenant, idempotency_key=key) | {"name": self.name, "jobs": jobs}

    def _free_name(self, name: str) -> str:
        free, number = name, 1
        while free in self.tasks:
            number += 1
            free = f"{name}-{number}"
        return free


class WorkflowRun:
    """A submitted workflow."""

    def __init__(
        self, calls: Calls, workflow_id: str, jobs: Mapping[str, str] | None = None, *, duplicate: bool = False
    ) -> None:
        self._calls = calls
        self._path = f"/workflows/{part(workflow_id, field='workflow_id')}"
        self.id = workflow_id
        self.jobs = {task: Job(calls, job_id) for task, job_id in (jobs or {}).items()}
        """Jobs by task name; empty for a handle that was created from an id: `graph` reads them."""
        self.duplicate = duplicate
        """True if the submit found an earlier workflow with the same idempotency key."""

    def __repr__(self) -> str:
        return f"WorkflowRun({self.id!r})"

    async def get(self) -> WorkflowInfo:
        """Read the workflow; raises `NotFound`."""
        return await self._calls.call(WorkflowInfo, "GET", self._path, query={"limit": 1})

    async def graph(self) -> Graph:
        """Read its jobs, parents before their children, and their dependencies."""
        whole = page = await self._calls.call(Graph, "GET", self._path)
        while page.next_cursor:
            page = await self._calls.call(Graph, "GET", self._path, query={"cursor": page.next_cursor})
            whole.nodes.extend(page.nodes)
            whole.edges.extend(page.edges)
        return msgspec.structs.replace(whole, next_cursor=None)

    async def graph_page(self, *, limit: int, cursor: str | None = None) -> Graph:
        """Read at most `limit` of its jobs, parents first, with the dependencies that end at them.

        `Graph.next_cursor` is the `cursor` of the next page; None at the end.
        """
        return await self._calls.call(Graph, "GET", self._path, query=given(limit=limit, cursor=cursor))

    async def wait(self, timeout: float | None = None) -> WorkflowInfo:  # noqa: ASYNC109  # as asyncio.wait_for
        """Wait until every job has ended, and return the workflow.

        Raises `WorkflowNotCompleted` if its status is not `completed` then. Raises `TimeoutError` after `timeout`
        seconds; the workflow continues. It polls at growing intervals of up to 2 seconds.
        """
        pause = _POLL_SECONDS_MIN
        workflow: WorkflowInfo | None = None
        try:
            async with asyncio.timeout(timeout):
                while not (workflow := await self.get()).is_finished:
                    await asyncio.sleep(pause * (0.75 + 0.5 * self._calls.connection.randomness.random()))
                    pause = min(pause * 1.5, _POLL_SECONDS_MAX)
        except TimeoutError:
            raise wait_timeout_error(f"workflow {self.id}", timeout, workflow.status if workflow else None) from None
        if workflow.status != "completed":
            raise WorkflowNotCompleted(workflow)
        return workflow

    async def job(self, task: str) -> Job:
        """Return the job of `task`; raises `NotFound` for an unknown task."""
        if task in self.jobs:
            return self.jobs[task]
        found = next((node for node in (await self.graph()).nodes if node.task == task), None)
        if found is None:
            raise NotFound(f"the workflow has no task {task!r}")
        self.jobs[task] = Job(self._calls, found.id)
        return self.jobs[task]

    async def result(self, task: str) -> Any:
        """Return the result of `task` now; raises as `Job.result` does, and `NotFound` for an unknown task."""
        return await (await self.job(task)).result()

    async def results(self) -> dict[str, Any]:
        """Return the results of the completed jobs, by task name."""
        listed = self._calls.each(JobInfo, "/jobs", "jobs", {"workflow": self.id, "status": "completed"})
        return {job.task or job.id: job.result async for job in listed}

    async def cancel(self) -> WorkflowInfo:
        """Cancel all its jobs that are not finished; cancelling twice is fine."""
        return await self._calls.call(WorkflowInfo, "DELETE", self._path)


class BlockingWorkflowRun(Blocking[WorkflowRun]):
    """`WorkflowRun` without `await`."""

    def __init__(self, runtime: Callable[[], Runtime[Any]], run: WorkflowRun) -> None:
        super().__init__(runtime, lambda client: client.workflows.run(self.id))
        self.id = run.id
        self.duplicate = run.duplicate
        self.jobs = {task: BlockingJob(runtime, job.id) for task, job in run.jobs.items()}

    get = blocking(WorkflowRun.get)
    graph = blocking(WorkflowRun.graph)
    graph_page = blocking(WorkflowRun.graph_page)
    wait = blocking(WorkflowRun.wait)
    result = blocking(WorkflowRun.result)
    results = blocking(WorkflowRun.results)
    cancel = blocking(WorkflowRun.cancel)


class Workflows:
    """The workflows of a cluster."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def submit(self, workflow: Workflow) -> WorkflowRun:
        """Submit `workflow` and return its handle once all of it is stored. A retry never stores it twice.

        Raises `Invalid` naming the field, `Rejected` with code `cycle` (with `members`), `unknown_dependency` or
        `idempotency_mismatch`; then none of its jobs runs.
        """
        document = workflow.document(self._calls.keys.next())
        stored = await self._calls.call(SubmittedWorkflowReply, "POST", "/workflows", document)
        return WorkflowRun(self._calls, stored.id, stored.jobs, duplicate=stored.duplicate is True)

    def run(self, workflow_id: str) -> WorkflowRun:
        """Return the handle of a workflow, without I/O."""
        return WorkflowRun(self._calls, workflow_id)

    def list(
        self,
        *,
        name: str | None = None,
        status: Literal["submitting", "running", "cancelling", "completed", "failed", "cancelled"] | None = None,
        tenant: str | None = None,
        order: Literal["asc", "desc"] = "desc",
        page_size: int = 100,
    ) -> AsyncIterator[WorkflowInfo]:
        """Yield the workflows that match all filters, the latest first."""
        query = given(name=name, status=status, tenant=tenant, order=order, limit=page_size)
        return self._calls.each(WorkflowInfo, "/workflows", "workflows", query)


class BlockingWorkflows(Blocking[Workflows]):
    """`Workflows` without `await`."""

    list = blocking_each(Workflows.list)

    def submit(self, workflow: Workflow) -> BlockingWorkflowRun:
        """Submit `workflow` and return its handle; see `Workflows.submit`."""
        runtime = self._runtime()
        return BlockingWorkflowRun(self._runtime, runtime.run(self._pick(runtime.client).submit(workflow)))

    def run(self, workflow_id: str) -> BlockingWorkflowRun:
        """Return the handle of a workflow, without I/O."""
        return BlockingWorkflowRun(self._runtime, self._pick(self._runtime().client).run(workflow_id))


def _dependency(parent: Parent, condition: Condition) -> dict[str, Any]:
    if isinstance(parent, Dependency):
        return {"job": parent.job, "condition": parent.condition}
    if isinstance(parent, Job):
        return {"job": parent.id, "condition": condition}
    return {"task": parent.name if isinstance(parent, Task) else parent, "condition": condition}


def _task_text(task: Task) -> msgspec.Raw:
    text = task.spec.encoded()
    if not task.depends_on:
        return msgspec.Raw(text)
    return msgspec.Raw(b'%b,"depends_on":%b}' % (text[:-1], msgspec.json.encode(task.depends_on)))
