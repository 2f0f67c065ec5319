"""The six fields of an expression: their names in error texts, their values, and the names that values have."""

from __future__ import annotations

from typing import Final, NamedTuple

_MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


class Field(NamedTuple):
    """One field: values run from `low` to `high`, both included."""

    name: str
    low: int
    high: int
    names: dict[str, int]

    @property
    def size(self) -> int:
        return self.high - self.low + 1

    @property
    def example(self) -> str:
        """Return examples of values, for error texts."""
        written = f"{self.low} to {self.high}"
        return f"{written} or {next(iter(self.names))}…" if self.names else written


SECOND: Final = Field("second", 0, 59, {})
MINUTE: Final = Field("minute", 0, 59, {})
HOUR: Final = Field("hour", 0, 23, {})
DAY: Final = Field("day of month", 1, 31, {})
MONTH: Final = Field("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, start=1)})
WEEKDAY: Final = Field("day of week", 0, 6, {name: number for number, name in enumerate(_WEEKDAYS)})
"""0 is Sunday, here and wherever this package numbers weekdays; 7 is read as 0."""

FIELDS: Final = (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY)
