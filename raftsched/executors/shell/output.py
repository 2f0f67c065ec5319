"""Turn what a command writes into lines for the log of its attempt, its last bytes, and its size.

A line is logged with the name of its stream. Bytes that are not UTF-8 are replaced, and a long line is logged in pieces.
The log of an attempt is bounded: when it is full, the rest is read and counted, and the last line says how much it was.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable

from raftsched import limits
from raftsched.executors.secrets import Redaction
from raftsched.worker.handlers.result import valid_text

TAIL_BYTES = 4 * 1024
"""Part of each stream, its end, that the result contains."""
_LINE_CHARS_MAX = 2_000
"""Longest piece of a line: at most 8,000 bytes, which the log takes uncut."""
_NOTE_BYTES_MAX = 256
"""Room in the log for the note about the rest, and for notes of the worker about lines that were left out."""
_NOTE = "… {:,} bytes more were not logged: the log of an attempt holds {:,} bytes"


class Stream:
    """One of the two streams of a command."""

    def __init__(self, name: str, output: Output) -> None:
        self.name = name
        self._output = output
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._open = ""
        self._tail = b""
        self._redacted = output.redaction.stream()

    @property
    def tail(self) -> str:
        """Return the last bytes as text."""
        return valid_text(self._tail.decode(errors="replace"))

    def take(self, data: bytes) -> None:
        """Take the next bytes."""
        self._output.byte_count += len(data)
        self._take(self._redacted.take(data))

    def _take(self, data: bytes) -> None:
        self._tail = (self._tail + data[-TAIL_BYTES:])[-TAIL_BYTES:]
        if self._output.is_full:
            self._output.dropped_byte_count += len(data)
            return
        self._log((self._open + self._decode(data)).splitlines(keepends=True), is_end=False)

    def close(self) -> None:
        """Log what is left of the last line."""
        self._take(self._redacted.end())
        rest = self._open + self._decode(b"", final=True)
        if self._output.is_full:
            self._output.dropped_byte_count += len(rest.encode())
        else:
            self._log(rest.splitlines(keepends=True), is_end=True)

    def _log(self, lines: list[str], *, is_end: bool) -> None:
        self._open = ""
        # A line feed may follow a carriage return.
        if lines and not is_end and (len(lines[-1].splitlines()[0]) == len(lines[-1]) or lines[-1].endswith("\r")):
            self._open = lines.pop()
            if len(self._open) > _LINE_CHARS_MAX:
                cut = len(self._open) - len(self._open) % _LINE_CHARS_MAX
                lines.append(self._open[:cut])
                self._open = self._open[cut:]
        self._output.log([f"{self.name}: {piece}" for line in lines for piece in _pieces(line.splitlines()[0])])


class Output:
    """The output of a command; `log` gets the lines for the attempt's log, one or more at a time.

    Its lines and tails do not contain what `redaction` removes.
    """

    def __init__(self, log: Callable[[str], None], redaction: Redaction) -> None:
        self._log = log
        self.redaction = redaction
        self._room_bytes = limits.LOG_BYTES_MAX - _NOTE_BYTES_MAX
        self.byte_count = 0
        self.dropped_byte_count = 0
        """Bytes that came when the log was full."""
        self.is_full = False
        self.stdout = Stream("stdout", self)
        self.stderr = Stream("stderr", self)

    def log(self, lines: list[str]) -> None:
        """Log as many of `lines` as the log has room for."""
        kept = []
        for line in map(valid_text, lines):
            byte_count = len(line.encode()) + 1
            self.is_full = self.is_full or byte_count > self._room_bytes
            if self.is_full:
                self.dropped_byte_count += byte_count - len("stdout: ")
            else:
                self._room_bytes -= byte_count
                kept.append(line)
        if kept:
            self._log("\n".join(kept))

    def close(self) -> None:
        """Log what is left of the last lines, and how much was not logged."""
        self.stdout.close()
        self.stderr.close()
        if self.is_full:
            self._log(_NOTE.format(self.dropped_byte_count, limits.LOG_BYTES_MAX))


def _pieces(line: str) -> list[str]:
    starts = range(0, len(line), _LINE_CHARS_MAX)
    return [line[start : start + _LINE_CHARS_MAX] for start in starts] or [""]
