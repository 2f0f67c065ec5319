"""The units are what systemd accepts, are hardened, and fit the settings; a node says to systemd when it is ready."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from raftsched import limits
from raftsched.cli.local.cluster import LocalCluster
from raftsched.node.shutdown import EXIT_FAULT
from raftsched.worker import WorkerSettings
from tests.deployment.settings import CONFIGS, read_on_host, unknown_words

FOLDER: Final = CONFIGS / "systemd"
UNITS: Final = ("raftsched.service", "raftsched-worker.service")
PROGRAM: Final = "/opt/raftsched/bin/raftsched"
EXPOSURE_MAX: Final = 20
"""Tenths, of 100: the scale of `systemd-analyze security`, on which a unit without hardening has 96."""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units, for a program that is there."""
    if shutil.which("systemd-analyze") is None:
        pytest.fail("the units were not examined: apt-get install systemd")
    for name in UNITS:
        program = Path(sys.executable).with_name("raftsched")
        (tmp_path / name).write_text((FOLDER / name).read_text().replace(PROGRAM, str(program)))
    return tmp_path


def lines_of(name: str) -> dict[str, list[str]]:
    """Return the values of a unit by their keys, in order."""
    found: dict[str, list[str]] = {}
    for line in (FOLDER / name).read_text(encoding="utf-8").splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


@pytest.mark.parametrize("unit", UNITS)
def test_unit_is_valid_and_hardened(installed: Path, unit: str) -> None:
    for verb in (
        ["verify", "--man=no", "--generators=no"],
        ["security", "--offline=yes", f"--threshold={EXPOSURE_MAX}"],
    ):
        ran = subprocess.run(["systemd-analyze", *verb, installed / unit], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout[-2_000:] + ran.stderr
        assert verb[0] != "verify" or ran.stderr == ""


def test_units_fit_the_settings_and_the_programs() -> None:
    loaded = read_on_host(CONFIGS / "cluster.toml", "raftsched-1", {})
    node, worker = map(lines_of, UNITS)
    assert loaded.data_dir == f"/var/lib/{node['StateDirectory'][0]}"
    assert node["Type"] == ["notify"]
    assert node["RestartPreventExitStatus"] == [str(EXIT_FAULT)]
    for unit, least in ((node, limits.STOP_SECONDS_MAX), (worker, WorkerSettings().drain_seconds)):
        program, *command = unit["ExecStart"][0].split()
        assert (program, unknown_words(command, ())) == (PROGRAM, [])
        assert float(unit["TimeoutStopSec"][0].removesuffix("s")) > least
    users = [
        line.split()[1] for line in (FOLDER / "raftsched.sysusers.conf").read_text().splitlines() if line[0] == "u"
    ]
    assert users == [unit["User"][0] for unit in (node, worker)] == [unit["Group"][0] for unit in (node, worker)]


def test_node_says_when_it_is_ready_and_when_it_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        with LocalCluster(tmp_path / "cluster", node_count=1) as cluster:
            assert manager.recv(100) == b"READY=1"
            assert cluster.nodes[0].get("/healthz", timeout=30)
        assert manager.recv(100) == b"STOPPING=1"
