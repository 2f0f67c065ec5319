"""`raftsched demo` as a user runs it: it shows every kind of job, finds all right, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from raftsched.cli.demo import checks
from raftsched.cli.demo.evidence import Evidence
from raftsched.cli.demo.plan import KINDS
from raftsched.cli.demo.run import WORKER_COUNT
from raftsched.cli.local.cluster import LocalCluster
from tests.acceptance.http import call
from tests.acceptance.processes import has_ended

SECONDS_MAX = 240
"""Some 15 on a machine that does nothing else."""
NODE_COUNT = 3
pytestmark = pytest.mark.timeout(SECONDS_MAX + 60)


@contextmanager
def running_demo(directory: Path, *, ignores_sigint: bool = False) -> Iterator[subprocess.Popen[str]]:
    """Start a demo in a process group of its own, whose files are in `directory`; it is killed in the end.

    Programs in a shell's background ignore SIGINT.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN if ignores_sigint else signal.default_int_handler)
    demo = subprocess.Popen(
        [sys.executable, "-m", "raftsched", "demo"],
        env=os.environ | {"TMPDIR": str(directory)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    signal.signal(signal.SIGINT, before)
    with demo:
        try:
            yield demo
        finally:
            demo.kill()


def told(demo: subprocess.Popen[str], word: str) -> list[str]:
    """Read what the demo says, up to the line with `word`."""
    assert demo.stdout is not None
    lines = []
    for line in demo.stdout:
        lines.append(line)
        if word in line:
            return lines
    raise AssertionError(f"{word!r} is not in {lines}")


def started(demo: subprocess.Popen[str]) -> list[int]:
    """The processes that the demo has started, once all of them run."""
    told(demo, "will fire at")
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        children = [child.pid for child in psutil.Process(demo.pid).children(recursive=True)]
        if (
            len(children) == 2 * NODE_COUNT + WORKER_COUNT + 1
        ):  # an executor beside each node, and a worker for commands
            return children
        time.sleep(0.05)
    raise AssertionError(f"the demo has {len(children)} processes")


def test_the_demo_verifies_jobs_of_every_kind_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with running_demo(tmp_path) as demo:
        text, errors = demo.communicate(timeout=SECONDS_MAX)
    assert (demo.returncode, errors) == (0, ""), text
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
    assert len(ports) == NODE_COUNT
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)


@pytest.mark.parametrize("ignores_sigint", [False, True])
def test_the_demo_takes_everything_down_on_sigterm(tmp_path: Path, *, ignores_sigint: bool) -> None:
    with running_demo(tmp_path, ignores_sigint=ignores_sigint) as demo:
        children = started(demo)
        if ignores_sigint:
            demo.send_signal(signal.SIGINT)
        demo.send_signal(signal.SIGTERM)
        _, errors = demo.communicate(timeout=SECONDS_MAX)
    assert (demo.returncode, errors) == (128 + signal.SIGTERM, "")
    assert not any(map(psutil.pid_exists, children))
    assert list(tmp_path.iterdir()) == []


def test_nodes_and_workers_end_with_a_demo_that_is_killed(tmp_path: Path) -> None:
    with running_demo(tmp_path) as demo:
        children = started(demo)
        demo.kill()
    waiting = LocalCluster(tmp_path / "unused", node_count=1)
    waiting.wait_until(lambda: all(map(has_ended, children)), what="its processes to end", seconds=SECONDS_MAX)


def test_a_call_that_fails_is_told_in_one_line_and_the_logs_are_kept(tmp_path: Path) -> None:
    with running_demo(tmp_path) as demo:
        [base, *_] = re.findall(r"http://127\.0\.0\.1:\d+", "".join(told(demo, "will fire at")))
        [token_file] = tmp_path.glob("*/admin.token")
        credentials = f"Bearer {token_file.read_text().strip()}"
        status, _ = call(f"{base}/api/v1", "DELETE", "/schedules/every", Authorization=credentials)
        assert status == 200  # and the demo asks for it half-way
        _, errors = demo.communicate(timeout=SECONDS_MAX)
    assert demo.returncode == 1
    [line] = errors.splitlines()
    assert line.startswith("raftsched: the demo broke off: ")
    assert "[not_found]" in line
    assert line.endswith("then run the demo again.")
    [kept] = tmp_path.iterdir()
    assert f" in {kept}, " in line
    assert len(list(kept.glob("n*/node.log"))) == NODE_COUNT
    assert (kept / "workers.log").exists()
