"""The state under random writes, crashes and reopenings, against plain dictionaries; and under random operations."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from raftsched.core.apply import apply
from raftsched.core.checks.invariants import check
from raftsched.core.operations import codec as ops
from raftsched.core.operations import control
from raftsched.core.operations import queues as queue_operations
from raftsched.core.operations.base import Operation
from raftsched.core.operations.control import BackgroundKind, DeadlineKind
from raftsched.core.records.ids import FencingToken, TimeMs
from raftsched.core.records.job import (
    LEASED,
    WAITING,
    AttemptEnd,
    Condition,
    Dependency,
    Job,
    Pause,
    SilentLease,
    Status,
    Verdict,
    Worker,
)
from raftsched.core.records.queue import Queue
from raftsched.core.records.retry import RetryPolicy
from raftsched.core.records.schedule import Firing, FiringKind, ScheduleId
from raftsched.core.records.spec import JobSpec, Options, SpecChanges
from raftsched.core.records.workflow import Workflow, WorkflowId
from raftsched.core.state.entries import AuditEntry, Dependant
from raftsched.core.state.results import Context
from raftsched.core.state.view import AuditableView
from raftsched.core.state.writes import (
    PutAudit,
    PutBackgroundWork,
    PutDependant,
    PutDependencies,
    PutFence,
    PutFiring,
    PutJob,
    PutLog,
    PutQueue,
    PutSchedule,
    PutWorker,
    PutWorkflow,
    RemoveAudit,
    RemoveBackgroundWork,
    RemoveFirings,
    RemoveJob,
    RemoveSchedule,
    RemoveWorker,
    RemoveWorkflow,
    Write,
)
from raftsched.storage.reader import StateReader
from raftsched.storage.state import State
from raftsched.storage.store.port import Table, all_rows
from raftsched.storage.tables.facets import Facets
from raftsched.storage.tables.walks import Walks
from tests.core.plain_state import PlainState
from tests.core.scene import with_fields
from tests.storage.conftest import Home, make_home
from tests.storage.jobs import NOW_MS, job_id, make_job, make_schedule, running

REGIONS = ("", "eu", "us")
_jobs = st.integers(0, 11)
_texts = st.sampled_from([None, b"", b"1", b"22"])
_options = st.builds(
    Options,
    concurrency_key=st.sampled_from(["k1", "k2"]),
    unique_until_ms=st.sampled_from([0, 9]),
    workflow_id=st.sampled_from([b"", b"v" * 16, b"w" * 16]),
    schedule_id=st.sampled_from([b"", b"s" * 16]),
    expires_at_ms=st.sampled_from([None, 0, 5]),
    deadline_ms=st.sampled_from([None, 0, 7]),
)
_fields = st.fixed_dictionaries(
    {
        "status": st.sampled_from(sorted(set(Status) - {Status.FAILED})),
        "priority": st.sampled_from([0, 5, 9]),
        "due_at_ms": st.integers(0, 3).map(lambda step: NOW_MS + step),
        "finished_at_ms": st.integers(0, 3).map(lambda step: NOW_MS + step),
        "timed": st.booleans(),
        "blocked": st.booleans(),
        "options": st.none() | _options,
        "pause": st.none() | st.builds(Pause, st.just(1), st.sampled_from([0, 4])),
    }
)
_deadline_times = st.sampled_from([0, 3, 8]).map(TimeMs)
_walks = [name for name in vars(Walks) if name.startswith("all_")]


def contents(view: AuditableView) -> dict[str, object]:
    """All that is stored, in no order."""
    walked: dict[str, object] = {name: sorted(map(repr, getattr(view, name)())) for name in _walks}
    counts = {"counters": view.counters(), "running": view.running_counts(), "unfinished": view.unfinished_counts()}
    counts |= {"dead letters": view.dead_letter_counts()}
    position = {"fence": view.fence, "outage": view.outage_ended_at_ms, "time": view.cluster_time_ms}
    return walked | counts | position


class StateMachine(RuleBasedStateMachine):
    """Random writes to a state and to plain dictionaries; both hold the same, also after a crash or in a copy."""

    kind = ""

    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.home: Home = make_home(self.kind, Path(self.folder.name) / "state")
        self.state = State(self.home.open())
        self.plain = PlainState()
        self.plain.pass_time(0)  # the entry under way is the one behind what is applied
        self.committed = deepcopy(self.plain)

    def execute(self, *writes: Write) -> None:
        self.state.execute(writes)
        self.plain.execute(writes)

    @rule(number=_jobs, fields=_fields, where=st.sampled_from(["mail", "export"]), payload=_texts, result=_texts)
    def put_job(
        self, number: int, fields: dict[str, Any], where: str, payload: bytes | None, result: bytes | None
    ) -> None:
        old = self.plain.jobs.get(job_id(number))
        region, key = REGIONS[number % 3], "" if number % 2 else f"k{number}"
        new = old or make_job(number, queue=where, tenant=where[0], region=region, idempotency_key=key)
        options = fields["options"]
        if options is not None and number % 3:
            fields["options"] = replace(options, unique_key=b"u%d" % number)
        new = with_fields(new, **fields)
        waits = new.status in WAITING
        new = replace(new, timed=new.timed and waits, blocked=new.blocked and waits and options is not None)
        self.execute(PutJob(old, new, payload, result))

    @precondition(lambda self: self.plain.jobs)
    @rule(pick=st.integers(0, 100), parents=st.lists(_jobs, max_size=4, unique=True), verdict=st.sampled_from(Verdict))
    def relate_job(self, pick: int, parents: list[int], verdict: Verdict) -> None:
        old = self.pick(pick)
        if old.dependency_count:
            each = self.plain.edges[old.id][pick % old.dependency_count]
            self.execute(PutDependant(each.parent, Dependant(old.id, each.condition, verdict)))
            return
        edges = tuple(Dependency(job_id(number), Condition(number % 3 + 1)) for number in parents)
        self.execute(PutJob(old, replace(old, dependency_count=len(edges))), PutDependencies(old.id, edges))

    @precondition(lambda self: self.plain.jobs)
    @rule(pick=st.integers(0, 100), attempt=st.integers(1, 2), lines=st.sampled_from([b"a\n", b"bb\n" * 9]))
    def log(self, pick: int, attempt: int, lines: bytes) -> None:
        job = self.pick(pick)
        sequence = self.plain.log_size(job.id, 1, attempt).last_sequence + 1
        self.execute(PutLog(job.id, 1, attempt, lines, sequence))

    @precondition(lambda self: self.plain.jobs)
    @rule(pick=st.integers(0, 100))
    def remove_job(self, pick: int) -> None:
        self.execute(RemoveJob(self.pick(pick)))

    @rule(name=st.sampled_from(["w1", "w2"]), seen=st.integers(1, 3))
    def put_worker(self, name: str, seen: int) -> None:
        token = FencingToken(self.state.fence + 1)
        self.execute(PutWorker(Worker(name, (), 1, TimeMs(seen))), PutFence(token))

    @precondition(lambda self: self.plain.workers)
    @rule()
    def remove_worker(self) -> None:
        self.execute(RemoveWorker(min(self.plain.workers)))

    @rule(name=st.sampled_from(["mail", "export"]), paused=st.booleans(), until_ms=_deadline_times)
    def put_queue(self, name: str, *, paused: bool, until_ms: TimeMs) -> None:
        self.execute(PutQueue(self.plain.queue(name), Queue(name, paused=paused, pause_until_ms=until_ms)))

    @rule(number=st.integers(0, 2), stored_count=st.integers(1, 2), key=st.sampled_from(["", "k"]))
    def put_workflow(self, number: int, stored_count: int, key: str) -> None:
        workflow_id = WorkflowId(job_id(number))
        old = self.plain.workflow(workflow_id)
        if old is not None and key:
            self.execute(RemoveWorkflow(old))
            return
        new = Workflow(workflow_id, f"t{number}", "n", 2, stored_count, idempotency_key=key, updated_at_ms=NOW_MS)
        self.execute(PutWorkflow(old, new))

    @rule(number=st.integers(0, 2), next_at_ms=_deadline_times, payload=_texts, removed=st.booleans())
    def put_schedule(self, number: int, next_at_ms: TimeMs, payload: bytes | None, *, removed: bool) -> None:
        new = make_schedule(100 + number, next_at_ms=next_at_ms)
        old = self.plain.schedule(new.id)
        self.execute(RemoveSchedule(old) if old is not None and removed else PutSchedule(old, new, payload))

    @rule(
        number=st.integers(0, 2), fire_time_ms=_deadline_times, kind=st.sampled_from(FiringKind), removed=st.booleans()
    )
    def put_firing(self, number: int, fire_time_ms: TimeMs, kind: FiringKind, *, removed: bool) -> None:
        schedule_id = ScheduleId(job_id(number))
        old = self.plain.firing(schedule_id, fire_time_ms, kind)
        new = Firing(fire_time_ms, kind, reason="overlap")
        self.execute(RemoveFirings(schedule_id, (old,)) if old is not None and removed else PutFiring(schedule_id, new))

    @rule(
        kind=st.sampled_from(BackgroundKind),
        subject=st.sampled_from([b"a", b"b"]),
        cursor=st.sampled_from([b"", b"at"]),
    )
    def put_chore(self, kind: BackgroundKind, subject: bytes, cursor: bytes) -> None:
        at = self.plain.background_cursor(kind, subject)
        self.execute(PutBackgroundWork(kind, subject, cursor) if at != cursor else RemoveBackgroundWork(kind, subject))

    @rule(count=st.integers(1, 3))
    def put_audit(self, count: int) -> None:
        self.execute(*(PutAudit(AuditEntry(NOW_MS, "me", "a", str(number))) for number in range(count)))

    @rule(back=st.integers(0, 2), limit=st.integers(1, 4))
    def remove_audit(self, back: int, limit: int) -> None:
        self.execute(RemoveAudit(max(self.state.applied_index - back, 0), limit))

    @rule(seconds=st.integers(-2, 3))
    def advance(self, seconds: int) -> None:
        now_ms = NOW_MS + 1_000 * seconds
        self.state.advance(index=self.state.applied_index + 1, term=1, now_ms=now_ms)
        self.plain.pass_time(now_ms)

    @rule()
    def checkpoint(self) -> None:
        self.advance(0)
        assert self.state.checkpoint() == self.plain.index - 1
        self.committed = deepcopy(self.plain)

    @rule()
    def crash(self) -> None:
        self.state = State(self.home.crash())
        self.plain = deepcopy(self.committed)

    @rule()
    def copy(self) -> None:
        path = Path(self.folder.name) / "copy"
        self.state.copy_to(path)
        copy = StateReader(self.home.load(path))
        assert contents(copy) == contents(self.committed)
        assert copy.applied_index == self.committed.index - 1
        copy.close()
        path.unlink()

    def pick(self, pick: int) -> Job:
        return sorted(self.plain.jobs.values(), key=lambda job: job.id)[pick % len(self.plain.jobs)]

    @invariant()
    def both_hold_the_same(self) -> None:
        assert contents(self.state) == contents(self.plain)
        assert self.state.applied_index == self.plain.index - 1

    @invariant()
    def reads_of_jobs_agree(self) -> None:
        state, plain = self.state, self.plain
        for identity in [job_id(number) for number in range(12)]:
            assert state.job(identity) == plain.job(identity)
            assert state.payload(identity) == plain.payload(identity)
            assert state.result(identity) == plain.results.get(identity, b"")
            assert state.dependencies(identity) == plain.dependencies(identity)
            assert state.log_size(identity, 1, 1) == plain.log_size(identity, 1, 1)
            for after in (None, job_id(4)):
                assert state.dependants(identity, after=after, limit=3) == plain.dependants(
                    identity, after=after, limit=3
                )
        for job in plain.jobs.values():
            assert not job.idempotency_key or state.job_id_for_key(job.tenant, job.idempotency_key) == job.id
        leased = [job for job in plain.jobs.values() if job.status in LEASED]
        assert state.leased_jobs() == sorted(leased, key=lambda job: job.id)
        for workflow_id in (WorkflowId(b"v" * 16), WorkflowId(b"w" * 16)):
            found = state.workflow_jobs(workflow_id, after=job_id(2), limit=4)
            assert found == plain.workflow_jobs(workflow_id, after=job_id(2), limit=4)
        runs = sorted((job for _, job in plain.all_schedule_jobs()), reverse=True)
        page = state.list_jobs_of(Facets(schedule_id=b"s" * 16), limit=12, descending=True)
        assert [job.id for _, job in page.items] == runs

    @invariant()
    def reads_of_queues_agree(self) -> None:
        state, plain = self.state, self.plain
        assert state.waiting_queues() == sorted({entry.queue for entry in plain.all_waiting()})
        for queue in ("mail", "export"):
            waiting = {job.tenant for job in plain.jobs.values() if job.spec.queue == queue and job.status in WAITING}
            assert state.waiting_tenants(queue) == sorted(waiting)
            assert state.queue(queue) == plain.queue(queue)
            assert state.running_count(queue) == plain.running_count(queue)
            assert state.blocked_jobs(queue, limit=3) == plain.blocked_jobs(queue, limit=3)
            for key in ("k1", "k2"):
                assert state.key_running_count(queue, key) == plain.key_running_count(queue, key)
                assert state.blocked_regions(queue, key, limit=2) == plain.blocked_regions(queue, key, limit=2)
                for region in REGIONS:
                    assert state.first_blocked(queue, key, region) == plain.first_blocked(queue, key, region)
            for region in REGIONS:
                of_it = {
                    entry.tenant for entry in plain.all_waiting() if (entry.queue, entry.region) == (queue, region)
                }
                assert state.tenants_of_region(queue, region) == sorted(of_it)

    @invariant()
    def reads_of_the_rest_agree(self) -> None:
        state, plain = self.state, self.plain
        assert [line for _, line in state.list_audit(limit=1_000).items] == [line for _, line in plain.audit]
        assert state.workers() == [plain.workers[name] for name in sorted(plain.workers)]
        assert list(state.all_deadlines()) == list(plain.all_deadlines())
        for number in range(3):
            schedule_id = ScheduleId(job_id(number))
            lines = plain.firings(schedule_id, after=None, until_ms=8, limit=3)
            assert state.firings(schedule_id, after=None, until_ms=8, limit=3) == lines
            assert state.payload(ScheduleId(job_id(100 + number))) == plain.payload(ScheduleId(job_id(100 + number)))

    def teardown(self) -> None:
        self.state.close()
        self.folder.cleanup()


class LmdbStateMachine(StateMachine):
    kind = "lmdb"


class MemoryStateMachine(StateMachine):
    kind = "memory"


_quick = settings(
    max_examples=20, stateful_step_count=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
TestStateOnDiskAgreesWithAModel = LmdbStateMachine.TestCase
TestStateOnDiskAgreesWithAModel.settings = _quick
TestStateInMemoryAgreesWithAModel = MemoryStateMachine.TestCase
TestStateInMemoryAgreesWithAModel.settings = settings(_quick, max_examples=50)


# -- real operations: replay and invariants ---------------------------------------------------------------------------


class Entry(NamedTuple):
    """A log entry: its time, and one operation."""

    now_ms: TimeMs
    operation: Operation


Draw = Callable[[Random, int, int], Operation]


def draw_operation(random: Random, now_ms: int) -> Operation:
    """An operation on one of a few jobs, workflows or queues; many are refused, as they should.

    The jobs are a window that moves on with time: new ones come in its later half, old ones are purged in its earlier
    one, so that no id is ever used twice.
    """
    first = (now_ms - NOW_MS) // 3_000 * 4
    draws: list[Draw] = [_draw_submit, _draw_submit, _draw_worker, _draw_worker, _draw_upkeep, _draw_control]
    return random.choice(draws)(random, first, now_ms)


def _draw_submit(random: Random, first: int, now_ms: int) -> Operation:
    identity = job_id(first + random.randrange(20, 40))
    due = TimeMs(random.choice([0, now_ms - 5, now_ms + random.randrange(3_000)]))
    queue = random.choice(["mail", "export"])
    key = random.choice(["", f"key-{random.randrange(20)}"])
    until_ms = TimeMs(random.choice([0, now_ms + 900]))
    options: list[Options | None] = [
        None,
        None,
        Options(concurrency_key="k"),
        Options(unique_key=b"u%d" % random.randrange(3), unique_until_ms=until_ms),
        Options(deadline_ms=TimeMs(now_ms + 5_000), expires_at_ms=TimeMs(now_ms + 2_000)),
    ]
    parents = random.sample(range(first + 10, first + 40), 2) if random.random() < 0.5 else []
    depends_on = tuple(Dependency(job_id(number), random.choice([*Condition])) for number in parents)
    spec = JobSpec("n", queue, random.randrange(10), 2, 900, RetryPolicy())
    submit = with_fields(
        ops.SubmitJob(identity, "t", spec, due, b"{}", key, b"f", depends_on),
        options=random.choice(options), paused=random.random() < 0.1, region=random.choice(["", "", "eu", "us"]),
    )  # fmt: skip
    if random.random() < 0.9:
        return submit
    return _draw_workflow(random, replace(submit, idempotency_key="", depends_on=depends_on[:1]), first)


def _draw_workflow(random: Random, plain: ops.SubmitJob, first: int) -> Operation:
    number = 1_000 + first + random.randrange(2)
    own = Options(workflow_id=job_id(number), task="a")
    one = with_fields(plain, id=job_id(2 * number), options=own)
    edge = (Dependency(one.id),)
    other = with_fields(plain, id=job_id(2 * number + 1), depends_on=edge, options=replace(own, task="b"))
    workflow_id = WorkflowId(job_id(number))
    choices: list[Operation] = [
        ops.SubmitWorkflow(workflow_id, "t", "w", 2, 0, (one, other), f"w{number}", b"f"),
        ops.SubmitWorkflow(workflow_id, "t", "w", 2, 0, (one,), f"w{number}", b"f"),
        ops.SubmitWorkflow(workflow_id, "t", "w", 2, 1, (other,), f"w{number}", b"f"),
        queue_operations.CancelWorkflow(workflow_id, "t"),
    ]
    return random.choice(choices)


def _draw_worker(random: Random, first: int, _now_ms: int) -> Operation:
    identity = job_id(first + random.randrange(40))
    token = FencingToken(random.randrange(60))
    end = random.choice([AttemptEnd.COMPLETED, AttemptEnd.FAILED])
    cause = random.choice([AttemptEnd.WORKER_LOST, AttemptEnd.TIMEOUT])
    choices: list[Operation] = [
        ops.LeaseJobs("w", 800, tuple(job_id(first + random.randrange(40)) for _ in range(5)), "", "eu"),
        ops.LeaseJobs("w", 800, tuple(job_id(first + number) for number in range(40))),
        ops.RecordOutcome(identity, 1, token, end, "c", b"[1]" if end is AttemptEnd.COMPLETED else b""),
        ops.ExpireLeases((ops.ExpiredLease(identity, token, cause),)),
    ]
    return random.choice(choices)


def _draw_upkeep(random: Random, first: int, now_ms: int) -> Operation:
    identity = job_id(first + random.randrange(20))
    window = tuple(job_id(first + number) for number in range(40))
    silent = SilentLease(FencingToken(1), TimeMs(now_ms), TimeMs(now_ms))
    mark = ops.WorkerMark("w", ("mail",), 5, TimeMs(now_ms), "", random.choice([(), (silent,)]))
    workflows = tuple((DeadlineKind.WORKFLOW, bytes(job_id(number))) for number in range(1_000, 1_000 + first + 2))
    choices: list[Operation] = [
        ops.PurgeJobs((identity,), TimeMs(now_ms)),
        ops.MarkWorkers((mark,)),
        ops.MarkWorkers((), ("w",)),
        ops.RecordOutage(TimeMs(max(0, now_ms - random.randrange(20))), 10),
        control.BlockJobs(window),
        control.HandleDeadlines(tuple((DeadlineKind.JOB, bytes(job)) for job in window)),
        control.HandleDeadlines((*workflows, (DeadlineKind.QUEUE, b"mail"))),
        control.DoBackgroundStep(
            random.choice([*BackgroundKind]), random.choice([identity, b"mail", job_id(1_000 + first)])
        ),
    ]
    return random.choice(choices)


def _draw_control(random: Random, first: int, now_ms: int) -> Operation:
    identity = job_id(first + random.randrange(40))
    until_ms = TimeMs(random.choice([0, now_ms + 500]))
    queue = random.choice(["mail", "export"])
    choices: list[Operation] = [
        ops.CancelJob(identity, "t", force=random.random() < 0.5),
        control.PauseJob(identity, "t", until_ms),
        control.ResumeJob(identity, "t"),
        control.RequeueJob(identity, "t", until_ms),
        control.AmendJob(identity, "t", SpecChanges(queue, random.randrange(10)), until_ms),
        queue_operations.PauseQueue(queue, paused=random.random() < 0.3, until_ms=until_ms),
        queue_operations.ConfigureQueue(
            queue, concurrency_max=random.choice([0, 5]), key_concurrency_max=random.randrange(3)
        ),
    ]
    return random.choice(choices)


def current_outcome(state: State, random: Random) -> Operation | None:
    """An outcome with a valid token, which chance alone rarely finds."""
    held = state.leased_jobs()
    if not held:
        return None
    job = random.choice(held)
    assert job.lease is not None
    if random.random() < 0.3:
        return control.AppendLog(job.id, job.run_number, job.lease.token, b"a line\n", random.randrange(1, 4))
    end = random.choice([AttemptEnd.COMPLETED, AttemptEnd.FAILED, AttemptEnd.SNOOZED])
    result = b"[2]" if end is AttemptEnd.COMPLETED else b""
    return ops.RecordOutcome(job.id, job.run_number, job.lease.token, end, "d", result, delay_ms=50)


def replay(state: State, log: list[Entry]) -> None:
    """Apply all entries behind the state's position."""
    for entry in log[state.applied_index :]:
        index = state.applied_index + 1
        applied = apply(state, entry.operation, Context(entry.now_ms, index))
        state.execute(applied.writes)
        state.advance(index=index, term=1, now_ms=entry.now_ms)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["lmdb", "memory"])
def test_replay_after_a_crash_leads_to_the_state_without_one_and_all_invariants_hold(
    tmp_path: Path, kind: str, seed: int
) -> None:
    random = Random(seed)
    home = make_home(kind, tmp_path / "state")
    state = State(home.open())
    steady = State(make_home("memory", tmp_path).open())
    log: list[Entry] = []
    seen: set[Status] = set()
    now_ms = int(NOW_MS)
    for step in range(600):
        now_ms += random.randrange(400)
        operation = (current_outcome(state, random) if random.random() < 0.2 else None) or draw_operation(
            random, now_ms
        )
        log.append(Entry(TimeMs(now_ms), operation))
        replay(steady, log)
        replay(state, log)
        match random.randrange(20):
            case 0:
                state.checkpoint()
            case 1:
                state = State(home.crash())
                replay(state, log)
        seen |= {job.status for job in state.all_jobs()}
        if step % 20 == 0:
            assert check(state) == []
            assert contents(state) == contents(steady)
    assert check(state) == []
    assert contents(state) == contents(steady)
    assert set(Status) - {Status.FAILED, Status.CANCELLING, Status.SKIPPED} <= seen, "the history is a rich one"
    assert seen & {Status.CANCELLING, Status.SKIPPED}
    state.close()


def test_invariants_find_an_entry_that_no_record_calls_for(tmp_path: Path) -> None:
    store = make_home("lmdb", tmp_path / "state").open()
    state = State(store)
    replay(state, [Entry(NOW_MS, draw_operation(Random(n), NOW_MS)) for n in range(30)])
    assert check(state) == []
    (key, value) = next(all_rows(store, Table.WAITING))
    store.put(Table.WAITING, key[:-1] + b"\x01", value)
    assert check(state) != []
    store.close()


def test_recent_records_never_hide_what_is_stored(tmp_path: Path) -> None:
    """`job` answers from memory while a record is fresh; both must be the same."""
    state = State(make_home("lmdb", tmp_path / "state").open())
    old = make_job(1)
    state.execute([PutJob(None, old), PutJob(old, running(old))])
    assert state.job(old.id) == running(old) == next(state.all_jobs())
    state.close()
