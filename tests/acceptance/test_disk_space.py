"""Disks that run low on real nodes: a reserve larger than what is free makes a node low, wherever the tests run."""

from __future__ import annotations

from typing import Any

from raftsched.cli.local.cluster import LocalCluster, LocalNode
from tests.acceptance.conftest import StartCluster, run_cli
from tests.acceptance.http import call, call_once, lease, report, submit

MORE_THAN_ANY_DISK_MIB = 1 << 30
NEW_WORK: dict[str, Any] = {
    "jobs": {"name": "raw"},
    "jobs/batch": {"jobs": [{"name": "raw"}]},
    "workflows": {"name": "w", "jobs": {"a": {"name": "raw"}}},
    "schedules": {"name": "nightly", "cron": "0 0 * * *", "job": {"name": "raw"}},
}


def restart(cluster: LocalCluster, node: LocalNode, *, reserve_mib: int) -> None:
    """Restart a node with a reserve of its own."""
    node.stop()
    node.own_config = node.directory / "own.toml"
    common = cluster.config.read_text()
    node.own_config.write_text(common.replace("disk_reserve_mib = 0", f"disk_reserve_mib = {reserve_mib}"))
    cluster.start_node(node)
    cluster.wait_until_ready(node)


def low_nodes(node: LocalNode) -> set[str]:
    return {each["id"] for each in node.get("/api/v1/cluster")["nodes"] if each["disk_low"]}


def submitted(cluster: LocalCluster) -> tuple[int, Any]:
    """The answer to a submit at the leader, which is asked once."""
    return call_once(cluster.wait_for_leader().api, "POST", "/api/v1/jobs", {"name": "raw"})


def test_new_work_is_refused_only_while_a_majority_of_disks_is_low(start_cluster: StartCluster) -> None:
    cluster = start_cluster(disk_reserve_mib=0, lease_seconds=120.0)
    first = cluster.wait_for_leader()
    second = next(node for node in cluster.nodes if node is not first)
    [third] = [node for node in cluster.nodes if node not in (first, second)]
    base = third.api
    to_cancel = submit(base, name="later", delay_seconds=3600)
    submit(base, name="raw")
    [held] = lease(base, "w", "raw")

    # One node is low: it says so, and nothing is refused.
    restart(cluster, first, reserve_mib=MORE_THAN_ANY_DISK_MIB)
    cluster.wait_until(lambda: low_nodes(third) == {first.id}, what="the leader to know that a disk is low")
    assert submitted(cluster)[0] == 201
    assert "this node's disk is nearly full" in first.get("/readyz")["warning"]
    assert "disk_low" in first.log_file.read_text()

    # Two are: new work is refused before they are full, and work that runs goes on.
    restart(cluster, second, reserve_mib=MORE_THAN_ANY_DISK_MIB)
    cluster.wait_until(lambda: submitted(cluster)[0] == 507, what="new work to be refused")
    assert cluster.wait_for_leader() is third, "a node with room takes the lead"
    status, problem = submitted(cluster)
    assert (status, problem["code"]) == (507, "storage_full")
    assert first.id in problem["detail"]
    assert second.id in problem["detail"]
    for path, body in NEW_WORK.items():
        assert call_once(base, "POST", f"/api/v1/{path}", body)[0] == 507, path
    assert report(base, "w", held, result="done")[0] == 200
    assert call(base, "DELETE", f"/api/v1/jobs/{to_cancel['id']}")[0] == 200
    shown = run_cli("cluster", "status", RAFTSCHED_URL=base)
    assert shown.returncode == 4
    assert "new work is rejected until a majority has space" in " ".join(shown.stdout.split())
    assert shown.stdout.count(" low") >= 2
    assert "too few nodes have free disk space" in third.get("/readyz")["warning"]
    assert "new_work_refused" in third.log_file.read_text()

    # There is room again: new work is accepted, and the lead goes to a node with room.
    restart(cluster, first, reserve_mib=0)
    cluster.wait_until(lambda: submitted(cluster)[0] == 201, what="new work to be accepted")
    assert "new_work_accepted" in third.log_file.read_text()
    third.kill()
    cluster.wait_until(lambda: cluster.wait_for_leader() is first, what="the node with room to lead")
    cluster.start_node(third)
    cluster.wait_until_ready(third)
    assert submitted(cluster)[0] == 201
