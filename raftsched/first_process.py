"""Run the program as a child if it would be the first process of a container.

The kernel treats process 1 in its own way: signals without a handler are ignored, so a SIGTERM during start-up and a
second one have no effect; and every orphan becomes its child, which stays a zombie until it is reaped. So process 1
only does this: it forwards signals, reaps, and ends with the exit code of its child, which is the program. This is what
`tini` and `docker run --init` do; here it needs no option and no package.

Left out: waiting for orphans. The kernel kills them when process 1 ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

_OWN = frozenset((signal.SIGCHLD, signal.SIGTTIN, signal.SIGTTOU))
_FAULTS = frozenset(
    (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGSYS, signal.SIGTRAP)
)
"""Signals that a process causes by itself."""
_EXIT_BY_SIGNAL = 128
"""Added to the number of the signal that ended the child, as shells do: process 1 can't end by a signal."""


def leave_first_process() -> None:
    """Return at once, or in a child if this is process 1, which then never returns.

    Call it before any thread is started and before much is loaded: both processes keep what was loaded until then.
    """
    if os.getpid() != 1:
        return
    forwarded = signal.valid_signals() - _FAULTS
    before = signal.pthread_sigmask(signal.SIG_BLOCK, forwarded)
    child = os.fork()
    if child == 0:
        _become_foreground()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    _serve(child, forwarded)


def _become_foreground() -> None:
    """Lead a group of its own, the terminal's if there is one; otherwise Ctrl-C would arrive twice, the second forwarded."""
    os.setpgid(0, 0)
    with contextlib.suppress(OSError):  # no terminal
        os.tcsetpgrp(sys.stdin.fileno(), os.getpgrp())  # SIGTTOU, sent to a background group for that, is blocked here


def _serve(child: int, forwarded: set[signal.Signals]) -> None:
    """Forward and reap until `child` ends, then end as it did."""
    while True:
        number = signal.sigwait(forwarded)
        if number not in _OWN:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)
        code = _reap(child)
        if code is not None:
            os._exit(code)


def _reap(child: int) -> int | None:
    """Reap all that has ended, and return the exit code of `child` if it is among them."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == child:
            ended = os.waitstatus_to_exitcode(status)
            code = ended if ended >= 0 else _EXIT_BY_SIGNAL - ended
