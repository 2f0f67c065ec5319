"""Run a node's HTTP executor: a child process, so that requests and their targets can't hold up the node's event loop.

It is started again whenever it ends, after a pause that doubles while it lasts for a short time only. Its standard input
is a pipe that the node holds, so it also ends with a node that is killed. It logs to the node's own output.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import structlog

from raftsched.config import NodeConfig

log = structlog.get_logger()

PAUSE_SECONDS_MIN: Final = 0.5
PAUSE_SECONDS_MAX: Final = 30.0
STEADY_SECONDS: Final = 60.0
"""A process that lasted for this long is started again after the shortest pause."""
_KILL_SECONDS: Final = 0.8
"""Longest wait at a stop for a process that was asked to end; runs under way are lost then, and executed elsewhere."""


def command_of(config: NodeConfig) -> list[str]:
    """Return the command of the executor that a node's settings ask for."""
    urls = [config.member.api, *(member.api for member in config.nodes if member.id != config.node_id)]
    command = [sys.executable, "-m", "raftsched", "worker", "--http", "--until-stdin-ends"]
    command += ["--log-level", config.log_level, "--concurrency", str(config.executors.http_concurrency)]
    command += [part for queue in config.executors.http_queues for part in ("--queue", queue)]
    command += [part for url in urls for part in ("--url", f"http://{url}")]
    command += [part for target in config.http_targets.allow for part in ("--allow-target", target)]
    command += [part for target in config.http_targets.deny for part in ("--deny-target", target)]
    command += ["--secrets-dir", config.secrets.dir] if config.secrets.dir else []
    return command + (["--proxy", config.http_targets.proxy] if config.http_targets.proxy else [])


class ExecutorProcess:
    """The child process that `command` starts."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._is_asked = False

    async def run(self) -> None:
        """Keep it running until it is asked to end or this is cancelled; `stop` must follow."""
        pause = PAUSE_SECONDS_MIN
        while not self._is_asked:
            began = time.monotonic()
            try:
                code = await self._live()
            except OSError as error:
                log.warning("executor_not_started", error=str(error), advice="it is started again; see the settings")
            else:
                if self._is_asked:
                    return
                log.warning("executor_ended", exit_code=code, restart_seconds=pause)
            if time.monotonic() - began >= STEADY_SECONDS:
                pause = PAUSE_SECONDS_MIN
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    async def _live(self) -> int:
        """Start it, and return its exit code when it has ended."""
        self._process = await asyncio.create_subprocess_exec(*self._command, stdin=asyncio.subprocess.PIPE)
        log.info("executor_started", pid=self._process.pid)
        return await self._process.wait()

    def ask(self) -> None:
        """Ask it to end, without waiting: it takes no more jobs, and finishes those that it has."""
        if self._process is not None and self._process.returncode is None and not self._is_asked:
            with suppress(ProcessLookupError):
                self._process.terminate()
        self._is_asked = True

    async def stop(self) -> None:
        """End it, by SIGKILL if it does not end by itself soon."""
        self.ask()
        process = self._process
        if process is None or process.returncode is not None:
            return
        try:
            await asyncio.wait_for(process.wait(), _KILL_SECONDS)
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
