"""Define a reading: one value of one metric."""

from __future__ import annotations

from typing import NamedTuple

from raftsched.histogram import Histogram
from raftsched.metrics.catalog import Metric


class Reading(NamedTuple):
    """A value of a metric, with the values of its labels in their order."""

    metric: Metric
    labels: tuple[str, ...]
    value: float | Histogram
