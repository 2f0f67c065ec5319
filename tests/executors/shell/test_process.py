"""Ends of commands: nothing that they started is left, whoever dies."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from raftsched.executors.shell import errors, executor, process
from tests.client.cluster import WAIT_SECONDS
from tests.executors.shell.scene import Attempt, executor_of, living, until, wait_until
from tests.for_each import for_each

FAMILY = """
import os, signal, sys, time

def member():
    signal.signal(signal.SIGTERM, signal.SIG_IGN if "ignore" in sys.argv else signal.SIG_DFL)
    print(os.getpid(), flush=True)
    time.sleep(600)

if os.fork() == 0:  # a child
    if os.fork() == 0:  # an orphan in the same group
        member()
    if os.fork() == 0:  # a daemon
        os.setsid()
        if os.fork() == 0:
            member()
        os._exit(0)
    if "stopped" in sys.argv:
        print(os.getpid(), flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
if "exit" not in sys.argv:
    member()
while "ready" not in os.listdir():
    time.sleep(0.01)
"""
"""Starts a family whose members print their process ids: the command, an orphan, a daemon."""
ORPHANS = """
import os, time

for _ in range(20):
    if os.fork() == 0:
        os.fork()
        os._exit(0)
    os.wait()

def parent_of(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return int(stat.read().rpartition(")")[2].split()[1])
    except OSError:
        return None

while [pid for pid in os.listdir("/proc") if pid.isdigit() and parent_of(pid) == os.getppid()] != [str(os.getpid())]:
    time.sleep(0.01)
"""
WORKER = """
import asyncio, sys
from raftsched.executors.shell.executor import ShellExecutor
from raftsched.worker.handlers.context import Context, NullSink

class Printer(NullSink):
    def log(self, text):
        print(text.replace("stdout: ", ""), flush=True)

async def main():
    context = Context(
        job_id="j", run_id="r", fencing_token=1, attempt_number=1, name="shell", queue="shell", sink=Printer()
    )
    context.call = {"argv": [sys.executable, "-c", sys.argv[1], "ignore"]}
    await ShellExecutor(allow=None, grace_seconds=600).run(context, None)

asyncio.run(main())
"""


@pytest.fixture
def pids() -> Iterator[list[int]]:
    """A list of processes that must be gone at the end; a failing test kills them."""
    found: list[int] = []
    yield found
    left = living(found)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


@for_each("option", ["obey", "ignore", "stopped"])
async def test_cancelled_command_ends_with_all_that_it_started(pids: list[int], option: str) -> None:
    attempt = Attempt([sys.executable, "-c", FAMILY, option])
    running = asyncio.create_task(attempt.run(executor=executor_of(grace_seconds=0.3 if option == "ignore" else 600)))
    found = await attempt.pids(4 if option == "stopped" else 3)
    pids += found
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert living(found) == []


async def test_command_may_clean_up_when_it_is_cancelled() -> None:
    attempt = Attempt(["sh", "-c", "trap 'echo cleaned; exit 1' TERM; echo ready; while true; do sleep 0.01; done"])
    running = asyncio.create_task(attempt.run(executor=executor_of(grace_seconds=600)))
    await until(lambda: attempt.lines)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert "stdout: cleaned" in attempt.lines


@for_each("ends", ["by itself", "asked"])
async def test_log_that_is_behind_costs_no_output_and_holds_up_no_stop(
    ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that is never sent: a command that ends has its whole tail, one that is cancelled ends soon."""
    assert process._DRAIN_SECONDS > executor._PATIENCE_SECONDS
    monkeypatch.setattr(executor, "_PATIENCE_SECONDS", 0.5 if ends == "by itself" else 600)
    attempt = Attempt(["sh", "-c", f"seq 10000; {'exit' if ends == 'by itself' else 'sleep 600'}"])
    attempt.is_log_behind = True
    running = asyncio.create_task(attempt.run(executor=executor_of(grace_seconds=600)))
    await until(lambda: attempt.lines)
    if ends == "asked":
        running.cancel()
    async with asyncio.timeout(WAIT_SECONDS):
        await asyncio.wait([running])
    assert running.cancelled() or running.result().stdout_tail.endswith("9999\n10000\n")


async def test_command_that_is_cancelled_at_once_does_not_run_on() -> None:
    running = asyncio.create_task(Attempt(["sleep", "600"]).run(executor=executor_of(grace_seconds=600)))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [child for child in psutil.Process().children(recursive=True) if child.name() == "sleep"] == []


@for_each("option", ["obey", "ignore"])
async def test_what_a_command_leaves_running_ends_before_its_run(pids: list[int], tmp_path: Path, option: str) -> None:
    attempt = Attempt([sys.executable, "-c", FAMILY, option, "exit"], cwd=str(tmp_path))
    running = asyncio.create_task(attempt.run())
    found = await attempt.pids(2)
    pids += found
    (tmp_path / "ready").touch()
    result = await running
    assert (result.exit_code, living(found)) == (0, [])
    (tmp_path / "ready").unlink()


def test_nothing_is_left_of_a_command_whose_worker_is_killed(pids: list[int]) -> None:
    with subprocess.Popen([sys.executable, "-c", WORKER, FAMILY], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        pids += [int(worker.stdout.readline()) for _ in range(3)]
        pids += [child.pid for child in psutil.Process(worker.pid).children(recursive=True)]
        own = psutil.Process(pids[0]).cwd()
        worker.kill()
        worker.stdout.read()  # ends when nothing holds the pipe
    wait_until(lambda: not living(pids))
    wait_until(lambda: not Path(own).exists())


async def test_command_whose_supervisor_is_killed_ends_and_is_tried_again(pids: list[int]) -> None:
    attempt = Attempt(["sh", "-c", "echo $$; sleep 600 & echo $!; wait"])
    running = asyncio.create_task(attempt.run())
    found = await attempt.pids(2)
    pids += found
    psutil.Process(found[0]).parent().kill()  # type: ignore[union-attr]  # its parent is the supervisor
    with pytest.raises(errors.SupervisorDied):
        await running
    await until(lambda: not living(found))


async def test_orphans_of_a_command_are_reaped() -> None:
    await Attempt([sys.executable, "-c", ORPHANS]).run()  # does not end before they are reaped


async def test_commands_side_by_side_do_not_hold_each_other(pids: list[int]) -> None:
    first, second = (Attempt([sys.executable, "-c", FAMILY, "obey"]) for _ in range(2))
    running = [asyncio.create_task(attempt.run(executor=executor_of(grace_seconds=600))) for attempt in (first, second)]
    pids += await first.pids(3) + await second.pids(3)
    running[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await running[0]
    assert living(await second.pids(3)) == await second.pids(3)
    running[1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await running[1]
