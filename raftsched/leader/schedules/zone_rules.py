"""Bring stored next fire times up to the leader's time zone rules, once after it took over.

Theory of operation. The state knows the version of the rules by which its next fire times were computed. A leader with
a newer version walks all schedules that use a wall clock, a few at a time. It proposes a new fire time for each
schedule whose next one is in the future; the last step stores its version. If it loses the lead on the way, the old
version remains, so the next newer leader walks again. Fire times that are already due are decided unchanged.

A leader with an older version moves nothing. It stores its own version, since what it saves and fires from now on
follows its rules. So two versions whose leaders alternate, as in a rolling upgrade, do not undo each other's work: only
the newer one moves fire times, and only those that the older one has computed in between.

A cluster that has no schedules, and never had rules, stores nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import structlog

from raftsched.core.operations.base import Operation
from raftsched.core.operations.schedules import AdoptZoneRules, NextFireTime
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.schedule import Schedule, Timing
from raftsched.core.state.results import Counted, Result
from raftsched.errors import Invalid
from raftsched.leader.now import NEVER_MS, Now
from raftsched.leader.schedules.fire_times import fire_times_of
from raftsched.leader.schedules.plan import FireTimes
from raftsched.leader.view import LeaderView

log = structlog.get_logger()

SCHEDULES_PER_STEP: Final = 50
"""An expression that is not cached takes 0.3 ms, so a step takes some 15 ms."""
PAUSE_MS: Final = 50
RETRY_MS: Final = 1_000
FireTimesOf = Callable[[Timing, int], FireTimes]


def _fire_times(timing: Timing, from_ms: int) -> FireTimes:
    return fire_times_of(timing, from_ms=from_ms)


class ZoneRules:
    """Propose `AdoptZoneRules` until the state has the version of this node's rules.

    `version` rises with each release of the rules, as text; `instants` returns the fire times by these rules.
    """

    name: Final = "zone rules"

    def __init__(self, view: LeaderView, version: str, fire_times: FireTimesOf = _fire_times) -> None:
        self._view: Final = view
        self._version: Final = version
        self._fire_times: Final = fire_times
        self._after = b""
        self._following = b""
        """Cursor from which the walk continues after the pending step is applied."""
        self._look_at_ms = 0

    def step(self, now: Now) -> Sequence[Operation]:
        stored = self._view.zone_rules
        if stored == self._version:
            return self._done()
        if stored > self._version:
            log.warning("zone_rules_are_older", stored=stored, own=self._version)
            return self._proposed(AdoptZoneRules(self._version, (), is_last=True))
        page = self._view.list_schedules(after=self._after, limit=SCHEDULES_PER_STEP)
        if not stored and not page.items and not self._after:
            return self._done()
        self._following = page.next_cursor
        changes = [change for _, schedule in page.items if (change := self._change(schedule, now)) is not None]
        return self._proposed(AdoptZoneRules(self._version, tuple(changes), is_last=not page.next_cursor))

    def on_result(self, operation: Operation, result: Result | None, now: Now) -> None:
        """Note the result of a step; a step that was rejected or whose outcome is unknown is repeated."""
        if not isinstance(operation, AdoptZoneRules) or not isinstance(result, Counted):
            self._look_at_ms = now.monotonic_ms + RETRY_MS
            return
        if result.count:
            log.info("schedules_follow_zone_rules", version=self._version, count=result.count)
        self._after = self._following
        self._look_at_ms = NEVER_MS if operation.is_last else now.monotonic_ms + PAUSE_MS

    def next_call_ms(self, now: Now) -> int:  # noqa: ARG002
        return self._look_at_ms

    def _proposed(self, operation: AdoptZoneRules) -> Sequence[Operation]:
        self._look_at_ms = NEVER_MS
        return (operation,)

    def _done(self) -> Sequence[Operation]:
        self._look_at_ms = NEVER_MS
        return ()

    def _change(self, schedule: Schedule, now: Now) -> NextFireTime | None:
        """Return the next fire time by these rules; None if it is unchanged, is due, or uses no wall clock."""
        timing = schedule.timing
        if not timing.cron or schedule.next_at_ms <= now.cluster_ms:
            return None
        try:
            fire_times = self._fire_times(timing, schedule.created_at_ms)
        except Invalid as error:
            log.warning("schedule_cannot_be_planned", schedule=schedule.name, tenant=schedule.tenant, error=str(error))
            return None
        # What passed by these rules since the last decision was never due by those before; a schedule that has decided
        # nothing yet counts from now.
        found = TimeMs(fire_times.next_after(schedule.last_at_ms or now.cluster_ms) or 0)
        if found == schedule.next_at_ms:
            return None
        return NextFireTime(schedule.id, schedule.generation, schedule.next_at_ms, found)
