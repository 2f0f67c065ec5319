"""Fixed grids: `@every 90s` fires at its start and every 90 seconds after it, whatever clocks or runs do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from raftsched import limits
from raftsched.core.cron.recurrence import Recurrence
from raftsched.errors import Invalid

_UNITS_MS: Final = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
"""Largest first: a period is written in this order, each unit once. A day is 24 hours, not a calendar day."""
_PERIOD: Final = re.compile("".join(rf"(?:(\d{{1,12}}){unit})?" for unit in _UNITS_MS), re.ASCII)
_CHARS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Every(Recurrence):
    """The grid start + k · period, k = 0, 1, 2, …; nothing fires before its start, nor after the year 9999."""

    period_ms: int
    start_ms: int = 0

    @property
    def text(self) -> str:
        """The schedule as it is stored and shown."""
        return f"@every {period_text(self.period_ms)}"

    def next_after(self, after_ms: int) -> int | None:
        if after_ms < self.start_ms:
            return self.start_ms
        passed = (after_ms - self.start_ms) // self.period_ms
        found = self.start_ms + (passed + 1) * self.period_ms
        return found if found <= limits.MOMENT_MS_MAX else None


def parse_every(text: str, *, start_ms: int = 0, field: str = "every") -> Every:
    """Return the grid with the period `text`, such as `90s` or `1h30m`, that begins at `start_ms`.

    Raises `Invalid`, its text beginning with `field`, for anything but whole numbers of w, d, h, m, s and ms in this
    order, and for periods outside `limits.EVERY_MS_MIN` to `limits.EVERY_MS_MAX`.
    """
    written = text.strip(" ") if len(text) <= _CHARS_MAX else ""
    match = _PERIOD.fullmatch(written)
    if not written or match is None:
        shown = f"{text[:_CHARS_MAX]!a} is not a period"
        raise Invalid(f"{field}: {shown}; write whole numbers with units, like 90s or 1h30m", field=field)
    period_ms = sum(
        int(count) * _UNITS_MS[unit] for count, unit in zip(match.groups(), _UNITS_MS, strict=True) if count
    )
    if not limits.EVERY_MS_MIN <= period_ms <= limits.EVERY_MS_MAX:
        low, high = period_text(limits.EVERY_MS_MIN), period_text(limits.EVERY_MS_MAX)
        raise Invalid(f"{field}: {written!a} is out of range; write a period from {low} to {high}", field=field)
    return Every(period_ms, start_ms)


def period_text(period_ms: int) -> str:
    """Return a period as people write it, hours being the largest unit: `1h30m`."""
    parts = []
    for unit in ("h", "m", "s", "ms"):
        count, period_ms = divmod(period_ms, _UNITS_MS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
