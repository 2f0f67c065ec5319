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
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from raftsched.cli.bench.load import WARM_UP_SECONDS
from raftsched.cli.local.cluster import LocalCluster, free_ports
from tests.acceptance.conftest import run_cli
from tests.acceptance.processes import has_ended


def test_bench_measures_jobs_cpu_lag_and_commits() -> None:
    seconds, rate = 2, 100
    ran = run_cli("bench", "--seconds", str(seconds), "--rate", str(rate), "--window", "200", "--json")
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    measured = ("jobs_per_second", "cpu_ms_per_job", "commit_ms_p50", "commit_ms_p99", "lag_ms_p50", "lag_ms_p99")
    for phase in (report["steady"], report["flat_out"]):
        assert all(phase[key] > 0 for key in measured), phase
    # A job that was submitted while the phase warmed up may be completed, and counted, later.
    assert 0 < report["steady"]["jobs"] <= rate * (WARM_UP_SECONDS + seconds)
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


@contextlib.contextmanager
def running_dev(directory: Path) -> Iterator[tuple[subprocess.Popen[bytes], psutil.Process]]:
    """Run `dev` with one node in `directory`, and yield both once they are ready; killed in the end."""
    options = ["--nodes", "1", "--base-port", str(_base_port()), "--data-dir", str(directory / "d")]
    log_file = directory / "dev.log"
    with log_file.open("wb") as log:
        dev = subprocess.Popen(
            [sys.executable, "-m", "raftsched", "dev", *options],
            env=os.environ | {"TMPDIR": str(directory)},
            stdout=log,
            stderr=log,
        )
    with dev:
        try:
            until(directory, lambda: b"Ready." in log_file.read_bytes(), "dev to be ready")
            [told] = json.loads((directory / "d" / "cluster.json").read_text())["nodes"]
            node = psutil.Process(told["pid"])
            try:
                with urllib.request.urlopen(f"{told['api']}/healthz") as reply:
                    assert json.load(reply)["node"] == told["id"] == "n1"
                yield dev, node
            finally:
                with contextlib.suppress(psutil.NoSuchProcess):
                    node.kill()
        finally:
            dev.kill()


def until(directory: Path, probe: Callable[[], bool], what: str) -> None:
    LocalCluster(directory / "unused", node_count=1).wait_until(probe, what=what, seconds=60)


def test_dev_runs_a_cluster_says_where_it_is_and_takes_it_down(tmp_path: Path) -> None:
    with running_dev(tmp_path) as (dev, node):
        dev.send_signal(signal.SIGTERM)
        assert dev.wait(timeout=60) == 0
        assert not node.is_running()
    assert "stopped" in (tmp_path / "dev.log").read_text()


def test_nodes_stop_in_order_when_the_process_that_started_them_is_killed(tmp_path: Path) -> None:
    with running_dev(tmp_path) as (dev, node):
        dev.kill()
        until(tmp_path, lambda: has_ended(node.pid), "the node to end")
    [last, *_] = (tmp_path / "d" / "n1" / "node.log").read_text().splitlines()[-1:]
    assert json.loads(last)["event"] == "node_stopped"


def test_a_paused_node_ends_too_when_the_process_that_started_it_is_killed(tmp_path: Path) -> None:
    with running_dev(tmp_path) as (dev, node):
        node.suspend()
        until(tmp_path, lambda: node.status() == psutil.STATUS_STOPPED, "the node to be paused")
        dev.kill()
        until(tmp_path, lambda: has_ended(node.pid), "the node to end")


def test_bench_takes_everything_down_on_sigterm(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "raftsched", "bench", "--seconds", "600", "--rate", "10", "--json"]
    bench = subprocess.Popen(
        command, env=os.environ | {"TMPDIR": str(tmp_path)}, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    with bench:
        try:
            assert bench.stderr is not None
            assert b"jobs/s for" in bench.stderr.readline()
            children = [child.pid for child in psutil.Process(bench.pid).children(recursive=True)]
            assert len(children) == 5
            bench.send_signal(signal.SIGTERM)
            _, errors = bench.communicate(timeout=60)
        finally:
            bench.kill()
    assert (bench.returncode, errors) == (128 + signal.SIGTERM, b"")
    assert not any(map(psutil.pid_exists, children))
    assert list(tmp_path.iterdir()) == []
