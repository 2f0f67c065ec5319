"""The client of a cluster: submit jobs, read them, wait for them, cancel them.

Every call finds the leader by itself and is retried through elections and lost connections for `retry_seconds`. Each
submit carries an idempotency key, its own if the caller gives none, so that a retry never makes a second job.

What a caller can be told: a value = committed on the disks of a majority; `Invalid` or `Rejected` = nothing changed;
`Unavailable` = not accepted; `OutcomeUnknown` = it may or may not have happened, and submitting again with the same
key of one's own tells which.

Submits that are made at the same time travel together; see `gather`. Left out: a cache. Every read is the leader's.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import msgspec

from raftsched.client.connection import Connection
from raftsched.client.errors import JobCancelled, JobFailed
from raftsched.client.jobs import Job, JobInfo, JobSpec, Priority, RetryPolicy
from raftsched.client.keys import KeyFactory
from raftsched.client.nodes import Nodes
from raftsched.client.settings import ClientSettings
from raftsched.client.submits import Accepted, Submitter
from raftsched.errors import OutcomeUnknown, RaftschedError
from raftsched.ports import Clock, Randomness

if TYPE_CHECKING:
    from raftsched.client.blocking import BlockingClient

URL_DEFAULT = "http://127.0.0.1:8400"
_SUBMITS_AHEAD = 2_000
"""Jobs that `submit_each` has under way, so that a file of any size streams in bounded memory."""
_POLL_SECONDS_MIN = 0.02
_POLL_SECONDS_MAX = 2.0


class _Page(msgspec.Struct):
    jobs: list[JobInfo]
    next_cursor: str | None = None


_decode_job = msgspec.json.Decoder(JobInfo).decode
_decode_page = msgspec.json.Decoder(_Page).decode


class Client:
    """A client of the cluster that `urls` belong to; any of its nodes will do, several survive the loss of one.

    Use it as `async with Client(url) as client`, within one event loop. Opening does no I/O. `token` is the bearer
    token of the API; `tls` an ssl context for https addresses with a private authority.
    """

    def __init__(
        self,
        *urls: str,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        settings: ClientSettings | None = None,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        settings = settings or ClientSettings()
        nodes = Nodes(urls or (URL_DEFAULT,), avoid_seconds=settings.avoid_seconds)
        self._connection = Connection(nodes, settings, token=token, tls=tls, clock=clock, randomness=randomness)
        self._submitter = Submitter(self._connection)
        self._keys = KeyFactory(self._connection.clock, self._connection.randomness)

    @classmethod
    def blocking(
        cls,
        *urls: str,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        settings: ClientSettings | None = None,
    ) -> BlockingClient:
        """Return the twin of this client for code without an event loop."""
        from raftsched.client.blocking import BlockingClient

        return BlockingClient(*urls, token=token, tls=tls, settings=settings)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Submits under way end in `OutcomeUnknown`; closing twice is fine."""
        await self._submitter.close()
        await self._connection.close()

    # -- submit -------------------------------------------------------------------------------------------------------

    async def submit(
        self,
        name: str,
        payload: Any = None,
        *,
        queue: str | None = None,
        priority: Priority | None = None,
        run_at: datetime | str | None = None,
        delay_seconds: float | None = None,
        timeout_seconds: float | None = None,
        max_attempts: int | None = None,
        retry_policy: RetryPolicy | Mapping[str, Any] | None = None,
        tags: Sequence[str] | None = None,
        region: str | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """Submit one job and return its handle, once it is stored on the disks of a majority.

        What the arguments mean stands at `JobSpec`; those left out get the cluster's defaults. Raises `Invalid`
        naming the field (nothing was stored), `Rejected` with code `idempotency_mismatch`, `Unavailable` (nothing was
        stored) or `OutcomeUnknown`. Giving up waiting does not take the job back.
        """
        spec = JobSpec(
            name=name,
            payload=payload,
            queue=queue,
            priority=priority,
            run_at=run_at,
            delay_seconds=delay_seconds,
            timeout_seconds=timeout_seconds,
            max_attempts=max_attempts,
            retry_policy=retry_policy,
            tags=tags,
            region=region,
            idempotency_key=idempotency_key,
        )
        if self._submitter.is_full:
            await self._submitter.wait_for_room()
        accepted = await self._submitter.submit(spec.encoded(self._keys.next()))
        return Job(self, accepted.job_id, duplicate=accepted.is_duplicate)

    async def submit_many(self, jobs: Iterable[JobSpec | Mapping[str, Any]]) -> Sequence[Job | RaftschedError]:
        """Submit `jobs` and return what became of each, in their order: its handle, or why it was not stored.

        Each job is stored or refused on its own. `submit_each` does the same for more jobs than memory should hold.
        """
        return [result async for result in self.submit_each(jobs)]

    async def submit_each(self, jobs: Iterable[JobSpec | Mapping[str, Any]]) -> AsyncIterator[Job | RaftschedError]:
        """Yield what became of each of `jobs`, in order, reading only a bounded number of them ahead.

        An error of the iterable itself is raised once the jobs before it are stored or refused.
        """
        under_way: deque[asyncio.Future[Accepted] | RaftschedError] = deque()
        try:
            for job in jobs:
                if self._submitter.is_full:
                    await self._submitter.wait_for_room()
                under_way.append(self._started(job))
                if len(under_way) >= _SUBMITS_AHEAD:
                    yield await self._ended(under_way.popleft())
        except Exception:  # of the caller's iterable: what it gave so far is not left half done
            for submit in under_way:
                await self._ended(submit)
            raise
        while under_way:
            yield await self._ended(under_way.popleft())

    def _started(self, job: JobSpec | Mapping[str, Any]) -> asyncio.Future[Accepted] | RaftschedError:
        try:
            spec = job if isinstance(job, JobSpec) else JobSpec.read(job)
            return self._submitter.submit(spec.encoded(self._keys.next()))
        except RaftschedError as error:
            return error

    async def _ended(self, submit: asyncio.Future[Accepted] | RaftschedError) -> Job | RaftschedError:
        if isinstance(submit, RaftschedError):
            return submit
        try:
            accepted = await submit
        except RaftschedError as error:
            return error
        return Job(self, accepted.job_id, duplicate=accepted.is_duplicate)

    # -- one job ------------------------------------------------------------------------------------------------------

    async def get(self, job_id: str) -> JobInfo:
        """Read a job as it stands now; raises `NotFound`, `Invalid` for what is no id, `Unavailable`."""
        return _decode_job(await self._connection.call("GET", _job_path(job_id)))

    async def cancel(self, job_id: str) -> JobInfo:
        """Cancel a job and return it: `cancelled`, or `cancelling` while a worker is being told.

        Cancelling twice is fine. Raises `NotFound`, and `Rejected` with code `already_finished` where it ended before
        in another way; what is unchanged then is everything.
        """
        return _decode_job(await self._connection.call("DELETE", _job_path(job_id)))

    async def wait(self, job_id: str, timeout: float | None = None) -> Any:  # noqa: ASYNC109  # as asyncio.wait_for
        """Wait until the job is finished and return its result; None where it has none.

        Raises `JobFailed` or `JobCancelled` for another end and `TimeoutError` after `timeout` seconds; the job goes
        on then. It polls: at once, then ever less often, down to every 2 seconds.
        """
        pause = _POLL_SECONDS_MIN
        async with asyncio.timeout(timeout):
            while not (job := await self.get(job_id)).is_finished:
                await asyncio.sleep(pause * (0.75 + 0.5 * self._connection.randomness.random()))
                pause = min(pause * 1.5, _POLL_SECONDS_MAX)
        if job.status == "completed":
            return job.result
        raise JobCancelled(job) if job.status == "cancelled" else JobFailed(job)

    # -- many jobs, and the cluster -----------------------------------------------------------------------------------

    async def list(
        self,
        *,
        status: str | None = None,
        queue: str | None = None,
        name: str | None = None,
        page_size: int = 100,
        **filters: str,
    ) -> AsyncIterator[JobInfo]:
        """Yield the jobs that match all filters, page by page; a job that is added or changes meanwhile may be missed.

        `filters` are passed on as they are, for those of `GET /jobs` that have no argument of their own here.
        """
        chosen = {"status": status, "queue": queue, "name": name, **filters, "limit": str(page_size)}
        query = {key: value for key, value in chosen.items() if value is not None}
        while True:
            page = _decode_page(await self._connection.call("GET", "/jobs", query=query))
            for job in page.jobs:
                yield job
            if not page.next_cursor:
                return
            query["cursor"] = page.next_cursor

    async def queues(self) -> Sequence[dict[str, Any]]:
        """Return the queues and how many jobs of each status they hold."""
        return await self._read_list("/queues", "queues")

    async def workers(self) -> Sequence[dict[str, Any]]:
        """Return the workers heard of lately."""
        return await self._read_list("/workers", "workers")

    async def cluster(self) -> dict[str, Any]:
        """Return the leader, the term and the state of each node."""
        document: dict[str, Any] = msgspec.json.decode(await self._connection.call("GET", "/cluster"), type=dict)
        return document

    async def transfer_leadership(self) -> None:
        """Hand the lead over to the follower that is furthest."""
        await self._connection.call("POST", "/cluster/transfer", b"{}")

    async def add_member(self, node_id: str, *, raft: str, api: str) -> Sequence[dict[str, Any]]:
        """Let a node join the cluster and return its nodes; `raft` and `api` are host:port, as the others reach it."""
        body = msgspec.json.encode({"id": node_id, "raft": raft, "api": api})
        return _nodes(await self._connection.call("POST", "/cluster/members", body))

    async def remove_member(self, node_id: str) -> Sequence[dict[str, Any]]:
        """Remove a node from the cluster for good, and return the nodes that are left."""
        return _nodes(await self._connection.call("DELETE", f"/cluster/members/{quote(node_id, safe='')}"))

    async def _read_list(self, path: str, key: str) -> Sequence[dict[str, Any]]:
        body = await self._connection.call("GET", path)
        documents = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        if key not in documents:
            raise OutcomeUnknown(f"{path}: the reply has no {key}")
        return msgspec.json.decode(documents[key], type=list[dict[str, Any]])


def _nodes(body: bytes) -> Sequence[dict[str, Any]]:
    document: dict[str, Any] = msgspec.json.decode(body, type=dict)
    nodes: list[dict[str, Any]] = document["nodes"]
    return nodes


def _job_path(job_id: str) -> str:
    return f"/jobs/{quote(job_id, safe='')}"
