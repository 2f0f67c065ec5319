"""`bench` and `dev`, as users run them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

from raftsched.cli.local_cluster import LocalCluster, free_ports
from tests.acceptance.conftest import run_cli


def test_bench_measures_jobs_cpu_lag_and_commits() -> None:
    ran = run_cli("bench", "--seconds", "2", "--rate", "100", "--window", "200", "--json")
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert report["jobs_per_second"] > 100
    for key in ("cpu_ms_per_job", "commit_ms_p50", "commit_ms_p99", "lag_ms_p50", "lag_ms_p99"):
        assert 0 < report[key] < 60_000, key
    assert 150 <= report["steady"]["jobs"] <= 300
    assert report["steady"]["errors"] == report["flat_out"]["errors"] == 0


def test_bench_of_failovers_counts_each_kill() -> None:
    ran = run_cli("bench", "--failover", "2", "--json")
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert (report["kills"], len(report["seconds"])) == (2, 2)
    assert 0 < report["median_seconds"] <= report["max_seconds"]


def _base_port() -> int:
    """A free port whose successor is free too."""
    for port in free_ports(50):
        with socket.socket() as following, contextlib.suppress(OSError):
            following.bind(("127.0.0.1", port + 1))
            return port
    raise AssertionError("no two free ports side by side")


def test_dev_runs_a_cluster_says_where_it_is_and_takes_it_down(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "raftsched", "dev", "--nodes", "1", "--base-port", str(_base_port())]
    with (tmp_path / "dev.log").open("wb") as log:
        dev = subprocess.Popen([*command, "--data-dir", str(tmp_path / "d")], stdout=log, stderr=log)
    waiting = LocalCluster(tmp_path / "unused", node_count=1)
    try:
        waiting.wait_until(lambda: b"Ready." in (tmp_path / "dev.log").read_bytes(), what="dev to be ready")
        [node] = json.loads((tmp_path / "d" / "cluster.json").read_text())["nodes"]
        with urllib.request.urlopen(f"{node['api']}/healthz") as reply:
            assert json.load(reply)["node"] == node["id"] == "n1"
        os.kill(node["pid"], 0)
    finally:
        dev.send_signal(signal.SIGTERM)
        dev.wait(timeout=30)
    assert not Path(f"/proc/{node['pid']}").exists()
