"""Provide the client of a cluster: jobs, schedules, workflows, queues and events.

Every call finds the leader by itself, and is retried through elections and lost connections for `retry_seconds`. Each
submit carries an idempotency key, the caller's or a generated one, so that a retry never creates a second job.

A call has one of these ends. A value: committed on the disks of a majority. `Invalid` or `Rejected`: nothing changed.
`Unavailable`: not accepted. `OutcomeUnknown`: it may have happened; if the caller gave the key, submitting again with
it finds out.

Submits that are made at the same time share a request; see `gather`. There is no cache: by default the leader answers
every read.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack

import msgspec

from raftsched.client.asked_node import AskedNode
from raftsched.client.blocking import Blocking, ProcessRuntime, blocking, blocking_each
from raftsched.client.bulk import ActionFields, BlockingDeadLetters, DeadLetters, JobFilter, ListFilters, send_all
from raftsched.client.events import event_stream
from raftsched.client.http.calls import KEY_HEADER, Calls, given, part
from raftsched.client.http.client_tls import ClientCertificate, client_tls
from raftsched.client.http.connection import Connection
from raftsched.client.http.idempotency_keys import KeyFactory
from raftsched.client.http.nodes import Nodes
from raftsched.client.http.settings import ClientSettings
from raftsched.client.jobs import BlockingJob, Job
from raftsched.client.kinds import HttpOptions, ShellOptions, http_job, shell_job
from raftsched.client.queues import BlockingQueue, Queue
from raftsched.client.records import AuditEntry, BulkResult, Caller, Event, JobInfo, Overview
from raftsched.client.schedules import BlockingSchedules, Schedules
from raftsched.client.specs import JobOptions, JobSpec
from raftsched.client.submit import Accepted, Submitter
from raftsched.client.tenants import BlockingTenants, Tenants
from raftsched.client.tokens import BlockingTokens, Tokens
from raftsched.client.workers import BlockingWorkerHandle, WorkerHandle
from raftsched.client.workflows import BlockingWorkflows, Workflows
from raftsched.errors import OutcomeUnknown, RaftschedError
from raftsched.exchange import Http
from raftsched.limits import PAGE_QUEUES_MAX
from raftsched.ports import Clock, Randomness
from raftsched.tracing import current_traceparent, span
from raftsched.wire.verbs import JOB, Action

T = TypeVar("T")
URL_DEFAULT = "http://127.0.0.1:8400"
_SUBMITS_AHEAD = 2_000
"""Maximum number of unanswered submits of `submit_each`, so that a file of any size streams in bounded memory."""


class Client:
    """A client of the cluster to which `urls` belong. One URL is enough; several tolerate the loss of a node.

    Use it as `async with Client(url) as client`, within one event loop; in another one it raises `RuntimeError`.
    Opening does no I/O. `token` is the token of the API, by default that of RAFTSCHED_TOKEN or RAFTSCHED_TOKEN_FILE.
    `tenant` is the tenant to act for, with a token of all tenants. `actor` is the name shown in histories and the audit
    trail, if the cluster has no tokens. `ca_file` has the authorities that certify https addresses, in PEM: by default
    those of RAFTSCHED_CA_FILE, or of the system. `client_certificate` is (certificate, key), two files in PEM by which
    the cluster recognises this client, by default those of RAFTSCHED_CLIENT_CERT and RAFTSCHED_CLIENT_KEY. Changed files
    are used for new connections. `tls` is an ssl context in place of both. Other nodes of the cluster are asked too, once
    they answer from here; with `follow_leader=False` only `urls` are, for example behind a load balancer.
    """

    def __init__(
        self,
        *urls: str,
        token: str | None = None,
        tenant: str | None = None,
        actor: str | None = None,
        ca_file: str | Path | None = None,
        client_certificate: ClientCertificate | None = None,
        tls: ssl.SSLContext | None = None,
        follow_leader: bool | None = None,
        settings: ClientSettings | None = None,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
        http: Http | None = None,
    ) -> None:
        settings = settings or ClientSettings()
        if follow_leader is not None:
            settings = replace(settings, follow_leader=follow_leader)
        nodes = Nodes(
            urls or (URL_DEFAULT,), avoid_seconds=settings.avoid_seconds, follow_leader=settings.follow_leader
        )
        if http is None:
            tls = client_tls(tls, ca_file=ca_file, client_certificate=client_certificate)
        self._connection = Connection(
            nodes,
            settings,
            token=token,
            tenant=tenant,
            actor=actor,
            tls=tls,
            clock=clock,
            randomness=randomness,
            http=http,
        )
        self._submitter = Submitter(self._connection)
        self._keys = KeyFactory(self._connection.clock, self._connection.randomness)
        self._calls = Calls(self._connection, self._keys)
        self.schedules = Schedules(self._calls)
        self.workflows = Workflows(self._calls)
        self.dead_letters = DeadLetters(self._calls)
        self.tenants = Tenants(self._calls)
        self.tokens = Tokens(self._calls)
        self.asked_node = AskedNode(self._calls)

    @classmethod
    def blocking(
        cls,
        *urls: str,
        token: str | None = None,
        tenant: str | None = None,
        actor: str | None = None,
        ca_file: str | Path | None = None,
        client_certificate: ClientCertificate | None = None,
        tls: ssl.SSLContext | None = None,
        follow_leader: bool | None = None,
        settings: ClientSettings | None = None,
    ) -> BlockingClient:
        """Return a blocking client, for code without an event loop."""
        return BlockingClient(
            *urls,
            token=token,
            tenant=tenant,
            actor=actor,
            ca_file=ca_file,
            client_certificate=client_certificate,
            tls=tls,
            follow_leader=follow_leader,
            settings=settings,
        )

    async def __aenter__(self) -> Self:
        self._connection.bind()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Submits in progress end in `OutcomeUnknown`; closing twice is fine."""
        await self._submitter.close()
        await self._connection.close()

    # -- submit -------------------------------------------------------------------------------------------------------

    async def submit(self, name: str, payload: Any = None, **options: Unpack[JobOptions]) -> Job:
        """Submit one job and return its handle, once it is stored on the disks of a majority.

        `JobOptions` describes the options; omitted ones have the cluster's defaults. Raises `Invalid` naming the field
        (nothing was stored), `Rejected` with code `idempotency_mismatch`, `unique_conflict` (its `job_id` is the
        existing job) or `unknown_dependency`, `Unavailable` (nothing was stored) or `OutcomeUnknown`. Cancelling this
        call does not cancel the job.
        """
        return await self._submit(JobSpec(name=name, payload=payload, **options))

    async def http(self, url: str, *, name: str = "", **options: Unpack[HttpOptions]) -> Job:
        """Submit a request to `url`, which an executor sends, and return its handle; see `submit`.

        `HttpOptions` describes the options. The job's name and queue are `http` by default. `JobInfo.http` is the
        request, and the result has its `status`, some `headers` and the beginning of the `body`.
        """
        return await self._submit(http_job(url, name=name, **options))

    async def shell(self, argv: Sequence[str], *, name: str = "", **options: Unpack[ShellOptions]) -> Job:
        """Submit the command `argv`, which a worker started with `--shell` runs, and return its handle; see `submit`.

        `ShellOptions` describes the options. The job's name and queue are `shell` by default. No shell reads `argv`,
        unless it names one. The output is in the log of the attempt, and `JobInfo.shell` is the command.
        """
        return await self._submit(shell_job(argv, name=name, **options))

    async def _submit(self, spec: JobSpec) -> Job:
        if self._submitter.is_full:
            await self._submitter.wait_for_capacity()
        name = spec.name or ("http" if spec.http else "shell")
        attributes = {"messaging.destination.name": spec.queue or name}
        with span(f"submit {name}", "PRODUCER", attributes=attributes):
            accepted = await self._submitter.submit(self._encoded(spec))
        return Job(self._calls, accepted.job_id, duplicate=accepted.is_duplicate)

    async def submit_many(self, jobs: Iterable[JobSpec | Mapping[str, Any]]) -> Sequence[Job | RaftschedError]:
        """Submit `jobs` and return for each, in order, its handle or the error.

        Each job is stored or rejected on its own. Use `submit_each` for more jobs than memory should hold.
        """
        return [result async for result in self.submit_each(jobs)]

    async def submit_each(self, jobs: Iterable[JobSpec | Mapping[str, Any]]) -> AsyncIterator[Job | RaftschedError]:
        """Submit `jobs` and yield for each, in order, its handle or the error.

        It reads a bounded number of jobs ahead. An error of the iterable is raised once the jobs before it are stored
        or rejected.
        """
        under_way: deque[asyncio.Future[Accepted] | RaftschedError] = deque()
        try:
            for job in jobs:
                if self._submitter.is_full:
                    await self._submitter.wait_for_capacity()
                under_way.append(self._started(job))
                if len(under_way) >= _SUBMITS_AHEAD:
                    yield await self._ended(under_way.popleft())
        except Exception:  # of the caller's iterable: finish the jobs that it gave so far
            for submit in under_way:
                await self._ended(submit)
            raise
        while under_way:
            yield await self._ended(under_way.popleft())

    def _started(self, job: JobSpec | Mapping[str, Any]) -> asyncio.Future[Accepted] | RaftschedError:
        try:
            spec = job if isinstance(job, JobSpec) else JobSpec.read(job)
            return self._submitter.submit(self._encoded(spec))
        except RaftschedError as error:
            return error

    def _encoded(self, spec: JobSpec) -> bytes:
        """Return a job with a key and with the current span, if it has none of its own."""
        if spec.traceparent is None and (traceparent := current_traceparent()):
            spec = spec.in_span(traceparent)
        return spec.encoded(self._keys.next())

    async def _ended(self, submit: asyncio.Future[Accepted] | RaftschedError) -> Job | RaftschedError:
        if isinstance(submit, RaftschedError):
            return submit
        try:
            accepted = await submit
        except RaftschedError as error:
            return error
        return Job(self._calls, accepted.job_id, duplicate=accepted.is_duplicate)

    # -- one job ------------------------------------------------------------------------------------------------------

    def job(self, job_id: str) -> Job:
        """Return the handle of a job, without I/O; it has all actions on a job."""
        return Job(self._calls, job_id)

    async def get(self, job_id: str) -> JobInfo:
        """Read a job; raises `NotFound`, `Invalid` for an invalid id, `Unavailable`."""
        return await self.job(job_id).get()

    async def cancel(self, job_id: str, *, force: bool = False) -> JobInfo:
        """Cancel a job and return it; see `Job.cancel`."""
        return await self.job(job_id).cancel(force=force)

    async def wait(self, job_id: str, timeout: float | None = None) -> Any:  # noqa: ASYNC109  # as asyncio.wait_for
        """Wait until the job is finished and return its result; see `Job.wait`."""
        return await self.job(job_id).wait(timeout)

    # -- many jobs -----------------------------------------------------------------------------------------------------

    def list(
        self,
        *,
        status: str | Sequence[str] | None = None,
        queue: str | None = None,
        name: str | None = None,
        page_size: int = 100,
        **filters: Unpack[ListFilters],
    ) -> AsyncIterator[JobInfo]:
        """Yield the jobs that match all filters, page by page; a job that is added or changes meanwhile may be missed.

        Raises `Invalid` naming an unknown filter.
        """
        query = {"status": status, "queue": queue, "name": name, **filters, "limit": page_size}
        return self._calls.each(JobInfo, "/jobs", "jobs", query)

    async def bulk(
        self,
        action: Action,
        *,
        ids: Sequence[str] | None = None,
        filter: JobFilter | Mapping[str, Any] | None = None,  # noqa: A002  # the word of the API
        all: bool = False,  # noqa: A002  # as above
        dry_run: bool = False,
        jobs_max: int | None = None,
        cursor: str | None = None,
        idempotency_key: str | None = None,
        **fields: Unpack[ActionFields],
    ) -> BulkResult:
        """Apply `action` to the jobs selected by exactly one of `ids`, `filter` and `all`; `dry_run` only counts them.

        Each job is changed or not on its own. It stops once `jobs_max` or more were found; the same call with `cursor`,
        the `next_cursor` of the result, continues. Raises `Invalid`, also for an empty filter. Raises `Unavailable` or
        `OutcomeUnknown` if it could not finish: repeat the same call for the rest.
        """
        selected = given(ids=ids, filter=filter, cursor=cursor)
        document = selected | {"action": action, "all": all, "dry_run": dry_run, **fields}
        headers = {KEY_HEADER: idempotency_key or self._keys.next()} if JOB[action].is_keyed else {}
        return await send_all(self._calls, "/jobs/bulk", document, headers, jobs_max=jobs_max)

    def queue(self, name: str) -> Queue:
        """Return the handle of a queue, without I/O."""
        return Queue(self._calls, name)

    def worker(self, name: str) -> WorkerHandle:
        """Return the handle of a worker that asks the cluster for jobs, without I/O."""
        return WorkerHandle(self._calls, name)

    # -- events -------------------------------------------------------------------------------------------------------

    def events(
        self,
        *,
        types: Sequence[str] | None = None,
        queue: str | None = None,
        job: str | None = None,
        tenant: str | None = None,
        last_event_id: str | None = None,
    ) -> AsyncIterator[Event]:
        """Yield committed changes without end, from now on or after the event `last_event_id`.

        `types` are whole types (`job.completed`) or nouns (`job`). If a node is lost, the stream continues at another
        one without a gap; if there is a gap, it yields an event `reset` first. Raises `Unavailable` if no node serves
        the stream for `retry_seconds`.
        """
        stream = event_stream(
            self._connection, types=types, queue=queue, job=job, tenant=tenant, last_event_id=last_event_id
        )
        return stream.events()

    def audit(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        subject: str | None = None,
        tenant: str | None = None,
        order: Literal["asc", "desc"] = "desc",
        page_size: int = 100,
    ) -> AsyncIterator[AuditEntry]:
        """Yield audit entries, the latest first; `action` and `subject` are given as a whole, or as the noun alone."""
        query = given(actor=actor, action=action, subject=subject, tenant=tenant, order=order, limit=page_size)
        return self._calls.each(AuditEntry, "/audit", "entries", query)

    async def page(
        self, kind: type[T], path: str, field: str, query: Mapping[str, Any] | None = None
    ) -> tuple[Sequence[T], str | None]:
        """Read one page of a list: the items in `field` of the reply to GET `path`, and the cursor of the next page.

        `query` has the filters, `limit` and `cursor`. The cursor is None at the end of the list.
        """
        return await self._calls.page(kind, path, field, query or {})

    # -- the cluster --------------------------------------------------------------------------------------------------

    async def queues(self) -> Sequence[dict[str, Any]]:
        """Return the queues, each with the number of its jobs by status."""
        query = {"limit": PAGE_QUEUES_MAX}
        return [queue async for queue in self._calls.each(dict[str, Any], "/queues", "queues", query)]

    async def overview(self) -> Overview:
        """Read how much there is to do, the queues that need a look, and the dead letters by reason."""
        return await self._calls.call(Overview, "GET", "/overview")

    async def workers(self) -> Sequence[dict[str, Any]]:
        """Return the workers that made a request lately."""
        return await self._read_list("/workers", "workers")

    async def cluster(self) -> dict[str, Any]:
        """Return the leader, the term and the state of each node."""
        document: dict[str, Any] = msgspec.json.decode(await self._connection.call("GET", "/cluster"), type=dict)
        return document

    async def whoami(self) -> Caller:
        """Read which token this client has, and what it may do. Raises `Rejected` with code `unauthorized`."""
        return await self._calls.call(Caller, "GET", "/whoami", has_consistency=False)

    async def transfer_leadership(self, to: str | None = None) -> None:
        """Transfer leadership to the follower with the most complete log, or to the voter `to`."""
        await self._connection.call("POST", "/cluster/transfer", msgspec.json.encode({"to": to} if to else {}))

    async def add_member(self, node_id: str, *, raft: str, api: str) -> Sequence[dict[str, Any]]:
        """Add a node to the cluster and return all nodes; `raft` and `api` are its host:port for the other nodes."""
        body = msgspec.json.encode({"id": node_id, "raft": raft, "api": api})
        return _nodes(await self._connection.call("POST", "/cluster/members", body))

    async def remove_member(self, node_id: str) -> Sequence[dict[str, Any]]:
        """Remove a node from the cluster permanently, and return the remaining nodes."""
        return _nodes(await self._connection.call("DELETE", f"/cluster/members/{part(node_id, field='node_id')}"))

    async def _read_list(self, path: str, key: str) -> Sequence[dict[str, Any]]:
        body = await self._connection.call("GET", path, query=self._calls.freshness)
        documents = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        if key not in documents:
            raise OutcomeUnknown(f"{path}: the reply has no {key}")
        return msgspec.json.decode(documents[key], type=list[dict[str, Any]])


class BlockingClient(Blocking[Client]):
    """`Client` without `await`; safe to share between threads, and usable in a forked child.

    Use it as `with BlockingClient(url) as client`. The methods of `Client` say what a call promises and raises.
    """

    def __init__(
        self,
        *urls: str,
        token: str | None = None,
        tenant: str | None = None,
        actor: str | None = None,
        ca_file: str | Path | None = None,
        client_certificate: ClientCertificate | None = None,
        tls: ssl.SSLContext | None = None,
        follow_leader: bool | None = None,
        settings: ClientSettings | None = None,
    ) -> None:
        new_client = partial(
            Client,
            *urls,
            token=token,
            tenant=tenant,
            actor=actor,
            ca_file=ca_file,
            client_certificate=client_certificate,
            tls=tls,
            follow_leader=follow_leader,
            settings=settings,
        )
        new_client()  # a wrong address is an error here, not at the first call
        self._process_runtime = runtime = ProcessRuntime(new_client)
        super().__init__(runtime, lambda client: client)
        self.schedules = BlockingSchedules(runtime, lambda client: client.schedules)
        self.workflows = BlockingWorkflows(runtime, lambda client: client.workflows)
        self.dead_letters = BlockingDeadLetters(runtime, lambda client: client.dead_letters)
        self.tenants = BlockingTenants(runtime, lambda client: client.tenants)
        self.tokens = BlockingTokens(runtime, lambda client: client.tokens)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and end the thread. Calls under way end in an error; closing twice is fine."""
        self._process_runtime.close()

    def submit(self, name: str, payload: Any = None, **options: Unpack[JobOptions]) -> BlockingJob:
        """Submit one job and return its handle; see `Client.submit`."""
        return self._submit(lambda client: client.submit(name, payload, **options))

    def http(self, url: str, *, name: str = "", **options: Unpack[HttpOptions]) -> BlockingJob:
        """Submit an HTTP request and return its handle; see `Client.http`."""
        return self._submit(lambda client: client.http(url, name=name, **options))

    def shell(self, argv: Sequence[str], *, name: str = "", **options: Unpack[ShellOptions]) -> BlockingJob:
        """Submit a command and return its handle; see `Client.shell`."""
        return self._submit(lambda client: client.shell(argv, name=name, **options))

    def _submit(self, submit: Callable[[Client], Coroutine[Any, Any, Job]]) -> BlockingJob:
        runtime = self._process_runtime()
        return self._handle(runtime.run(submit(runtime.client)))

    def submit_many(self, jobs: Iterable[JobSpec | Mapping[str, Any]]) -> Sequence[BlockingJob | RaftschedError]:
        """Submit `jobs` and return what became of each; see `Client.submit_many`."""
        runtime = self._process_runtime()
        results = runtime.run(runtime.client.submit_many(jobs))
        return [result if isinstance(result, RaftschedError) else self._handle(result) for result in results]

    def job(self, job_id: str) -> BlockingJob:
        """Return the handle of a job, without I/O."""
        return BlockingJob(self._runtime, job_id)

    def queue(self, name: str) -> BlockingQueue:
        """Return the handle of a queue, without I/O."""
        return BlockingQueue(self._runtime, lambda client: client.queue(name))

    def worker(self, name: str) -> BlockingWorkerHandle:
        """Return the handle of a worker that asks the cluster for jobs, without I/O."""
        return BlockingWorkerHandle(self._runtime, lambda client: client.worker(name))

    get = blocking(Client.get)
    cancel = blocking(Client.cancel)
    wait = blocking(Client.wait)
    list = blocking_each(Client.list)
    bulk = blocking(Client.bulk)
    events = blocking_each(Client.events)
    audit = blocking_each(Client.audit)
    queues = blocking(Client.queues)
    overview = blocking(Client.overview)
    workers = blocking(Client.workers)
    cluster = blocking(Client.cluster)
    page = blocking(Client.page)
    whoami = blocking(Client.whoami)
    transfer_leadership = blocking(Client.transfer_leadership)
    add_member = blocking(Client.add_member)
    remove_member = blocking(Client.remove_member)

    def _handle(self, job: Job) -> BlockingJob:
        return BlockingJob(self._runtime, job.id, duplicate=job.duplicate)


def _nodes(body: bytes) -> Sequence[dict[str, Any]]:
    document: dict[str, Any] = msgspec.json.decode(body, type=dict)
    nodes: list[dict[str, Any]] = document["nodes"]
    return nodes
