"""Cuts what grows with time and not with jobs: the ledgers of schedules, by lines, and the audit trail, by age.

Theory of operation. A ledger is looked at after about every `LOOK_EVERY` of its lines: each line that is written asks
for a look with that chance. So nothing has to be counted, a new leader needs to know nothing, and a ledger is seldom
some hundreds of lines too long. The audit trail is looked at every hour, from its old end. What is too much goes in
bounded operations, one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from raftsched import limits
from raftsched.core.ids import TimeMs
from raftsched.core.operations import Operation
from raftsched.core.queue_operations import TrimAudit
from raftsched.core.schedule import ScheduleId
from raftsched.core.schedule_operations import TrimLedger
from raftsched.core.view import Counted, Result
from raftsched.leader.now import NEVER_MS, Now
from raftsched.leader.view import LeaderView

LOOK_EVERY: Final = 100
"""Lines of a ledger written for one look at it, which reads all that it may keep: some 20 µs a line."""
LOOKS_MAX: Final = 5
"""Ledgers looked at in one step: some milliseconds each."""
PAUSE_MS: Final = 50
AUDIT_EVERY_MS: Final = 3_600_000


class Trimming:
    """Proposes `TrimLedger` and `TrimAudit`; `draw(n)` gives a random number from 0 to `n` - 1."""

    name: Final = "trimming"

    def __init__(self, view: LeaderView, draw: Callable[[int], int]) -> None:
        self._view: Final = view
        self._draw: Final = draw
        self._looks: Final[dict[ScheduleId, None]] = {}
        self._look_at_ms = 0
        self._audit_at_ms = 0

    def line_written(self, schedule_id: ScheduleId) -> None:
        """A line was added to the schedule's ledger."""
        if self._draw(LOOK_EVERY) == 0:
            self._looks[schedule_id] = None

    def step(self, now: Now) -> Sequence[Operation]:
        """What is to be removed next; () where nothing is too much."""
        operations: list[Operation] = []
        if self._audit_at_ms <= now.monotonic_ms:
            self._audit_at_ms = now.monotonic_ms + AUDIT_EVERY_MS
            operations += self._audit(now)
        looks = tuple(self._looks)[:LOOKS_MAX]
        for schedule_id in looks:
            del self._looks[schedule_id]
            operations += self._ledger(schedule_id)
        self._look_at_ms = now.monotonic_ms + PAUSE_MS
        return operations

    def settled(self, operation: Operation, result: Result | None, now: Now) -> None:
        """Lines were removed, or nobody knows (None): where there may be more, look again."""
        whole = isinstance(result, Counted) and result.count < limits.CHORE_STEPS_MAX
        if isinstance(operation, TrimAudit):
            # How many lines went it does not say; a look that finds none ends the round.
            self._audit_at_ms = now.monotonic_ms + PAUSE_MS
        elif isinstance(operation, TrimLedger) and not whole:
            self._looks[operation.id] = None

    def next_call_ms(self, now: Now) -> int:  # noqa: ARG002
        return min(self._audit_at_ms, self._look_at_ms if self._looks else NEVER_MS)

    def _ledger(self, schedule_id: ScheduleId) -> Sequence[Operation]:
        lines = self._view.newest_firings(schedule_id, limit=limits.LEDGER_LINES_KEPT + 1)
        if len(lines) <= limits.LEDGER_LINES_KEPT:
            return ()
        first_kept, first_left = lines[-2], lines[-1]
        # Lines of one instant stay together, whatever kinds they are of.
        return (
            (TrimLedger(schedule_id, first_kept.instant_ms),) if first_left.instant_ms < first_kept.instant_ms else ()
        )

    def _audit(self, now: Now) -> Sequence[Operation]:
        before_ms = TimeMs(now.cluster_ms - limits.AUDIT_KEPT_MS)
        old = [line for line in self._view.oldest_audit(limit=limits.CHORE_STEPS_MAX) if line.at_ms < before_ms]
        return (TrimAudit(old[-1].revision + 1),) if old else ()
