"""Run a node's executors: child processes, so that requests and their targets can't hold up the node's event loop.

Each is started again whenever it ends, after a pause that doubles while it lasts for a short time only. Its standard
input is a pipe that the node holds, so it also ends with a node that is killed. It logs to the node's own output.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import structlog

from raftsched.config import NodeConfig

log = structlog.get_logger()

_CALLER_VARIABLES: Final = ("RAFTSCHED_TOKEN", "RAFTSCHED_TOKEN_FILE", "RAFTSCHED_TENANT", "RAFTSCHED_ADMIN_TOKEN_FILE")
"""Variables that tell who calls the API: the executor calls it as itself."""
PAUSE_SECONDS_MIN: Final = 0.5
PAUSE_SECONDS_MAX: Final = 30.0
STEADY_SECONDS: Final = 60.0
"""A process that lasted for this long is started again after the shortest pause."""
_KILL_SECONDS: Final = 0.8
"""Longest wait at a stop for a process that was asked to end; runs under way are lost then, and executed elsewhere."""


def commands_of(config: NodeConfig) -> list[list[str]]:
    """Return the commands of the executors that a node's settings ask for."""
    executors = (_http_options(config), config.executors.http), (_email_options(config), config.executors.email)
    return [[*_worker(config), *options] for options, is_wanted in executors if is_wanted]


def _worker(config: NodeConfig) -> list[str]:
    urls = [config.member.api, *(member.api for member in config.nodes if member.id != config.node_id)]
    command = [sys.executable, "-m", "raftsched", "worker", "--until-stdin-ends", "--log-level", config.log_level]
    command += [part for url in urls for part in ("--url", config.url_of(url))]
    command += _given("--ca-file", config.api_tls.ca if config.api_tls else "")
    return command + _given("--secrets-dir", config.secrets.dir)


def _http_options(config: NodeConfig) -> list[str]:
    options = ["--http", "--concurrency", str(config.executors.http_concurrency)]
    options += _repeated("--queue", config.executors.http_queues)
    options += _repeated("--allow-target", config.http_targets.allow)
    options += _repeated("--deny-target", config.http_targets.deny)
    return options + _given("--proxy", config.http_targets.proxy)


def _email_options(config: NodeConfig) -> list[str]:
    smtp = config.smtp
    options = ["--email", "--smtp", smtp.url, "--smtp-from", smtp.sender]
    options += _repeated("--queue", config.executors.email_queues)
    options += _repeated("--smtp-allow-from", smtp.allow_from)
    options += _given("--smtp-tls", smtp.tls) + _given("--smtp-user", smtp.user)
    return options + _given("--smtp-password-secret", smtp.password_secret)


def _repeated(option: str, values: Sequence[str]) -> list[str]:
    return [part for value in values for part in (option, value)]


def _given(option: str, value: str) -> list[str]:
    return [option, value] if value else []


class ExecutorProcess:
    """The child process that `command` starts, with what `token` returns for the API."""

    def __init__(self, command: Sequence[str], *, token: Callable[[], str] = str) -> None:
        self._command = command
        self._environment = {name: text for name, text in os.environ.items() if name not in _CALLER_VARIABLES}
        self._token = token
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
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.PIPE, env=self._environment | self._credentials()
        )
        log.info("executor_started", pid=self._process.pid)
        if self._is_asked:  # while it was being started; it has taken no job yet
            with suppress(ProcessLookupError):
                self._process.kill()
        return await self._process.wait()

    def _credentials(self) -> dict[str, str]:
        """Return the variable of its token, which may be another one at each start."""
        token = self._token()
        return {"RAFTSCHED_TOKEN": token} if token else {}

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
