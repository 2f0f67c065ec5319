"""Real node and worker processes, driven through the CLI and HTTP, and checked when they have stopped."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from raftsched.cli.local.children import UNTIL_STDIN_ENDS, lifeline
from raftsched.cli.local.cluster import LocalCluster, LocalNode
from raftsched.cli.terminal.keys import cipher_of
from raftsched.client import BlockingClient
from raftsched.node.check import check_directory
from tests import tiers

FAST = {"lease_seconds": 2.0, "cancel_grace_seconds": 2.0, "log_level": "info"}
"""Settings under which a lost worker is noticed within seconds."""

StartCluster = Callable[..., LocalCluster]
SharedCluster = Callable[..., LocalCluster]
StartWorker = Callable[..., "subprocess.Popen[bytes]"]


def has_line(file: Path) -> bool:
    """Return whether a handler has written a whole line there: the file is there a moment before."""
    return file.exists() and file.read_text().endswith("\n")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is an acceptance test, and run these last: the clusters that they share run until all tests have ended."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.acceptance)
    items.sort(key=lambda item: item.get_closest_marker("acceptance") is not None)


def run_cli(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `raftsched …` as a user would."""
    return subprocess.run(
        [sys.executable, "-m", "raftsched", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def start_cluster(tmp_path: Path) -> Iterator[StartCluster]:
    """Start clusters that the test has for itself, because it changes members, settings or data.

    After the test they are stopped, and each node's data must pass what `raftsched check` looks at.
    """
    with ExitStack() as stack:

        def start(node_count: int = 3, *, with_tokens: bool = False, **settings: Any) -> LocalCluster:
            directory = tmp_path / f"cluster{len(list(tmp_path.iterdir()))}"
            made = LocalCluster(directory, node_count=node_count, settings=FAST | settings, with_tokens=with_tokens)
            return stack.enter_context(checked(made))

        yield start


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedCluster]:
    """Return the cluster with these settings, which is started when the first test asks for it."""
    clusters: dict[str, LocalCluster] = {}
    stack = ExitStack()

    def shared(**settings: Any) -> LocalCluster:
        key = repr(sorted(settings.items()))
        if key not in clusters:
            directory = tmp_path_factory.mktemp("shared") / "cluster"
            with tiers.shared():
                clusters[key] = stack.enter_context(checked(LocalCluster(directory, settings=FAST | settings)))
        return clusters[key]

    yield shared
    with tiers.shared():
        stack.close()


@pytest.fixture
def cluster(request: pytest.FixtureRequest, shared_cluster: SharedCluster) -> Iterator[LocalCluster]:
    """One cluster for all tests, each of which keeps to its own queues, names and tenants.

    A module that needs other settings than `FAST` has them in `SETTINGS`. A test may kill and pause nodes: they are
    started and continued after it. A node that ended in another way fails the test.
    """
    shared = shared_cluster(**getattr(request.module, "SETTINGS", {}))
    yield shared
    ended = [node.last_words() for node in shared.nodes if _exit_code(node) not in (None, 0, -signal.SIGKILL)]
    killed = [node for node in shared.nodes if not node.is_running]
    for node in shared.nodes:
        node.signal(signal.SIGCONT)
    shared.start()
    for node in killed:  # or the next test would find nobody at its address
        shared.wait_until_ready(node)
    assert ended == []


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A queue that no other test uses."""
    return re.sub(r"\W+", "-", request.node.name)[:100]


def _exit_code(node: LocalNode) -> int | None:
    """Return the exit code of a node; None if it runs."""
    return node.process.poll() if node.process else None


@contextmanager
def checked(cluster: LocalCluster) -> Iterator[LocalCluster]:
    with cluster:
        cluster.wait_for_leader()
        yield cluster
        _assert_replicas_agree(cluster)
    keys_file = tomllib.loads(cluster.config.read_text()).get("encryption", {}).get("keys_file")
    cipher = cipher_of(Path(keys_file) if keys_file else None)
    for node in cluster.nodes:
        assert check_directory(node.data_directory, cipher).violations == ()


def _assert_replicas_agree(cluster: LocalCluster) -> None:
    """Once the dust has settled, every node by itself answers the same for every job; one that can't answer yet will."""
    running = [node for node in cluster.nodes if node.is_running]

    def listing(index: int) -> list[Any]:
        jobs: list[Any] = []
        cursor = ""
        while True:
            page = running[index].get(f"/api/v1/jobs?consistency=stale&limit=1000{cursor}", timeout=10)
            jobs += page["jobs"]
            if not page.get("next_cursor"):
                return jobs
            cursor = f"&cursor={page['next_cursor']}"

    def agree() -> bool:
        try:
            first = listing(0)
            return all(listing(index) == first for index in range(1, len(running)))
        except OSError:
            return False

    cluster.wait_until(agree, what="all nodes to agree about every job")


@pytest.fixture
def start_worker(tmp_path: Path, queue: str) -> Iterator[StartWorker]:
    """Start worker processes that run `tests.acceptance.handlers`, of the queue of the test unless it says otherwise, or
    what `arguments` of the command say.

    They are killed after the test, and gone when it is killed.
    """
    started: list[subprocess.Popen[bytes]] = []

    def start(cluster: LocalCluster, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        app = [*(arguments or ("--app", "tests.acceptance.handlers:worker")), UNTIL_STDIN_ENDS]
        told = {"RAFTSCHED_URL": " ".join(cluster.urls), "TEST_DIRECTORY": str(tmp_path), "TEST_QUEUES": queue}
        log = (tmp_path / f"worker{len(started)}.log").open("ab")
        process = subprocess.Popen(
            [sys.executable, "-m", "raftsched", "worker", *app],
            env=os.environ | told | environment,
            cwd=Path(__file__).parents[2],
            stdin=lifeline(),
            stdout=log,
            stderr=log,
            process_group=0,  # as nodes have: without us the kernel ends a paused worker, which reads nothing
        )
        log.close()
        started.append(process)
        return process

    yield start
    for process in started:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


@pytest.fixture
def client_of() -> Iterator[Callable[[LocalCluster], BlockingClient]]:
    with ExitStack() as stack:
        yield lambda cluster: stack.enter_context(BlockingClient(*cluster.urls))
