"""Write readings in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from raftsched.histogram import Histogram
from raftsched.metrics.catalog import METRICS, Kind, Metric
from raftsched.metrics.reading import Reading

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4


def exposition(readings: Iterable[Reading]) -> Iterator[bytes]:
    """Yield the text of `readings`, one metric at a time; a metric without a reading is left out.

    A line costs some 7 µs, so a server lets others run in between.
    """
    of: dict[Metric, list[Reading]] = {}
    for reading in readings:
        of.setdefault(reading.metric, []).append(reading)
    for metric in METRICS:
        if metric in of:
            yield generate_latest(_One(_family(metric, of[metric])))


class _One(Collector):
    """Pass one metric to prometheus_client."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def collect(self) -> Iterator[Family]:
        yield self._family


def _family(metric: Metric, readings: Iterable[Reading]) -> Family:
    if metric.kind is Kind.HISTOGRAM:
        histograms = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for _, labels, value in readings:
            assert isinstance(value, Histogram)
            histograms.add_metric(labels, _buckets(value), value.total)
        return histograms
    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for _, labels, value in readings:
        assert not isinstance(value, Histogram)
        family.add_metric(labels, value)
    return family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Return the cumulated count of each bucket by its bound."""
    bounds = [*map(repr, histogram.bounds), "+Inf"]
    return [*zip(bounds, accumulate(histogram.counts), strict=True)]
