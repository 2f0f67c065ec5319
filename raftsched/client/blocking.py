"""The blocking twin of the client: the same calls without `await`, for scripts, threads and web frameworks.

It runs the asyncio client on an event loop in a thread of its own, so calls from many threads share one connection
pool and their submits travel together. The thread is a daemon: a program that forgets to close still ends.

Fork: a child must not touch the parent's loop or sockets, not even to close them, for they are the same to the
kernel, the loop's epoll set included. So the child drops the parent's runtime without running any finaliser (it is
leaked on purpose, once per fork) and makes its own, with its own idempotency keys, at its first call.
"""

from __future__ import annotations

import ctypes
import os
import ssl
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack

from raftsched.client.blocking_wrapper import Runtime, Twin, twin, twin_each
from raftsched.client.bulk import DeadLetters
from raftsched.client.client import Client
from raftsched.client.http.settings import ClientSettings
from raftsched.client.jobs import Job, ReplayChanges
from raftsched.client.queues import Queue
from raftsched.client.schedules import Schedules
from raftsched.client.specs import JobOptions, JobSpec
from raftsched.client.workflows import Workflow, WorkflowRun, Workflows
from raftsched.errors import RaftschedError, Unavailable


class BlockingJob(Twin[Job]):
    """`Job` without `await`."""

    def __init__(self, client: BlockingClient, job_id: str, *, duplicate: bool = False) -> None:
        super().__init__(client._runtime, lambda inner: inner.job(job_id))  # noqa: SLF001  # the same module
        self._client = client
        self.id = job_id
        self.duplicate = duplicate

    def __repr__(self) -> str:
        return f"BlockingJob({self.id!r})"

    get = twin(Job.get)
    wait = twin(Job.wait)
    result = twin(Job.result)
    runs = twin(Job.runs)
    history = twin(Job.history)
    explain = twin(Job.explain)
    logs = twin_each(Job.logs)
    cancel = twin(Job.cancel)
    pause = twin(Job.pause)
    resume = twin(Job.resume)
    retry = twin(Job.retry)
    update = twin(Job.update)
    reschedule = twin(Job.reschedule)

    def replay(self, *, idempotency_key: str | None = None, **changes: Unpack[ReplayChanges]) -> BlockingJob:
        """Submit a clone of it; see `Job.replay`."""
        runtime = self._runtime()
        job = runtime.client.job(self.id)
        return self._client.job(runtime.run(job.replay(idempotency_key=idempotency_key, **changes)).id)


class BlockingSchedules(Twin[Schedules]):
    """`Schedules` without `await`."""

    save = twin(Schedules.save)
    update = twin(Schedules.update)
    delete = twin(Schedules.delete)
    apply = twin(Schedules.apply)
    get = twin(Schedules.get)
    list = twin_each(Schedules.list)
    next = twin(Schedules.next)
    firings = twin_each(Schedules.firings)
    preview = twin(Schedules.preview)
    pause = twin(Schedules.pause)
    resume = twin(Schedules.resume)
    trigger = twin(Schedules.trigger)
    backfill = twin(Schedules.backfill)


class BlockingWorkflowRun(Twin[WorkflowRun]):
    """`WorkflowRun` without `await`."""

    def __init__(self, client: BlockingClient, run: WorkflowRun) -> None:
        self.id = run.id
        self.duplicate = run.duplicate
        self.jobs = {task: BlockingJob(client, job.id) for task, job in run.jobs.items()}
        super().__init__(client._runtime, lambda inner: inner.workflows.run(self.id))  # noqa: SLF001  # the same module

    get = twin(WorkflowRun.get)
    graph = twin(WorkflowRun.graph)
    wait = twin(WorkflowRun.wait)
    result = twin(WorkflowRun.result)
    results = twin(WorkflowRun.results)
    cancel = twin(WorkflowRun.cancel)


class BlockingWorkflows(Twin[Workflows]):
    """`Workflows` without `await`."""

    def __init__(self, client: BlockingClient) -> None:
        super().__init__(client._runtime, lambda inner: inner.workflows)  # noqa: SLF001  # the same module
        self._client = client

    list = twin_each(Workflows.list)

    def submit(self, workflow: Workflow) -> BlockingWorkflowRun:
        """Submit `workflow` and return its handle; see `Workflows.submit`."""
        runtime = self._runtime()
        return BlockingWorkflowRun(self._client, runtime.run(runtime.client.workflows.submit(workflow)))

    def run(self, workflow_id: str) -> BlockingWorkflowRun:
        """Return the handle of a workflow, without I/O."""
        return BlockingWorkflowRun(self._client, self._runtime().client.workflows.run(workflow_id))


class BlockingQueue(Twin[Queue]):
    """`Queue` without `await`."""

    get = twin(Queue.get)
    configure = twin(Queue.configure)
    pause = twin(Queue.pause)
    resume = twin(Queue.resume)
    scale = twin(Queue.scale)


class BlockingDeadLetters(Twin[DeadLetters]):
    """`DeadLetters` without `await`."""

    list = twin_each(DeadLetters.list)
    requeue = twin(DeadLetters.requeue)
    purge = twin(DeadLetters.purge)


class BlockingClient(Twin[Client]):
    """`Client` without `await`; safe to share between threads, and usable in a forked child.

    Use it as `with BlockingClient(url) as client`. What the calls promise and raise stands at those of `Client`.
    """

    def __init__(
        self,
        *urls: str,
        token: str | None = None,
        actor: str | None = None,
        tls: ssl.SSLContext | None = None,
        follow_leader: bool | None = None,
        settings: ClientSettings | None = None,
    ) -> None:
        super().__init__(self._running, lambda client: client)
        self._new_client = partial(
            Client, *urls, token=token, actor=actor, tls=tls, follow_leader=follow_leader, settings=settings
        )
        self._new_client()  # a wrong address is an error here, not at the first call
        self._lock = threading.Lock()
        self._made: Runtime | None = None
        self._is_closed = False
        self.schedules = BlockingSchedules(self._running, lambda client: client.schedules)
        self.workflows = BlockingWorkflows(self)
        self.dead_letters = BlockingDeadLetters(self._running, lambda client: client.dead_letters)
        _clients.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and end the thread. Calls under way end in an error; closing twice is fine."""
        with self._lock:
            made, self._made, self._is_closed = self._made, None, True
        if made is not None:
            made.close()

    def submit(self, name: str, payload: Any = None, **options: Unpack[JobOptions]) -> BlockingJob:
        """Submit one job and return its handle; see `Client.submit`."""
        runtime = self._running()
        return self._handle(runtime.run(runtime.client.submit(name, payload, **options)))

    def submit_many(self, jobs: Iterable[JobSpec | Mapping[str, Any]]) -> Sequence[BlockingJob | RaftschedError]:
        """Submit `jobs` and return what became of each; see `Client.submit_many`."""
        runtime = self._running()
        results = runtime.run(runtime.client.submit_many(jobs))
        return [result if isinstance(result, RaftschedError) else self._handle(result) for result in results]

    def job(self, job_id: str) -> BlockingJob:
        """Return the handle of a job, without I/O."""
        return BlockingJob(self, job_id)

    def queue(self, name: str) -> BlockingQueue:
        """Return the handle of a queue, without I/O."""
        return BlockingQueue(self._running, lambda client: client.queue(name))

    get = twin(Client.get)
    cancel = twin(Client.cancel)
    wait = twin(Client.wait)
    list = twin_each(Client.list)
    bulk = twin(Client.bulk)
    events = twin_each(Client.events)
    audit = twin_each(Client.audit)
    queues = twin(Client.queues)
    workers = twin(Client.workers)
    cluster = twin(Client.cluster)
    transfer_leadership = twin(Client.transfer_leadership)
    add_member = twin(Client.add_member)
    remove_member = twin(Client.remove_member)

    def _handle(self, job: Job) -> BlockingJob:
        return BlockingJob(self, job.id, duplicate=job.duplicate)

    def _running(self) -> Runtime:
        """The runtime of this process; made at the first call and after a fork."""
        made = self._made
        if made is not None:
            return made
        with self._lock:
            if self._is_closed:
                raise Unavailable("this client is closed")
            if self._made is None:
                self._made = Runtime(self._new_client())
            return self._made

    def _forked(self) -> None:
        """In the child of a fork: forget the parent's runtime, and a lock that another thread may have held."""
        if self._made is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._made))
        self._made = None
        self._lock = threading.Lock()


_clients: weakref.WeakSet[BlockingClient] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for client in _clients:
        client._forked()  # noqa: SLF001  # the same module


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
