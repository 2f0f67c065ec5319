"""Register a command with the cluster as a job, and run it in this process as its one-off worker.

The job has a region of its own, and this worker is the only one of that region: so it gets this job, and nobody else
does. The lock is that of unique jobs, by name. A process that dies loses its lease; the job then moves to the dead-letter
queue, its hook is submitted, and the lock is free. If it dies before its first lease, the job expires. If it dies between
two attempts, the next process with the same name cancels the job.

While the cluster can't be reached, the command continues. Its lease may end meanwhile: then it is recorded as lost, and
the lock is free although the command still runs.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from raftsched import limits
from raftsched.cli.terminal.output import tell
from raftsched.cli.wrapper.execution import (
    EXIT_TIMEOUT,
    GRACE_SECONDS,
    NOT_RUN,
    copy_output,
    own_command,
    reported_code,
    shell_code,
)
from raftsched.client import Client, ClientSettings, Job
from raftsched.errors import RaftschedError, Rejected
from raftsched.executors.shell.environment import run_variables
from raftsched.executors.shell.executor import Ended, result_of, run_logged
from raftsched.wire.calls import ShellCommand
from raftsched.worker import Context, GiveUp, Snooze, Worker, WorkerSettings

QUEUE: Final = "run"
EXIT_NOT_RUN: Final = 75
"""EX_TEMPFAIL of sysexits.h: the lock is held, or the queue is paused or at its limit. A later run may succeed."""
EXIT_CANCELLED: Final = 143
"""As for SIGTERM, which ends the command."""
START_SECONDS: Final = 60.0
"""Longest wait for the start: a paused queue must not pile up the runs of a crontab."""
ABANDONED_AFTER: Final = timedelta(seconds=30)
"""The list of workers may not have a living one for some seconds."""
_REPORT_SECONDS: Final = 30.0
"""Longest wait of the outcome for a cluster that can't be reached."""
_POLL_SECONDS: Final = 1.0
_FOREIGN_SECONDS: Final = 60.0
_DEADLINE_SLACK: Final = timedelta(seconds=1)
"""The worker ends an attempt a little before its deadline."""
_NAME_CHARS_MAX: Final = 60
_OTHERS: Final = re.compile(r"[^A-Za-z0-9_.:@-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapped:
    """A command, and how it is registered."""

    argv: Sequence[str]
    name: str
    timeout_seconds: float | None
    max_attempts: int
    is_locked: bool
    on_failure: dict[str, Any] | None
    must_be_registered: bool
    """Do not run without the cluster."""


class LockHeld(Exception):
    """Another process runs a command of the same name."""


class NotRegistered(Exception):
    """The cluster could not be reached before the start."""


def name_of(program: str) -> str:
    """Return the name of the jobs that run `program`, by default."""
    return _OTHERS.sub("-", os.path.basename(program)).lstrip("_.:@-")[: limits.NAME_CHARS_MAX] or QUEUE  # noqa: PTH119


async def register(client: Client, wrapped: Wrapped, region: str) -> Job:
    """Submit the job of a command. Raises `LockHeld`, `Invalid`, or another error if the cluster does not take it."""
    try:
        return await _submit(client, wrapped, region)
    except Rejected as error:
        if error.code != "unique_conflict" or error.job_id is None:
            raise
        holder = client.job(error.job_id)
    if not await _is_abandoned(client, holder):
        info = await holder.get()
        on = f" on {info.region}" if info.region else ""
        raise LockHeld(f"{wrapped.name} is {info.status} already{on}, job {info.id}; --no-lock allows both")
    await holder.cancel()
    return await _submit(client, wrapped, region)


async def _submit(client: Client, wrapped: Wrapped, region: str) -> Job:
    return await client.submit(
        wrapped.name,
        {"argv": list(wrapped.argv), "cwd": os.getcwd(), "host": socket.gethostname()},  # noqa: PTH109
        queue=QUEUE,
        region=region,
        max_attempts=wrapped.max_attempts,
        max_lost_workers=1,
        timeout_seconds=wrapped.timeout_seconds,
        expires_in_seconds=START_SECONDS,
        unique={"by": ["name"], "on_conflict": "reject"} if wrapped.is_locked else None,
        on_failure=wrapped.on_failure,
    )


async def _is_abandoned(client: Client, holder: Job) -> bool:
    """Return whether the job waits for another attempt of a process that has died."""
    info = await holder.get()
    waits_since = datetime.now(UTC) - info.updated_at
    if info.attempt_number == 0 or info.status not in ("retrying", "queued") or waits_since < ABANDONED_AFTER:
        return False
    return info.region not in [worker["region"] for worker in await client.workers()]


def new_region() -> str:
    """Return the region of this process alone, which people see as the place where its job runs."""
    host = _OTHERS.sub("-", socket.gethostname())[:_NAME_CHARS_MAX].lstrip("_.:@-") or "host"
    return f"{host}-{os.getpid()}-{secrets.token_hex(3)}"


class RegisteredRun:
    """The attempts of one job in this process."""

    def __init__(
        self, client: Client, job: Job, wrapped: Wrapped, *, urls: Sequence[str], region: str, settings: ClientSettings
    ) -> None:
        self._client = client
        self._job = job
        self._wrapped = wrapped
        self._urls = urls
        self._has_started = False
        self._exit_code: int | None = None
        """Of the latest attempt, once it has ended."""
        self._running: asyncio.Task[Ended] | None = None
        self._is_last = asyncio.Event()
        """No other attempt follows."""
        self._interruption: str | None = None
        self._worker = Worker(
            *urls,
            name=region,
            region=region,
            queues=[QUEUE],
            concurrency=1,
            settings=WorkerSettings(
                stop_at_lease_end=wrapped.must_be_registered,
                stop_grace_seconds=2 * GRACE_SECONDS,
                prefetch_below_seconds=0.0,  # or it asks for another job, and the end waits for the answer
                report_seconds=_REPORT_SECONDS,
                client=settings,
            ),
        )
        self._worker.job(wrapped.name)(self._attempt)

    async def run(self) -> int:
        """Run all attempts and return the exit code for this process.

        Raises `NotRegistered` if the cluster was lost before the first attempt began.
        """
        serving = asyncio.create_task(self._worker.serve())
        waits = [asyncio.create_task(self._is_last.wait()), asyncio.create_task(self._until_finished())]
        try:
            await asyncio.wait([serving, *waits], return_when=asyncio.FIRST_COMPLETED)
            if self._running is not None:  # its job has ended without it: the lease was lost
                await asyncio.wait([self._running])
        finally:
            for wait in waits:
                wait.cancel()
            self._worker.drain()
            await asyncio.gather(serving, *waits, return_exceptions=True)
        return await self._end()

    def interrupt(self, reason: str) -> None:
        """Stop the command, and end the job; `run` returns when that is recorded."""
        self._interruption = reason
        if self._running is not None:
            self._running.cancel()
        self._is_last.set()

    # -- one attempt ---------------------------------------------------------------------------------------------------

    async def _attempt(self, ctx: Context, _payload: Any) -> Any:
        """Run the command as the handler of its job."""
        if ctx.job_id != self._job.id:  # it has our name, queue and no region: not ours to run
            raise Snooze(_FOREIGN_SECONDS)
        if self._interruption is not None:
            raise GiveUp(self._interruption)
        is_last = True
        try:
            return await self._run_command(ctx)
        except GiveUp:
            raise
        except (Exception, asyncio.CancelledError):
            is_last = ctx.attempt_number >= ctx.max_attempts
            raise
        finally:
            if is_last:
                self._worker.drain()  # now: once this slot is free, it would ask for another job, and wait for it
                self._is_last.set()

    async def _run_command(self, ctx: Context) -> Any:
        self._exit_code = None
        self._has_started = True
        try:
            command = own_command(self._wrapped.argv, run_variables(ctx, self._urls))
            running = run_logged(command, ctx, grace_seconds=GRACE_SECONDS, copy=copy_output)
            self._running = asyncio.create_task(running)
            ended = await asyncio.shield(self._running)
        except NOT_RUN as error:
            self._exit_code = reported_code(error)
            raise
        except asyncio.CancelledError:
            if self._interruption is not None:
                raise GiveUp(self._interruption) from None
            await self._stop(ctx)
            raise
        self._exit_code = shell_code(ended.exit_code)
        return result_of(ended, ShellCommand(argv=tuple(self._wrapped.argv)))

    async def _stop(self, ctx: Context) -> None:
        """Stop the command, unless only its lease was lost and it may run without the cluster."""
        assert self._running is not None
        left = None if ctx.deadline is None else ctx.deadline - datetime.now(UTC)
        if left is not None and left < _DEADLINE_SLACK:
            self._cancel(EXIT_TIMEOUT)
        elif self._wrapped.must_be_registered or await self._is_cancelled():
            self._cancel(EXIT_CANCELLED)
        else:
            tell(f"job {self._job.id} lost its lease: the command continues, but is no longer recorded or locked")
            if left is not None:
                asyncio.get_running_loop().call_later(left.total_seconds(), self._cancel, EXIT_TIMEOUT)
            return
        await asyncio.wait([self._running])

    def _cancel(self, exit_code: int) -> None:
        """Ask the command to end, if it still runs."""
        if self._running is not None and self._running.cancel():
            self._exit_code = exit_code

    async def _is_cancelled(self) -> bool:
        try:
            return (await self._job.get()).status in ("cancelling", "cancelled")
        except RaftschedError:
            return False

    # -- the end -------------------------------------------------------------------------------------------------------

    async def _until_finished(self) -> None:
        """Return once the job has finished; before its first attempt also once it should have started."""
        latest_start = time.monotonic() + START_SECONDS
        while True:
            if self._running is not None and not self._running.done():
                await asyncio.wait([self._running])
            try:
                if (await self._job.get()).is_finished:
                    return
            except RaftschedError:  # it can't be reached now
                if not self._has_started and time.monotonic() >= latest_start:
                    return
            await asyncio.sleep(_POLL_SECONDS)

    async def _end(self) -> int:
        """Return the exit code; end a job that no attempt follows, and report what is not recorded."""
        running = self._running
        if self._exit_code is None and running is not None and not running.cancelled() and not running.exception():
            self._exit_code = shell_code(running.result().exit_code)  # it continued without its lease
        try:
            info = await self._job.get()
            if not info.is_finished and (self._interruption is not None or not self._has_started):
                info = await self._job.cancel()
        except RaftschedError as error:
            if not self._has_started:
                raise NotRegistered(str(error)) from None
            tell(f"job {self._job.id} may be recorded as lost: {error}")
        else:
            if not self._has_started:
                tell(f"{self._wrapped.name} did not start: job {info.id} is {info.status}: {info.failure_reason}")
                return EXIT_NOT_RUN
        return EXIT_CANCELLED if self._exit_code is None else self._exit_code
