"""Log warnings about other machines at a limited rate, since those can cause them at any rate."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

_PERIOD_SECONDS: Final = 5.0
_log = structlog.get_logger()


class ThrottledLog:
    """Logs at most one line every five seconds for each event and reason; the next line counts the suppressed ones.

    `event` and `reason` come from our own code, so there are few kinds; texts of other machines go into other fields.
    """

    def __init__(self, **context: str) -> None:
        self._log = _log.bind(**context)
        self._quiet_until: dict[tuple[str, str], float] = {}
        self._held_back: dict[tuple[str, str], int] = {}

    def warn(self, event: str, *, reason: str, **fields: object) -> None:
        """Log the event, or count it if the same was logged within the last five seconds."""
        kind = (event, reason)
        now = asyncio.get_running_loop().time()
        if now < self._quiet_until.get(kind, now):
            self._held_back[kind] = self._held_back.get(kind, 0) + 1
            return
        self._quiet_until[kind] = now + _PERIOD_SECONDS
        self._log.warning(event, reason=reason, held_back_count=self._held_back.pop(kind, 0), **fields)
