"""`raftsched demo` as a user runs it: it shows every kind of job, finds all right, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from raftsched.cli.demo import checks
from raftsched.cli.demo.evidence import Evidence
from raftsched.cli.demo.plan import KINDS

SECONDS_MAX = 240
"""Some 15 on a machine that does nothing else."""


def test_the_demo_verifies_jobs_of_every_kind_and_leaves_nothing_behind(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-m", "raftsched", "demo"],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    text, _ = demo.communicate(timeout=SECONDS_MAX)
    assert demo.returncode == 0, text
    assert "all is right" in text
    lines = [line.split() for line in text.splitlines()]
    assert {line[0] for line in lines if line} >= KINDS.keys()
    nothing = Evidence(planned={}, found={}, recorded={})
    for what in (check(nothing).wrong for check in checks.ALL):
        [line] = [line for line in lines if line[: len(what.split())] == what.split()]
        looked_at, wrong = line[len(what.split()) :]
        assert int(looked_at.replace(",", "")) > 0
        assert wrong == "0"
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.killpg(demo.pid, 0)  # its workers are of its group; the nodes have groups of their own
    ports = [int(port) for port in re.findall(r"http://127\.0\.0\.1:(\d+)", text)]
    assert len(ports) == 3
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
