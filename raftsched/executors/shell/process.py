"""Run one command under a supervisor, and read its output while it runs.

The supervisor (see `supervisor`) is a process of its own, with a socket to the worker. The worker's end of it has the
life of the worker: the kernel closes it however the worker ends, and then the supervisor ends the command. Descriptors
are not inherited, so no other child of the worker can keep it open.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import IO

import msgspec

from raftsched.executors.shell import supervisor
from raftsched.executors.shell.errors import CommandNotStarted, CommandRefused, SupervisorDied
from raftsched.single_file import own_variables

_CHUNK_BYTES = 16 * 1024
"""Bytes of output taken at a time. What is not taken waits in the pipe, and makes the command wait."""
_DRAIN_SECONDS = 30.0
"""Longest wait for the rest of the output after the last process ended: more than those who take it may wait for a log."""
_ASKED_DRAIN_SECONDS = 1.0
"""The same for a command that was asked to end: a slow log must not make it look as if it ignored that."""
_NEVER_STARTS = frozenset(
    (
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EACCES,
        errno.EPERM,
        errno.ENOEXEC,
        errno.E2BIG,
        errno.ELOOP,
        errno.ENAMETOOLONG,
    )
)
"""Errors of the system that another attempt on this worker would meet again."""

Take = Callable[[bytes], Awaitable[None]]
"""Take the next bytes of a stream. The command waits until it returns, at the latest when its pipe is full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command that may run."""

    program: str
    """An absolute path."""
    argv: tuple[str, ...]
    env: dict[str, str]
    """All of its environment."""
    cwd: str | None = None
    """None = an empty directory of its own, which is removed afterwards."""
    stdin: bytes | None = b""
    """None = the standard input of this process."""
    nice: int = 0
    memory_bytes: int | None = None
    cpu_seconds: int | None = None


class _Report(msgspec.Struct):
    """A report of the supervisor; see there."""

    started: int | None = None
    refused: str | None = None
    errno: int = 0
    exited: int | None = None


_decode = msgspec.json.Decoder(_Report).decode


async def run(command: Command, *, grace_seconds: float, take_stdout: Take, take_stderr: Take) -> int:
    """Run `command` and return its exit code, negative for a signal, when no process of it is left.

    If this is cancelled, all processes of the command get SIGTERM, and after `grace_seconds` SIGKILL; `CancelledError` is
    raised when none is left. Raises `CommandRefused`, `CommandNotStarted` and `SupervisorDied`.
    """
    process = _Process(command, grace_seconds)
    running = asyncio.get_running_loop().create_task(process.run(take_stdout, take_stderr))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        process.ask()
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # it is no longer of interest
        raise


class _Process:
    """A command and its supervisor."""

    def __init__(self, command: Command, grace_seconds: float) -> None:
        """Start the supervisor, which starts the command; raises `CommandNotStarted`."""
        self._command = command
        self._pid: int | None = None
        self._exit_code: int | None = None
        self._is_asked = False
        with contextlib.ExitStack() as undo:
            try:
                self._control, theirs = socket.socketpair()
                undo.callback(self._control.close)
                self._cwd = command.cwd or tempfile.mkdtemp(prefix="raftsched-")
                undo.callback(self._remove_cwd)
                with theirs, _file_of(command.stdin) as stdin:
                    self._supervisor = _started_supervisor(theirs.fileno(), stdin)
            except OSError as error:
                raise CommandNotStarted(f"the command can't be started: {error}") from error
            undo.pop_all()
        with contextlib.suppress(ConnectionError):  # it died; that is seen below
            self._control.sendall(self._request(grace_seconds))
        self._control.setblocking(False)

    def ask(self) -> None:
        """Ask the command to end, and all that it started."""
        self._is_asked = True
        with contextlib.suppress(OSError):  # it has ended
            self._control.send(b"!")

    async def run(self, take_stdout: Take, take_stderr: Take) -> int:
        """Start the command; return its exit code when nothing of it is left."""
        stdout, stderr = self._supervisor.stdout, self._supervisor.stderr
        assert stdout is not None and stderr is not None, "they are pipes"  # noqa: PT018
        copying = [asyncio.create_task(_copy(stdout, take_stdout)), asyncio.create_task(_copy(stderr, take_stderr))]
        try:
            await self._follow()
            self._reap()
            await asyncio.wait(copying, timeout=_ASKED_DRAIN_SECONDS if self._is_asked else _DRAIN_SECONDS)
        finally:
            self._control.close()
            for task in copying:
                task.cancel()
            if self._supervisor.returncode is None:  # cancelled: the supervisor ends the command without this worker
                threading.Thread(target=self._supervisor.wait, daemon=True).start()
        for task in copying:
            if task.done():
                task.result()
        if self._exit_code is None:
            raise SupervisorDied("the process that watches the command was killed")
        return self._exit_code

    async def _follow(self) -> None:
        """Receive reports of the supervisor until it exits."""
        received = b""
        with contextlib.suppress(ConnectionError):
            while part := await asyncio.get_running_loop().sock_recv(self._control, 4096):
                *lines, received = (received + part).split(b"\n")
                for line in lines:
                    self._receive(_decode(line))

    def _request(self, grace_seconds: float) -> bytes:
        command = self._command
        request = {
            "program": command.program,
            "argv": command.argv,
            "env": command.env,
            "cwd": self._cwd,
            "removes_cwd": command.cwd is None,
            "nice": command.nice,
            "memory_bytes": command.memory_bytes,
            "cpu_seconds": command.cpu_seconds,
            "grace_seconds": grace_seconds,
        }
        return json.dumps(request).encode() + b"\n"  # as msgspec does not, it takes variables that are not UTF-8

    def _receive(self, report: _Report) -> None:
        if report.refused is not None:
            final = report.errno in _NEVER_STARTS or report.errno == 0
            raise (CommandRefused if final else CommandNotStarted)(f"the command can't be started: {report.refused}")
        if report.started is not None:
            self._pid = report.started
        if report.exited is not None:
            self._exit_code = report.exited

    def _reap(self) -> None:
        """Reap the supervisor, which is exiting; kill the command's group if it could not do its work."""
        if self._supervisor.wait() == 0:
            return
        self._exit_code = None
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)
        self._remove_cwd()

    def _remove_cwd(self) -> None:
        if self._command.cwd is None:
            shutil.rmtree(self._cwd, ignore_errors=True)


def _started_supervisor(control: int, stdin: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603  # this interpreter, and a file of this package
        [sys.executable, "-I", "-S", "-B", supervisor.__file__, str(control)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        cwd="/",
        env=own_variables(),
        pass_fds=[control],
        start_new_session=True,
    )


def _file_of(stdin: bytes | None) -> IO[bytes]:
    """Return a file to read `stdin` from: unlike a pipe it needs nobody who writes."""
    if stdin is None:
        return os.fdopen(os.dup(0), "rb", buffering=0)
    if not stdin:
        return open(os.devnull, "rb")  # noqa: PTH123  # pathlib has no shorter way
    file = tempfile.TemporaryFile()  # noqa: SIM115  # the caller's context closes it
    file.write(stdin)
    file.seek(0)
    return file


async def _copy(pipe: IO[bytes], take: Take) -> None:
    """Take what comes through `pipe` until its end."""
    reader = asyncio.StreamReader(limit=_CHUNK_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        while data := await reader.read(_CHUNK_BYTES):
            await take(data)
    finally:
        transport.close()
