"""A node ends on SIGTERM, whatever hangs in it, and says what did not stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from raftsched.cli.local.cluster import LocalCluster, LocalNode
from tests.acceptance.http import call_once
from tests.drills import freezes

HANGING_DISK = """
import os, pathlib, time

HERE = pathlib.Path(__file__).parent
fdatasync, write = os.fdatasync, os.write


def is_segment(descriptor):
    return os.readlink(f"/proc/self/fd/{descriptor}").endswith(".segment")


def held(name):
    while (HERE / name).exists():
        (HERE / f"{name} is held").touch()
        time.sleep(0.02)


def hanging_fdatasync(descriptor):
    if is_segment(descriptor):
        held("hang syncs")
    fdatasync(descriptor)


def hanging_write(descriptor, data):
    if is_segment(descriptor):
        held("hang writes")
    return write(descriptor, data)


os.fdatasync, os.write = hanging_fdatasync, hanging_write
"""
"""A disk that takes no more: syncs hang in their thread, writes in the event loop."""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    """A cluster of one node, whose disk hangs once a file of `tmp_path` says so."""
    (tmp_path / "sitecustomize.py").write_text(HANGING_DISK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with LocalCluster(tmp_path / "nodes", node_count=1) as cluster:
        cluster.wait_for_leader()
        yield cluster
        cluster.kill()


@contextmanager
def hanging(cluster: LocalCluster, what: str) -> Iterator[LocalNode]:
    """Let the node's disk hang, with a write of the journal in it."""
    node, switch = cluster.nodes[0], cluster.directory.parent / what

    def submit() -> None:
        with suppress(OSError):
            call_once(node.api, "POST", "/api/v1/jobs", {"name": "n"}, timeout=20)

    switch.touch()
    submitting = threading.Thread(target=submit)
    submitting.start()
    cluster.wait_until(switch.with_name(f"{what} is held").exists, what="the disk to hang")
    yield node
    submitting.join()


def events(node: LocalNode) -> list[str]:
    return [msgspec.json.decode(line)["event"] for line in node.log_file.read_text().splitlines()]


def test_a_node_ends_on_sigterm_in_order(cluster: LocalCluster) -> None:
    node = cluster.nodes[0]
    assert node.stop() == 0
    assert events(node)[-1] == "node_stopped"


@pytest.mark.parametrize("what", ["hang syncs", "hang writes"])
def test_a_node_whose_disk_hangs_ends_on_sigterm_and_says_what_did_not_stop(cluster: LocalCluster, what: str) -> None:
    """With a sync that hangs the loop is free; with a write that hangs it stands still, and only a thread is left."""
    with hanging(cluster, what) as node:
        node.signal(signal.SIGTERM)
        assert node.wait(30) == 70
    assert "stop_incomplete" in node.last_words()
    if what == "hang syncs":
        assert "stop_step_given_up" in events(node)
    else:
        assert events(node)[-1] == "node_ended_by_force"
        assert "hanging_write" in node.last_words()


@pytest.mark.parametrize("what", ["hang syncs", "hang writes"])
def test_a_second_sigterm_ends_a_node_that_hangs_at_once(cluster: LocalCluster, what: str) -> None:
    with hanging(cluster, what) as node:
        node.signal(signal.SIGTERM)
        node.signal(signal.SIGTERM)
        while node.is_running:  # the first one may still be waiting to be heard: two of a kind count as one then
            node.signal(signal.SIGTERM)
            with suppress(Exception):
                node.wait(0.1)
        assert node.wait() == -signal.SIGTERM


def test_nodes_that_are_frozen_while_links_are_dialed_live_serve_and_end(tmp_path: Path) -> None:
    """`tests.drills.freezes` does it often."""
    with freezes.secured_cluster(tmp_path) as secured:
        assert list(freezes.run(secured, rounds=3, seed=2)) == []
