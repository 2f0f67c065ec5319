"""Run one command, and end with it all that it started. A program of its own, which the worker starts for each command.

It outlives the worker, so a worker that is killed leaves no process behind. It shares a socket with the worker. From
there it receives the command (one line of JSON), and later, if the command must stop, one byte. If the socket ends, the
worker has died. It sends lines of JSON: `started` with a process id, then `refused` with a reason, or `exited` with the
exit code of the command, negative for a signal. It exits when no process of the command is left.

The command leads a session. This program is the subreaper of everything below it: an orphan, also one with a session
of its own, becomes its child. So it has no child left exactly if nothing is left, and it reaps them all.

To end: SIGTERM to every process group, then SIGKILL after the grace, repeated until nothing is left. At the worker's
death there is no grace. What a command leaves running when it ends is ended in the same way. If this program itself is
killed, the kernel kills the command, and the worker kills its group.

Without Linux there is no subreaper: there only the group of the command is ended.

This file imports nothing but the standard library: its start costs some 40 ms of CPU time.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_IS_LINUX = sys.platform == "linux"
_LOOK_SECONDS = 0.05
"""Pause between two rounds of SIGKILL: a process may have been forked during the first."""
_CPU_GRACE_SECONDS = 5
"""CPU time from SIGXCPU, which a program may handle, to SIGKILL."""
_HEEDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that may be meant for a whole container. This program must outlive the command."""


class Supervisor:
    """The processes of one command."""

    def __init__(self, control: socket.socket, command: dict[str, Any]) -> None:
        self._control = control
        self._command = command
        self._pid = 0
        self._has_exited = False
        self._is_orphan = False
        """The worker died."""
        self._kill_at: float | None = None
        """Monotonic time from which members are killed; None while nothing has to end."""
        self._wakeup, write_end = os.pipe()
        os.set_blocking(self._wakeup, False)
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in (*_HEEDED, signal.SIGCHLD):
            signal.signal(number, lambda _number, _frame: None)  # not SIG_IGN, which the command would inherit

    def run(self, *, is_asked: bool) -> None:
        """Start the command and return when nothing of it is left; `is_asked`: it has to end at once."""
        try:
            self._start()
        except OSError as error:
            self._report(refused=str(error), errno=error.errno)
            return
        except (ValueError, subprocess.SubprocessError) as error:
            self._report(refused=str(error), errno=0)
            return
        if is_asked:
            self._end(float(self._command["grace_seconds"]))
        while self._has_members():
            self._step()

    def _start(self) -> None:
        command = self._command
        process = subprocess.Popen(  # noqa: S603  # the worker has checked it
            command["argv"],
            executable=command["program"],
            env=command["env"],
            cwd=command["cwd"],
            start_new_session=True,
            preexec_fn=self._limit,  # noqa: PLW1509  # this process has one thread
        )
        self._pid = process.pid
        process.returncode = 0  # it is reaped below, with all the others
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)  # the worker reads the end of the output when the last member has closed it

    def _limit(self) -> None:
        """Prepare the command's process; runs in it."""
        self._report(started=os.getpid())  # from here: a supervisor that is killed later could not do it
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != self._command["supervisor"]:  # it died before the line above
            os.kill(os.getpid(), signal.SIGKILL)
        os.nice(self._command["nice"])
        _set_limit(resource.RLIMIT_CORE, 0, 0)
        if (cpu_seconds := self._command["cpu_seconds"]) is not None:
            _set_limit(resource.RLIMIT_CPU, cpu_seconds, cpu_seconds + _CPU_GRACE_SECONDS)
        if (memory_bytes := self._command["memory_bytes"]) is not None:
            _set_limit(resource.RLIMIT_AS, memory_bytes, memory_bytes)

    def _step(self) -> None:
        """Wait for what comes next: a process that ended, a message of the worker, or the end of the grace."""
        watched = [self._wakeup] if self._is_orphan else [self._wakeup, self._control.fileno()]
        readable, _, _ = select.select(watched, [], [], self._wait_seconds())
        if self._wakeup in readable:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wakeup, 1024)
        if self._control.fileno() in readable:
            self._receive()
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._signal(signal.SIGKILL)

    def _wait_seconds(self) -> float | None:
        return None if self._kill_at is None else max(self._kill_at - time.monotonic(), _LOOK_SECONDS)

    def _receive(self) -> None:
        with contextlib.suppress(ConnectionResetError):
            if self._control.recv(64):
                self._end(float(self._command["grace_seconds"]))
                return
        self._end(0.0)
        self._is_orphan = True

    def _end(self, grace_seconds: float) -> None:
        """Ask all members to end; kill those that are left after the grace."""
        kill_at = time.monotonic() + grace_seconds
        if self._kill_at is None:
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)  # one that is stopped could not react
        self._kill_at = kill_at if self._kill_at is None else min(self._kill_at, kill_at)

    def _has_members(self) -> bool:
        """Reap what has ended; return whether something is left, which has to end if the command itself has ended."""
        has_children = self._reap()
        has_members = has_children or (not _IS_LINUX and self._group_exists())
        if self._has_exited and has_members and self._kill_at is None:
            self._end(float(self._command["grace_seconds"]))
        return has_members

    def _reap(self) -> bool:
        """Reap what has ended; return whether a child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._pid:
                self._has_exited = True
                self._report(exited=os.waitstatus_to_exitcode(status))

    def _group_exists(self) -> bool:
        try:
            os.killpg(self._pid, 0)
        except ProcessLookupError:
            return False
        return True

    def _signal(self, number: signal.Signals) -> None:
        """Signal every group that has a member. By group: what is forked meanwhile gets it, too."""
        groups = _groups_below(os.getpid())
        if not self._has_exited or not _IS_LINUX:
            groups.add(self._pid)
        for group in groups - {os.getpgrp()}:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # gone, or of another user
                os.killpg(group, number)

    def _report(self, **message: object) -> None:
        with contextlib.suppress(OSError):  # the worker is gone
            self._control.sendall(json.dumps(message).encode() + b"\n")


def _groups_below(ancestor: int) -> set[int]:
    """Return the process groups of all descendants of `ancestor`; none if there is no /proc."""
    children: dict[int, list[tuple[int, int]]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:  # noqa: PTH112, PTH208  # pathlib costs start-up time
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:  # noqa: PTH123
                _state, parent, group = stat.read().rpartition(b")")[2].split()[:3]
                children.setdefault(int(parent), []).append((int(name), int(group)))
    groups = set()
    waiting = [ancestor]
    while waiting:
        for pid, group_id in children.get(waiting.pop(), ()):
            groups.add(group_id)
            waiting.append(pid)
    return groups


def _set_limit(kind: int, soft: int, hard: int) -> None:
    """Set a limit, or the one that this process has already if that is lower."""
    highest = resource.getrlimit(kind)[1]
    if highest != resource.RLIM_INFINITY:
        soft, hard = min(soft, highest), min(hard, highest)
    resource.setrlimit(kind, (soft, hard))


_libc = ctypes.CDLL(None) if _IS_LINUX else None


def _prctl(option: int, value: int) -> None:
    if _libc is not None:
        _libc.prctl(option, value, 0, 0, 0)


def main() -> None:
    """Read the command from the socket whose descriptor is the first argument, and run it."""
    inherited = int(sys.argv[1])
    control = socket.socket(fileno=os.dup(inherited))  # a low number: select takes none from 1024 on
    os.close(inherited)
    received = b""
    while b"\n" not in received:
        part = control.recv(1 << 16)
        if not part:
            return  # the worker died
        received += part
    line, _, rest = received.partition(b"\n")
    command = json.loads(line)
    command["supervisor"] = os.getpid()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    Supervisor(control, command).run(is_asked=bool(rest))
    if command["removes_cwd"]:
        import shutil

        shutil.rmtree(command["cwd"], ignore_errors=True)


if __name__ == "__main__":
    main()
