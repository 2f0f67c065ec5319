"""Log that the cluster gives no jobs: when that begins, now and then while it lasts, and when it is over."""

from __future__ import annotations

import structlog

from raftsched.ports import Clock

_log = structlog.get_logger(__name__)
AGAIN_SECONDS = 30.0
"""Shortest time between two such lines: requests fail several times a second in an outage."""


class Outage:
    """The current outage, if there is one."""

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._since: float | None = None
        self._logged_at = 0.0

    def failed(self, reason: str) -> None:
        """Note that a request failed."""
        now = self._monotonic()
        if self._since is None:
            self._since = self._logged_at = now
            _log.warning("cluster_unavailable", reason=reason)
        elif now - self._logged_at >= AGAIN_SECONDS:
            self._logged_at = now
            _log.warning("cluster_still_unavailable", seconds=round(now - self._since), reason=reason)

    def answered(self) -> None:
        """Note that a request was answered."""
        if self._since is not None:
            _log.info("cluster_available", seconds=round(self._monotonic() - self._since, 1))
            self._since = None
