"""A rolling restart and a rolling upgrade under load: no accepted job is lost, and what is new waits for all nodes.

    python -m tests.drills.upgrade [--from COMMIT] [--jobs 2000]

The release before is today's source, or that of a commit or a tag; the release after is made from today's source
(`releases.py`). Nodes are replaced one by one, followers first; the lead is transferred to one that was replaced. Then one
node goes back to the release before, and must refuse to start. Data of another format than today's is refused by name.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from chaos.drills.releases import LATER_VERSION, Release, faults_by, later_release, release_of_commit, release_of_source
from raftsched.cli.local.cluster import LocalCluster, LocalNode
from raftsched.client import BlockingClient
from raftsched.core.operations.codec import CODEC_VERSION
from tests.acceptance.http import call
from tests.acceptance.test_failures import Submitter, completed
from tests.drills.processes import started_worker
from tests.drills.releases import start_node

QUEUE: Final = "upgrade"
_EXIT_FAULT: Final = 70
_JOBS_BETWEEN: Final = 20


def roll(cluster: LocalCluster, after: Release, submitter: Submitter) -> None:
    """Replace all nodes by nodes of a release, one by one, the leader last."""
    leader = cluster.wait_for_leader()
    replaced: list[LocalNode] = []
    for node in sorted(cluster.nodes, key=lambda node: node is leader):
        if node is cluster.wait_for_leader():
            status, answer = call(node.api, "POST", "/api/v1/cluster/transfer", {"to": replaced[0].id})
            assert status == 200, answer
            cluster.wait_until(lambda: cluster.leader() is replaced[0], what=f"{replaced[0].id} to lead")
            _require_gate(cluster, after)
        assert node.stop() == 0, node.last_words()
        submitter.wait_for(cluster, len(submitter.acknowledged) + _JOBS_BETWEEN)
        start_node(cluster, node, after)
        cluster.wait_until(lambda node=node: _keeps_up(cluster, node, after), what=f"{node.id} to keep up")  # type: ignore[misc]
        submitter.wait_for(cluster, len(submitter.acknowledged) + _JOBS_BETWEEN)
        replaced.append(node)


def _keeps_up(cluster: LocalCluster, node: LocalNode, release: Release) -> bool:
    """Return whether a node runs a release, and holds what the leader holds, as `raftsched cluster status` shows."""
    shown = {each["id"]: each for each in _status(cluster)["nodes"]}[node.id]
    facts = shown["facts"]
    return bool(facts and facts["is_ready"] and facts["release"] == release.name and (shown["lag"] or 0) < 1_000)


def _require_gate(cluster: LocalCluster, after: Release) -> None:
    """A leader of the later release refuses what a member can't read yet, and says what to do."""
    assert _status(cluster)["operation_version"] == CODEC_VERSION
    if _reads_later(after):
        refused, answer = call(cluster.wait_for_leader().api, "POST", f"/api/v1/queues/{QUEUE}/pause", {})
        assert (refused, answer["code"]) == (503, "upgrade_in_progress"), answer
        cluster.wait_until(
            lambda: "releases_differ" in [problem["code"] for problem in _status(cluster)["problems"]],
            what="the status to say that releases differ",
        )


def _reads_later(release: Release) -> bool:
    return f"CODEC_VERSION: Final = {LATER_VERSION}" in (
        release.directory / "raftsched/core/operations/codec.py"
    ).read_text(encoding="utf-8")


def _status(cluster: LocalCluster) -> dict[str, Any]:
    """Return the cluster as its leader sees it, however busy this machine is."""

    def told() -> dict[str, Any] | None:
        try:
            status: dict[str, Any] = cluster.wait_for_leader().get("/api/v1/cluster")
        except OSError:
            return None
        return status if status["leader"] == status["answered_by"] else None

    return cluster.wait_until(told, what="the leader's answer")


def require_in_force(cluster: LocalCluster) -> None:
    """What is new works once all nodes have the later release."""
    cluster.wait_until(lambda: _status(cluster)["operation_version"] == LATER_VERSION, what="the later version")
    leader = cluster.wait_for_leader()
    for verb in ("pause", "resume"):
        status, answer = call(leader.api, "POST", f"/api/v1/queues/{QUEUE}/{verb}", {} if verb == "pause" else None)
        assert status == 200, answer


def require_no_way_back(cluster: LocalCluster, before: Release, after: Release) -> None:
    """A node that goes back to the release before refuses to start, by name, and is well again with the later one."""
    leader = cluster.wait_for_leader()
    node = next(node for node in cluster.nodes if node is not leader)
    assert node.stop() == 0
    start_node(cluster, node, before)
    assert node.wait(30) == _EXIT_FAULT
    assert "unknown_version" in node.last_words(), node.last_words()
    start_node(cluster, node, after)
    cluster.wait_until_ready(node)


def drill(directory: Path, before: Release, after: Release, *, restarts: bool, jobs: int) -> int:
    """Run all of it; return the number of jobs that were accepted, all of which are completed, once, with their results."""
    cluster = LocalCluster(directory / "cluster", node_count=3)
    worker = started_worker(cluster, directory, QUEUE)
    try:
        for node in cluster.nodes:
            start_node(cluster, node, before)
        cluster.wait_for_leader()
        with BlockingClient(*cluster.urls) as client:
            submitter = Submitter(client, QUEUE)
            submitter.start()
            try:
                if restarts:
                    roll(cluster, before, submitter)
                roll(cluster, after, submitter)
                require_in_force(cluster)
                require_no_way_back(cluster, before, after)
                submitter.wait_for(cluster, jobs - 1)
            finally:
                ids = submitter.stop()
            completed(cluster, client, ids)
            jobs_now = [client.get(job_id) for job_id in ids]
            assert [job.result for job in jobs_now] == list(range(len(ids)))
            assert [job.id for job in jobs_now if job.attempt_number != 1] == [], "a replaced node cost an attempt"
        cluster.stop()
        assert faults_by(after.directory, [node.data_directory for node in cluster.nodes]) == []
        return len(ids)
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        cluster.stop()


def main() -> None:
    """Run the drill, and print what it did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="commit", default="", help="commit or tag of the release before")
    parser.add_argument("--jobs", type=int, default=2_000)
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="raftsched-upgrade-") as name:
        directory = Path(name)
        source = directory / "before"
        before = release_of_commit(source, options.commit) if options.commit else release_of_source(source, "0.0.1")
        after = later_release(directory / "after", "0.0.2")
        count = drill(directory, before, after, restarts=True, jobs=options.jobs)
    print(f"{count} jobs accepted during a rolling restart and a rolling upgrade, all completed at their first attempt")
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(0)


if __name__ == "__main__":
    main()
