"""Define a reading: one value of one metric."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from raftsched.histogram import Histogram
from raftsched.metrics.catalog import Metric


class Reading(NamedTuple):
    """A value of a metric, with the values of its labels in their order."""

    metric: Metric
    labels: tuple[str, ...]
    value: float | Histogram


class Source(Protocol):
    """Something that has readings."""

    def readings(self) -> Iterator[Reading]:
        """Yield the readings of now. Never blocks and never raises."""
