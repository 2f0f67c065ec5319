"""The next instant of an expression in a zone: the wall times of `expression` over the stretches of `zones`.

Within a stretch, UTC and wall times differ by a constant, so a search there is one search among wall times. At a clock
change `Stretch.high` separates them: wall times from `high` on are reached for the first time, those below it are shown
again, and those between `high` and the wall time at which the stretch begins do not exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from raftsched.core.cron.expression import WALL_END, Expression
from raftsched.core.cron.recurrence import Recurrence
from raftsched.core.cron.zones import OFFSET_SECONDS_MAX, Stretch, Zone

Gap = Literal["shift", "skip"]
"""The action for a wall time that a clock change skips: fire right after the gap, or not at all."""
Overlap = Literal["first", "both"]
"""At which of its occurrences a wall time that is shown twice fires."""

_END: Final = WALL_END + OFFSET_SECONDS_MAX


@dataclass(frozen=True, slots=True)
class Cron(Recurrence):
    """An expression in a zone. Instants before 1970 and after the year 9998 are not its."""

    text: str
    """The expression as it is stored and shown: blanks normalised, names in capitals."""
    expression: Expression
    zone: Zone
    dst_gap: Gap = "shift"
    dst_overlap: Overlap = "first"

    def next_after(self, after_ms: int) -> int | None:
        """Return the first instant later than `after_ms`, or None if there is none up to the year 9998.

        Cost: about 5 µs; a date decades away takes a step for each year, and a half year of a zone that was not
        looked at lately some 0.1 ms.
        """
        at = max(after_ms // 1_000 + 1, 0)
        while at < _END:
            stretch = self.zone.stretch(at)
            found = self._within(stretch, at)
            if found is not None:
                return found * 1_000
            # After this stretch the clock shows no time before `end - OFFSET_SECONDS_MAX`, and none of `wall` or later
            # before `wall - OFFSET_SECONDS_MAX`; so nothing is missed by leaping there.
            wall = self.expression.next_wall(stretch.end - OFFSET_SECONDS_MAX)
            if wall is None:
                return None
            at = max(stretch.end, wall - OFFSET_SECONDS_MAX)
        return None

    def _within(self, stretch: Stretch, at: int) -> int | None:
        """Return the first instant from `at` on, within this stretch, that fires."""
        opens = stretch.start + stretch.offset
        wall = at + stretch.offset
        if not self.expression.real_time:
            if at == stretch.start and stretch.high < opens and self.dst_gap == "shift":
                leapt = self.expression.next_wall(stretch.high)
                if leapt is not None and leapt < opens:
                    return at
            if self.dst_overlap == "first":
                wall = max(wall, stretch.high)
        found = self.expression.next_wall(wall)
        if found is None or found - stretch.offset >= stretch.end:
            return None
        return found - stretch.offset
