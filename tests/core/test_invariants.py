"""The checker itself is checked: each rule must find the fault that was planted for it, and a sound state has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from raftsched import limits
from raftsched.core.ids import FencingToken, JobId, TimeMs
from raftsched.core.invariants import VIOLATIONS_MAX, assert_change, check
from raftsched.core.job import AttemptEnd, Job, Status
from raftsched.core.record_rules import RULES
from raftsched.core.view import CounterKey, TimerEntry, WaitingEntry
from raftsched.errors import InvariantBroken
from tests.core.plain_state import PlainState
from tests.core.scene import START_MS, Scene, job_id

Plant = Callable[[Job], Job]


class TamperedState(PlainState):
    """A plain state of which one look was changed: `name` gives `looks`, whatever the records say."""

    def __init__(self, sound: PlainState) -> None:
        super().__init__()
        vars(self).update(vars(sound))
        self.looks: dict[str, list[Any]] = {}

    def _look(self, name: str) -> Iterator[Any]:
        return iter(self.looks.get(name) or list(getattr(PlainState, name)(self)))

    def all_waiting(self) -> Iterator[WaitingEntry]:
        return self._look("all_waiting")

    def all_timers(self) -> Iterator[TimerEntry]:
        return self._look("all_timers")

    def all_leased(self) -> Iterator[JobId]:
        return self._look("all_leased")

    def all_finished(self) -> Iterator[tuple[TimeMs, JobId]]:
        return self._look("all_finished")

    def all_keys(self) -> Iterator[tuple[str, str, JobId]]:
        return self._look("all_keys")


class Cast:
    """A sound state with jobs of every kind, two of each."""

    def __init__(self) -> None:
        scene = self.scene = Scene()
        self.jobs: dict[str, list[Job]] = {
            "queued": [scene.submit(priority=priority) for priority in (5, 9)],
            "other_queue": [scene.submit(queue="other") for _ in range(2)],
            "keyed": [scene.submit(idempotency_key=key) for key in ("k1", "k2")],
            "running": [scene.running() for _ in range(2)],
            "scheduled": [scene.submit(due_at_ms=START_MS + 10**6 + number) for number in range(2)],
        }
        self.jobs["retrying"] = [self._ended(AttemptEnd.FAILED) for _ in range(2)]
        self.jobs["completed"] = [self._ended(AttemptEnd.COMPLETED) for _ in range(2)]
        self.jobs["dead"] = [self._ended(AttemptEnd.FAILED, retryable=False) for _ in range(2)]
        self.jobs["cancelled"] = [self._cancelled() for _ in range(2)]
        self.jobs["snoozed_twice"] = [self._snoozed_twice()]
        self.state = TamperedState(scene.state)

    def _ended(self, end: AttemptEnd, *, retryable: bool = True) -> Job:
        job = self.scene.running()
        self.scene.report(job, end, result=b"1", retryable=retryable)
        return self.scene.now(job)

    def _cancelled(self) -> Job:
        job = self.scene.running()
        self.scene.cancel(job)
        self.scene.complete(job)
        return self.scene.now(job)

    def _snoozed_twice(self) -> Job:
        job = self.scene.submit()
        for _ in range(2):
            running = self.scene.run(job)
            self.scene.wait(5)
            self.scene.snooze(running, 0)
        return self.scene.now(job)

    def plant(self, kind: str, plant: Plant) -> None:
        job = self.jobs[kind][0]
        self.state.jobs[job.id] = plant(job)

    def rules(self) -> set[str]:
        return {violation.rule for violation in check(self.state)}


@pytest.fixture
def cast() -> Cast:
    return Cast()


def sets(**fields: Any) -> Plant:
    return lambda job: replace(job, **fields)


def lease_sets(**fields: Any) -> Plant:
    return lambda job: replace(job, lease=job.lease and replace(job.lease, **fields))


def attempt_sets(number: int, **fields: Any) -> Plant:
    def plant(job: Job) -> Job:
        attempts = list(job.attempts)
        attempts[number] = replace(attempts[number], **fields)
        return replace(job, attempts=tuple(attempts))

    return plant


# (rule, the kind of job that a fault is planted in, the fault)
PLANTED: list[tuple[str, str, Plant]] = [
    ("an id has 16 bytes", "completed", sets(id=JobId(b"short"))),
    ("the status is one that the table leads to", "queued", sets(status=Status.PAUSED)),
    ("the status is one that the table leads to", "completed", sets(status=Status.SKIPPED)),
    ("numbers are in range", "queued", sets(priority=10)),
    ("numbers are in range", "queued", sets(priority=-1)),
    ("numbers are in range", "queued", sets(max_attempts=0)),
    ("numbers are in range", "queued", sets(timeout_ms=-1)),
    ("numbers are in range", "queued", sets(due_at_ms=-1)),
    ("numbers are in range", "queued", sets(run_number=0)),
    ("numbers are in range", "queued", sets(revision=0)),
    ("numbers are in range", "queued", sets(failure_count=-1)),
    ("names fit into keys", "queued", sets(queue="")),
    ("names fit into keys", "queued", sets(tenant="t\0")),
    ("names fit into keys", "queued", sets(idempotency_key="k" * 1_000)),
    ("times are in order, and none is ahead of the cluster's", "queued", sets(updated_at_ms=START_MS + 10**9)),
    ("times are in order, and none is ahead of the cluster's", "queued", sets(created_at_ms=START_MS + 1)),
    ("times are in order, and none is ahead of the cluster's", "completed", sets(finished_at_ms=START_MS + 10**9)),
    ("a lease is held exactly while leased", "running", sets(lease=None)),
    ("a lease is held exactly while leased", "running", sets(status=Status.QUEUED)),
    ("finished_at is set exactly when finished", "completed", sets(finished_at_ms=TimeMs(0))),
    ("finished_at is set exactly when finished", "queued", sets(finished_at_ms=TimeMs(START_MS))),
    ("cancel_requested_at is set exactly when cancelled", "cancelled", sets(cancel_requested_at_ms=TimeMs(0))),
    ("cancel_requested_at is set exactly when cancelled", "queued", sets(cancel_requested_at_ms=TimeMs(START_MS))),
    ("a job that waits for its time has a timer", "scheduled", sets(timed=False)),
    ("a job that waits for its time has a timer", "queued", sets(timed=True)),
    ("a job that waits for its time has a timer", "running", sets(timed=True)),
    ("a lease is sound", "running", lease_sets(token=FencingToken(10**6))),
    ("a lease is sound", "running", lease_sets(token=FencingToken(0))),
    ("a lease is sound", "running", lease_sets(ttl_ms=0)),
    ("a lease is sound", "running", lease_sets(worker="")),
    ("a lease is sound", "running", lease_sets(granted_at_ms=TimeMs(START_MS - 1))),
    ("leases of a job never overlap", "snoozed_twice", attempt_sets(0, token=FencingToken(1_000))),
    ("leases of a job never overlap", "snoozed_twice", attempt_sets(0, ended_at_ms=TimeMs(START_MS + 6))),
    ("leases of a job never overlap", "completed", attempt_sets(0, started_at_ms=TimeMs(START_MS + 1))),
    ("leases of a job never overlap", "completed", attempt_sets(0, token=FencingToken(1_000))),
    (
        "at most the latest attempts are kept",
        "completed",
        lambda job: replace(job, attempts=job.attempts * (limits.ATTEMPTS_KEPT_MAX + 1)),
    ),
    ("every ended attempt is on record", "completed", sets(attempts=())),
    ("every ended attempt is on record", "queued", sets(attempt_number=1)),
    ("every ended attempt is on record", "queued", sets(attempt_number=limits.ATTEMPTS_KEPT_MAX + 1)),
    ("every ended attempt is on record", "completed", attempt_sets(0, attempt_number=2)),
    ("counts agree with the attempts", "retrying", sets(failure_count=0)),
    ("counts agree with the attempts", "retrying", sets(failure_count=2)),
    ("counts agree with the attempts", "queued", sets(lost_count=1)),
    ("only a dead letter has used up its attempts", "retrying", sets(max_attempts=1)),
    ("only a dead letter has used up its attempts", "queued", sets(lost_count=limits.LOST_ATTEMPTS_MAX)),
    ("a run ends once", "completed", attempt_sets(0, end=AttemptEnd.SNOOZED)),
    ("a run ends once", "retrying", attempt_sets(0, end=AttemptEnd.COMPLETED)),
    ("a run ends once", "snoozed_twice", attempt_sets(0, end=AttemptEnd.COMPLETED)),
    ("a run ends once", "snoozed_twice", attempt_sets(1, end=AttemptEnd.CANCELLED)),
    ("a dead letter has a reason", "dead", sets(failure_reason="")),
]


def test_sound_state_has_no_violation(cast: Cast) -> None:
    assert check(cast.state) == []


def test_every_record_rule_has_a_fault_planted_for_it() -> None:
    assert {rule for rule, _, _ in PLANTED} == {rule.text for rule in RULES}


@pytest.mark.parametrize(("rule", "kind", "plant"), PLANTED)
def test_check_finds_a_fault_in_a_record_and_names_the_rule(cast: Cast, rule: str, kind: str, plant: Plant) -> None:
    cast.plant(kind, plant)
    assert rule in cast.rules()


def test_check_finds_a_token_that_two_jobs_hold(cast: Cast) -> None:
    lease = cast.jobs["running"][1].lease
    cast.plant("running", sets(lease=lease))
    assert cast.rules() == {"a fencing token is given out once"}


def test_check_finds_a_token_that_was_another_jobs_attempt(cast: Cast) -> None:
    (attempt,) = cast.jobs["completed"][1].attempts
    cast.plant("completed", attempt_sets(0, token=attempt.token))
    assert cast.rules() == {"a fencing token is given out once"}


def test_check_stops_at_its_limit(cast: Cast) -> None:
    for kind in cast.jobs:
        cast.plant(kind, sets(priority=-1))
    assert len(check(cast.state, limit=3)) == 3
    assert VIOLATIONS_MAX > len(check(cast.state)) > 3


def test_violation_names_the_job(cast: Cast) -> None:
    cast.plant("completed", sets(failure_count=7))
    (violation, *_) = check(cast.state)
    assert violation.subject == f"job {cast.jobs['completed'][0].id.hex()}"


# -- indexes

INDEXES = {
    "ready index": "all_waiting",
    "timers": "all_timers",
    "leased index": "all_leased",
    "finished index": "all_finished",
    "idempotency keys": "all_keys",
}
WRONG: dict[str, Callable[[Any], Any]] = {
    "ready index": lambda entry: entry._replace(due_at_ms=entry.due_at_ms + 1),
    "timers": lambda entry: entry._replace(due_at_ms=entry.due_at_ms + 1),
    "finished index": lambda entry: (entry[0] + 1, entry[1]),
    "idempotency keys": lambda entry: (entry[0], "other", entry[2]),
}
DANGLING = job_id(404)
STRAY: dict[str, Any] = {
    "ready index": WaitingEntry("zzz", 0, TimeMs(1), DANGLING),
    "timers": TimerEntry(TimeMs(10**15), DANGLING, "q", 0),
    "leased index": DANGLING,
    "finished index": (TimeMs(1), DANGLING),
    "idempotency keys": ("t", "k", DANGLING),
}


@pytest.mark.parametrize("index", INDEXES)
def test_check_finds_an_entry_that_is_missing(cast: Cast, index: str) -> None:
    look = INDEXES[index]
    cast.state.looks[look] = list(getattr(cast.state, look)())[1:]
    assert cast.rules() == {f"{index}: each job that calls for an entry has one"}


@pytest.mark.parametrize("index", INDEXES)
def test_check_finds_an_entry_of_a_job_that_is_gone(cast: Cast, index: str) -> None:
    look = INDEXES[index]
    cast.state.looks[look] = [*getattr(cast.state, look)(), STRAY[index]]
    assert cast.rules() == {f"{index}: each entry has its job"}


@pytest.mark.parametrize("index", WRONG)
def test_check_finds_an_entry_that_is_not_what_its_job_calls_for(cast: Cast, index: str) -> None:
    look = INDEXES[index]
    *entries, last = getattr(cast.state, look)()
    cast.state.looks[look] = [*entries, WRONG[index](last)]
    assert f"{index}: each entry is what its job calls for" in cast.rules()


@pytest.mark.parametrize("index", INDEXES)
def test_check_finds_the_entry_of_a_job_that_calls_for_none(cast: Cast, index: str) -> None:
    """Case D40: what completed is in no in-progress index."""
    cancelled, queued = cast.jobs["cancelled"][0], cast.jobs["queued"][0]
    strays: dict[str, Any] = {
        "ready index": WaitingEntry("zzz", 5, cancelled.due_at_ms, cancelled.id),
        "timers": TimerEntry(TimeMs(10**15), queued.id, queued.queue, queued.priority),
        "leased index": cancelled.id,
        "finished index": (TimeMs(0), queued.id),
        "idempotency keys": (queued.tenant, "", queued.id),
    }
    look = INDEXES[index]
    cast.state.looks[look] = [*getattr(cast.state, look)(), strays[index]]
    assert cast.rules() == {f"{index}: each entry is what its job calls for"}


@pytest.mark.parametrize("index", INDEXES)
def test_check_finds_an_entry_that_is_there_twice(cast: Cast, index: str) -> None:
    look = INDEXES[index]
    first, *rest = getattr(cast.state, look)()
    cast.state.looks[look] = [first, first, *rest]
    assert f"{index}: no entry is there twice" in cast.rules()


@pytest.mark.parametrize("index", ["ready index", "timers"])
def test_check_finds_entries_out_of_order(cast: Cast, index: str) -> None:
    look = INDEXES[index]
    cast.state.looks[look] = list(getattr(cast.state, look)())[::-1]
    assert cast.rules() == {f"{index}: entries are in order"}


def test_check_finds_a_queue_that_is_not_in_one_piece(cast: Cast) -> None:
    entries = list(cast.state.all_waiting())
    mixed = [entry for entry in entries if entry.queue == "other"]
    assert len(mixed) == 2
    others = [entry for entry in entries if entry.queue != "other"]
    cast.state.looks["all_waiting"] = [mixed[0], *others, mixed[1]]
    assert cast.rules() == {"ready index: entries are in order"}


# -- counters, payloads, results


@pytest.mark.parametrize("delta", [-1, 1])
def test_check_finds_a_counter_that_is_wrong(cast: Cast, delta: int) -> None:
    counters = cast.state.counters()
    counters[CounterKey("default", "other", Status.QUEUED)] += delta
    cast.state.counters = lambda: counters  # type: ignore[method-assign]  # one look is tampered with
    (violation,) = check(cast.state)
    assert violation == ("counters agree with the records", "default/other/queued", f"{2 + delta} counted, 2 there")


def test_check_finds_a_counter_that_is_missing_but_takes_a_zero_for_none(cast: Cast) -> None:
    counters = cast.state.counters()
    counters[CounterKey("default", "nowhere", Status.QUEUED)] = 0
    cast.state.counters = lambda: counters  # type: ignore[method-assign]  # one look is tampered with
    assert check(cast.state) == []
    del counters[CounterKey("default", "other", Status.QUEUED)]
    assert cast.rules() == {"counters agree with the records"}


def test_check_finds_a_payload_without_its_job(cast: Cast) -> None:
    cast.state.payloads[DANGLING] = b"1"
    assert cast.rules() == {"a payload has its job"}


@pytest.mark.parametrize("kind", ["running", "cancelled", "dead", "retrying"])
def test_check_finds_a_result_of_a_job_that_did_not_complete(cast: Cast, kind: str) -> None:
    cast.state.results[cast.jobs[kind][0].id] = b"1"
    assert cast.rules() == {"only a completed job has a result"}


def test_check_finds_a_result_without_its_job(cast: Cast) -> None:
    cast.state.results[DANGLING] = b"1"
    assert cast.rules() == {"only a completed job has a result"}


# -- the assertions of production


@pytest.mark.parametrize(
    ("kind", "plant"),
    [
        ("running", sets(lease=None)),
        ("running", sets(status=Status.QUEUED)),
        ("completed", sets(finished_at_ms=TimeMs(0))),
        ("queued", sets(finished_at_ms=TimeMs(1))),
        ("running", sets(timed=True)),
        ("queued", sets(failure_count=4)),
        ("queued", sets(lost_count=limits.LOST_ATTEMPTS_MAX + 1)),
    ],
)
def test_assert_change_stops_a_record_that_cannot_be(cast: Cast, kind: str, plant: Plant) -> None:
    sound = cast.jobs[kind][0]
    assert_change(None, sound)
    with pytest.raises(InvariantBroken, match=sound.id.hex()):
        assert_change(None, plant(sound))


@pytest.mark.parametrize("kind", ["completed", "dead", "cancelled"])
def test_assert_change_stops_any_change_of_a_finished_job(cast: Cast, kind: str) -> None:
    finished, queued = cast.jobs[kind][0], cast.jobs["queued"][0]
    with pytest.raises(InvariantBroken, match="stays so"):
        assert_change(finished, replace(queued, updated_at_ms=finished.updated_at_ms, revision=10**6))


@pytest.mark.parametrize("fields", [{"updated_at_ms": START_MS - 1}, {"revision": 0}])
def test_assert_change_stops_time_and_revision_from_running_backward(cast: Cast, fields: dict[str, Any]) -> None:
    job = cast.jobs["queued"][0]
    assert_change(job, job)
    with pytest.raises(InvariantBroken, match="backward"):
        assert_change(job, replace(job, **fields))


def test_assert_change_stops_a_token_that_does_not_rise(cast: Cast) -> None:
    job = cast.jobs["snoozed_twice"][0]
    leased = cast.scene.run(job)
    assert_change(job, leased)
    stale = replace(leased, lease=leased.lease and replace(leased.lease, token=job.attempts[-1].token))
    with pytest.raises(InvariantBroken, match="rise"):
        assert_change(job, stale)
