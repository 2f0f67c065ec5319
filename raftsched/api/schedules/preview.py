"""Compute the next fire time of schedules: the first undecided one that the calendar does not exclude.

The state knows the first undecided fire time. Whether the calendar excludes it is decided, and recorded, at its time.
Until then readers see the decision that a leader with this node's zone and holiday data would make. A result is kept
while it is valid: a schedule that is closed for the night is examined once, however often it is read.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from raftsched import limits
from raftsched.api.schedules.timing import Preview
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.schedule import Schedule, ScheduleId
from raftsched.leader.schedules.fire_times import fire_times_of

_NONE: Final = TimeMs(0)
_KEPT_MAX: Final = 10_000
"""Schedules whose result is kept, some 300 bytes each."""


class _Found(NamedTuple):
    """The next fire time of a schedule whose first undecided one is from `from_ms` to `to_ms`."""

    from_ms: int
    to_ms: int
    fires_ms: TimeMs


class Budget:
    """The number of fire times that may still be examined for one reply."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = limits.FIRE_TIMES_EXAMINED_MAX


class NextFireTimes:
    """Computes the next fire time of schedules, and keeps the results."""

    def __init__(self) -> None:
        self._found: Final[dict[tuple[ScheduleId, int], _Found]] = {}

    async def next_firing_ms(self, schedule: Schedule, budget: Budget) -> TimeMs | None:
        """Return the next fire time; 0 = there is none, or none among the next `limits.FIRE_TIMES_EXAMINED_MAX`.

        None if the budget was too small; that never happens to the first schedule of a reply.
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
        preview = await Preview.of(fire_times, first_ms=first_ms, count=1, most=budget.left)
        is_short = not preview.is_complete and budget.left < limits.FIRE_TIMES_EXAMINED_MAX
        budget.left -= preview.examined_count
        if is_short:
            return None
        fires_ms = TimeMs(preview.fires_ms[0]) if preview.fires_ms else _NONE
        self._keep(key, _Found(first_ms, preview.last_ms, fires_ms))
        return fires_ms

    def _keep(self, key: tuple[ScheduleId, int], found: _Found) -> None:
        self._found.pop(key, None)
        self._found[key] = found
        if len(self._found) > _KEPT_MAX:
            del self._found[next(iter(self._found))]
