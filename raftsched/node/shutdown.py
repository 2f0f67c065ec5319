"""End this process in order and within a bounded time, even if parts hang.

    SIGTERM, SIGINT, or a part that failed  →  begin  →  the steps of the stop, each with a bound  →  end

Three things can hang: a step of the stop (it is given up, and the next one runs), the event loop itself (a blocked
disk, a stopped machine), and the interpreter's own exit, which joins threads that wait for a disk or a resolver. So a
thread keeps the bound of the whole, and `end` leaves the process without the interpreter's clean-up: durable data is
durable by then, and the kernel frees the rest.

Signals are waited for in a thread too, so that they work while the event loop is blocked. A second one ends the process
at once, by that signal.

Left out: stopping the reader of a pipe that takes no more log lines; a last line that can't be written in a second is
dropped.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, NoReturn

import structlog

from raftsched.errors import RaftschedError
from raftsched.limits import STOP_SECONDS_MAX

EXIT_FAULT: Final = 70
"""EX_SOFTWARE of sysexits.h: the node stopped itself because continuing was not safe."""
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_LAST_LINE_SECONDS: Final = 1.0
_STACK_FRAMES: Final = 10
"""Of the event loop, the innermost ones: enough to show which of our functions hangs below those of a library."""
_log = structlog.get_logger()


class StopIncomplete(RaftschedError):
    """The process ends although a part of it did not stop in time; acknowledged data is durable nevertheless."""

    code = "stop_incomplete"


class Shutdown:
    """The end of this process: its reason, its progress, and its bound.

    `leave` ends the process at once; tests replace it.
    """

    def __init__(self, *, seconds: float = STOP_SECONDS_MAX, leave: Callable[[int], Any] = os._exit) -> None:
        self._seconds = seconds
        self._leave = leave
        self._asked = threading.Event()
        self._has_ended = threading.Event()
        self._has_begun = False
        self._lock = threading.Lock()
        self._listeners: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._given_up: list[str] = []

    # -- what asks for it ---------------------------------------------------------------------------------------------

    def watch_signals(self) -> None:
        """Take over SIGTERM and SIGINT; called once, by the main thread, before it starts other threads."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # the second one ends the process, and asyncio leaves it alone
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        threading.Thread(target=self._wait_for_signals, name="signals", daemon=True).start()

    def _wait_for_signals(self) -> None:
        first = signal.sigwait(_SIGNALS)
        self.ask(signal.Signals(first).name)
        second = signal.sigwait(_SIGNALS)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        os.kill(os.getpid(), second)

    def ask(self, reason: str) -> None:
        """Ask the process to stop, from any thread; from now on it ends in time, even if the event loop is blocked."""
        with self._lock:
            self._asked.set()
            listeners, self._listeners = self._listeners, []
        for loop, event in listeners:
            with suppress(RuntimeError):  # that loop has ended
                loop.call_soon_threadsafe(event.set)
        self.begin(reason)

    async def asked(self) -> None:
        """Return once the process was asked to stop."""
        event = asyncio.Event()
        with self._lock:
            if self._asked.is_set():
                return
            self._listeners.append((asyncio.get_running_loop(), event))
        await event.wait()

    # -- the stop itself ----------------------------------------------------------------------------------------------

    def begin(self, reason: str) -> None:
        """Bound the remaining time, once; `reason` is for the log line of a stop that takes too long."""
        with self._lock:
            if self._has_begun:
                return
            self._has_begun = True
        threading.Thread(target=self._enforce, args=(reason, threading.get_ident()), name="stop", daemon=True).start()

    async def step(self, name: str, work: Awaitable[object], *, seconds: float) -> bool:
        """Wait for one step of the stop, at most `seconds`; return whether it is done.

        A step that fails or takes too long is logged, and the stop continues with the next one.
        """
        task = asyncio.ensure_future(work)
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            task.cancel()
            self._given_up.append(name)
            _log.error("stop_step_given_up", step=name, seconds=seconds)
            return False
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._given_up.append(name)
            _log.error("stop_step_failed", step=name, error=str(error), exc_info=error)
        return error is None

    def check(self) -> None:
        """Raise `StopIncomplete` if a step failed or was given up."""
        if self._given_up:
            raise StopIncomplete(f"did not stop in order: {', '.join(self._given_up)}")

    def end(self, code: int) -> NoReturn:
        """Leave the process with this exit code, now; log lines are written first."""
        self._has_ended.set()
        self._flush_and_leave(code)
        raise SystemExit(code)  # reached only in tests

    # -- when all else fails ------------------------------------------------------------------------------------------

    def _enforce(self, reason: str, beginner: int) -> None:
        if self._has_ended.wait(self._seconds):
            return
        main = threading.main_thread().ident or beginner

        def say() -> None:
            frame = sys._current_frames().get(main)  # noqa: SLF001  # the documented way to see another thread's stack
            stack = traceback.format_stack(frame)[-_STACK_FRAMES:] if frame is not None else []
            _log.critical(
                "node_ended_by_force",
                error=f"the stop took more than {self._seconds:g} s; acknowledged data is durable",
                code=StopIncomplete.code,
                reason=reason,
                given_up=self._given_up,
                stack="".join(stack),
            )

        # In a thread, since both the source lines of the stack and the log may be on the disk that hangs.
        writer = threading.Thread(target=say, name="last words", daemon=True)
        writer.start()
        writer.join(_LAST_LINE_SECONDS)
        self._flush_and_leave(EXIT_FAULT)

    def _flush_and_leave(self, code: int) -> None:
        flusher = threading.Thread(target=_flush, name="flush", daemon=True)
        flusher.start()
        flusher.join(_LAST_LINE_SECONDS)
        self._leave(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
