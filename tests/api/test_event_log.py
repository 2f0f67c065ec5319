"""The ring of events: places, what is lost, and what it keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from raftsched.api.event_log import EVENT_TYPES, Event, EventLog, Place, record_event
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.job import Job, Status
from raftsched.core.records.queue import Queue
from raftsched.core.records.retry import RetryPolicy
from raftsched.core.records.schedule import Firing
from raftsched.core.records.spec import JobSpec
from raftsched.core.records.workflow import Workflow, WorkflowId
from raftsched.core.state.writes import (
    PutFiring,
    PutQueue,
    PutSchedule,
    PutWorkflow,
    RemoveSchedule,
    RemoveWorkflow,
    Write,
)
from tests.core.scene import with_fields
from tests.core.schedule_scene import ScheduleScene


@dataclass
class FakeState:
    """Where a state stands."""

    applied_index: int = 0
    cluster_time_ms: int = 1_000


def _job(number: int, status: Status = Status.QUEUED) -> Job:
    now = TimeMs(1)
    return Job(JobId(bytes([number] * 16)), "default", JobSpec("x", "q", 5, 3, 0, RetryPolicy()), status, now, now, now)


class Fed:
    """A ring, and the entries that feed it."""

    def __init__(self, kept_max: int = 4) -> None:
        self.state = FakeState(10)
        self.log = EventLog(self.state, kept_max=kept_max)

    def entry(self, *jobs: Job) -> None:
        self.state.applied_index += 1
        self.log.feed(self.state, changes=[(None, job) for job in jobs])

    def places(self, number: int) -> list[Place]:
        events = self.log.read(number, 100)
        assert events is not None
        return [event.place for event in events]


def test_events_are_placed_by_entry_and_number() -> None:
    fed = Fed()
    fed.entry(_job(1), _job(2))
    fed.entry()
    fed.entry(_job(3))
    assert fed.places(0) == [Place(11, 1), Place(11, 2), Place(13, 1)]
    assert fed.places(2) == [Place(13, 1)]
    assert fed.log.head == Place(14, 0)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (Place(10, 1), None),  # before the ring's beginning
        (Place(11, 0), 0),
        (Place(11, 1), 1),
        (Place(11, 2), 2),
        (Place(11, 3), None),  # of another history: entry 11 had two events
        (Place(12, 0), 2),
        (Place(12, 1), None),
        (Place(13, 1), 3),
        (Place(14, 0), 3),
        (Place(14, 1), None),  # not applied yet
        (Place(99, 0), None),
    ],
)
def test_a_reader_goes_on_behind_its_place_or_is_lost(place: Place, expected: int | None) -> None:
    fed = Fed()
    fed.entry(_job(1), _job(2))
    fed.entry()
    fed.entry(_job(3))
    assert fed.log.next_behind(place) == expected


def test_the_ring_forgets_the_oldest_and_says_so() -> None:
    fed = Fed(kept_max=2)
    for number in range(1, 5):
        fed.entry(_job(number))
    assert fed.log.read(1, 100) is None
    assert fed.places(2) == [Place(13, 1), Place(14, 1)]
    assert fed.log.next_behind(Place(12, 0)) is None
    assert fed.log.next_behind(Place(12, 1)) == 2  # the last that was forgotten
    assert fed.log.next_behind(Place(13, 1)) == 3


def test_another_state_begins_another_ring() -> None:
    fed = Fed()
    fed.entry(_job(1))
    end = fed.log.end
    installed = FakeState(50)
    fed.log.follow(installed)
    assert fed.log.read(end, 10) is None  # who had seen everything has missed the snapshot
    assert fed.log.next_behind(Place(11, 1)) is None
    assert fed.log.next_behind(Place(51, 0)) == fed.log.end
    installed.applied_index = 51
    fed.log.feed(installed, changes=[(None, _job(2))])
    assert fed.places(fed.log.end - 1) == [Place(51, 1)]


def test_another_state_that_is_fed_first_begins_another_ring() -> None:
    fed = Fed()
    fed.entry(_job(1))
    end = fed.log.end
    fed.log.feed(FakeState(60), changes=[(None, _job(2))])
    assert fed.log.read(end, 10) is None
    assert fed.log.next_behind(Place(60, 0)) == fed.log.end - 1


def test_records_and_changes_of_an_entry_are_numbered_through() -> None:
    fed = Fed()
    fed.state.applied_index += 1
    fed.log.feed(fed.state, records=[PutQueue(None, Queue("q", revision=1))])
    fed.log.feed(fed.state, changes=[(None, _job(1))])
    assert fed.places(0) == [Place(11, 1), Place(11, 2)]


def test_what_only_keeps_the_books_is_no_event() -> None:
    fed = Fed()
    fed.state.applied_index += 1
    queue = Queue("q", revision=1)
    fed.log.feed(fed.state, records=[PutQueue(queue, replace(queue, bucket_milli=5))])
    assert fed.log.end == 0


def _types(changes: Sequence[tuple[Job | None, Job | None]]) -> list[str]:
    fed = Fed(kept_max=20)
    fed.state.applied_index += 1
    fed.log.feed(fed.state, changes=changes)
    events: list[Event] | None = fed.log.read(0, 20)
    assert events is not None
    return [event.type for event in events]


def test_the_type_says_what_became_of_a_job() -> None:
    queued, running = _job(1), _job(1, Status.RUNNING)
    assert _types(
        [
            (None, queued),
            (queued, running),
            (running, replace(running, progress=b"1")),
            (running, with_fields(running, priority=6)),
            (running, _job(1, Status.DEAD_LETTER)),
            (queued, None),
        ]
    ) == ["job.created", "job.running", "job.progress", "job.changed", "job.dead_letter", "job.removed"]


def test_every_type_that_is_given_out_is_known() -> None:
    """A reader that asks for another one is told so, so none may be missing."""
    job = _job(1)
    others = [
        (_job(1, Status.RUNNING if status is Status.QUEUED else Status.QUEUED), _job(1, status)) for status in Status
    ]
    given = set(
        _types(
            [*others, (None, job), (job, with_fields(job, priority=9)), (job, replace(job, progress=b"1")), (job, None)]
        )
    )
    schedule = ScheduleScene().save().schedule
    firing = Firing(TimeMs(1))
    queue = Queue("q")
    empty = Workflow(WorkflowId(b"w" * 16), "default", "w", 2)
    whole = replace(empty, stored_count=2)
    workflows = [
        empty, replace(whole, unfinished_count=1), replace(whole, unfinished_count=1, cancel_requested_at_ms=TimeMs(1)),
        whole, replace(whole, failed_count=1), replace(whole, cancelled_count=1),
    ]  # fmt: skip
    records: list[Write] = [
        *(PutSchedule(None, schedule), RemoveSchedule(schedule), PutFiring(schedule.id, firing)),
        *(PutSchedule(schedule, replace(schedule, paused=True)), PutSchedule(replace(schedule, paused=True), schedule)),
        *(PutSchedule(schedule, replace(schedule, fingerprint=b"x")),),
        PutFiring(schedule.id, replace(firing, job_id=JobId(b"j" * 16))),
        *(PutQueue(None, replace(queue, revision=1)), PutQueue(queue, replace(queue, paused=True, revision=1))),
        PutQueue(replace(queue, paused=True), replace(queue, revision=1)),
        *(PutWorkflow(None, workflow) for workflow in workflows),
        RemoveWorkflow(whole),
    ]
    events = [record_event(record, {schedule.id: schedule}, 1, 1, 1) for record in records]
    assert None not in events
    given |= {event.type for event in events if event is not None}
    assert given == set(EVENT_TYPES)


async def test_arrivals_wake_whoever_waits() -> None:
    fed = Fed()
    waits = [asyncio.ensure_future(fed.log.arrival()) for _ in range(3)]
    await asyncio.sleep(0)
    fed.entry(_job(1))
    await asyncio.gather(*waits)
