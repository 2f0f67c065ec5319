"""Find the wall times that match an expression, without any zone.

A wall time is counted in seconds since 1970-01-01T00:00 on the wall clock. The matching days of a month depend only on
the weekday of its first day and on its length. So an expression has one mask of days for each of the 28 kinds of month,
and a search skips whole months. The rarest date, 29 February on one weekday, is at most 40 years away.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from typing import Final

DAY_SECONDS: Final = 86_400
YEAR_MAX: Final = 9_998
"""Later dates are never searched: `datetime` ends with the year 9999, and a zone's offset needs room beside it."""

_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_ORDINAL_MAX: Final = date(YEAR_MAX, 12, 31).toordinal()
WALL_END: Final = (_ORDINAL_MAX + 1 - _EPOCH_ORDINAL) * DAY_SECONDS
"""All wall times that are ever found lie before this one."""
_MONTH_LENGTHS: Final = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_MONTH_KINDS: Final = tuple((first_weekday, length) for first_weekday in range(7) for length in range(28, 32))
_SUNDAY: Final = 0
_SATURDAY: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class DayRule:
    """Match days of a month. Weekdays count from Sunday = 0."""

    days: frozenset[int]
    weekdays: frozenset[int]
    last_day: bool = False
    """`L`: the last day of the month."""
    nearest: frozenset[int] = frozenset()
    """`15W`: the weekday nearest to the day, within its month; 0 means `LW`, the last weekday."""
    nth: frozenset[tuple[int, int]] = frozenset()
    """`5#2`: weekday and its number within the month."""
    last: frozenset[int] = frozenset()
    """`L5`: the last such weekday of the month."""
    either: bool = False
    """Both fields are restricted: a day that satisfies either one matches."""

    def mask(self, first_weekday: int, length: int) -> int:
        """Return the matching days of a month as bits, bit 0 being its first day."""
        by_day = self._by_day(first_weekday, length)
        by_weekday = self._by_weekday(first_weekday, length)
        return by_day | by_weekday if self.either else by_day & by_weekday

    def _by_day(self, first_weekday: int, length: int) -> int:
        days = {day for day in self.days if day <= length}
        if self.last_day:
            days.add(length)
        days.update(_nearest(day or length, first_weekday, length) for day in self.nearest if day <= length)
        return _bits(days)

    def _by_weekday(self, first_weekday: int, length: int) -> int:
        return _bits(
            day
            for day in range(1, length + 1)
            if (weekday := (first_weekday + day - 1) % 7) in self.weekdays
            or (weekday, (day + 6) // 7) in self.nth
            or (day + 7 > length and weekday in self.last)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """The wall times of one expression. All values are ascending and none is empty."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    months: tuple[int, ...]
    days: DayRule
    real_time: bool
    """The hour field begins with `*`: every instant whose wall time matches fires, and no other."""
    masks: dict[tuple[int, int], int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "masks", {kind: self.days.mask(*kind) for kind in _MONTH_KINDS})

    def can_match(self) -> bool:
        """Whether any day of any year matches. In 400 years each month begins on every weekday, leap Februaries too."""
        lengths = {_MONTH_LENGTHS[month] for month in self.months} | ({29} if 2 in self.months else set())
        return any(self.masks[first, length] for first in range(7) for length in lengths)

    def next_wall(self, wall: int) -> int | None:
        """Return the first matching wall time at or after `wall`, or None if there is none up to `YEAR_MAX`.

        Cost: a few steps for the time of day, and one for each month of the expression until one has a matching day.
        """
        day, time_of_day = divmod(wall, DAY_SECONDS)
        found = self._next_day(day)
        if found == day:
            time = self._next_time(time_of_day)
            if time is not None:
                return day * DAY_SECONDS + time
            found = self._next_day(day + 1)
        if found is None:
            return None
        return found * DAY_SECONDS + self.hours[0] * 3_600 + self.minutes[0] * 60 + self.seconds[0]

    def _next_time(self, time_of_day: int) -> int | None:
        """Return the first matching second of a day at or after this one."""
        hour, rest = divmod(time_of_day, 3_600)
        minute, second = divmod(rest, 60)
        if hour in self.hours:
            if minute in self.minutes and second <= self.seconds[-1]:
                return hour * 3_600 + minute * 60 + self.seconds[bisect_left(self.seconds, second)]
            if minute < self.minutes[-1]:
                later = self.minutes[bisect_right(self.minutes, minute)]
                return hour * 3_600 + later * 60 + self.seconds[0]
        if hour < self.hours[-1]:
            later = self.hours[bisect_right(self.hours, hour)]
            return later * 3_600 + self.minutes[0] * 60 + self.seconds[0]
        return None

    def _next_day(self, day: int) -> int | None:
        """Return the first matching day at or after this one, both in days since 1970-01-01."""
        ordinal = day + _EPOCH_ORDINAL
        if ordinal > _ORDINAL_MAX:
            return None
        start = date.fromordinal(ordinal)
        year = start.year
        if start.month in self.months:
            first_weekday = (start.isoweekday() - start.day + 1) % 7
            mask = self.masks[first_weekday, month_length(year, start.month)] >> (start.day - 1)
            if mask:
                return day + _lowest(mask)
        for month in self.months[bisect_right(self.months, start.month) :]:
            if (found := self._first_day(year, month)) is not None:
                return found
        for later in range(year + 1, YEAR_MAX + 1):
            for month in self.months:
                if (found := self._first_day(later, month)) is not None:
                    return found
        return None

    def _first_day(self, year: int, month: int) -> int | None:
        first = date(year, month, 1)
        mask = self.masks[first.isoweekday() % 7, month_length(year, month)]
        return first.toordinal() - _EPOCH_ORDINAL + _lowest(mask) if mask else None


def month_length(year: int, month: int) -> int:
    """Return the number of days in a month."""
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return _MONTH_LENGTHS[month] + leap


def _nearest(day: int, first_weekday: int, length: int) -> int:
    """Return the Monday-to-Friday day nearest to `day` that lies in the same month."""
    weekday = (first_weekday + day - 1) % 7
    if weekday == _SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == _SUNDAY:
        return day + 1 if day < length else day - 2
    return day


def _bits(days: Iterable[int]) -> int:
    return sum(1 << (day - 1) for day in days)


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1
