"""End the processes that a command starts when it ends, for any reason.

On SIGTERM, as on Ctrl-C, the command leaves its contexts, which stop its child processes. If it can't, as after
SIGKILL, the lifeline stops them: a pipe whose writing end the command holds and whose reading end is the standard input
of its children. The kernel closes it when the command ends, and the children stop as on SIGTERM. Unlike Linux's
PR_SET_PDEATHSIG this depends neither on the thread that started a child nor on the child being quick to ask for it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from functools import cache, wraps
from types import FrameType
from typing import Final, ParamSpec, TypeVar

import click

_P = ParamSpec("_P")
_R = TypeVar("_R")
UNTIL_STDIN_ENDS: Final = "--until-stdin-ends"
_READ_BYTES: Final = 4096


@cache
def lifeline() -> int:
    """Return the standard input for children; it ends when this process ends, and not before."""
    reading, _writing = os.pipe()
    return reading


def _watch_stdin(_context: click.Context, _option: click.Parameter, is_wanted: bool) -> None:
    if is_wanted:
        stop_when_stdin_ends()


def stop_when_stdin_ends() -> None:
    """Make this process stop as on SIGTERM when its standard input ends, that is with the process that made it."""
    threading.Thread(target=_wait_for_end_of_stdin, name="lifeline", daemon=True).start()


def _wait_for_end_of_stdin() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))  # their waiter handles those
    while os.read(0, _READ_BYTES):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


until_stdin_ends_option = click.option(
    UNTIL_STDIN_ENDS,
    is_flag=True,
    expose_value=False,
    callback=_watch_stdin,
    help="Also stop when standard input ends, that is with the process at its other end.",
)


def stops_its_children(command: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make SIGTERM leave the command's contexts, as Ctrl-C does; exit code 143 then, and 130 after Ctrl-C, as in shells."""

    @wraps(command)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        ended_by = signal.SIGINT

        def interrupt(_number: int, frame: FrameType | None) -> None:
            nonlocal ended_by
            ended_by = signal.SIGTERM
            on_ctrl_c = signal.getsignal(signal.SIGINT)  # while asyncio runs, its own: it cancels the main task
            assert callable(on_ctrl_c)
            on_ctrl_c(signal.SIGINT, frame)

        if not callable(signal.getsignal(signal.SIGINT)):
            # A shell's background ignores SIGINT. It still does, but asyncio takes over only from Python's own handler;
            # without its help the interrupt strikes whatever task happens to run.
            signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
            signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, interrupt)
        try:
            return command(*args, **kwargs)
        except KeyboardInterrupt:
            raise SystemExit(128 + ended_by) from None

    return wrapped
