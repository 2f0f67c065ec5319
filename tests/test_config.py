"""Settings of a node."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftsched import config
from raftsched.errors import Invalid

NODES = """
[[nodes]]
id = "n1"
raft = "127.0.0.1:8401"
api = "127.0.0.1:8400"

[[nodes]]
id = "n2"
raft = "[::1]:8401"
api = "host.example:8400"
"""
BASE = 'auth = "none"\nnode_id = "n1"\ndata_dir = "/tmp/d"\n'


def load(tmp_path: Path, text: str, **environment: str) -> config.NodeConfig:
    path = tmp_path / "node.toml"
    path.write_text(text)
    return config.load(path, environment)


def test_config_file_is_read_with_its_defaults(tmp_path: Path) -> None:
    loaded = load(tmp_path, BASE + NODES)
    assert loaded.member.api == "127.0.0.1:8400"
    assert loaded.lease_seconds == 15


def test_environment_overrides_the_file(tmp_path: Path) -> None:
    loaded = load(
        tmp_path, BASE + NODES, RAFTSCHED_NODE_ID="n2", RAFTSCHED_LEASE_SECONDS="2.5", RAFTSCHED_URL="ignored"
    )
    assert (loaded.member.id, loaded.lease_seconds) == ("n2", 2.5)


def test_environment_alone_is_enough() -> None:
    nodes = '[{"id": "solo", "raft": "127.0.0.1:1", "api": "127.0.0.1:2"}]'
    environment = {
        "RAFTSCHED_AUTH": "none",
        "RAFTSCHED_NODE_ID": "solo",
        "RAFTSCHED_DATA_DIR": "/d",
        "RAFTSCHED_NODES": nodes,
        "RAFTSCHED_API_LISTEN": "[::]:8400",
    }
    loaded = config.load(None, environment)
    assert (loaded.member.id, loaded.api_listen) == ("solo", "[::]:8400")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (BASE.replace('auth = "none"\n', "") + NODES, "auth"),
        (BASE + "lease_second = 3\n" + NODES, "lease_second"),
        (BASE + "lease_seconds = -1\n" + NODES, "lease_seconds"),
        (BASE + "lease_seconds = nan\n" + NODES, "lease_seconds"),
        (BASE.replace('"n1"', '"n9"') + NODES, "node_id"),
        (BASE.replace('"n1"', '"../n1"') + NODES, "node_id"),
        (BASE + NODES.replace("n2", "n1"), "nodes"),
        (BASE + NODES.replace("[::1]:8401", "nowhere"), "nodes.n2.raft"),
        (BASE + "election_seconds_min = 2\nelection_seconds_max = 1\n" + NODES, "election_seconds_max"),
        (BASE + "heartbeat_seconds = 0.4\n" + NODES, "heartbeat_seconds"),
        (BASE + "max_clock_skew_ms = 5\n" + NODES, "max_clock_skew_ms"),
        (BASE + "= 3", "node.toml"),
    ],
)
def test_bad_settings_are_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(Invalid, match=named):
        load(tmp_path, text)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"absent\.toml"):
        config.load(tmp_path / "absent.toml", {})


def test_shipped_configuration_loads() -> None:
    path = Path(__file__).parents[1] / "configs" / "cluster.toml"
    assert len(config.load(path, {"RAFTSCHED_NODE_ID": "n2"}).nodes) == 3
