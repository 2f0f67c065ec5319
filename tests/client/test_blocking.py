from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from raftsched import Client
from raftsched.client import BlockingClient, BlockingJob, JobCancelled
from raftsched.errors import Invalid, NotFound, RaftschedError, Unavailable
from tests.client.cluster import QUICK, WAIT_SECONDS, Cluster, running_cluster

T = TypeVar("T")


class ServedCluster:
    """A cluster on an event loop in a thread, for tests that block."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self._context = running_cluster()
        self.cluster: Cluster = self.run(self._context.__aenter__)
        self.url = self.cluster.nodes[0].url

    def run(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Return what the coroutine function returns, on the loop of the cluster."""
        return asyncio.run_coroutine_threadsafe(call(*arguments), self.loop).result(WAIT_SECONDS)

    def stop(self) -> None:
        self.run(self._context.__aexit__, None, None, None)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


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


def test_wrong_address_is_refused_at_once() -> None:
    with pytest.raises(Invalid):
        BlockingClient("nonsense")
