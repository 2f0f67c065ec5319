"""Saving a schedule that others save, and that runs, at the same time.

The leader's zone data decide: it finds the next instant, and the log carries it. What it finds fits the schedule as it
was read, so each save is guarded by its exact revision; where the schedule ran in between, which is nothing to the
caller, it is read and saved anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from raftsched.api.backend import Backend
from raftsched.api.http.problems import refusal
from raftsched.api.http.proposals import granted
from raftsched.api.schedules.documents import Asked, save_operation
from raftsched.core.operations.codec import RejectCode
from raftsched.core.records.schedule import Schedule, ScheduleId
from raftsched.core.state.results import Refused, ScheduleSaved
from raftsched.errors import NotFound, Unavailable
from raftsched.storage.reader import StateReader
from raftsched.wire.schedules import ScheduleRequest

MOVED: Final = frozenset({RejectCode.STALE_REVISION, RejectCode.STALE_DECISION, RejectCode.NOT_FOUND})
"""The schedule is no longer as it was read: it ran, was changed or deleted, or an instant has passed."""
_SAVES_MAX: Final = 10
"""Times that a save is tried because the schedule ran in between: one that fires each second is hit once."""


class Condition(NamedTuple):
    """What the caller asks of the schedule that is there."""

    since: int = 0
    """Nobody changed it after this revision of it; 0 = whenever."""
    create_only: bool = False

    def check(self, known: Schedule | None) -> None:
        """Raise what a caller is told whose `If-Match` does not hold."""
        if not self.since:
            return
        if known is None:
            raise NotFound("there is no such schedule")
        if not known.changed_revision <= self.since <= known.revision:
            told = f"the schedule was changed since; its changed_revision is {known.changed_revision} by now"
            raise refusal(Refused(RejectCode.STALE_REVISION, told))


Found = tuple[Schedule | None, ScheduleRequest]
"""A schedule as it is, None = there is none, and as it is to be."""


class ScheduleSaver:
    """Saves schedules, of which each is saved by one request at a time: a hundred at once would spoil each other's."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._saving: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def save(
        self,
        find: Callable[[StateReader], Found],
        *,
        subject: tuple[str, str],
        condition: Condition,
        actor: str,
        at: str = "",
        source: str = "",
    ) -> ScheduleSaved:
        """Save what `find` makes of the state, where the condition holds, and anew as long as the schedule moves.

        `subject` is what the caller calls the schedule, tenant and name or id; `source` what applies it, "" = nothing
        that would prune it. Raises `Invalid` naming the field behind
        the path `at`, and `Unavailable` for a schedule that never holds still.
        """
        async with self._saving.setdefault(subject, asyncio.Lock()):
            for _ in range(_SAVES_MAX):
                state = self._backend.fresh_state()
                known, wanted = find(state)
                condition.check(known)
                asked = self.asked(actor, known)._replace(create_only=condition.create_only, source=source)
                result = await self._backend.propose(save_operation(state, wanted, asked, at=at))
                if not isinstance(result, Refused) or result.code not in MOVED:
                    return granted(result, ScheduleSaved)
        raise Unavailable("the schedule runs or changes too often at once; retry in a moment")

    def asked(self, actor: str, known: Schedule | None) -> Asked:
        """Who saves, when, and that the schedule must still be as it was read."""
        return Asked(
            new_id=ScheduleId(self._backend.new_job_id()),
            now_ms=self._backend.now_ms(),
            actor=actor,
            if_revision=known.revision if known else 0,
        )
