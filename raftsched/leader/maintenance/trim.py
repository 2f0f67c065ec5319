"""Cut what grows with time and not with jobs: the ledgers of schedules, by lines, and the audit trail, by age.

Theory of operation. A ledger is checked after about every `LOOK_EVERY` of its lines: each line that is written asks for
a check with that probability. So nothing has to be counted, a new leader needs no preparation, and a ledger is seldom
some hundreds of lines too long. A check finds the latest lines, which all stay, and walks the older ones from the old
end, a page at a time. Lines of manual calls stay for their time, since without them a repeated backfill would run its
fire times again; as they may be many and are seldom removed, they ask for a check less often. The audit trail is
checked every hour, from its old end. Excess lines are removed in bounded operations, one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from raftsched import limits
from raftsched.core.operations.base import Operation
from raftsched.core.operations.queues import TrimAudit
from raftsched.core.operations.schedules import TrimLedger
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.schedule import Firing, ScheduleId
from raftsched.core.state.results import Counted, Result
from raftsched.leader.now import NEVER_MS, Now
from raftsched.leader.view import LeaderView

LOOK_EVERY: Final = 100
"""Lines of a ledger written for one check of it, which reads all that it may keep: some 20 µs a line."""
LOOK_EVERY_CALL: Final = 10 * LOOK_EVERY
"""The same for lines that stay for a time."""
LOOKS_MAX: Final = 5
"""Ledgers checked in one step: some milliseconds each."""
PAUSE_MS: Final = 50
AUDIT_EVERY_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class _Look:
    """Progress of the check of one ledger."""

    end_ms: TimeMs
    """The latest lines begin here."""
    last: Firing | None = None
    """The last line that was checked."""


class Trimming:
    """Propose `TrimLedger` and `TrimAudit`; `draw(n)` returns a random number from 0 to `n` - 1."""

    name: Final = "trimming"

    def __init__(self, view: LeaderView, draw: Callable[[int], int]) -> None:
        self._view: Final = view
        self._draw: Final = draw
        self._looks: Final[dict[ScheduleId, _Look | None]] = {}
        self._look_at_ms = 0
        self._audit_at_ms = 0

    def line_written(self, schedule_id: ScheduleId, line: Firing) -> None:
        """Note that a line was added to the schedule's ledger."""
        stays = line.prevents_repeat(line.decided_at_ms)
        if self._draw(LOOK_EVERY_CALL if stays else LOOK_EVERY) == 0:
            self._looks.setdefault(schedule_id, None)

    def step(self, now: Now) -> Sequence[Operation]:
        """Return the next removal; () if nothing is too much."""
        operations: list[Operation] = []
        if self._audit_at_ms <= now.monotonic_ms:
            self._audit_at_ms = now.monotonic_ms + AUDIT_EVERY_MS
            operations += self._audit(now)
        looks = tuple(self._looks)[:LOOKS_MAX]
        for schedule_id in looks:
            operations += self._ledger(schedule_id, now)
        self._look_at_ms = now.monotonic_ms + PAUSE_MS
        return operations

    def on_result(self, operation: Operation, result: Result | None, now: Now) -> None:
        """Note the result, None if unknown; check again if there may be more."""
        if isinstance(operation, TrimAudit):
            # The result has no count of lines; a check that finds none ends the round.
            self._audit_at_ms = now.monotonic_ms + PAUSE_MS
        elif isinstance(operation, TrimLedger) and not isinstance(result, Counted):
            self._looks[operation.id] = None

    def next_call_ms(self, now: Now) -> int:  # noqa: ARG002
        return min(self._audit_at_ms, self._look_at_ms if self._looks else NEVER_MS)

    def _ledger(self, schedule_id: ScheduleId, now: Now) -> Sequence[Operation]:
        """Begin a check, or continue it."""
        look = self._looks.pop(schedule_id) or self._look_at(schedule_id)
        lines = self._view.firings(
            schedule_id, after=look.last, until_ms=look.end_ms, limit=limits.BACKGROUND_STEP_ITEMS_MAX
        )
        if len(lines) == limits.BACKGROUND_STEP_ITEMS_MAX:
            self._looks[schedule_id] = replace(look, last=lines[-1])
        old = tuple((line.fire_time_ms, line.kind) for line in lines if not line.prevents_repeat(now.cluster_ms))
        return (TrimLedger(schedule_id, old),) if old else ()

    def _look_at(self, schedule_id: ScheduleId) -> _Look:
        lines = self._view.newest_firings(schedule_id, limit=limits.LEDGER_LINES_KEPT)
        # Lines of one fire time stay together, of whatever kinds they are.
        return _Look(lines[-1].fire_time_ms if len(lines) == limits.LEDGER_LINES_KEPT else TimeMs(0))

    def _audit(self, now: Now) -> Sequence[Operation]:
        before_ms = TimeMs(now.cluster_ms - limits.AUDIT_KEPT_MS)
        old = [
            line for line in self._view.oldest_audit(limit=limits.BACKGROUND_STEP_ITEMS_MAX) if line.at_ms < before_ms
        ]
        return (TrimAudit(old[-1].revision + 1),) if old else ()
