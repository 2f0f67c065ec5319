"""The checker itself is checked: each rule must find the fault that was planted for it, and a sound state has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from raftsched import limits
from raftsched.core.checks.invariants import VIOLATIONS_MAX, assert_change, check
from raftsched.core.checks.record_rules import RULES
from raftsched.core.operations.codec import SubmitWorkflow
from raftsched.core.operations.control import BackgroundKind, BlockJobs, DeadlineKind
from raftsched.core.operations.queues import PauseQueue
from raftsched.core.operations.schedules import Decision, RunSchedule, SaveSchedule
from raftsched.core.records.ids import FencingToken, JobId, TimeMs, name_tag
from raftsched.core.records.job import AttemptEnd, Condition, Dependency, Job, Note, Pause, Status, Verdict
from raftsched.core.records.retry import RetryPolicy
from raftsched.core.records.schedule import FiringKind, Misfire, Overlap, ScheduleId, Template, Timing
from raftsched.core.records.spec import JobSpec, Options
from raftsched.core.records.tenant import Tenant
from raftsched.core.records.workflow import WorkflowId
from raftsched.core.state.entries import (
    BlockedEntry,
    CounterKey,
    DeadlineEntry,
    Dependant,
    FacetEntry,
    FacetKind,
    TimerEntry,
    WaitingEntry,
)
from raftsched.errors import InvariantBroken
from tests.core.plain_state import PlainState
from tests.core.scene import START_MS, Scene, job_id, submit_operation, with_fields

Plant = Callable[[Job], Job]


class TamperedState(PlainState):
    """A plain state of which one look was changed: `name` gives `looks`, whatever the records say."""

    def __init__(self, sound: PlainState) -> None:
        super().__init__()
        vars(self).update(vars(sound))
        self.looks: dict[str, list[Any]] = {}

    def __getattribute__(self, name: str) -> Any:
        looks = object.__getattribute__(self, "__dict__").get("looks", {})
        return (lambda: iter(looks[name])) if name in looks else object.__getattribute__(self, name)


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
        self._tie()
        self.jobs = {kind: [scene.now(job) for job in jobs] for kind, jobs in self.jobs.items()}
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

    def _tie(self) -> None:
        """Jobs that are tied to each other or to something else, two of each kind that has an index."""
        scene, later = self.scene, TimeMs(START_MS + 10**6)
        keyed = Options(concurrency_key="k")
        scene.run(scene.submit(queue="keyed", options=keyed))
        waiting = [scene.submit(queue="keyed", options=keyed) for _ in range(2)]
        scene.apply(BlockJobs(tuple(job.id for job in waiting)))
        parents = [scene.submit() for _ in range(2)]
        edges = tuple(Dependency(parent.id) for parent in parents)
        timed = [scene.submit(options=Options(deadline_ms=TimeMs(later + number))) for number in range(2)]
        self.jobs |= {
            "held": [scene.now(job) for job in waiting],
            "parent": parents,
            "child": [scene.submit(depends_on=edges) for _ in range(2)],
            "unique": [scene.submit(options=Options(unique_key=b"u%d" % number)) for number in range(2)],
            "timed": timed,
            "paused": [scene.submit(paused=True) for _ in range(2)],
        }
        for number in range(2):
            self._workflow(number)
            self._schedule(number)
            scene.apply(PauseQueue(f"queue {number}", paused=True, until_ms=later))

    def _workflow(self, number: int) -> None:
        workflow_id = WorkflowId(job_id(10_000 + number))
        options = Options(workflow_id=workflow_id, task="t")
        jobs = tuple(submit_operation(20_000 + 10 * number + each, options=options) for each in range(2))
        self.scene.apply(SubmitWorkflow(workflow_id, "default", "etl", 2, 0, jobs, f"k{number}", b"f"))
        self.jobs.setdefault("of_workflow", []).extend(self.scene.state.jobs[job.id] for job in jobs)

    def _schedule(self, number: int) -> None:
        schedule_id, next_at_ms = ScheduleId(job_id(30_000 + number)), TimeMs(START_MS + 10**6 + number)
        template = Template(JobSpec("send_email", "mail", 5, 3, 0, RetryPolicy()))
        timing, name = Timing(every="1h"), f"report {number}"
        self.scene.apply(
            SaveSchedule(
                schedule_id, "default", name, timing, template, Overlap.ALLOW, Misfire.SKIP, 0, next_at_ms, b"f"
            )
        )
        run = Decision(TimeMs(START_MS), job_id(40_000 + number), TimeMs(START_MS))
        self.scene.apply(RunSchedule(schedule_id, "default", FiringKind.MANUAL, (run,), Overlap.ALLOW))
        self.jobs.setdefault("of_schedule", []).append(self.scene.state.jobs[run.job_id])

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
    return lambda job: with_fields(job, **fields)


def lease_sets(**fields: Any) -> Plant:
    return lambda job: replace(job, lease=job.lease and replace(job.lease, **fields))


def options_set(**fields: Any) -> Plant:
    return lambda job: with_fields(job, options=job.spec.options and replace(job.spec.options, **fields))


def attempt_sets(number: int, **fields: Any) -> Plant:
    def plant(job: Job) -> Job:
        attempts = list(job.attempts)
        attempts[number] = replace(attempts[number], **fields)
        return replace(job, attempts=tuple(attempts))

    return plant


BLOCKED_RULE = "only a waiting job that is due, and has a concurrency key, is blocked"
WAITING_RULE = "who waits for parents has some left, who may run has none"
# (rule, the kind of job that a fault is planted in, the fault)
PLANTED: list[tuple[str, str, Plant]] = [
    ("an id has 16 bytes", "completed", sets(id=JobId(b"short"))),
    ("the status is one that the table leads to", "completed", sets(status=Status.FAILED)),
    ("its specification is sound", "queued", sets(priority=10)),
    ("its specification is sound", "queued", sets(priority=-1)),
    ("its specification is sound", "queued", sets(max_attempts=0)),
    ("its specification is sound", "queued", sets(timeout_ms=-1)),
    ("numbers are in range", "queued", sets(due_at_ms=-1)),
    ("numbers are in range", "queued", sets(run_number=0)),
    ("numbers are in range", "queued", sets(revision=0)),
    ("numbers are in range", "queued", sets(failure_count=-1)),
    ("its specification is sound", "queued", sets(queue="")),
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
    ("only a dead letter has used up its attempts", "queued", sets(lost_count=3, options=Options(lost_workers_max=3))),
    ("a run ends once", "completed", attempt_sets(0, end=AttemptEnd.SNOOZED)),
    ("a run ends once", "retrying", attempt_sets(0, end=AttemptEnd.COMPLETED)),
    ("a run ends once", "snoozed_twice", attempt_sets(0, end=AttemptEnd.COMPLETED)),
    ("a run ends once", "snoozed_twice", attempt_sets(1, end=AttemptEnd.CANCELLED)),
    ("a dead letter has a reason", "dead", sets(failure_reason="")),
    ("a pause is set exactly while paused", "queued", sets(status=Status.PAUSED)),
    ("a pause is set exactly while paused", "queued", sets(pause=Pause(TimeMs(START_MS)))),
    (BLOCKED_RULE, "queued", sets(blocked=True)),
    (BLOCKED_RULE, "held", sets(options=None)),
    (BLOCKED_RULE, "held", sets(due_at_ms=TimeMs(START_MS + 10**6))),
    (BLOCKED_RULE, "running", sets(blocked=True)),
    (WAITING_RULE, "child", sets(pending_count=0)),
    (WAITING_RULE, "queued", sets(pending_count=1)),
    (WAITING_RULE, "running", sets(pending_count=1)),
    ("counts of parents are in range", "paused", sets(pending_count=1)),
    ("counts of parents are in range", "child", sets(pending_count=3)),
    ("counts of parents are in range", "child", sets(unmet_count=-1)),
    ("counts of parents are in range", "child", sets(pending_count=1, unmet_count=1)),
    ("counts of parents are in range", "queued", sets(dependency_count=-1)),
    ("at most the latest notes are kept", "queued", sets(notes=(Note(TimeMs(1), "a"),) * (limits.NOTES_KEPT_MAX + 1))),
    ("progress is bounded", "running", sets(progress=bytes(limits.PROGRESS_BYTES_MAX + 1))),
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
    "blocked index": "all_blocked",
    "timers": "all_timers",
    "leased index": "all_leased",
    "parked index": "all_parked",
    "finished index": "all_finished",
    "dead letters by reason": "all_dead_letters",
    "idempotency keys": "all_keys",
    "unique keys": "all_unique_keys",
    "jobs of workflows": "all_workflow_jobs",
    "jobs of schedules": "all_schedule_jobs",
    "lists by queue, name, tag and tenant": "all_facets",
    "deadlines of jobs": "all_deadlines",
    "keys of workflows": "all_workflow_keys",
    "names of schedules": "all_schedule_names",
}
"""Each with the look that shows it, and a first entry that is of a job where it has others, too."""
WRONG: dict[str, Callable[[Any], Any]] = {
    "ready index": lambda entry: entry._replace(due_at_ms=entry.due_at_ms + 1),
    "blocked index": lambda entry: entry._replace(concurrency_key="other"),
    "timers": lambda entry: entry._replace(due_at_ms=entry.due_at_ms + 1),
    "parked index": lambda entry: (Status.WAITING_DEPENDENCIES, entry[1]),
    "finished index": lambda entry: (entry[0] + 1, entry[1]),
    "dead letters by reason": lambda entry: ("worker_lost", *entry[1:]),
    "idempotency keys": lambda entry: (entry[0], "other", entry[2]),
    "unique keys": lambda entry: (entry[0], b"other", entry[2]),
    "lists by queue, name, tag and tenant": lambda entry: entry._replace(value="other"),
    "keys of workflows": lambda entry: (entry[0], "other", entry[2]),
    "names of schedules": lambda entry: (entry[0], "other", entry[2]),
}
DANGLING = job_id(404)
TAG = name_tag("any")
STRAY: dict[str, Any] = {
    "ready index": WaitingEntry("zzz", "t", 0, TAG, TimeMs(1), DANGLING),
    "blocked index": BlockedEntry("zzz", "k", 0, TimeMs(1), DANGLING),
    "timers": TimerEntry(TimeMs(10**15), DANGLING, "q", "t", 0, TAG),
    "leased index": DANGLING,
    "parked index": (Status.SKIPPED, DANGLING),
    "finished index": (TimeMs(1), DANGLING),
    "dead letters by reason": ("zzz", TimeMs(1), DANGLING),
    "idempotency keys": ("t", "k", DANGLING),
    "unique keys": ("t", b"k", DANGLING),
    "jobs of workflows": (WorkflowId(job_id(10_001)), DANGLING),
    "jobs of schedules": (ScheduleId(job_id(30_001)), DANGLING),
    "lists by queue, name, tag and tenant": FacetEntry(FacetKind.TAG, "zzz", 0, DANGLING),
    "deadlines of jobs": DeadlineEntry(DeadlineKind.JOB, TimeMs(10**15), DANGLING),
    "keys of workflows": ("t", "k", WorkflowId(DANGLING)),
    "names of schedules": ("t", "k", ScheduleId(DANGLING)),
}


@pytest.mark.parametrize("index", INDEXES)
def test_check_finds_an_entry_that_is_missing(cast: Cast, index: str) -> None:
    look = INDEXES[index]
    cast.state.looks[look] = list(getattr(cast.state, look)())[1:]
    assert cast.rules() == {f"{index}: each record that calls for an entry has one"}


@pytest.mark.parametrize("index", INDEXES)
def test_check_finds_an_entry_of_a_job_that_is_gone(cast: Cast, index: str) -> None:
    look = INDEXES[index]
    cast.state.looks[look] = [*getattr(cast.state, look)(), STRAY[index]]
    assert cast.rules() == {f"{index}: each entry has its record"}


@pytest.mark.parametrize("index", WRONG)
def test_check_finds_an_entry_that_is_not_what_its_job_calls_for(cast: Cast, index: str) -> None:
    look = INDEXES[index]
    *entries, last = getattr(cast.state, look)()
    cast.state.looks[look] = [*entries, WRONG[index](last)]
    assert f"{index}: each entry is what its record calls for" in cast.rules()


@pytest.mark.parametrize(
    "index", [index for index in INDEXES if index not in ("keys of workflows", "names of schedules")]
)
def test_check_finds_the_entry_of_a_job_that_calls_for_none(cast: Cast, index: str) -> None:
    """Case D40: what completed is in no in-progress index."""
    cancelled, queued = cast.jobs["cancelled"][0], cast.jobs["queued"][0]
    strays: dict[str, Any] = {
        "ready index": WaitingEntry("zzz", "t", 5, TAG, cancelled.due_at_ms, cancelled.id),
        "blocked index": BlockedEntry("zzz", "k", 5, queued.due_at_ms, queued.id),
        "timers": TimerEntry(TimeMs(10**15), queued.id, queued.spec.queue, queued.tenant, queued.spec.priority, TAG),
        "leased index": cancelled.id,
        "parked index": (Status.SKIPPED, queued.id),
        "unique keys": (queued.tenant, b"u", queued.id),
        "jobs of workflows": (WorkflowId(job_id(10_001)), queued.id),
        "jobs of schedules": (ScheduleId(job_id(30_001)), queued.id),
        "lists by queue, name, tag and tenant": FacetEntry(FacetKind.TAG, "zzz", 0, queued.id),
        "deadlines of jobs": DeadlineEntry(DeadlineKind.JOB, TimeMs(10**15), queued.id),
        "finished index": (TimeMs(0), queued.id),
        "dead letters by reason": ("zzz", TimeMs(1), queued.id),
        "idempotency keys": (queued.tenant, "", queued.id),
    }
    look = INDEXES[index]
    cast.state.looks[look] = [*getattr(cast.state, look)(), strays[index]]
    assert cast.rules() == {f"{index}: each entry is what its record calls for"}


@pytest.mark.parametrize("index", INDEXES)
def test_check_finds_an_entry_that_is_there_twice(cast: Cast, index: str) -> None:
    look = INDEXES[index]
    first, *rest = getattr(cast.state, look)()
    cast.state.looks[look] = [first, first, *rest]
    assert f"{index}: no entry is there twice" in cast.rules()


@pytest.mark.parametrize(
    "index", ["ready index", "blocked index", "timers", "parked index", "lists by queue, name, tag and tenant"]
)
def test_check_finds_entries_out_of_order(cast: Cast, index: str) -> None:
    look = INDEXES[index]
    cast.state.looks[look] = list(getattr(cast.state, look)())[::-1]
    assert cast.rules() == {f"{index}: entries are in order"}


@pytest.mark.parametrize(
    "kind", [kind for kind in DeadlineKind if kind not in (DeadlineKind.JOB, DeadlineKind.WORKFLOW)]
)
def test_check_finds_deadlines_of_other_records_that_are_missing_or_stray(cast: Cast, kind: DeadlineKind) -> None:
    entries = list(cast.state.all_deadlines())
    own = next(entry for entry in entries if entry.kind is kind)
    cast.state.looks["all_deadlines"] = [entry for entry in entries if entry != own]
    assert cast.rules() == {"deadlines: each record that calls for an entry has one"}
    later = own._replace(at_ms=TimeMs(own.at_ms + 1))
    cast.state.looks["all_deadlines"] = [later if entry == own else entry for entry in entries]
    assert "deadlines: each entry is what its record calls for" in cast.rules()
    cast.state.looks["all_deadlines"] = [*entries, DeadlineEntry(DeadlineKind.WORKFLOW, TimeMs(1), DANGLING)]
    assert cast.rules() == {"deadlines: each entry has its record"}


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
    assert cast.rules() == {"a payload has its job or schedule"}


@pytest.mark.parametrize("kind", ["running", "cancelled", "dead", "retrying"])
def test_check_finds_a_result_of_a_job_that_did_not_complete(cast: Cast, kind: str) -> None:
    cast.state.results[cast.jobs[kind][0].id] = b"1"
    assert cast.rules() == {"only a completed job has a result"}


def test_check_finds_a_result_without_its_job(cast: Cast) -> None:
    cast.state.results[DANGLING] = b"1"
    assert cast.rules() == {"only a completed job has a result"}


# -- ties


def plant_record(records: dict[Any, Any], **fields: Any) -> None:
    """Change the first record."""
    key = min(records)
    records[key] = replace(records[key], **fields)


def plant_verdict(cast: Cast, verdict: Verdict) -> None:
    cast.state.verdicts[cast.jobs["parent"][0].id, cast.jobs["child"][0].id] = verdict


RELATIONS: list[tuple[str, Callable[[Cast], object]]] = [
    ("a job counts its parents", lambda cast: cast.plant("child", sets(dependency_count=1, pending_count=1))),
    ("a job counts what it waits for", lambda cast: cast.plant("child", sets(pending_count=1))),
    ("a job counts what it waits for", lambda cast: plant_verdict(cast, Verdict.MET)),
    ("a dependency has the verdict of its parent's status", lambda cast: plant_verdict(cast, Verdict.UNMET)),
    ("a parent is marked as one", lambda cast: cast.plant("parent", sets(has_dependants=False))),
    (
        "no parent is removed before its dependants are resolved",
        lambda cast: cast.state.jobs.pop(cast.jobs["parent"][0].id),
    ),
    ("dependencies have their job", lambda cast: cast.state.jobs.pop(cast.jobs["child"][0].id)),
    ("a job of a workflow has its workflow", lambda cast: cast.state.workflows.pop(min(cast.state.workflows))),
    ("a workflow counts its unfinished jobs", lambda cast: plant_record(cast.state.workflows, unfinished_count=1)),
    ("a workflow has no more jobs than it says", lambda cast: plant_record(cast.state.workflows, stored_count=1)),
    ("a workflow has no more jobs than it says", lambda cast: plant_record(cast.state.workflows, stored_count=3)),
    ("a workflow counts how its jobs ended", lambda cast: plant_record(cast.state.workflows, skipped_count=1)),
    ("a workflow is finished with its last job", lambda cast: plant_record(cast.state.workflows, finished_at_ms=1)),
    ("a schedule knows its unfinished jobs", lambda cast: plant_record(cast.state.schedules, active=())),
    (
        "a schedule's active jobs are its own and unfinished",
        lambda cast: plant_record(cast.state.schedules, active=(cast.jobs["of_schedule"][0].id, DANGLING)),
    ),
    (
        "a schedule's active jobs are there once, and bounded",
        lambda cast: plant_record(cast.state.schedules, active=(cast.jobs["of_schedule"][0].id,) * 2),
    ),
    (
        "a schedule's next instant is behind its last",
        lambda cast: plant_record(cast.state.schedules, last_at_ms=10**15),
    ),
    (
        "a schedule knows its unfinished jobs",
        lambda cast: cast.plant("of_schedule", options_set(is_backfill=True)),
    ),
    (
        "a schedule's active jobs are its own and unfinished",
        lambda cast: plant_record(cast.state.schedules, backfilling=(cast.jobs["of_schedule"][0].id,)),
    ),
    (
        "a schedule was changed by somebody, at its revision or before",
        lambda cast: plant_record(cast.state.schedules, changed_revision=0),
    ),
    (
        "a schedule was changed by somebody, at its revision or before",
        lambda cast: plant_record(cast.state.schedules, changed_revision=10**6),
    ),
    ("a schedule's pause has a beginning", lambda cast: plant_record(cast.state.schedules, paused_at_ms=1)),
    ("a ledger has its schedule", lambda cast: cast.state.schedules.pop(min(cast.state.schedules))),
    ("a log has its attempt", lambda cast: cast.state.logs.update({(DANGLING, 1, 1): [(1, b"a")]})),
    ("a log has its attempt", lambda cast: cast.state.logs.update({(cast.jobs["queued"][0].id, 1, 1): [(1, b"a")]})),
    (
        "a log is bounded",
        lambda cast: cast.state.logs.update(
            {(cast.jobs["running"][0].id, 1, 1): [(1, bytes(limits.LOG_BYTES_MAX + 1))]}
        ),
    ),
]


@pytest.mark.parametrize(("rule", "plant"), RELATIONS)
def test_check_finds_a_fault_in_what_ties_records(cast: Cast, rule: str, plant: Callable[[Cast], object]) -> None:
    plant(cast)
    assert rule in cast.rules()


@pytest.mark.parametrize("kind", [kind for kind in BackgroundKind if kind is not BackgroundKind.DROP_LEDGER])
def test_check_finds_a_background_step_without_its_subject(cast: Cast, kind: BackgroundKind) -> None:
    cast.state.background_work[kind, DANGLING if kind is not BackgroundKind.RELEASE_BLOCKED else b"nowhere"] = b""
    assert cast.rules() == {"background work has its subject"}


def test_a_ledger_that_is_being_dropped_needs_no_schedule_but_none_is_dropped_under_one(cast: Cast) -> None:
    (schedule_id, _), (other_id, _) = sorted(cast.state.schedules.items())
    cast.state.background_work[BackgroundKind.DROP_LEDGER, schedule_id] = b""
    assert cast.rules() == {"background work has its subject"}
    del cast.state.schedules[schedule_id]
    assert cast.rules() == set()
    assert other_id in cast.state.schedules


def test_a_dependant_may_be_told_late_while_a_background_step_is_on_its_way(cast: Cast) -> None:
    parent, child = cast.jobs["parent"][0], cast.jobs["child"][0]
    cast.scene.cancel(parent)
    plant_verdict(cast, Verdict.PENDING)
    late = "a dependency has the verdict of its parent's status"
    assert late in cast.rules()
    cast.state.background_work[BackgroundKind.RESOLVE_DEPENDANTS, parent.id] = child.id
    assert late in cast.rules(), "the chore is behind the child"
    cast.state.background_work[BackgroundKind.RESOLVE_DEPENDANTS, parent.id] = b""
    assert late not in cast.rules()


@pytest.mark.parametrize("direction", ["parent", "child"])
def test_check_finds_an_edge_that_is_known_at_one_end_only(cast: Cast, direction: str) -> None:
    child = cast.jobs["child"][0]
    if direction == "child":
        cast.state.looks["all_dependants"] = [
            *cast.state.all_dependants(),
            (DANGLING, Dependant(child.id, Condition.SUCCESS)),
        ]
        assert cast.rules() == {"a dependant depends on its parent"}
    else:
        cast.state.dependants = lambda *_, **__: []  # type: ignore[method-assign]  # one look is tampered with
        assert "each parent knows its dependant" in cast.rules()


@pytest.mark.parametrize("place", [("keyed", ""), ("keyed", "k"), ("nowhere", "")])
def test_check_finds_a_count_of_running_jobs_that_is_wrong(cast: Cast, place: tuple[str, str]) -> None:
    counts = cast.state.running_counts()
    counts[place] = counts.get(place, 0) + 1
    cast.state.running_counts = lambda: counts  # type: ignore[method-assign]  # one look is tampered with
    assert cast.rules() == {"counts of running jobs agree with the records"}


@pytest.mark.parametrize("tenant", ["default", "nobody"])
def test_check_finds_a_count_of_unfinished_jobs_that_is_wrong(cast: Cast, tenant: str) -> None:
    counts = cast.state.unfinished_counts()
    counts[tenant] = counts.get(tenant, 0) + 1
    cast.state.unfinished_counts = lambda: counts  # type: ignore[method-assign]  # one look is tampered with
    assert cast.rules() == {"counts of unfinished jobs agree with the records"}


def test_check_finds_settings_of_a_tenant_that_are_out_of_range(cast: Cast) -> None:
    cast.state.tenants["acme"] = Tenant("acme", weight=0, revision=1)
    assert cast.rules() == {"a tenant's settings are in range"}


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
        ("queued", sets(lost_count=4, options=Options(lost_workers_max=3))),
        ("queued", sets(status=Status.PAUSED)),
        ("running", sets(pause=Pause(TimeMs(1)))),
        ("running", sets(blocked=True)),
        ("scheduled", sets(blocked=True)),
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


@pytest.mark.parametrize("kind", ["completed", "dead", "cancelled"])
def test_assert_change_lets_a_finished_job_lose_a_claim_but_nothing_of_its_end(cast: Cast, kind: str) -> None:
    finished = cast.jobs[kind][0]
    assert_change(finished, replace(finished, idempotency_key="", revision=10**6))
    for fields in ({"finished_at_ms": finished.finished_at_ms + 1}, {"attempts": ()}, {"run_number": 2}):
        with pytest.raises(InvariantBroken, match="stays so"):
            assert_change(finished, replace(finished, revision=10**6, **fields))
    with pytest.raises(InvariantBroken, match="stays so"):
        assert_change(finished, replace(finished, status=Status.SKIPPED))


@pytest.mark.parametrize("run_number", [1, 2, 3])
@pytest.mark.parametrize("kind", ["completed", "dead", "cancelled"])
def test_assert_change_lets_only_what_did_not_complete_run_again_and_as_the_next_run(
    cast: Cast, kind: str, run_number: int
) -> None:
    finished = cast.jobs[kind][0]
    again = replace(
        finished,
        status=Status.QUEUED,
        finished_at_ms=TimeMs(0),
        run_number=run_number,
        attempt_number=0,
        failure_count=0,
    )
    if kind != "completed" and run_number == 2:
        assert_change(finished, again)
        return
    with pytest.raises(InvariantBroken, match="stays so"):
        assert_change(finished, again)


def test_assert_change_stops_a_new_run_of_what_has_not_ended(cast: Cast) -> None:
    job = cast.jobs["retrying"][0]
    with pytest.raises(InvariantBroken, match="lasts until it ends"):
        assert_change(job, replace(job, run_number=2))


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
