"""Arrange the decisions and the coming fire times of a schedule as a calendar of one month, in the schedule's zone."""

from __future__ import annotations

import calendar
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from raftsched.client.records import Firing, Preview
from raftsched.dashboard.schedules.clock_changes import ClockChange, clock_changes

_MONTH: Final = re.compile(r"(\d{4})-(0[1-9]|1[0-2])")
_YEARS: Final = (1970, 2200)


@dataclass(slots=True)
class Day:
    """A day, and what happened or will happen on it."""

    date: date
    in_month: bool
    is_today: bool = False
    fired: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    """Fire times that were skipped, by reason."""
    to_come: int = 0
    excluded: Counter[str] = field(default_factory=Counter)
    """Fire times to come that the calendar excludes, by reason."""
    change: ClockChange | None = None


@dataclass(frozen=True, slots=True)
class Month:
    """A month of a zone."""

    year: int
    number: int
    zone: ZoneInfo

    @property
    def start(self) -> datetime:
        return datetime(self.year, self.number, 1, tzinfo=self.zone).astimezone(UTC)

    @property
    def end(self) -> datetime:
        """Return the start of the next month."""
        return self.next.start

    @property
    def title(self) -> str:
        return f"{calendar.month_name[self.number]} {self.year}"

    @property
    def text(self) -> str:
        """Return the month as it is written in URLs."""
        return f"{self.year:04}-{self.number:02}"

    @property
    def next(self) -> Month:
        return Month(self.year + self.number // 12, self.number % 12 + 1, self.zone)

    @property
    def previous(self) -> Month:
        return Month(self.year - (self.number == 1), (self.number - 2) % 12 + 1, self.zone)

    def weeks(self, now: datetime, firings: Iterable[Firing], coming: Preview | None = None) -> Sequence[Sequence[Day]]:
        """Return its weeks from Monday, with the decisions on the ledger and the fire times to come."""
        grid = calendar.Calendar().monthdatescalendar(self.year, self.number)
        today = now.astimezone(self.zone).date()
        weeks = [[Day(each, each.month == self.number, each == today) for each in week] for week in grid]
        days = {day.date: day for week in weeks for day in week if day.in_month}
        self._add_firings(days, firings)
        for at in coming.firings if coming is not None else ():
            if at > now and (day := days.get(self._date(at))) is not None:
                day.to_come += 1
        for skipped in coming.skipped if coming is not None else ():
            if skipped.instant > now and (day := days.get(self._date(skipped.instant))) is not None:
                day.excluded[skipped.reason] += 1
        for change in clock_changes(self.zone, self.start, self.end):
            if change.date in days:
                days[change.date].change = change
        return weeks

    def _add_firings(self, days: dict[date, Day], firings: Iterable[Firing]) -> None:
        for firing in firings:
            first = self._date(firing.instant)
            last = self._date(firing.last_instant or firing.instant)
            if firing.fired and first in days:
                days[first].fired += 1
            elif not firing.fired:
                shown = [day for day in _between(first, last) if day in days]
                for day in shown:
                    # The ledger has one entry for many skipped fire times; a day of several shows its share.
                    days[day].skipped[firing.reason or "unknown"] += max(1, (firing.count or 0) // max(1, len(shown)))

    def _date(self, at: datetime) -> date:
        return at.astimezone(self.zone).date()


def month_of(text: str, now: datetime, zone: ZoneInfo) -> Month:
    """Return the month that a URL names; another text means the current one."""
    found = _MONTH.fullmatch(text)
    if found is not None and _YEARS[0] < int(found[1]) < _YEARS[1]:
        return Month(int(found[1]), int(found[2]), zone)
    today = now.astimezone(zone)
    return Month(today.year, today.month, zone)


def _between(first: date, last: date) -> Iterable[date]:
    days = min((last - first).days, 366)
    return (first + timedelta(days=number) for number in range(days + 1))
