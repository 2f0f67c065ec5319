from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from raftsched.node import executor_process
from raftsched.node.executor_process import ExecutorProcess

WRITES_ITS_PID = "import os,sys; open(sys.argv[1],'a').write(f'{os.getpid()}\\n'); "
LASTS = WRITES_ITS_PID + "sys.stdin.read()"
IGNORES_SIGTERM = "import signal; signal.signal(15, signal.SIG_IGN); " + LASTS
ENDS = WRITES_ITS_PID + "sys.exit(3)"


def command(program: str, pids: Path) -> list[str]:
    return [sys.executable, "-c", program, str(pids)]


async def started(pids: Path, count: int) -> list[int]:
    """Return the ids of the processes once there are `count` of them."""
    async with asyncio.timeout(30):
        while not pids.exists() or len(pids.read_text().splitlines()) < count:
            await asyncio.sleep(0.01)
    return [int(line) for line in pids.read_text().splitlines()]


async def test_executor_that_ends_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_process, "PAUSE_SECONDS_MIN", 0.0)
    executor = ExecutorProcess(command(ENDS, tmp_path / "pids"))
    running = asyncio.create_task(executor.run())
    assert len(set(await started(tmp_path / "pids", 3))) >= 3
    running.cancel()
    await executor.stop()


@pytest.mark.parametrize("program", [LASTS, IGNORES_SIGTERM])
async def test_stop_ends_it_even_if_it_does_not_listen(tmp_path: Path, program: str) -> None:
    executor = ExecutorProcess(command(program, tmp_path / "pids"))
    running = asyncio.create_task(executor.run())
    [pid] = await started(tmp_path / "pids", 1)
    executor.ask()
    await executor.stop()
    await running
    assert not Path(f"/proc/{pid}").exists()


async def test_it_ends_with_a_node_that_is_killed(tmp_path: Path) -> None:
    node = (
        "import asyncio, sys; from raftsched.node.executor_process import ExecutorProcess; "
        "asyncio.run(ExecutorProcess(sys.argv[1:]).run())"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", node, *command(LASTS, tmp_path / "pids"))
    [pid] = await started(tmp_path / "pids", 1)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    async with asyncio.timeout(30):
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.01)
