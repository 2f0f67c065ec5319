"""Takes what a handler prints, for the log of its attempt.

While a worker has handlers that ask for it, `sys.stdout` is a router: what is written within such a handler becomes
lines of its log, everything else goes where it always went. Which handler writes is told by a context variable, so it
works in threads and tasks alike. Left out: threads that a handler starts by itself, and writes below Python.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TextIO

_LINE_CHARS_MAX = 8 * 1024
"""A line that isn't closed by then goes as it is, so that progress bars can't fill the memory."""


class _Lines:
    """Closed lines of what is written, one call of `log` for each write that closes any."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._open = ""

    def write(self, text: str) -> None:
        whole, feed, rest = (self._open + text).rpartition("\n")
        if feed:
            self._log(whole)
        self._open = rest
        if len(rest) >= _LINE_CHARS_MAX:
            self.close()

    def close(self) -> None:
        if self._open:
            self._log(self._open)
            self._open = ""


_current: ContextVar[_Lines | None] = ContextVar("raftsched_stdout", default=None)


class _Router(io.TextIOBase):
    def __init__(self, beneath: TextIO) -> None:
        self._beneath = beneath

    @property
    def encoding(self) -> str:  # type: ignore[override]  # the base class has a plain attribute
        return self._beneath.encoding

    def write(self, text: str, /) -> int:
        lines = _current.get()
        if lines is None:
            return self._beneath.write(text)
        lines.write(text)
        return len(text)

    def flush(self) -> None:
        self._beneath.flush()

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return _current.get() is None and self._beneath.isatty()

    def fileno(self) -> int:
        return self._beneath.fileno()


@contextmanager
def routed(*, wanted: bool) -> Iterator[None]:
    """Route `sys.stdout` within, if that is `wanted`."""
    if not wanted:
        yield
        return
    before = sys.stdout
    router = _Router(before)
    sys.stdout = router
    try:
        yield
    finally:
        if sys.stdout is router:  # or somebody else has replaced it since
            sys.stdout = before


@contextmanager
def captured(log: Callable[[str], None] | None) -> Iterator[None]:
    """Hand what is printed within to `log`, line by line; None = leave it alone."""
    if log is None:
        yield
        return
    lines = _Lines(log)
    token = _current.set(lines)
    try:
        yield
    finally:
        _current.reset(token)
        lines.close()
