"""Nodes that can't start say why."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftsched.cli.local_cluster import LocalCluster
from raftsched.errors import Unavailable
from tests.acceptance.conftest import StartCluster, run_cli


def test_a_node_that_cannot_start_says_why_at_once(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, node_count=1)
    cluster.nodes[0].data_directory.write_text("a file where the directory must be")
    with pytest.raises(Unavailable, match=r"n1 ended with exit code 70.*exists"), cluster:
        cluster.wait_for_leader()


def test_a_second_process_on_the_same_data_is_refused(start_cluster: StartCluster) -> None:
    cluster = start_cluster(node_count=1)
    node = cluster.nodes[0]
    second = run_cli(
        "node", "--config", str(cluster.config), RAFTSCHED_NODE_ID=node.id, RAFTSCHED_DATA_DIR=str(node.data_directory)
    )
    assert second.returncode == 70
    assert "in use by another raftsched process" in second.stderr
    assert node.is_ready()


def test_bad_settings_end_with_the_settings_name(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text('auth = "none"\nnode_id = "n1"\nlease_second = 3\n')
    refused = run_cli("node", "--config", str(config))
    assert refused.returncode == 1
    assert "lease_second" in refused.stderr
