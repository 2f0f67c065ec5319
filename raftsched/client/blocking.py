"""The blocking twin of the client: the same calls without `await`, for scripts, threads and web frameworks.

It runs the asyncio client on an event loop in a thread of its own, so calls from many threads share one connection
pool and their submits travel together. The thread is a daemon: a program that forgets to close still ends.

Fork: a child must not touch the parent's loop or sockets, not even to close them, for they are the same to the
kernel, the loop's epoll set included. So the child drops the parent's runtime without running any finaliser (it is
leaked on purpose, once per fork) and makes its own, with its own idempotency keys, at its first call.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import ctypes
import os
import ssl
import threading
import weakref
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from raftsched.client.client import Client
from raftsched.client.jobs import Job, JobInfo, JobSpec, Priority, RetryPolicy
from raftsched.client.settings import ClientSettings
from raftsched.errors import RaftschedError, Unavailable

T = TypeVar("T")


class _Runtime:
    """An event loop in a daemon thread, and a client that lives on it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="raftsched-client", daemon=True)
        self._thread.start()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Return what `call` returns; interrupting the wait cancels it. Raises `Unavailable` once closed."""
        future = self._begin(call)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise Unavailable("this client was closed") from None
        finally:
            future.cancel()

    def close(self) -> None:
        """End the calls under way, the connections and the thread."""
        with self._lock:
            self._is_closed = True
            ended = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        ended.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _begin(self, call: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        with self._lock:
            if not self._is_closed:
                return asyncio.run_coroutine_threadsafe(call, self._loop)
        call.close()
        raise Unavailable("this client is closed")

    async def _end(self) -> None:
        await self.client.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others)


class BlockingJob:
    """A submitted job: its id, and the client that submitted it."""

    __slots__ = ("_client", "duplicate", "id")

    def __init__(self, client: BlockingClient, job: Job) -> None:
        self._client = client
        self.id = job.id
        self.duplicate = job.duplicate

    def __repr__(self) -> str:
        return f"BlockingJob({self.id!r})"

    def get(self) -> JobInfo:
        """Read the job as it stands now."""
        return self._client.get(self.id)

    def cancel(self) -> JobInfo:
        """Cancel it; see `Client.cancel`."""
        return self._client.cancel(self.id)

    def wait(self, timeout: float | None = None) -> Any:
        """Wait until it is finished and return its result; see `Client.wait`."""
        return self._client.wait(self.id, timeout)


class BlockingClient:
    """`Client` without `await`; safe to share between threads, and usable in a forked child.

    Use it as `with BlockingClient(url) as client`. What the calls promise and raise stands at those of `Client`.
    """

    def __init__(
        self,
        *urls: str,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        settings: ClientSettings | None = None,
    ) -> None:
        self._new_client = partial(Client, *urls, token=token, tls=tls, settings=settings)
        self._new_client()  # a wrong address is an error here, not at the first call
        self._lock = threading.Lock()
        self._runtime: _Runtime | None = None
        self._is_closed = False
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
            runtime, self._runtime, self._is_closed = self._runtime, None, True
        if runtime is not None:
            runtime.close()

    def submit(
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
    ) -> BlockingJob:
        """Submit one job and return its handle; see `Client.submit`."""
        runtime = self._running()
        job = runtime.run(
            runtime.client.submit(
                name,
                payload,
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
        )
        return BlockingJob(self, job)

    def submit_many(self, jobs: Iterable[JobSpec | Mapping[str, Any]]) -> Sequence[BlockingJob | RaftschedError]:
        """Submit `jobs` and return what became of each; see `Client.submit_many`."""
        runtime = self._running()
        results = runtime.run(runtime.client.submit_many(jobs))
        return [result if isinstance(result, RaftschedError) else BlockingJob(self, result) for result in results]

    def get(self, job_id: str) -> JobInfo:
        """Read a job as it stands now; see `Client.get`."""
        runtime = self._running()
        return runtime.run(runtime.client.get(job_id))

    def cancel(self, job_id: str) -> JobInfo:
        """Cancel a job; see `Client.cancel`."""
        runtime = self._running()
        return runtime.run(runtime.client.cancel(job_id))

    def wait(self, job_id: str, timeout: float | None = None) -> Any:
        """Wait until a job is finished and return its result; see `Client.wait`."""
        runtime = self._running()
        return runtime.run(runtime.client.wait(job_id, timeout))

    def list(self, **filters: Any) -> Iterator[JobInfo]:
        """Yield the jobs that match all filters; see `Client.list`."""
        runtime = self._running()
        pages = runtime.client.list(**filters)
        while (job := runtime.run(_next(pages))) is not None:
            yield job

    def queues(self) -> Sequence[dict[str, Any]]:
        """Return the queues and how many jobs of each status they hold."""
        runtime = self._running()
        return runtime.run(runtime.client.queues())

    def workers(self) -> Sequence[dict[str, Any]]:
        """Return the workers heard of lately."""
        runtime = self._running()
        return runtime.run(runtime.client.workers())

    def cluster(self) -> dict[str, Any]:
        """Return the leader, the term and the state of each node."""
        runtime = self._running()
        return runtime.run(runtime.client.cluster())

    def transfer_leadership(self) -> None:
        """Hand the lead over to the follower that is furthest."""
        runtime = self._running()
        runtime.run(runtime.client.transfer_leadership())

    def add_member(self, node_id: str, *, raft: str, api: str) -> Sequence[dict[str, Any]]:
        """Let a node join the cluster and return its nodes; `raft` and `api` are host:port, as the others reach it."""
        runtime = self._running()
        return runtime.run(runtime.client.add_member(node_id, raft=raft, api=api))

    def remove_member(self, node_id: str) -> Sequence[dict[str, Any]]:
        """Remove a node from the cluster for good, and return the nodes that are left."""
        runtime = self._running()
        return runtime.run(runtime.client.remove_member(node_id))

    def _running(self) -> _Runtime:
        """The runtime of this process; made at the first call and after a fork."""
        runtime = self._runtime
        if runtime is not None:
            return runtime
        with self._lock:
            if self._is_closed:
                raise Unavailable("this client is closed")
            if self._runtime is None:
                self._runtime = _Runtime(self._new_client())
            return self._runtime

    def _forked(self) -> None:
        """In the child of a fork: forget the parent's runtime, and a lock that another thread may have held."""
        if self._runtime is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._runtime))
        self._runtime = None
        self._lock = threading.Lock()


async def _next(jobs: AsyncIterator[JobInfo]) -> JobInfo | None:
    return await anext(jobs, None)


_clients: weakref.WeakSet[BlockingClient] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for client in _clients:
        client._forked()  # noqa: SLF001  # the same module


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
