"""When schedules fire next: of each the first undecided instant that its calendar lets fire.

The state knows the first undecided instant. What the calendar says of it is decided, and recorded, when it has come, so
until then readers are told what a leader with this node's zone and holiday data would decide. What was found holds while
the schedule stands before it: one that is closed for the night is looked through once, however often it is read.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from raftsched import limits
from raftsched.api.schedules.timing import Outlook
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.schedule import Schedule, ScheduleId
from raftsched.leader.schedules.fire_times import fire_times_of

_NONE: Final = TimeMs(0)
_KEPT_MAX: Final = 10_000
"""Schedules of which is kept what was found, some 300 bytes each."""


class _Found(NamedTuple):
    """What is true of a schedule whose first undecided instant lies from `from_ms` to `to_ms`."""

    from_ms: int
    to_ms: int
    fires_ms: TimeMs


class Budget:
    """How many instants may still be looked at for one reply."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = limits.FIRE_TIMES_EXAMINED_MAX


class Preview:
    """Says when schedules fire next, and keeps it."""

    def __init__(self) -> None:
        self._found: Final[dict[tuple[ScheduleId, int], _Found]] = {}

    async def next_firing_ms(self, schedule: Schedule, budget: Budget) -> TimeMs | None:
        """Return the instant; 0 = none is to come, or none is among the next `limits.FIRE_TIMES_EXAMINED_MAX`.

        None: it was not found for want of room, which never happens to the first that takes from it.
        """
        first_ms = schedule.next_at_ms
        if not first_ms or schedule.timing.calendar is None:
            return first_ms
        key = schedule.id, schedule.generation
        known = self._found.get(key)
        if known is not None and known.from_ms <= first_ms <= known.to_ms:
            return known.fires_ms
        if not budget.left:
            return None
        fire_times = fire_times_of(schedule.timing, from_ms=schedule.created_at_ms)
        outlook = await Outlook.of(fire_times, first_ms=first_ms, count=1, most=budget.left)
        is_short = not outlook.is_whole and budget.left < limits.FIRE_TIMES_EXAMINED_MAX
        budget.left -= outlook.looked_at_count
        if is_short:
            return None
        fires_ms = TimeMs(outlook.fires_ms[0]) if outlook.fires_ms else _NONE
        self._keep(key, _Found(first_ms, outlook.last_ms, fires_ms))
        return fires_ms

    def _keep(self, key: tuple[ScheduleId, int], found: _Found) -> None:
        self._found.pop(key, None)
        self._found[key] = found
        if len(self._found) > _KEPT_MAX:
            del self._found[next(iter(self._found))]
