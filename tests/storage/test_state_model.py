"""The state under random writes, crashes and reopenings, against plain dictionaries; and under random operations."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from raftsched.core import operations as ops
from raftsched.core.apply import apply
from raftsched.core.ids import FencingToken, JobId, TimeMs
from raftsched.core.invariants import check
from raftsched.core.job import FINISHED, LEASED, WAITING, AttemptEnd, Job, RetryPolicy, Status, Worker
from raftsched.core.view import Context, CounterKey, PutFence, PutJob, PutWorker, RemoveJob, RemoveWorker
from raftsched.storage.state import State
from raftsched.storage.store import Table, all_rows
from tests.storage.conftest import Home, make_home
from tests.storage.jobs import NOW_MS, job_id, make_job, running

_jobs = st.integers(0, 11)
_fields = st.fixed_dictionaries(
    {
        "status": st.sampled_from(sorted(WAITING | LEASED | FINISHED)),
        "priority": st.sampled_from([0, 5, 9]),
        "due_at_ms": st.integers(0, 3).map(lambda step: NOW_MS + step),
        "finished_at_ms": st.integers(0, 3).map(lambda step: NOW_MS + step),
        "timed": st.booleans(),
    }
)
_texts = st.sampled_from([None, b"", b"1", b"22"])


class Model(NamedTuple):
    """What the state should hold, in the plainest form."""

    jobs: dict[JobId, Job]
    payloads: dict[JobId, bytes]
    results: dict[JobId, bytes]
    workers: dict[str, Worker]
    position: tuple[int, int, int]

    def copy(self) -> Model:
        return Model(dict(self.jobs), dict(self.payloads), dict(self.results), dict(self.workers), self.position)


def set_text(texts: dict[JobId, bytes], identity: JobId, text: bytes | None) -> None:
    if text:
        texts[identity] = text
    elif text is not None:
        texts.pop(identity, None)


class StateMachine(RuleBasedStateMachine):
    kind = ""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.home: Home = make_home(self.kind, Path(self.folder.name) / "state")
        self.state = State(self.home.open())
        self.model = Model({}, {}, {}, {}, (0, 0, 0))
        self.committed = self.model.copy()

    @rule(number=_jobs, fields=_fields, where=st.sampled_from(["mail", "export"]), payload=_texts, result=_texts)
    def put_job(
        self, number: int, fields: dict[str, object], where: str, payload: bytes | None, result: bytes | None
    ) -> None:
        old = self.model.jobs.get(job_id(number))
        new = old or make_job(number, queue=where, tenant=where[0], idempotency_key="" if number % 2 else f"k{number}")
        new = msgspec.structs.replace(new, **fields)
        self.state.execute([PutJob(old, new, payload, result)])
        self.model.jobs[new.id] = new
        set_text(self.model.payloads, new.id, payload)
        set_text(self.model.results, new.id, result)

    @precondition(lambda self: self.model.jobs)
    @rule(pick=st.integers(0, 100))
    def remove_job(self, pick: int) -> None:
        old = sorted(self.model.jobs.values(), key=lambda job: job.id)[pick % len(self.model.jobs)]
        self.state.execute([RemoveJob(old)])
        for table in (self.model.jobs, self.model.payloads, self.model.results):
            table.pop(old.id, None)

    @rule(name=st.sampled_from(["w1", "w2"]), seen=st.integers(1, 3))
    def put_worker(self, name: str, seen: int) -> None:
        worker = Worker(name, (), 1, TimeMs(seen))
        self.state.execute([PutWorker(worker), PutFence(FencingToken(self.state.fence + 1))])
        self.model.workers[name] = worker

    @rule(name=st.sampled_from(["w1", "w2"]))
    def remove_worker(self, name: str) -> None:
        self.state.execute([RemoveWorker(name)])
        self.model.workers.pop(name, None)

    @rule(seconds=st.integers(-2, 3))
    def advance(self, seconds: int) -> None:
        now_ms = NOW_MS + 1_000 * seconds
        self.state.advance(index=self.state.applied_index + 1, term=1, now_ms=now_ms)
        self.model = self.model._replace(
            position=(self.model.position[0] + 1, max(self.model.position[1], now_ms), self.state.fence)
        )

    @rule()
    def checkpoint(self) -> None:
        self.advance(0)
        assert self.state.checkpoint() == self.model.position[0]
        self.committed = self.model.copy()

    @rule()
    def crash(self) -> None:
        self.state = State(self.home.crash())
        self.model = self.committed.copy()
        assert (self.state.applied_index, self.state.cluster_time_ms, self.state.fence) == self.model.position

    @rule()
    def copy(self) -> None:
        path = Path(self.folder.name) / "copy"
        self.state.copy_to(path)
        copy = State(self.home.load(path))
        assert {job.id: job for job in copy.all_jobs()} == self.committed.jobs
        assert copy.applied_index == self.committed.position[0]
        copy.close()
        path.unlink()

    @invariant()
    def records_agree(self) -> None:
        state, model = self.state, self.model
        assert list(state.all_jobs()) == [model.jobs[identity] for identity in sorted(model.jobs)]
        assert all(state.job(job_id(number)) == model.jobs.get(job_id(number)) for number in range(12))
        assert {identity: state.payload(identity) for identity in state.all_payload_ids()} == model.payloads
        assert {identity: state.result(identity) for identity in state.all_result_ids()} == model.results
        assert state.workers() == [model.workers[name] for name in sorted(model.workers)]

    @invariant()
    def indexes_and_counters_agree(self) -> None:
        state, jobs = self.state, self.model.jobs.values()
        waiting = [job for job in jobs if job.status in WAITING]
        timed = [job for job in waiting if job.timed]
        done = [job for job in jobs if job.status in FINISHED]
        keyed = [job for job in jobs if job.idempotency_key]
        assert [entry.job_id for entry in state.all_waiting()] == [
            job.id for job in sorted(waiting, key=lambda job: (job.queue, -job.priority, job.due_at_ms, job.id))
        ]
        assert list(state.all_timers()) == sorted((j.due_at_ms, j.id, j.queue, j.priority) for j in timed)
        assert state.leased_jobs() == sorted((j for j in jobs if j.status in LEASED), key=lambda job: job.id)
        assert sorted(state.all_finished()) == sorted((job.finished_at_ms, job.id) for job in done)
        assert list(state.all_keys()) == sorted((job.tenant, job.idempotency_key, job.id) for job in keyed)
        assert all(state.job_id_for_key(job.tenant, job.idempotency_key) == job.id for job in keyed)
        assert state.counters() == Counter(CounterKey(job.tenant, job.queue, job.status) for job in jobs)
        assert state.waiting_queues() == sorted({job.queue for job in waiting})

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
    operation: ops.Operation


def draw_operation(random: Random, now_ms: int) -> ops.Operation:
    """A submit, lease, outcome, expiry, cancel, purge or mark of one of a few jobs; many are refused, as they should."""
    identity = job_id(random.randrange(40))
    token = FencingToken(random.randrange(60))
    match random.randrange(10):
        case 0 | 1 | 2 | 3:
            due = TimeMs(random.choice([0, now_ms - 5, now_ms + random.randrange(3_000)]))
            queue = random.choice(["mail", "export"])
            key = random.choice(["", f"key-{random.randrange(20)}"])
            return ops.SubmitJob(
                identity, "t", "n", queue, random.randrange(10), due, b"{}", 2, 900, RetryPolicy(), key, b"f"
            )
        case 4 | 5:
            return ops.LeaseJobs("w", 800, tuple(job_id(random.randrange(40)) for _ in range(5)))
        case 6:
            end = random.choice([AttemptEnd.COMPLETED, AttemptEnd.FAILED])
            return ops.RecordOutcome(identity, 1, token, end, "c", b"[1]" if end is AttemptEnd.COMPLETED else b"")
        case 7:
            cause = random.choice([AttemptEnd.WORKER_LOST, AttemptEnd.TIMEOUT])
            return ops.ExpireLeases((ops.ExpiredLease(identity, token, cause),))
        case 8:
            return ops.CancelJob(identity, "t")
        case _:
            mark = ops.WorkerMark("w", ("mail",), 5, TimeMs(now_ms))
            upkeep: list[ops.Operation] = [
                ops.PurgeJobs((identity,), TimeMs(now_ms)),
                ops.MarkWorkers((mark,)),
                ops.MarkWorkers((), ("w",)),
            ]
            return random.choice(upkeep)


def current_outcome(state: State, random: Random) -> ops.Operation | None:
    """An outcome with a valid token, which chance alone rarely finds."""
    held = state.leased_jobs()
    if not held:
        return None
    job = random.choice(held)
    assert job.lease is not None
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


def contents(state: State) -> list[object]:
    walks = [state.all_jobs(), state.all_waiting(), state.all_timers(), state.all_leased(), state.all_finished()]
    return [
        *(list(walk) for walk in walks),
        *(list(walk) for walk in (state.all_keys(), state.all_payload_ids(), state.all_result_ids())),
        state.workers(),
        state.counters(),
        (state.applied_index, state.cluster_time_ms, state.fence),
    ]


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
        if step % 20 == 0:
            assert check(state) == []
            assert contents(state) == contents(steady)
    assert check(state) == []
    assert contents(state) == contents(steady)
    finished = [job for job in state.all_jobs() if job.status in FINISHED]
    assert {Status.COMPLETED, Status.DEAD_LETTER, Status.CANCELLED} <= {job.status for job in finished}
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
