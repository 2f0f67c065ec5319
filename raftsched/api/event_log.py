"""Keep the latest events of applied log entries in a ring that many readers share.

Theory of operation. Every applied entry passes its changes to `feed`, which keeps a small tuple of each and no records,
so that events do not keep large jobs in memory. Their JSON is encoded only when a reader needs it. A reader has no
queue: it has a place in the ring, and waits for later events. A reader that is overtaken by the ring loses its place,
and learns that.

The place of an event is its entry's index and a number from 1 within the entry, equal on every node. A place with the
number 0 is before all events of its entry. So a reader can continue at another node. A place before the start of the
ring, or one that this state never had, is *lost*: the events after it are unknown here.

The ring belongs to one state. If the state is replaced (a snapshot was installed), the ring restarts empty after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from raftsched import limits
from raftsched.api.queue_activity import QueueActivity
from raftsched.core.records.job import Job, Status
from raftsched.core.records.schedule import Schedule, ScheduleId
from raftsched.core.state.writes import (
    PutFiring,
    PutQueue,
    PutSchedule,
    PutWorkflow,
    RemoveSchedule,
    RemoveWorkflow,
    Write,
)

Change = tuple[Job | None, Job | None]
"""A job before and after an operation; None if it did not exist then."""


class Place(NamedTuple):
    """A reader's position: after this event."""

    revision: int
    number: int


class Event(msgspec.Struct, frozen=True, gc=False):
    """An event of the ring. One is created for every change of a job, so creation must be cheap."""

    revision: int
    number: int
    type: str
    at_ms: int
    subject: bytes
    """Id of the job, schedule or workflow; b"" for a queue."""
    tenant: str = ""
    name: str = ""
    queue: str = ""
    status: Status | None = None
    previous: Status | None = None
    """The previous status of a job."""
    worker: str = ""
    attempt_number: int = 0
    reason: str = ""
    fire_time_ms: int = 0
    job_id: bytes = b""
    """Id of the job that a schedule submitted."""
    kind: str = ""
    """Cause of a schedule's decision."""

    @property
    def place(self) -> Place:
        return Place(self.revision, self.number)


class AppliedState(Protocol):
    """The part of the state that the ring uses."""

    @property
    def applied_index(self) -> int: ...
    @property
    def cluster_time_ms(self) -> int: ...


class EventLog:
    """The ring of one node. Its events are numbered from 0, and a reader keeps the number of its next event."""

    def __init__(self, state: AppliedState, *, kept_max: int = limits.EVENTS_KEPT_MAX) -> None:
        self._state = state
        self._ring: Final[list[Event | None]] = [None] * kept_max
        self._kept_max: Final = kept_max
        self._begin = 0
        """Number of the oldest event that is kept."""
        self._end = 0
        self._first = Place(state.applied_index + 1, 0)
        """Start of the ring: all later events are kept, or were dropped."""
        self._forgotten: Event | None = None
        """The last event that was dropped."""
        self._last_revision = self._last_number = 0
        self._arrived = asyncio.Event()
        self._is_awaited = False
        self.activity: Final = QueueActivity()

    # -- applied entries ----------------------------------------------------------------------------------------------

    def feed(self, state: AppliedState, *, changes: Sequence[Change] = (), records: Sequence[Write] = ()) -> None:
        """Add the changes of the last applied entry."""
        revision, at_ms = state.applied_index, state.cluster_time_ms
        if state is not self._state:
            self._restart(state, Place(revision, 0))
        number = self._last_number if self._last_revision == revision else 0
        if records:
            schedules = {write.new.id: write.new for write in records if isinstance(write, PutSchedule)}
            for record in records:
                number += self._keep(record_event(record, schedules, revision, number + 1, at_ms))
        self.activity.on_changes(changes, at_ms)
        for change in changes:
            number += self._keep(job_event(*change, revision, number + 1, at_ms))
        if self._is_awaited:
            self._is_awaited = False
            self._arrived.set()
            self._arrived = asyncio.Event()

    def _keep(self, event: Event | None) -> int:
        if event is None:
            return 0
        position = self._end % self._kept_max
        if self._end - self._begin == self._kept_max:
            self._forgotten = self._ring[position]
            self._begin += 1
        self._ring[position] = event
        self._end += 1
        self._last_revision, self._last_number = event.revision, event.number
        return 1

    def follow(self, state: AppliedState) -> None:
        """Restart the ring if `state` is not the one that was fed: the events that led to it are unknown."""
        if state is not self._state:
            self._restart(state, Place(state.applied_index + 1, 0))

    def _restart(self, state: AppliedState, first: Place) -> None:
        self._state = state
        self._end += 1  # so that a reader at the end loses its place, too
        self._begin = self._end
        self._first = first
        self._forgotten = None

    # -- readers ------------------------------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """Return the number of the next event."""
        return self._end

    @property
    def head(self) -> Place:
        """Return the place after all applied entries."""
        return Place(self._state.applied_index + 1, 0)

    def next_behind(self, place: Place) -> int | None:
        """Return the number of the next event of a reader at `place`; None if the place is lost."""
        first = self._first if self._forgotten is None else self._forgotten.place
        if not first <= place <= self.head:
            return None
        low, high = self._begin, self._end
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._at(middle).place <= place else (low, middle)
        known = place.number == 0 or place == first or (low > self._begin and self._at(low - 1).place == place)
        return low if known else None

    def read(self, number: int, limit: int) -> list[Event] | None:
        """Return the next events from `number` on; None if the reader has lost its place."""
        if number < self._begin:
            return None
        return [self._at(each) for each in range(number, min(self._end, number + limit))]

    def latest(self, since_ms: int, limit: int) -> tuple[list[Event], bool]:
        """Return at most `limit` events since then, the latest first, and whether these are all.

        Older ones may be forgotten.
        """
        found: list[Event] = []
        first = max(self._begin, self._end - limit)
        for number in range(self._end - 1, first - 1, -1):
            event = self._at(number)
            if event.at_ms < since_ms:
                return found, True
            found.append(event)
        return found, first == self._begin and self._forgotten is None

    async def arrival(self) -> None:
        """Wait until `feed` is called."""
        self._is_awaited = True
        await self._arrived.wait()

    def _at(self, number: int) -> Event:
        event = self._ring[number % self._kept_max]
        assert event is not None
        return event


# -- conversion of changes --------------------------------------------------------------------------------------------

_WORKFLOW_LABELS: Final = ("submitting", "running", "cancelling", "completed", "failed", "cancelled")
EVENT_TYPES: Final = (
    *("job.created", "job.changed", "job.progress", "job.removed", *(f"job.{status.label}" for status in Status)),
    *(f"schedule.{verb}" for verb in ("created", "changed", "paused", "resumed", "deleted", "fired", "skipped")),
    *("queue.changed", "queue.paused", "queue.resumed"),
    *("workflow.removed", *(f"workflow.{label}" for label in _WORKFLOW_LABELS)),
)
"""All types of events."""

_STATUS_TYPES: Final = ("", *(f"job.{status.label}" for status in Status))
"""Types by the number of the status."""


def job_event(old: Job | None, new: Job | None, revision: int, number: int, at_ms: int) -> Event | None:
    """Return the event of a job's change."""
    job = new or old
    if job is None:
        return None
    if new is None:
        kind = "job.removed"
    elif old is None:
        kind = "job.created"
    elif old.status is not new.status:
        kind = _STATUS_TYPES[new.status]
    else:
        kind = "job.progress" if old.progress != new.progress else "job.changed"
    lease = job.lease
    return Event(
        revision,
        number,
        kind,
        at_ms,
        job.id,
        job.tenant,
        job.spec.name,
        job.spec.queue,
        job.status,
        old.status if old is not None and new is not None else None,
        lease.worker if lease is not None else "",
        job.attempt_number,
        job.failure_reason,
    )


def record_event(
    write: Write, schedules: Mapping[ScheduleId, Schedule], revision: int, number: int, at_ms: int
) -> Event | None:
    """Return the event of a write to another record than a job; None for internal records.

    `schedules` are those written by the same entry: a decision is written with its schedule.
    """
    match write:
        case PutFiring(schedule_id, firing):
            kind = "schedule.fired" if firing.job_id else "schedule.skipped"
            event = _schedule_event(schedules[schedule_id], kind, revision, number, at_ms)
            decided = {"fire_time_ms": firing.fire_time_ms, "job_id": firing.job_id, "kind": firing.kind.label}
            return replace(event, reason=firing.reason, **decided)
        case PutSchedule(old_schedule, schedule):
            schedule_kind = _schedule_kind(old_schedule, schedule)
            return _schedule_event(schedule, schedule_kind, revision, number, at_ms) if schedule_kind else None
        case RemoveSchedule(schedule):
            return _schedule_event(schedule, "schedule.deleted", revision, number, at_ms)
        case PutQueue(old_queue, queue):
            if old_queue is not None and old_queue.revision == queue.revision:
                return None
            was_paused = old_queue is not None and old_queue.paused
            kind = "queue.changed" if queue.paused == was_paused else _pause_kind("queue", paused=queue.paused)
            return Event(revision, number, kind, at_ms, b"", queue=queue.name, reason=queue.pause_reason)
        case PutWorkflow(old_workflow, workflow):
            if old_workflow is not None and old_workflow.label == workflow.label:
                return None
            kind = f"workflow.{workflow.label}"
            return Event(revision, number, kind, at_ms, workflow.id, workflow.tenant, workflow.name)
        case RemoveWorkflow(workflow):
            return Event(revision, number, "workflow.removed", at_ms, workflow.id, workflow.tenant, workflow.name)
        case _:
            return None


def _schedule_kind(old: Schedule | None, new: Schedule) -> str:
    if old is None:
        return "schedule.created"
    if old.paused != new.paused:
        return _pause_kind("schedule", paused=new.paused)
    return "schedule.changed" if (old.fingerprint, old.pause_until_ms) != (new.fingerprint, new.pause_until_ms) else ""


def _pause_kind(noun: str, *, paused: bool) -> str:
    return f"{noun}.paused" if paused else f"{noun}.resumed"


def _schedule_event(schedule: Schedule, kind: str, revision: int, number: int, at_ms: int) -> Event:
    return Event(
        revision,
        number,
        kind,
        at_ms,
        schedule.id,
        schedule.tenant,
        schedule.name,
        schedule.template.spec.queue,
        reason=schedule.pause_reason,
    )
