"""Watch from the heartbeat thread whether the worker's event loop turns, and act if it doesn't.

A handler that never yields holds the loop: async handlers that were leased with it can't begin, and a drain can't
proceed. So the thread gives the former back, for another worker to run them at once, and ends the process when a drain
is overdue. The handler itself keeps its lease as long as it runs.

Left out: jobs in the reply to a request for leases that the blocked loop has not read. They are not known here; they
are offered again when their leases end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from raftsched.worker.runs.give_back import Returns
from raftsched.worker.runs.runs import Run

LOOK_SECONDS = 0.5
"""Longest pause between two checks."""
_BLOCKED_SECONDS = 1.0
"""A loop that doesn't turn for this long is blocked."""
_LOOKS_MIN = 2
"""Checks that must find it blocked: a process that was paused is found so only once."""
_log = structlog.get_logger(__name__)


class LoopWatch:
    """Watch `loop`. All but `end_after` belongs to the heartbeat thread; `on_overdue` is called there."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, on_overdue: Callable[[], None]) -> None:
        self._loop = loop
        self._on_overdue = on_overdue
        self._asked_at: float | None = None
        """Time at which the loop was asked to turn; None if it has."""
        self._look_count = 0
        self._is_told = False
        self._end_at: float | None = None

    def end_after(self, end_at: float) -> None:
        """Call `on_overdue` if the loop is blocked at the monotonic time `end_at`, or later; safe from any thread."""
        self._end_at = end_at

    def look(self, runs: Sequence[Run], returns: Returns, now: float) -> None:
        """Give back by `returns` those of `runs` that have not begun, if the loop is blocked."""
        if self._asked_at is None:
            if runs or self._end_at is not None:
                self._asked_at, self._look_count, self._is_told = now, 0, False
                self._loop.call_soon_threadsafe(self._turned)
            return
        self._look_count += 1
        if self._look_count < _LOOKS_MIN or now - self._asked_at < _BLOCKED_SECONDS:
            return
        if not self._is_told:
            self._is_told = True
            names = {run.grant.name for run in runs if run.task is not None and run.is_begun and not run.is_ended}
            _log.warning("event_loop_blocked", seconds=round(now - self._asked_at, 1), handlers=sorted(names))
        returns.add([run for run in runs if run.take_back()])
        if self._end_at is not None and now >= self._end_at:
            self._on_overdue()

    def _turned(self) -> None:
        self._asked_at = None
