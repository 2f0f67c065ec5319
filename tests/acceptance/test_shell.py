"""Shell jobs on a real cluster, with workers that die."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from raftsched.cli.local.cluster import LocalCluster
from tests.acceptance.conftest import StartWorker, run_cli
from tests.acceptance.http import ask, job_of, submit
from tests.acceptance.processes import has_ended
from tests.acceptance.test_running import ended

FAMILY = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0 and os.fork() == 0:
    os.setsid()  # a daemon
print(os.getpid(), flush=True)
time.sleep(60)
"""
"""Three processes that ignore SIGTERM, each of which prints its id: the command, its child, and a daemon."""


def start_shell(start_worker: StartWorker, cluster: LocalCluster, queue: str) -> subprocess.Popen[bytes]:
    return start_worker(cluster, "--shell", "--allow", sys.executable, "--allow", "/bin/sh", "--queue", queue)


def pids_of(cluster: LocalCluster, job_id: str, attempt: int) -> list[int]:
    """Wait until the attempt's log has the ids of a family, and return them."""
    base = cluster.nodes[0].api

    def pids() -> list[int]:
        if job_of(base, job_id)["attempt_number"] < attempt:
            return []
        lines = ask(base, "GET", f"/jobs/{job_id}/logs?attempt={attempt}")["text"].splitlines()
        return [int(line.removeprefix("stdout: ")) for line in lines]

    cluster.wait_until(lambda: len(pids()) == 3, what=f"the family of attempt {attempt}", seconds=40)
    return pids()


def attempts(base: str, job_id: str) -> Any:
    return ask(base, "GET", f"/jobs/{job_id}/runs")["runs"][0]["attempts"]


def test_shell_job_shows_its_log_while_it_runs_and_its_result_afterwards(
    cluster: LocalCluster, start_worker: StartWorker, queue: str, tmp_path: Path
) -> None:
    start_shell(start_worker, cluster, queue)
    go = tmp_path / "go"
    script = f"cat; echo; echo warned >&2; until [ -e {go} ]; do sleep 0.05; done; echo $RAFTSCHED_ATTEMPT; exit 4"
    command = {"argv": ["sh", "-c", script], "stdin": "given", "success_exit_codes": [0, 4]}
    job = submit(cluster.nodes[0].api, queue=queue, shell=command)
    with subprocess.Popen(
        [sys.executable, "-m", "raftsched", "tail", "--url", cluster.urls[1], job["id"]],
        stdout=subprocess.PIPE,
        text=True,
    ) as tail:
        assert tail.stdout is not None
        shown: list[str] = []
        while not {"stdout: given\n", "stderr: warned\n"} <= set(shown):
            shown.append(tail.stdout.readline())
            assert shown[-1], "it must show the log while the command runs"
        go.touch()
        assert "stdout: 1\n" in tail.stdout.read()
    result = ended(cluster, job["id"], "completed")["result"]
    assert isinstance(result, dict)
    assert (result["exit_code"], result["stdout_tail"], result["stderr_tail"]) == (4, "given\n1\n", "warned\n")


def test_exit_codes_decide_between_another_attempt_and_the_dead_letters(
    cluster: LocalCluster, start_worker: StartWorker, queue: str
) -> None:
    start_shell(start_worker, cluster, queue)
    base = cluster.nodes[0].api
    once = {"retry_policy": {"backoff": "fixed", "base_seconds": 0.1}, "queue": queue, "max_attempts": 3}
    commands = {
        "tried": {"argv": ["sh", "-c", "exit $((9 * (2 > RAFTSCHED_ATTEMPT)))"]},
        "final": {"argv": ["sh", "-c", "exit 9"], "retry_exit_codes": [75]},
        "killed": {"argv": ["sh", "-c", "kill -9 $$"]},
        "refused": {"argv": ["/usr/bin/env"]},
    }
    jobs = {name: submit(base, shell=command, **once) for name, command in commands.items()}
    found = {name: ended(cluster, job["id"], "completed", "dead_letter") for name, job in jobs.items()}
    assert {name: (job["status"], job["attempt_number"]) for name, job in found.items()} == {
        "tried": ("completed", 2),
        "final": ("dead_letter", 1),
        "killed": ("dead_letter", 3),
        "refused": ("dead_letter", 1),
    }
    errors = {name: attempts(base, job["id"])[-1]["error"]["type"] for name, job in jobs.items() if name != "tried"}
    assert errors == {"final": "ExitCode", "killed": "KilledBySignal", "refused": "CommandRefused"}


@pytest.mark.parametrize("how", ["cancel", "timeout"])
def test_run_that_is_over_leaves_no_process_behind(
    cluster: LocalCluster, start_worker: StartWorker, queue: str, how: str
) -> None:
    """The tree ignores SIGTERM, and has a daemon."""
    start_shell(start_worker, cluster, queue)
    base = cluster.nodes[0].api
    fields = {"timeout_seconds": 4, "max_attempts": 1} if how == "timeout" else {}
    job = submit(base, queue=queue, shell={"argv": [sys.executable, "-c", FAMILY]}, **fields)
    pids = pids_of(cluster, job["id"], 1)
    if how == "cancel":
        ran = run_cli("cancel", "--url", cluster.urls[0], job["id"])
        assert ran.returncode == 0, ran.stderr
    ended(cluster, job["id"], "cancelled" if how == "cancel" else "dead_letter")
    cluster.wait_until(lambda: all(map(has_ended, pids)), what="the end of its processes", seconds=20)


def test_job_whose_worker_is_killed_leaves_no_process_behind_and_is_tried_again(
    cluster: LocalCluster, start_worker: StartWorker, queue: str
) -> None:
    worker = start_shell(start_worker, cluster, queue)
    base = cluster.nodes[0].api
    job = submit(base, queue=queue, shell={"argv": [sys.executable, "-c", FAMILY]})
    pids = pids_of(cluster, job["id"], 1)
    worker.kill()
    cluster.wait_until(lambda: all(map(has_ended, pids)), what="the end of its processes", seconds=60)
    start_shell(start_worker, cluster, queue)
    assert set(pids_of(cluster, job["id"], 2)).isdisjoint(pids)
    assert attempts(base, job["id"])[0]["end"] == "worker_lost"
    run_cli("cancel", "--url", cluster.urls[0], job["id"])
    ended(cluster, job["id"], "cancelled")
