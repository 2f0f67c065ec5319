"""Pass on what a handler reports while it runs: progress, signs of life, lines of its log.

The handler's side returns at once and is safe from any thread. Progress and signs wait in one slot each, the latest
replacing the one before, until the heartbeat thread takes them along. Lines wait in a bounded buffer until the shipper
takes a piece; if the buffer is full, new lines are left out, and a line says how many.

Once the attempt is over its reports are closed, and later ones, as from a handler that hangs, are dropped.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from raftsched import limits
from raftsched.worker.handlers.result import valid_text

_CUT = " … (cut)"
_LEFT_OUT = "… {} lines were left out here: they came faster than they could be sent"
_LOG_ENDS = (
    f"… the log ends here: it was sent in {limits.LOG_PIECES_MAX} pieces, which is all that an attempt's log can have"
)
_LEFT_OUT_BYTES_MAX = 128
_LINE_BYTES_MAX = 8 * 1024
"""Longest line; the rest is cut off. A longer line is a document, and belongs in the result or elsewhere."""


class Sign(NamedTuple):
    """The report about one run in a heartbeat."""

    progress: msgspec.Raw | UnsetType = UNSET
    alive: bool = False


NO_SIGN = Sign()


class Piece(NamedTuple):
    """Lines that are sent together, and their position in the attempt's log."""

    lines: list[str]
    sequence: int


class ReportHooks:
    """The callbacks and bounds that the reports of all runs of a worker share."""

    __slots__ = ("buffer_bytes_max", "loop", "on_lines", "on_sign", "read_result")

    def __init__(
        self,
        *,
        buffer_bytes_max: int,
        on_sign: Callable[[], None],
        on_lines: Callable[[AttemptReports], None],
        read_result: Callable[[AttemptReports, str], Coroutine[Any, Any, Any]],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        """The worker's."""
        self.buffer_bytes_max = buffer_bytes_max
        self.on_sign = on_sign
        """Called in the handler's thread when a sign waits."""
        self.on_lines = on_lines
        """Called in the handler's thread when the first line waits, and when so much waits that it should be sent early."""
        self.read_result = read_result


class AttemptReports:
    """The reports of one attempt."""

    __slots__ = (
        "_beaten", "_byte_count", "_hooks", "_is_log_ended", "_left_out_count", "_lines", "_lock", "_on_its_way",
        "_progress", "_sequence", "fencing_token", "is_async", "is_closed", "job_id", "run_id", "sign_left_at", "workflow_id",
    )  # fmt: skip

    def __init__(
        self,
        hooks: ReportHooks,
        *,
        job_id: str,
        run_id: str,
        fencing_token: int,
        workflow_id: str | None,
        is_async: bool,
    ) -> None:
        self.job_id = job_id
        self.run_id = run_id
        self.fencing_token = fencing_token
        self.workflow_id = workflow_id
        self.is_async = is_async
        """The handler is a coroutine, and awaits what other handlers block for."""
        self.is_closed = False
        self.sign_left_at = float("-inf")
        """Departure of the heartbeat that took the latest sign along."""
        self._hooks = hooks
        self._lock = threading.Lock()
        self._progress: bytes | None = None
        self._on_its_way: bytes | None = None
        """Progress in a heartbeat that has no answer yet."""
        self._beaten = False
        self._lines: deque[str] = deque()
        self._byte_count = 0
        self._left_out_count = 0
        self._sequence = 0
        self._is_log_ended = False

    # -- the handler's side -------------------------------------------------------------------------------------------

    def progress(self, document: bytes) -> None:
        """Keep `document` as the latest progress."""
        if self.is_closed:
            return
        is_first = not self.has_sign
        self._progress = document
        if is_first:
            self._hooks.on_sign()

    def beat(self) -> None:
        """Note that the handler lives."""
        if self.is_closed:
            return
        is_first = not self.has_sign
        self._beaten = True
        if is_first:
            self._hooks.on_sign()

    def log(self, text: str) -> None:
        """Keep the lines of `text`, as far as the buffer allows."""
        lines = [_line(line) for line in valid_text(text).splitlines() or [""]]
        with self._lock:
            if self._is_log_ended:
                return
            had_lines, was_filling = self.has_lines, self.is_filling
            for line in lines:
                byte_count = len(line.encode()) + 1
                if self._left_out_count or self._byte_count + byte_count > self._hooks.buffer_bytes_max:
                    self._left_out_count += 1
                else:
                    self._lines.append(line)
                    self._byte_count += byte_count
        if not had_lines or (self.is_filling and not was_filling):
            self._hooks.on_lines(self)

    @property
    def is_log_behind(self) -> bool:
        """Return whether half of the buffer for lines is used."""
        return self._byte_count * 2 >= self._hooks.buffer_bytes_max

    def result_of(self, parent: str) -> Any:
        """Return the result of `parent`; for an async handler, an awaitable of it."""
        reading = self._hooks.read_result(self, parent)
        return reading if self.is_async else self._waited(reading)

    def _waited(self, reading: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(reading, self._hooks.loop).result()

    # -- the heartbeat thread's side ----------------------------------------------------------------------------------

    @property
    def has_sign(self) -> bool:
        """Return whether something waits for the next heartbeat."""
        return self._progress is not None or self._beaten

    def take_sign(self) -> Sign:
        """Return what waits for the heartbeat, and clear it; `put_back` or `forget_sign` must follow."""
        progress, beaten = self._progress, self._beaten
        self._on_its_way = progress  # before it leaves its slot: the shipper, in another thread, must see it somewhere
        self._progress, self._beaten = None, False
        return Sign(UNSET if progress is None else msgspec.Raw(progress), beaten)

    def put_back(self, sign: Sign) -> None:
        """Put back `sign`, whose heartbeat had no answer: it goes with the next, unless there is a later one."""
        if self.is_closed:
            return
        if sign.progress is not UNSET and self._progress is None:
            self._progress = bytes(sign.progress)
        self._on_its_way = None
        self._beaten |= sign.alive

    def forget_sign(self) -> None:
        """Forget the sign that was taken: it arrived, or it can't be sent."""
        self._on_its_way = None

    # -- the shipper's side -------------------------------------------------------------------------------------------

    @property
    def last_progress(self) -> bytes | None:
        """The latest progress if the cluster may not have it yet: it waits, or its heartbeat has no answer.

        Such a heartbeat may come after the outcome, and is refused then.
        """
        return self._progress or self._on_its_way

    @property
    def has_lines(self) -> bool:
        """Return whether lines wait, or the note that some were left out."""
        return bool(self._lines) or self._left_out_count > 0

    @property
    def is_filling(self) -> bool:
        """Return whether so much waits that it should be sent early."""
        return self._byte_count >= limits.LOG_PIECE_BYTES_MAX // 2

    def take_piece(self) -> Piece | None:
        """Return the next lines of the log, as many as one piece can hold; None if none wait."""
        lines: list[str] = []
        room = limits.LOG_PIECE_BYTES_MAX
        with self._lock:
            while self._lines and len(lines) < limits.LOG_PIECES_MAX and len(self._lines[0].encode()) < room:
                line = self._lines.popleft()
                byte_count = len(line.encode()) + 1
                room -= byte_count
                self._byte_count -= byte_count
                lines.append(line)
            if not self._lines and self._left_out_count and room > _LEFT_OUT_BYTES_MAX:
                lines.append(_LEFT_OUT.format(self._left_out_count))
                self._left_out_count = 0
            if not lines:
                return None
            self._sequence += 1
            if self._sequence == limits.LOG_PIECES_MAX:
                lines = [_LOG_ENDS]
                self._end_log()
            return Piece(lines, self._sequence)

    def end_log(self) -> None:
        """Drop the lines that wait, and all later ones."""
        with self._lock:
            self._end_log()

    def _end_log(self) -> None:
        self._is_log_ended = True
        self._lines.clear()
        self._byte_count = self._left_out_count = 0

    def close(self) -> None:
        """Drop everything that waits, and all later reports."""
        self.is_closed = True
        self.end_log()
        self._progress, self._on_its_way, self._beaten = None, None, False


def _line(line: str) -> str:
    encoded = line.encode()
    if len(encoded) <= _LINE_BYTES_MAX:
        return line
    return encoded[:_LINE_BYTES_MAX].decode("utf-8", "ignore") + _CUT
