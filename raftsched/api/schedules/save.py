"""Save a schedule that may run, or be saved by others, at the same time.

The leader's zone data decide: it computes the next fire time, and the log carries it. The result is valid only for the
schedule that was read, so each save is guarded by its exact revision. If the schedule ran in between, which does not
concern the caller, it is read and saved again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from raftsched.api.access.principal import Principal
from raftsched.api.backend import Backend
from raftsched.api.http.problems import refusal
from raftsched.api.http.proposals import granted
from raftsched.api.schedules.documents import SaveContext, save_operation
from raftsched.core.operations.codec import RejectCode
from raftsched.core.records.schedule import Schedule, ScheduleId
from raftsched.core.state.results import Refused, ScheduleSaved
from raftsched.errors import NotFound, Unavailable
from raftsched.storage.reader import StateReader
from raftsched.wire.schedules import ScheduleRequest

MOVED: Final = frozenset({RejectCode.STALE_REVISION, RejectCode.STALE_DECISION, RejectCode.NOT_FOUND})
"""The schedule has changed since it was read: it ran, was changed or deleted, or a fire time has passed."""
_SAVES_MAX: Final = 10
"""Attempts of a save, while the schedule runs in between: one that fires each second is hit once."""


class Condition(NamedTuple):
    """The caller's condition on the existing schedule."""

    since: int = 0
    """No user changed it after this revision; 0 = no condition."""
    create_only: bool = False

    def check(self, known: Schedule | None) -> None:
        """Raise the error for an `If-Match` that does not hold."""
        if not self.since:
            return
        if known is None:
            raise NotFound("there is no such schedule")
        if not known.changed_revision <= self.since <= known.revision:
            detail = f"the schedule was changed since; its changed_revision is now {known.changed_revision}"
            raise refusal(Refused(RejectCode.STALE_REVISION, detail))


Found = tuple[Schedule | None, ScheduleRequest]
"""The existing schedule, None if there is none, and the schedule to save."""


class ScheduleSaver:
    """Saves schedules, each by one request at a time: concurrent saves would make each other fail."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._saving: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def save(
        self,
        find: Callable[[StateReader], Found],
        *,
        subject: tuple[str, str],
        condition: Condition,
        caller: Principal,
        at: str = "",
        source: str = "",
    ) -> ScheduleSaved:
        """Save the schedule that `find` returns for the state, if the condition holds; repeat while it changes.

        `subject` is the caller's name of the schedule: tenant, and name or id. `source` is the source that applies it;
        "" = none, so it is never pruned. Raises `Invalid` naming the field below the path `at`, and `Unavailable` if
        the schedule changes each time.
        """
        async with self._saving.setdefault(subject, asyncio.Lock()):
            for _ in range(_SAVES_MAX):
                state = self._backend.fresh_state()
                known, wanted = find(state)
                condition.check(known)
                context = self.context(caller, known)._replace(create_only=condition.create_only, source=source)
                result = await self._backend.propose(save_operation(state, wanted, context, at=at))
                if not isinstance(result, Refused) or result.code not in MOVED:
                    return granted(result, ScheduleSaved)
        raise Unavailable("the schedule runs or changes too often at once; retry in a moment")

    def context(self, caller: Principal, known: Schedule | None) -> SaveContext:
        """Return the details of a save: caller, time, and the revision at which the schedule was read."""
        return SaveContext(
            new_id=ScheduleId(self._backend.new_job_id()),
            now_ms=self._backend.now_ms(),
            caller=caller,
            if_revision=known.revision if known else 0,
        )
