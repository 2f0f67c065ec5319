"""Draw the last minutes of a queue as bars: a page has their places, and no style of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from raftsched.dashboard.formats import duration
from raftsched.wire.queues import ActivityDocument

WIDTH: Final = 360
HEIGHT: Final = 64
_GAP: Final = 2
_LEAST: Final = 2
"""Pixels of a bar that is not zero."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a drawing, in its units."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    text: str
    """Its value in words."""


@dataclass(frozen=True, slots=True)
class Sparkline:
    """Two drawings over the same time: how many jobs ended, and how long jobs waited."""

    ended: Sequence[Bar]
    waits: Sequence[Bar]
    ended_max: int
    submitted: int
    started: int
    completed: int
    failed: int
    minutes: float


def sparkline(activity: ActivityDocument[datetime]) -> Sparkline:
    """Return the drawings of a queue's last minutes."""
    periods = list(activity.periods)
    ended_max = max((period.completed + period.failed for period in periods), default=0)
    wait_max = max((_level(period.wait_p99_ms) for period in periods), default=0.0)
    ended: list[Bar] = []
    waits: list[Bar] = []
    width = WIDTH / max(1, len(periods))
    for position, period in enumerate(periods):
        at, x = f"{period.at:%H:%M:%S} UTC", position * width
        failed = _height(period.failed, ended_max)
        completed = _height(period.completed, ended_max)
        place: dict[str, Any] = {"x": round(x, 1), "width": round(width - _GAP, 1)}
        if period.completed:
            text = f"{at}: {period.completed:,} completed"
            ended.append(Bar(y=HEIGHT - completed, height=completed, kind="good", text=text, **place))
        if period.failed:
            text = f"{at}: {period.failed:,} failed"
            ended.append(Bar(y=max(0, HEIGHT - completed - failed), height=failed, kind="bad", text=text, **place))
        if period.wait_p99_ms is not None:
            height = _height(_level(period.wait_p99_ms), wait_max)
            text = f"{at}: p99 of waiting {duration(period.wait_p99_ms)}"
            waits.append(Bar(y=HEIGHT - height, height=height, kind="busy", text=text, **place))
    return Sparkline(
        ended,
        waits,
        ended_max,
        submitted=sum(period.submitted for period in periods),
        started=sum(period.started for period in periods),
        completed=sum(period.completed for period in periods),
        failed=sum(period.failed for period in periods),
        minutes=len(periods) * activity.period_seconds / 60,
    )


def _level(wait_ms: int | None) -> float:
    """Return the height of a wait: waits differ by powers of ten, so it is their logarithm."""
    return math.log10(max(1, wait_ms or 0)) + 0.3


def _height(value: float, most: float) -> float:
    return max(_LEAST, round(HEIGHT * value / most, 1)) if value and most else 0.0
