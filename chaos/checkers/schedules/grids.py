"""The grid of fire times of a schedule along the log, computed from its anchor and period."""

from __future__ import annotations

from dataclasses import dataclass

from chaos.checkers.history.events import Decided, ScheduleChanged

PLANNED = "planned"


@dataclass(slots=True)
class Grid:
    """A schedule along the log."""

    settings: ScheduleChanged
    next_ms: int
    """The first instant without a decision; 0 = none any more."""
    fired_count: int = 0

    def decide(self, line: Decided) -> None:
        """Move on behind a planned line."""
        self.fired_count += bool(line.job)
        self.next_ms = self.after(line)

    def after(self, line: Decided) -> int:
        """Return the first instant behind a line."""
        settings = self.settings
        steps = (line.last_ms - settings.anchor_ms) // settings.period_ms + 1
        following = settings.anchor_ms + steps * settings.period_ms
        return following if not 0 < settings.end_ms < following else 0

    def is_whole(self, line: Decided) -> bool:
        """Return whether a line covers as many instants as it says; 0 = nobody counted."""
        return not line.count or line.last_ms - line.fire_time_ms == (line.count - 1) * self.settings.period_ms

    @property
    def has_ended(self) -> bool:
        """Return whether there are no more instants, or it has fired as often as it may."""
        return not self.next_ms or 0 < self.settings.max_firings <= self.fired_count


def change_settings(grids: dict[str, Grid], event: ScheduleChanged) -> None:
    """Keep the grids as a change of a schedule leaves them."""
    known = grids.get(event.schedule)
    if event.f == "delete":
        grids.pop(event.schedule, None)
    elif known is None:
        if event.period_ms:
            grids[event.schedule] = Grid(event, event.next_ms)
    else:
        if event.generation != known.settings.generation:
            known.next_ms = event.next_ms
        known.settings = event
