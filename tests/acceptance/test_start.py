"""Nodes that can't start say why."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from raftsched.cli.local.cluster import LocalCluster, LocalNode, free_ports
from raftsched.errors import Unavailable
from tests.acceptance.conftest import StartCluster, run_cli
from tests.acceptance.http import call


def test_a_node_that_cannot_start_says_why_at_once(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, node_count=1)
    cluster.nodes[0].data_directory.write_text("a file where the directory must be")
    with pytest.raises(Unavailable, match=r"n1 ended with exit code 70.*exists"), cluster:
        cluster.wait_for_leader()


def test_a_second_process_on_the_same_data_is_refused(start_cluster: StartCluster) -> None:
    cluster = start_cluster(node_count=1)
    node = cluster.nodes[0]
    api, raft = free_ports(2)
    second = run_cli(
        *("node", "--config", str(cluster.config)),
        RAFTSCHED_NODE_ID=node.id,
        RAFTSCHED_DATA_DIR=str(node.data_directory),
        RAFTSCHED_API_LISTEN=f"127.0.0.1:{api}",
        RAFTSCHED_RAFT_LISTEN=f"127.0.0.1:{raft}",
    )
    assert second.returncode == 70
    assert "in use by another raftsched process" in second.stderr
    assert node.is_ready()


@pytest.mark.parametrize("taken", ["api", "raft"])
def test_a_port_in_use_is_named_before_anything_is_written(tmp_path: Path, taken: str) -> None:
    cluster = LocalCluster(tmp_path, node_count=1)
    node = cluster.nodes[0]
    address = {"api": node.api.removeprefix("http://"), "raft": node.raft}[taken]
    host, _, port = address.rpartition(":")
    with socket.create_server((host, int(port))):
        refused = run_node(cluster, node)
    assert refused.returncode == 70
    assert f"nodes.n1.{taken}: {address}: the port is in use by another process" in refused.stderr
    assert "port_refused" in refused.stderr
    assert not node.data_directory.exists()


def test_a_state_that_is_gone_is_made_again_from_a_whole_journal_and_said(start_cluster: StartCluster) -> None:
    cluster = start_cluster(node_count=1)
    node = cluster.nodes[0]
    status, job = call(node.api, "POST", "/api/v1/jobs", {"name": "n", "queue": "kept"})
    assert status == 201
    node.stop()
    shutil.rmtree(node.data_directory / "state")
    cluster.start_node(node)
    cluster.wait_for_leader()
    assert node.get(f"/api/v1/jobs/{job['id']}")["queue"] == "kept"
    assert "state_made_again" in node.log_file.read_text()


def run_node(
    cluster: LocalCluster, node: LocalNode, *options: str, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run a node that will not run for long."""
    settings = {"RAFTSCHED_NODE_ID": node.id, "RAFTSCHED_DATA_DIR": str(node.data_directory)} | settings
    return run_cli("node", "--config", str(cluster.config), *options, **settings)


WRONG: list[tuple[dict[str, str], str]] = [
    (
        {"RAFTSCHED_LEASE_SECOND": "3"},
        "RAFTSCHED_LEASE_SECOND: no setting of that name; did you mean RAFTSCHED_LEASE_SECONDS?",
    ),
    ({"RAFTSCHED_ULR": "http://x"}, "did you mean RAFTSCHED_URL?"),
    (
        {"RAFTSCHED_API_LISTEN": "0.0.0.0:1", "RAFTSCHED_RAFT_LISTEN": "127.0.0.1:1"},
        "raft_listen: port 1 is the port of api_listen",
    ),
    ({"RAFTSCHED_NODES": '[{"id":"n1","raft":"h:1","api":"h:1"}]'}, "nodes.n1.api: h:1 is nodes.n1.raft as well"),
    ({"RAFTSCHED_NODES": '[{"id":"n1","raft":"h:1","api":"0.0.0.0:2"}]'}, "nodes.n1.api: 0.0.0.0 can't be dialed"),
    (
        {"RAFTSCHED_PEER_TLS": '{"certificate":"/no/c.pem","key":"/no/k.pem","ca":"/no/ca.pem"}'},
        "peer_tls.certificate: /no/c.pem: No such file or directory",
    ),
    (
        {"RAFTSCHED_RAFT_LISTEN": "0.0.0.0:1"},
        "raft_listen: other machines can reach 0.0.0.0:1, and whoever does could speak as a node: set [peer_tls]",
    ),
    ({"RAFTSCHED_CLUSTER_SECRET_FILE": "/no/secret"}, "cluster_secret_file: /no/secret: No such file or directory"),
    (
        {"RAFTSCHED_CLUSTER_SECRET_FILE": "/dev/null"},
        "cluster_secret_file: /dev/null: line 1: 0 bytes, expected 32 to 4096",
    ),
]


def test_what_cannot_be_right_is_said_clearly_before_anything_is_written(tmp_path: Path) -> None:
    """By a start, and by `--check-config` in the same words."""
    cluster = LocalCluster(tmp_path, node_count=1)
    node = cluster.nodes[0]
    found = []
    for settings, words in WRONG:
        for options, code in (((), (1, 70)), (("--check-config",), (1,))):
            refused = run_node(cluster, node, *options, **settings)
            if refused.returncode not in code or words not in refused.stderr or node.data_directory.exists():
                found.append((settings, options, refused.returncode, refused.stderr))
    assert not found


def test_check_config_says_what_would_run_and_writes_nothing(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, node_count=2)
    node = cluster.nodes[0]
    with socket.create_server(("127.0.0.1", int(node.raft.rpartition(":")[2]))):  # the node itself may be running
        told = run_node(
            cluster, node, "--check-config", KUBERNETES_PORT="tcp://10.0.0.1:443", RAFTSCHED_PORT="tcp://10.0.0.1:84"
        )
    assert told.returncode == 0, told.stderr
    assert f"n1: raft {node.raft}, api" in told.stdout
    assert "TLS between nodes: none" in told.stdout
    assert "secret between nodes: none" in told.stdout
    assert "2 nodes tolerate the loss of 0" in told.stderr
    assert not node.data_directory.exists()
    node.data_directory.mkdir()
    (node.data_directory / "state").mkdir()
    (node.data_directory / "state" / "data.mdb").touch()
    told = run_node(cluster, node, "--check-config", RAFTSCHED_API_LISTEN="192.0.2.1:8400")
    assert told.returncode == 1
    assert "api_listen: this machine has no address 192.0.2.1" in told.stderr
    assert "data_dir: " in told.stderr
    assert "its node.json is missing" in told.stderr


def test_bad_settings_end_with_the_settings_name(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text('auth = "none"\nnode_id = "n1"\nlease_second = 3\n')
    refused = run_cli("node", "--config", str(config))
    assert refused.returncode == 1
    assert "lease_second" in refused.stderr
