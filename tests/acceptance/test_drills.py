"""Drills: what can't be run is told, what does not end is shown, and a planted bug is found.

CI runs `make drills-short` beside these.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from chaos.drills import nodes
from chaos.drills.backends.proxies import Proxies
from chaos.drills.drill import Plan, run
from chaos.drills.faults import FAULTS
from chaos.drills.observed_node import OBSERVED_NODE

ROOT = Path(__file__).parents[2]


def test_what_cannot_be_run_is_named_and_is_no_success(tmp_path: Path) -> None:
    report = ["--out", str(tmp_path / "report")]
    skipped = _drills("full_leader", "--backend", "proxies", *report)
    assert skipped.returncode == 2
    assert "skipped, so not survived: full_leader: it needs a disk of limited size" in skipped.stdout
    unknown = _drills("kill_leadr", *report)
    assert unknown.returncode == 2
    assert "kill_leadr: no such fault" in unknown.stdout


def test_drills_that_are_ended_leave_no_process(tmp_path: Path) -> None:
    log = tmp_path / "n1.log"
    command = [sys.executable, "-m", "chaos", "drills", "kill_leader:9", "--backend", "proxies", "--out", str(tmp_path)]
    drills = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with drills:
        asyncio.run(_until_told(log, "node_started"))
        drills.terminate()
        told, _ = drills.communicate(timeout=60)
    assert drills.returncode == 2
    assert "ended by a signal" in told
    commands = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    assert [command for command in commands if str(tmp_path) in command] == []


async def test_reads_that_nobody_confirms_are_found_in_one_round(tmp_path: Path) -> None:
    lines: list[str] = []
    plan = Plan(
        [replace(FAULTS["isolate_leader"], is_single=False)],
        node_count=3,
        seed=1,
        out=tmp_path,
        bug="reads_without_a_majority",
    )
    result = await run(plan, Proxies((1, 2, 3)), lines.append)
    assert result.report is not None
    # Which layer sees it depends on what the node that is cut off was asked: a job that it lacks is answered by
    # "not found", which shows no revision, so that only the search can tell.
    assert result.report.violations.keys() & {"answers_are_current", "linearizable"}, result.report


async def test_a_node_that_does_not_end_leaves_the_stacks_of_its_threads_and_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "STOP_SECONDS_MAX", 0.0)
    backend = Proxies((1, 2))
    await backend.open()
    node = nodes.Node(1, {"n1": 1, "n2": 2}, backend, tmp_path, entry=OBSERVED_NODE)
    node.start()
    try:
        await _until_told(node.log, "node_started")
        monkeypatch.setattr(node._process, "terminate", lambda: None)  # a stop that never begins
        assert not await node.stop()
    finally:
        node.kill()
        await backend.close()
    told = node.log.read_text()
    assert "(most recent call first):" in told  # a thread's
    assert "Stack for <Task" in told


async def _until_told(log: Path, text: str) -> None:
    async with asyncio.timeout(60):
        while not log.exists() or text not in log.read_text():
            await asyncio.sleep(0.05)


def _drills(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "chaos", "drills", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
