"""Capture what a handler prints, for the log of its attempt.

While a worker has handlers that ask for it, `sys.stdout` is a router. Text and bytes that such a handler writes become
lines of its log; all other writes go to the stream beneath, whose attributes all other handlers see. A context
variable tells which handler writes, so capture works in threads and tasks alike.

Left out: threads that a handler starts itself, the output of subprocesses, and C code that writes to descriptor 1.
"""

from __future__ import annotations

import codecs
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_LINE_CHARS_MAX = 8 * 1024
"""A longer line is logged in pieces, so that a progress bar, which never ends its line, can't fill the memory."""
_ENCODING = "utf-8"
_ERRORS = "backslashreplace"
"""Captured bytes that are not UTF-8 appear in the log as escapes."""
_decoder = codecs.getincrementaldecoder(_ENCODING)


class _Lines:
    """Pass on closed lines of what is written: one call of `log` for each write that closes any."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._open = ""
        self._decoder = _decoder(_ERRORS)

    def write(self, text: str) -> None:
        self._add(self._decoder.decode(b"", final=True) + text)  # what bytes began, text interrupts

    def write_bytes(self, data: bytes) -> None:
        self._add(self._decoder.decode(data))

    def _add(self, text: str) -> None:
        whole, feed, rest = (self._open + text).rpartition("\n")
        if feed:
            self._log(whole)
        self._open = rest
        if len(rest) >= _LINE_CHARS_MAX:
            self._end_line()

    def close(self) -> None:
        self.write("")
        self._end_line()

    def _end_line(self) -> None:
        if self._open:
            self._log(self._open)
            self._open = ""


_current: ContextVar[_Lines | None] = ContextVar("raftsched_stdout", default=None)


class _BytesRouter(io.BufferedIOBase):
    """Replace `sys.stdout.buffer`: bytes for the log of the handler that writes, or for the buffer beneath."""

    def __init__(self, beneath: Any) -> None:
        self._beneath = beneath

    def write(self, data: ReadableBuffer, /) -> int:
        lines = _current.get()
        if lines is None:
            written: int = self._beneath.write(data)
            return written
        copied = bytes(memoryview(data))  # refuses text, as every binary stream does
        lines.write_bytes(copied)
        return len(copied)

    def flush(self) -> None:
        self._beneath.flush()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        number: int = self._beneath.fileno()
        return number

    def isatty(self) -> bool:
        return _current.get() is None and bool(self._beneath.isatty())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._beneath, name)


class _Router(io.TextIOBase):
    """Replace `sys.stdout`: text for the log of the handler that writes, or for the stream beneath."""

    def __init__(self, beneath: TextIO) -> None:
        self._beneath: Any = beneath
        """Any: some replacements of stdout have fewer attributes than others."""
        buffer = getattr(beneath, "buffer", None)
        self._bytes = None if buffer is None else _BytesRouter(buffer)

    @property
    def buffer(self) -> _BytesRouter:
        if self._bytes is not None:
            return self._bytes
        if _current.get() is None:
            raise AttributeError(f"{type(self._beneath).__name__!r} object has no attribute 'buffer'")
        return _BytesRouter(io.BytesIO())  # stdout was replaced by a stream of text alone; the log takes bytes as well

    @property
    def encoding(self) -> Any:  # type: ignore[override]  # the base class has a plain attribute
        return self._beneath.encoding if _current.get() is None else _ENCODING

    @property
    def errors(self) -> Any:  # type: ignore[override]  # the base class has a plain attribute
        return self._beneath.errors if _current.get() is None else _ERRORS

    @property
    def newlines(self) -> Any:  # type: ignore[override]  # the base class has a plain attribute
        return self._beneath.newlines

    def write(self, text: str, /) -> int:
        lines = _current.get()
        if lines is None:
            written: int = self._beneath.write(text)
            return written
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        lines.write(text)
        return len(text)

    def reconfigure(self, **options: Any) -> None:
        """Change the stream beneath; for a captured handler, change nothing, since its log is UTF-8 and sent in lines."""
        if _current.get() is None:
            self._beneath.reconfigure(**options)

    def flush(self) -> None:
        self._beneath.flush()

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return _current.get() is None and bool(self._beneath.isatty())

    def fileno(self) -> int:
        number: int = self._beneath.fileno()
        return number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._beneath, name)


@contextmanager
def routed(*, wanted: bool) -> Iterator[None]:
    """Route `sys.stdout` within the block, if `wanted`."""
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
    """Hand what is printed within the block to `log`, line by line; None leaves it alone."""
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
