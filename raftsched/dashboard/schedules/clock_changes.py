"""Find the clock changes of a zone, and say what they do to wall times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

_DAY: Final = timedelta(days=1)
_MINUTE: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class ClockChange:
    """An instant at which the clocks of a zone are put forward or back."""

    at: datetime
    zone: ZoneInfo

    @property
    def shift(self) -> timedelta:
        """Return by how much: positive is forward."""
        before = (self.at - _MINUTE).astimezone(self.zone).utcoffset() or timedelta()
        return (self.at.astimezone(self.zone).utcoffset() or timedelta()) - before

    @property
    def date(self) -> date:
        """Return the day in the zone."""
        return self.at.astimezone(self.zone).date()

    @property
    def after(self) -> str:
        """Return the wall time right after the change."""
        return f"{self.at.astimezone(self.zone):%H:%M}"

    @property
    def before(self) -> str:
        """Return the wall time at which the clocks are changed."""
        return f"{self.at.astimezone(self.zone) - self.shift:%H:%M}"

    @property
    def words(self) -> str:
        """Return what happens to the clocks."""
        if self.shift > timedelta():
            return f"forward from {self.before} to {self.after}: times between don't exist"
        return f"back from {self.before} to {self.after}: times between occur twice"


def clock_changes(zone: ZoneInfo, start: datetime, end: datetime) -> Iterator[ClockChange]:
    """Yield the changes between two instants, to the minute, in their order."""
    at = start.astimezone(UTC)
    while at < end:
        following = min(at + _DAY, end.astimezone(UTC))
        if at.astimezone(zone).utcoffset() != following.astimezone(zone).utcoffset():
            yield ClockChange(_instant(zone, at, following), zone)
        at = following


def _instant(zone: ZoneInfo, low: datetime, high: datetime) -> datetime:
    """Return the first minute with the offset of `high`, by halving."""
    offset = high.astimezone(zone).utcoffset()
    low = low.replace(second=0, microsecond=0)
    while high - low > _MINUTE:
        middle = low + timedelta(minutes=int((high - low) / _MINUTE / 2))
        if middle.astimezone(zone).utcoffset() == offset:
            high = middle
        else:
            low = middle
    return high.replace(second=0, microsecond=0)
