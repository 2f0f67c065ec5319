"""End a child process together with all that it started.

The child leads a session, so its process id names a group. A process that its handler starts belongs to that group,
unless it asks for a session of its own, as daemons do: such a process is not ended.

A group is asked first (SIGTERM) and killed (SIGKILL) after a grace. It is ended only when no member is left, so that a
retry of the job does not run beside what the first attempt started.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess

KILL_SECONDS = 2.0
"""Longest wait for killed processes to disappear. One in uninterruptible sleep can take longer."""
_LOOK_SECONDS = 0.02
"""Pause between two looks at a group whose leader is gone: the kernel has no event for it."""


class ProcessGroup:
    """The group that `process` leads. `ask` and `kill` are safe from any thread and never block."""

    def __init__(self, process: BaseProcess, *, grace_seconds: float) -> None:
        pid = process.pid
        assert pid is not None, "a started process has an id"
        self._process = process
        self._pid = pid
        self._grace_seconds = grace_seconds
        self._deadline: float | None = None
        """Monotonic time at which it is killed; None if it was not asked to end."""
        self._timer: threading.Timer | None = None
        self._is_over = False
        """No member is left, so its id may belong to other processes by now."""
        self._asking = threading.Lock()
        # What the child forks inherits the library's own sentinel, so that one can outlast the child.
        self._death = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None

    @property
    def death(self) -> int:
        """Return a descriptor that becomes readable when the leader ends."""
        return self._process.sentinel if self._death is None else self._death

    @property
    def is_asked(self) -> bool:
        """Return whether it was asked to end."""
        return self._deadline is not None

    def ask(self) -> None:
        """Send SIGTERM to every member, and kill those that are left after the grace; once."""
        with self._asking:
            if self._deadline is not None:
                return
            self._deadline = time.monotonic() + self._grace_seconds
            self._timer = threading.Timer(self._grace_seconds, self._kill_leader)
            self._timer.daemon = True
            self._timer.start()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to every member."""
        self._deadline = time.monotonic()
        self._signal(signal.SIGKILL)

    def end(self) -> None:
        """Ask, wait for the grace, kill, and return when no member is left.

        Blocks for the grace and twice `KILL_SECONDS`, at most.
        """
        if self._is_over:
            return
        self.ask()
        assert self._deadline is not None, "it was asked"
        wait([self.death], max(0.0, self._deadline - time.monotonic()))
        self._signal_leader(signal.SIGKILL)
        wait([self.death], KILL_SECONDS)
        _ = self._process.exitcode  # reaps it; `join` would wait for all that inherited the library's sentinel
        if not self._is_empty_by(self._deadline):
            self._signal(signal.SIGKILL)
            self._is_empty_by(time.monotonic() + KILL_SECONDS)
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._death is not None:
            descriptor, self._death = self._death, None
            os.close(descriptor)

    def _kill_leader(self) -> None:
        """Kill the leader, since the grace is over: this wakes the thread in `end`, which kills the rest."""
        self._signal_leader(signal.SIGKILL)

    def _is_empty_by(self, deadline: float) -> bool:
        """Return whether the last member ends by `deadline`; the leader must have been reaped, since it counts until
        then.
        """
        while self._has_members():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    def _has_members(self) -> bool:
        try:
            os.killpg(self._pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # a member that changed its user
        return True

    def _signal(self, number: signal.Signals) -> None:
        if self._is_over:
            return
        try:
            os.killpg(self._pid, number)
        except ProcessLookupError:
            self._signal_leader(number)  # it does not lead a session yet: it is still starting
        except PermissionError:
            pass  # no member may be signalled

    def _signal_leader(self, number: signal.Signals) -> None:
        """Signal the leader alone, by the library, which knows whether its id is still its own."""
        if number is signal.SIGKILL:
            self._process.kill()
        else:
            self._process.terminate()
