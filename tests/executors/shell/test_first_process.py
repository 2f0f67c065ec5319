"""A shell worker that is the first process of a container, in a process namespace of its own."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.client.cluster import WAIT_SECONDS, running_cluster
from tests.test_first_process import NEW_PID_NAMESPACE

ORPHANS = "(sleep 0.01 &); (true &); (setsid sleep 600 &); echo left"
"""Leaves processes whose parent has ended: two that end by themselves, and a daemon."""
KILLS_ITS_SUPERVISOR = "[ $RAFTSCHED_ATTEMPT = 2 ] || { sleep 600 & sleep 600 & kill -9 $PPID; sleep 600; }"
"""Only the first process can reap what the first attempt started."""
HELD = "echo begun; until [ -e {go} ]; do sleep 0.02; done; echo ended"

can_unshare = pytest.mark.skipif(
    subprocess.run([*NEW_PID_NAMESPACE, "true"], capture_output=True, check=False).returncode != 0,
    reason="this system gives no process namespace to its users: `unshare --user --pid --fork` fails",
)


@contextmanager
def first_process(url: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A shell worker as process 1 of a namespace; all of it ends with the test."""
    worker = [sys.executable, "-m", "raftsched", "worker", "--shell", "--allow-any", "--url", url]
    with log.open("wb") as file, subprocess.Popen([*NEW_PID_NAMESPACE, *worker], stdout=file, stderr=file) as unshare:
        try:
            yield unshare
        finally:
            unshare.kill()


def family(unshare: subprocess.Popen[bytes]) -> tuple[psutil.Process, list[psutil.Process]]:
    """Return process 1 of the namespace, and all others in it."""
    [first] = psutil.Process(unshare.pid).children()
    return first, first.children(recursive=True)


@can_unshare
async def test_worker_as_first_process_reaps_what_commands_leave_and_drains_on_sigterm(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with running_cluster(lease_seconds=WAIT_SECONDS) as cluster:
        with first_process(cluster.nodes[0].url, log) as unshare:
            orphans = await cluster.add_job("shell", shell={"argv": ["sh", "-c", ORPHANS]})
            killed = await cluster.add_job("shell", shell={"argv": ["sh", "-c", KILLS_ITS_SUPERVISOR]})
            await cluster.finished(orphans, killed)
            assert (orphans.result["stdout_tail"], killed.attempt_number) == ("left\n", 2)
            first, _ = family(unshare)
            async with asyncio.timeout(WAIT_SECONDS):
                while len(left := family(unshare)[1]) > 1:  # a zombie would stay for ever
                    await asyncio.sleep(0.01)
            [worker] = left
            assert worker.ppid() == first.pid, "process 1 does nothing but reap and forward"

            go = tmp_path / "go"
            held = await cluster.add_job("shell", shell={"argv": ["sh", "-c", HELD.format(go=go)]})
            await cluster.until(lambda: "stdout: begun" in held.log)
            first.send_signal(signal.SIGTERM)
            async with asyncio.timeout(WAIT_SECONDS):
                while "worker_draining" not in log.read_text():
                    await asyncio.sleep(0.01)
            go.touch()
            await cluster.finished(held)
            assert held.result["stdout_tail"] == "begun\nended\n"
            assert await asyncio.to_thread(unshare.wait, WAIT_SECONDS) == 0
            assert not any(process.is_running() for process in (first, worker))
