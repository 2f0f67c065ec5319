from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

import pytest

from raftsched import Client
from raftsched.client import (
    BlockingClient,
    BlockingJob,
    BlockingWorkflowRun,
    Job,
    JobCancelled,
    Queue,
    Workflow,
    WorkflowRun,
)
from raftsched.client.blocking import Blocking, Runtime, blocking_each
from raftsched.client.bulk import BlockingDeadLetters, DeadLetters
from raftsched.client.queues import BlockingQueue
from raftsched.client.schedules import BlockingSchedules, Schedules
from raftsched.client.tenants import BlockingTenants, Tenants
from raftsched.client.workflows import BlockingWorkflows, Workflows
from raftsched.errors import Invalid, NotFound, QuotaExceeded, RaftschedError, Unavailable
from tests.client.cluster import QUICK, WAIT_SECONDS, Cluster, running_cluster
from tests.client.real import real_node

T = TypeVar("T")


class Served(Generic[T]):
    """What a context serves, on an event loop in a thread, for tests that block."""

    def __init__(self, context: AbstractAsyncContextManager[T]) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self._context = context
        self.served: T = self.run(context.__aenter__)

    def run(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Return what the coroutine function returns, on the loop of what is served."""
        return asyncio.run_coroutine_threadsafe(call(*arguments), self.loop).result(WAIT_SECONDS)

    def stop(self) -> None:
        self.run(self._context.__aexit__, None, None, None)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class ServedCluster(Served[Cluster]):
    """A cluster on an event loop in a thread."""

    def __init__(self) -> None:
        super().__init__(running_cluster())
        self.cluster = self.served
        self.url = self.cluster.nodes[0].url


@pytest.fixture
def served() -> Iterator[ServedCluster]:
    made = ServedCluster()
    yield made
    made.stop()


@pytest.fixture
def client(served: ServedCluster) -> Iterator[BlockingClient]:
    with Client.blocking(served.url, settings=QUICK) as opened:
        yield opened


def test_blocking_client_does_what_the_async_one_does(served: ServedCluster, client: BlockingClient) -> None:
    job = client.submit("sum", {"n": 1})
    assert job.get().name == "sum"
    stored = served.cluster.jobs[job.id]
    stored.status, stored.result = "completed", 3
    assert job.wait(timeout=WAIT_SECONDS) == 3
    other = client.submit("sum")
    assert other.cancel().status == "cancelled"
    with pytest.raises(JobCancelled):
        other.wait()
    with pytest.raises(NotFound):
        client.get("00000000-0000-7000-8000-999999999999")
    assert client.cluster()["leader"] == "n1"


def test_blocking_client_submits_many(served: ServedCluster, client: BlockingClient) -> None:
    good, bad = client.submit_many([{"name": "a"}, {"nome": "b"}])
    assert isinstance(good, BlockingJob)
    assert good.id in served.cluster.jobs
    assert isinstance(bad, Invalid)


def test_threads_share_a_client_and_each_gets_its_own_answer(served: ServedCluster, client: BlockingClient) -> None:
    def submit(number: int) -> tuple[int, str]:
        return number, client.submit("tick", number).id

    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(submit, range(200)))
    jobs = served.cluster.jobs
    assert len(jobs) == 200
    assert all(jobs[job_id].document["payload"] == number for number, job_id in answers)


def test_forked_child_uses_the_client_and_leaves_the_parents_connections_alone(
    served: ServedCluster, client: BlockingClient
) -> None:
    client.submit("parent", 1)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            client.submit("child", os.getpid())
            client.close()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    client.submit("parent", 2)
    assert os.waitstatus_to_exitcode(status) == 0
    documents = [job.document for job in served.cluster.jobs.values()]
    assert [document["name"] for document in documents] == ["parent", "child", "parent"]


def test_forked_child_that_ends_in_order_leaves_the_parents_loop_alone(
    served: ServedCluster, client: BlockingClient
) -> None:
    """Unlike `os._exit`, this runs the interpreter's last clean-up, and with it the finalisers of what was inherited."""
    client.submit("parent", 1)
    child = multiprocessing.get_context("fork").Process(target=_collect_everything, args=(client,))
    child.start()
    child.join(WAIT_SECONDS)
    assert child.exitcode == 0
    client.submit("parent", 2)
    sent = [job["name"] for body in served.cluster.bodies("/jobs/batch") for job in body["jobs"]]
    assert sent == ["parent", "child", "parent"]  # each once: no connection hung and was given up


def _collect_everything(client: BlockingClient) -> None:
    import gc

    client.submit("child")
    client.close()
    gc.collect()


def test_close_ends_the_calls_of_other_threads(served: ServedCluster) -> None:
    client = BlockingClient(served.url, settings=QUICK)
    job = client.submit("slow")
    ends: list[RaftschedError] = []

    def wait() -> None:
        try:
            job.wait()
        except RaftschedError as error:
            ends.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    served.run(served.cluster.until, lambda: served.cluster.nodes[0].seen.count(f"/jobs/{job.id}") >= 1)
    client.close()
    client.close()
    waiting.join(WAIT_SECONDS)
    assert [type(end) for end in ends] == [Unavailable]
    with pytest.raises(Unavailable):
        client.submit("late")


def test_interrupted_wait_cancels_its_call() -> None:
    runtime, is_cancelled = Runtime(Client()), threading.Event()

    async def interrupt_and_wait() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            is_cancelled.set()

    former = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            runtime.run(interrupt_and_wait())
    finally:
        signal.signal(signal.SIGINT, former)
    assert is_cancelled.wait(WAIT_SECONDS)
    runtime.close()


def test_wrong_address_is_refused_at_once() -> None:
    with pytest.raises(Invalid):
        BlockingClient("nonsense")


# -- the twin ---------------------------------------------------------------------------------------------------------


def _public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("inner", "blocking"),
    [
        (Client, BlockingClient),
        (Job, BlockingJob),
        (Schedules, BlockingSchedules),
        (Workflows, BlockingWorkflows),
        (WorkflowRun, BlockingWorkflowRun),
        (Queue, BlockingQueue),
        (DeadLetters, BlockingDeadLetters),
        (Tenants, BlockingTenants),
    ],
)
def test_twin_has_what_the_async_one_has(inner: type, blocking: type) -> None:
    only_async = {"blocking", "submit_each"} if inner is Client else {"job"} if inner is WorkflowRun else set()
    instance = {"name"} if inner is Queue else {"id", "duplicate"} if inner is Job else set()
    assert _public(inner) - _public(blocking) == only_async | instance
    own_text = {"submit", "submit_many", "http", "shell", "close", "job", "queue", "replay", "run"}
    shared = _public(inner) & _public(blocking) - own_text
    assert all(getattr(blocking, name).__doc__ == getattr(inner, name).__doc__ for name in shared)


@pytest.fixture
def real() -> Iterator[BlockingClient]:
    node = Served(real_node())
    with Client.blocking(node.served.api_url, settings=QUICK, actor="ops") as opened:
        yield opened
    node.stop()


def test_jobs_are_controlled_without_await(real: BlockingClient) -> None:
    job = real.submit("a", {"n": 1}, delay_seconds=60, tags=["x"])
    assert job.pause(reason="freeze").status == "paused"
    assert job.resume().status == "scheduled"
    assert job.update(priority=9).priority == 9
    assert [line.text for line in job.logs()] == []
    assert next(reason.code for reason in job.explain().reasons) == "not_due"
    clone = job.replay(payload=2)
    assert (clone.get().replay_of, clone.get().payload) == (job.id, 2)
    assert real.bulk("cancel", filter={"tag": "x"}).done == 2
    assert job.retry().run_id == f"{job.id}.2"
    assert "requeued" in [event.event for event in job.history().events]
    assert {entry.actor for entry in real.audit()} == {"ops"}
    assert list(real.dead_letters.list()) == []


def test_schedules_workflows_and_queues_are_used_without_await(real: BlockingClient) -> None:
    real.schedules.save("s", {"name": "a"}, every="1h")
    firing = real.schedules.trigger("s")
    assert [each.job_id for each in real.schedules.firings("s")] == [firing.job_id]
    assert [each.name for each in real.schedules.list()] == ["s"]
    workflow = Workflow("w")
    workflow.job("b", after=workflow.job("c"))
    run = real.workflows.submit(workflow)
    assert run.jobs["b"].get().status == "waiting_dependencies"
    run.cancel()
    assert [each.status for each in real.workflows.list()] == ["cancelled"]
    assert real.workflows.run(run.id).get().job_count == 2
    assert real.queue("mail").configure(concurrency=2).concurrency == 2
    assert real.queue("mail").get().settings.concurrency == 2


class Numbers:
    """Something with an iterator that must be ended."""

    def __init__(self) -> None:
        self.is_ended = False
        self.items: AsyncIterator[int] | None = None
        """Kept, so that no garbage collection ends it."""

    def each(self) -> AsyncIterator[int]:
        """Yield numbers without end."""
        self.items = self._numbers()
        return self.items

    async def _numbers(self) -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            self.is_ended = True


class BlockingNumbers(Blocking[Numbers]):
    each = blocking_each(Numbers.each)


def test_iterator_that_is_left_early_is_ended() -> None:
    numbers, runtime = Numbers(), Runtime(Client())
    iterator = BlockingNumbers(lambda: runtime, lambda _: numbers).each()
    assert next(iterator) == 1
    assert not numbers.is_ended
    iterator.close()  # type: ignore[attr-defined]  # it is a generator, as in `for … break`
    assert numbers.is_ended
    runtime.close()


def test_stream_of_events_is_left_at_will(real: BlockingClient) -> None:
    job = real.submit("a")
    for event in real.events(last_event_id="1-0"):
        assert (event.type, event.job_id) == ("job.created", job.id)
        break
    assert job.get().status == "queued"


def test_tenants_are_used_without_await(real: BlockingClient) -> None:
    assert real.tenants.configure("acme", unfinished_jobs=1, weight=2).unfinished_jobs == 1
    real.submit("a", tenant="acme")
    assert [(each.name, each.usage.unfinished_jobs) for each in real.tenants.list()] == [("acme", 1)]
    assert real.tenants.get("acme").weight == 2
    with pytest.raises(QuotaExceeded, match="unfinished_jobs of tenant acme") as caught:
        real.submit("a", tenant="acme")
    assert caught.value.retry_after_seconds > 0
    assert real.tenants.remove("acme").unfinished_jobs is None
    real.submit("a", tenant="acme")
