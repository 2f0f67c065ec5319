"""Read the metrics of a leader's world, and of nodes, by name and labels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from raftsched.histogram import Histogram
from raftsched.metrics.reading import Reading

_LINE: Final = re.compile(r"(?P<series>\S+(?:{.*})?) (?P<value>\S+)")


def values(readings: Iterable[Reading]) -> dict[str, dict[tuple[str, ...], float]]:
    """Return metric -> labels -> value; of a histogram the count of its values."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for metric, labels, value in readings:
        number = sum(value.counts) if isinstance(value, Histogram) else value
        of_metric = found.setdefault(metric.name.removeprefix("raftsched_"), {})
        assert labels not in of_metric, (metric.name, labels)
        of_metric[labels] = number
    return found


def above_zero(of_metric: Mapping[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
    return {labels: value for labels, value in of_metric.items() if value}


def scraped(text: str) -> dict[str, float]:
    """Return the value of each series of a scrape, as `raftsched_jobs{queue="mail",status="queued"}`."""
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return {found["series"]: float(found["value"]) for line in lines if (found := _LINE.fullmatch(line))}
