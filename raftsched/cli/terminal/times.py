"""Read and write times and spans in the form that people use: `5 min ago`, `1h30m`, `+2h`."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final

import click
from rich.text import Text

from raftsched.core.cron.zones import zone
from raftsched.errors import Invalid

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_SPAN: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhdw]))+", re.ASCII)
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])", re.ASCII)
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_LONG_AGO: Final = timedelta(days=60)
"""Beyond this distance, a date says more than a number of days."""
_NOW: Final = timedelta(seconds=1)
_HOW_TO_WRITE: Final = "write one like 2027-03-14T07:00:00Z, 2027-03-14 (midnight UTC), now, +2h or -1d"


def utc_now() -> datetime:
    return datetime.now(UTC)


def rfc3339(moment: datetime) -> str:
    """Return the time in the form of the API."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def relative(moment: datetime, now: datetime) -> str:
    """Return how far `moment` is from `now`: `3 min ago`, `in 2 h`; a date for months."""
    away = moment - now
    if abs(away) < _NOW:
        return "now"
    if abs(away) > _LONG_AGO:
        return moment.date().isoformat()
    text = rounded(abs(away).total_seconds())
    return f"in {text}" if away > timedelta() else f"{text} ago"


def rounded(seconds: float) -> str:
    """Return a span in its largest unit, long ones in two: `45 s`, `3 min`, `2 h 5 min`, `1 d 20 h`."""
    for (unit, size), (smaller, smaller_size) in pairwise(_UNITS):
        if seconds >= size:
            rest = int(seconds % size // smaller_size) if size > 60 else 0
            return f"{int(seconds // size)} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{int(seconds)} s" if seconds >= 1 else f"{round(seconds * 1000)} ms"


def when(text: str | None) -> str:
    """Return the cell of a table for a time of the API; "" if there is none."""
    moment = read_time(text)
    return "" if moment is None else relative(moment, utc_now())


def with_distance(text: str) -> Text:
    """Return the time, followed by its distance from now."""
    moment = read_time(text)
    shown = Text(text)
    return shown if moment is None else shown.append(f"  {relative(moment, utc_now())}", style="dim")


def read_time(text: Any) -> datetime | None:
    """Return the time that `text` is, if it is one with its offset."""
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo is not None else None


def span_seconds(text: str) -> float | None:
    """Return the seconds of `90`, `90s`, `1.5h` or `1h30m`; None if it is no span."""
    if _NUMBER.fullmatch(text):
        return float(text)
    if not _SPAN.fullmatch(text):
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))


class Span(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.4
    """A duration on the command line; its value is in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        seconds = span_seconds(value.strip())
        if seconds is None:
            self.fail(f"{value!r} is no duration; write one like 90, 30s, 5m, 1h30m or 7d", param, ctx)
        return seconds


class TimeParameter(click.ParamType):  # type: ignore[type-arg]
    """A time on the command line; its value is RFC 3339 text in UTC."""

    name = "time"
    _told = _HOW_TO_WRITE

    def __init__(self, clock: Callable[[], datetime] = utc_now) -> None:
        self._clock = clock

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = value.strip()
        moment = self._read(text)
        if moment is None:
            self.fail(f"{value!r} is no time with its offset; {self._told}", param, ctx)
        return rfc3339(moment)

    def _read(self, text: str) -> datetime | None:
        if text == "now":
            return self._clock()
        if text[:1] in ("+", "-"):
            seconds = span_seconds(text[1:])
            return None if seconds is None else _moved(self._clock(), -seconds if text[0] == "-" else seconds)
        if _DATE.fullmatch(text):
            text += "T00:00:00Z"
        return read_time(text)


class WallTimeParameter(TimeParameter):
    """A time of a command with `--timezone`, which must be eager: a time without an offset is read by that zone's clock."""

    _told = f"{_HOW_TO_WRITE}, or give --timezone, by whose clock it is meant then"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        timezone = ctx.params.get("timezone") if ctx is not None else None
        wall = _read_wall(value.strip())
        if not isinstance(timezone, str) or wall is None:
            return super().convert(value, param, ctx)
        try:
            return rfc3339(at_wall_time(wall, timezone))
        except Invalid as error:
            self.fail(str(error), param, ctx)


def at_wall_time(wall: datetime, timezone: str) -> datetime:
    """Return the instant at which the clock of `timezone` shows `wall`, which has no zone of its own.

    Raises `Invalid` if it never does, or twice, because clocks are changed: it does not guess.
    """
    clock = zone(timezone).info
    try:
        first, second = (wall.replace(tzinfo=clock, fold=fold).astimezone(UTC) for fold in (0, 1))
    except OverflowError:
        raise Invalid(f"{wall} is too far away", field="timezone") from None
    if first == second:
        return first
    # By the offset before the change and by the one behind it; the order says whether clocks went back or forward.
    shown = [moment.astimezone(clock).isoformat() for moment in sorted((first, second))]
    how = "is shown twice" if first < second else "is leapt over"
    raise Invalid(f"{wall} {how} by the clock of {timezone}; write {shown[0]} or {shown[1]}", field="timezone")


def _read_wall(text: str) -> datetime | None:
    """Return the time that `text` is, if it is one without an offset."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is None else None


def _moved(moment: datetime, seconds: float) -> datetime | None:
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        return None


SPAN: Final = Span()
MOMENT: Final = TimeParameter()
WALL_MOMENT: Final = WallTimeParameter()
