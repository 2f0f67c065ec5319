"""A shell executor of a worker, and an attempt whose log is kept."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import psutil

from raftsched.executors.shell.executor import ShellExecutor, ShellResult
from raftsched.worker.handlers.context import Context
from tests.client.cluster import WAIT_SECONDS

INSTANT = datetime(2026, 3, 1, 4, 30, tzinfo=UTC)


class Attempt:
    """An attempt of a shell job; it is the `ReportSink` of its context."""

    is_log_behind = False

    def __init__(self, argv: list[str], *, parameters: Mapping[str, Any] | None = None, **fields: Any) -> None:
        self.text = ""
        self.beat_count = 0
        self.context = Context(
            job_id="j1",
            run_id="j1.1",
            fencing_token=7,
            attempt_number=2,
            name="shell",
            queue="shell",
            instant=INSTANT,
            parameters=parameters,
            sink=self,
        )
        self.context.call = {"argv": argv, **fields}

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def log(self, text: str) -> None:
        self.text += text + "\n"

    def beat(self) -> None:
        self.beat_count += 1

    def progress(self, document: bytes) -> None:
        raise AssertionError

    def result_of(self, parent: str) -> Any:
        raise AssertionError

    async def run(self, payload: Any = None, *, executor: ShellExecutor | None = None) -> ShellResult:
        return await (executor or executor_of()).run(self.context, payload)

    async def pids(self, count: int) -> list[int]:
        """Wait until the command has printed `count` numbers, a line each, and return them."""
        await until(lambda: len(self.lines) >= count)
        return [int(line.removeprefix("stdout: ")) for line in self.lines]


def executor_of(**options: Any) -> ShellExecutor:
    """Return an executor; `options` replace those of one that allows everything, with a short grace."""
    return ShellExecutor(**{"allow": None, "grace_seconds": 0.3, **options})


async def until(holds: Any) -> None:
    """Wait until `holds()`; fails if it never does."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not holds():
            await asyncio.sleep(0.01)


def wait_until(holds: Any) -> None:
    """Wait until `holds()`, without an event loop."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def living(pids: list[int]) -> list[int]:
    """Return those that are processes still, other than zombies."""
    left = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                left.append(pid)
    return left
