"""The person on call is told what is wrong, since when, and what to do; scripts are told by the exit code."""

from __future__ import annotations

import json
import signal
from typing import Any

from raftsched.cli.local.cluster import LocalCluster
from tests.acceptance.conftest import run_cli


def status(cluster: LocalCluster, *arguments: str) -> tuple[int, str]:
    ran = run_cli("cluster", "status", *arguments, RAFTSCHED_URL=" ".join(cluster.urls))
    return ran.returncode, ran.stdout


def test_doctor_finds_a_running_node_well_and_its_free_port_when_it_is_down(cluster: LocalCluster) -> None:
    node = cluster.nodes[0]
    settings = {"RAFTSCHED_NODE_ID": node.id, "RAFTSCHED_DATA_DIR": str(node.data_directory)}

    def examined() -> dict[str, Any]:
        ran = run_cli("doctor", "--config", str(cluster.config), "--json", **settings)
        document: dict[str, Any] = json.loads(ran.stdout)
        found = {each["check"]: each for each in document["findings"]}
        failed = [check for check, each in found.items() if each["level"] == "fail"]
        assert ran.returncode == (0 if document["ok"] else 1) == (1 if failed else 0)
        assert set(failed) <= {"disk speed"}, document  # the machine of the tests may be busy
        return found

    def told(found: dict[str, Any]) -> list[str]:
        return [found[f"port {port}"]["text"] for port in (node.api.rpartition(":")[2], node.raft.rpartition(":")[2])]

    found = examined()
    assert [
        f"in use by this node, which runs: process {node.process and node.process.pid}" in text for text in told(found)
    ] == [
        True,
        True,
    ]
    others = [other.id for other in cluster.nodes[1:]]
    assert [found[f"node {other}, {check}"]["level"] for other in others for check in ("raft", "API", "clock")] == [
        "ok"
    ] * 6
    node.kill()
    assert [text.endswith("is free") for text in told(examined())] == [True, True]


def test_status_tells_what_is_wrong_and_since_when_also_without_a_leader(cluster: LocalCluster) -> None:
    cluster.wait_until(lambda: status(cluster)[0] == 0, what="a healthy cluster")
    leader = cluster.wait_for_leader()
    one, other = (node for node in cluster.nodes if node is not leader)

    one.kill()
    cluster.wait_until(lambda: status(cluster)[0] == 3, what="a degraded cluster")
    _, degraded = status(cluster)
    lines = degraded.splitlines()
    assert lines[0] == "degraded"
    assert f"warning: {one.id} ({one.raft}) can't be reached since 20" in degraded
    assert "the loss of one more node stops the cluster" in degraded

    other.kill()
    cluster.wait_until(lambda: status(cluster)[0] == 4, what="a cluster that is down")
    document: dict[str, Any] = json.loads(status(cluster, "--json")[1])
    assert (document["health"], document["answered_by"], document["leader"]) == ("down", leader.id, "")
    codes = {(each["code"], each["node"]) for each in document["problems"] if each["since"] and each["cure"]}
    assert {("no_leader", None), ("node_down", one.id), ("node_down", other.id)} <= codes

    leader.signal(signal.SIGKILL)
    leader.wait()
    assert status(cluster)[0] == 1
