"""Count the API's requests by route, status and duration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from raftsched.histogram import Histogram
from raftsched.metrics import catalog
from raftsched.metrics.reading import Reading


class RequestTimes:
    """Count the requests of one node."""

    def __init__(self) -> None:
        self._of: Final[dict[tuple[str, int], Histogram]] = {}

    def observe(self, route: str, status: int, seconds: float) -> None:
        """Count a request; `route` is a method and the path of a route, never what a client wrote there."""
        times = self._of.get((route, status))
        if times is None:
            times = self._of[route, status] = Histogram(catalog.HTTP_REQUEST_SECONDS.buckets)
        times.observe(seconds)

    def readings(self) -> Iterator[Reading]:
        for (route, status), times in self._of.items():
            yield Reading(catalog.HTTP_REQUEST_SECONDS, (route, str(status)), times)
