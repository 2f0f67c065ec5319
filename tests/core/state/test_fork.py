"""A fork shows what its state shows once its writes are executed, whatever is asked of it: State and oracle alike."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

import pytest

from raftsched import limits
from raftsched.core.checks.invariants import check
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import CancelJob
from raftsched.core.operations.control import BackgroundKind, BlockJobs, RequeueJob
from raftsched.core.records.ids import FencingToken, JobId, TimeMs
from raftsched.core.records.job import FINISHED, WAITING, Status
from raftsched.core.records.queue import Queue
from raftsched.core.records.schedule import Firing, FiringKind, ScheduleId
from raftsched.core.records.spec import Options
from raftsched.core.records.workflow import WorkflowId
from raftsched.core.state.entries import BlockedEntry, Dependant, LogSize
from raftsched.core.state.view import View
from raftsched.core.state.writes import PutFence, PutFiring, PutLog, PutOutage, PutQueue, RemoveFirings, Write
from raftsched.storage.state import State
from raftsched.storage.store.memory_store import MemoryStore
from tests.core.plain_state import PlainState
from tests.core.relations_scene import RelationsScene, needs, workflow_id, workflow_job, workflow_part
from tests.core.scene import job_id, submit_operation

_T = TypeVar("_T")
KEYS = ("", "k1", "k2")
QUEUES = ("q1", "q2")
REGIONS = ("", "eu")
JOBS_MAX = 60


def pages(read: Callable[[JobId | None, int], list[_T]], id_of: Callable[[_T], JobId], limit: int) -> list[_T]:
    """All rows, read page by page."""
    found: list[_T] = []
    after: JobId | None = None
    while page := read(after, limit):
        assert len(page) <= limit
        found.extend(page)
        after = id_of(page[-1])
    return found


def looks(view: View, limit: int) -> dict[str, object]:
    """Everything that a view can be asked, about every job there may be."""
    ids = [job_id(number) for number in range(1, JOBS_MAX)]
    jobs = {each: view.job(each) for each in ids}
    places = [(queue, key) for queue in QUEUES for key in KEYS]

    def dependants(parent: JobId) -> list[Dependant]:
        return pages(lambda after, n: view.dependants(parent, after=after, limit=n), lambda row: row.child, limit)

    def blocked_of(queue: str, key: str, region: str) -> list[JobId]:
        found: list[JobId] = []
        while (one := view.first_blocked(queue, key, region, after=found[-1] if found else None)) is not None:
            found.append(one)
        assert not found or region in view.blocked_regions(queue, key, limit=len(REGIONS))
        return found

    def jobs_of(owner: WorkflowId) -> list[JobId]:
        return pages(lambda after, n: view.workflow_jobs(owner, after=after, limit=n), lambda one: one, limit)

    return {
        "fence": view.fence,
        "jobs": jobs,
        "payloads": {each: view.payload(each) for each in ids},
        "dependencies": {each: view.dependencies(each) for each in ids if jobs[each]},
        "dependants": {each: dependants(each) for each in ids},
        "running": {queue: view.running_count(queue) for queue in QUEUES},
        "keys running": {place: view.key_running_count(*place) for place in places if place[1]},
        "first held": {
            (place, region): blocked_of(*place, region) for place in places if place[1] for region in REGIONS
        },
        "held": {queue: all_blocked(view, queue, limit) for queue in QUEUES},
        "idempotency": [view.job_id_for_key("default", f"i{number}") for number in range(4)],
        "unique": [view.job_id_for_unique("default", b"u%d" % number) for number in range(3)],
        "workflows": [view.workflow(workflow_id(number)) for number in range(1, 4)],
        "workflow keys": [view.workflow_id_for_key("default", f"w{number}") for number in range(1, 4)],
        "workflow jobs": [jobs_of(workflow_id(number)) for number in range(1, 4)],
        "chores": {
            (kind, each): view.background_cursor(kind, each)
            for kind in BackgroundKind
            for each in (*ids, workflow_id(1))
        },
        "workers": view.worker("w1"),
        "queues": [view.queue(queue) for queue in QUEUES],
        "queue count": view.queue_count(),
        "unfinished": view.unfinished_count("default"),
    }


def all_blocked(view: View, queue: str, limit: int) -> list[JobId]:
    found: list[JobId] = []
    after: BlockedEntry | None = None
    while page := view.blocked_jobs(queue, after=after, limit=limit):
        found.extend(page)
        last = view.job(page[-1])
        assert last is not None
        assert last.spec.options is not None
        after = BlockedEntry(queue, last.key_group, last.spec.priority, last.due_at_ms, last.id, last.spec.region)
    return found


class ForkScene(RelationsScene):
    """Compares, at each operation, what forks show beforehand with what is there afterwards, in three states.

    One executes the writes, one takes them over from its fork, and the oracle has neither indexes nor bytes.
    """

    limit = 2

    def __init__(self) -> None:
        super().__init__()
        self.twin = State(MemoryStore())
        self.oracle = PlainState()

    def execute(self, writes: tuple[Write, ...], index: int, now_ms: TimeMs) -> None:
        self.oracle.pass_time(now_ms)
        before = looks(self.state, self.limit)
        forks = [state.fork() for state in (self.state, self.twin, self.oracle)]
        for fork in forks:
            fork.execute(writes[:1])
            inner = fork.fork()
            inner.execute(writes[1:])
            fork.execute(inner.writes)
            assert fork.writes == writes
        promised = looks(forks[0], self.limit)
        assert looks(forks[2], self.limit) == promised
        assert before == looks(self.state, self.limit) == looks(self.oracle, self.limit)
        super().execute(forks[0].writes, index, now_ms)
        self.twin.execute(list(writes))
        self.twin.advance(index=index, term=1, now_ms=now_ms)
        self.oracle.execute(writes)
        for state in (self.state, self.twin, self.oracle):
            assert promised == looks(state, self.limit)
        assert facts(self.state) == facts(self.twin)
        assert check(self.state) == []


def facts(state: State) -> dict[str, object]:
    """What a view does not show."""
    return {
        "sums": state.sums(),
        "counters": state.counters(),
        "dead letters": state.dead_letter_counts(),
        "running": state.running_counts(),
        "schedules": state.schedule_count(),
    }


def random_options(rng: random.Random) -> Options:
    return Options(concurrency_key=rng.choice(KEYS), unique_key=rng.choice([b"", b"", b"u0", b"u1", b"u2"]))


def random_operation(scene: ForkScene, rng: random.Random, number: int) -> Operation:
    jobs = [*scene.state.all_jobs()]
    ids = [job.id for job in jobs]
    ended = [job for job in jobs if job.status in FINISHED]
    match rng.randrange(8):
        case 0 if ended:
            return RequeueJob(rng.choice(ended).id, "default")
        case 1 if jobs:
            return CancelJob(rng.choice(ids), "default", force=True)
        case 2 if jobs:
            return BlockJobs(tuple(job.id for job in jobs if job.status in WAITING))
        case 3 if number % 3 == 0:
            tasks = [workflow_job(number * 3 + 30 + each, 1 + number // 9 % 3) for each in range(2)]
            return workflow_part(1 + number // 9 % 3, tasks, idempotency_key=f"w{1 + number // 9 % 3}")
        case _:
            parents = rng.sample(ids, min(len(ids), rng.choice([0, 1, 2])))
            return submit_operation(
                number,
                queue=rng.choice(QUEUES),
                priority=rng.choice([1, 5]),
                options=random_options(rng),
                depends_on=needs(*parents),
                idempotency_key=rng.choice(["", "", "i0", "i1", "i2"]),
                fingerprint=b"%d" % number,
                region=rng.choice(REGIONS),
            )


@pytest.mark.parametrize("seed", range(12))
def test_fork_shows_what_the_state_shows_afterwards(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "INLINE_DEPENDANTS_MAX", 2)
    rng = random.Random(seed)
    scene = ForkScene()
    scene.limit = rng.choice([1, 2, 3, 50])
    for number in range(1, 28):
        scene.apply(random_operation(scene, rng, number))
        ready = [job for job in scene.state.all_jobs() if job.status in WAITING and not job.blocked]
        if ready and rng.random() < 0.5:
            job = rng.choice(ready)
            if not scene.state.key_running_count(job.spec.queue, job.key_group):
                scene.end(job, rng.choice([Status.COMPLETED, Status.DEAD_LETTER]))
        if rng.random() < 0.2:
            scene.purge(*(job for job in scene.state.all_jobs() if job.status in FINISHED))
    scene.drain()


EITHER = pytest.mark.parametrize("make", [lambda: State(MemoryStore()), PlainState], ids=["state", "oracle"])
MakeState = Callable[[], State | PlainState]


@EITHER
def test_fork_shows_lines_of_a_ledger_in_order_and_without_those_removed(make: MakeState) -> None:
    state, owner = make(), ScheduleId(b"s" * 16)
    old = [Firing(TimeMs(at)) for at in (10, 20, 30, 40)]
    state.execute([PutFiring(owner, line) for line in old])
    fork = state.fork()
    new = Firing(TimeMs(25), FiringKind.MANUAL)
    fork.execute([PutFiring(owner, new), RemoveFirings(owner, (old[0], old[2]))])
    assert fork.firings(owner, after=None, until_ms=None, limit=10) == [old[1], new, old[3]]
    assert fork.firings(owner, after=old[1], until_ms=40, limit=10) == [new]
    assert fork.firings(owner, after=None, until_ms=None, limit=1) == [old[1]]
    assert fork.firing(owner, TimeMs(25), FiringKind.MANUAL) == new
    assert fork.firing(owner, TimeMs(30), FiringKind.PLANNED) is None
    assert state.firings(owner, after=None, until_ms=None, limit=10) == old


@EITHER
def test_fork_adds_up_the_pieces_of_a_log(make: MakeState) -> None:
    state, job = make(), job_id(1)
    fork = state.fork()
    fork.execute([PutLog(job, 1, 1, b"one\n", 1), PutLog(job, 1, 1, b"two!\n", 2)])
    assert fork.log_size(job, 1, 1) == LogSize(9, 2, 2)
    assert state.log_size(job, 1, 1) == LogSize(0, 0, 0)


@EITHER
def test_fork_keeps_queues_and_schedules_from_its_state(make: MakeState) -> None:
    state = make()
    state.execute([PutQueue(None, Queue("old"))])
    fork = state.fork()
    fork.execute([PutQueue(None, Queue("new")), PutOutage(TimeMs(0)), PutFence(FencingToken(7))])
    assert (fork.queue_count(), fork.fence, fork.queue("new")) == (2, 7, Queue("new"))
    assert (state.queue_count(), state.fence, state.queue("new")) == (1, 0, None)
    state.execute(fork.writes)
    assert (state.queue_count(), state.fence, state.queue("new")) == (2, 7, Queue("new"))


def test_state_executes_the_writes_of_a_fork_that_is_out_of_date() -> None:
    """Only what the last fork has executed is taken over, and only if nothing was written since."""
    state = State(MemoryStore())
    first = state.fork()
    first.execute([PutFence(FencingToken(1)), PutQueue(None, Queue("first"))])
    state.execute([PutQueue(None, Queue("between"))])
    state.execute(first.writes)
    assert [queue.name for queue in state.queues()] == ["between", "first"]
    second, third = state.fork(), state.fork()
    second.execute([PutQueue(None, Queue("second"))])
    third.execute([PutQueue(None, Queue("third"))])
    state.execute(second.writes)
    assert [queue.name for queue in state.queues()] == ["between", "first", "second"]


def test_jobs_from_which_nothing_follows_need_no_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = RelationsScene()
    monkeypatch.setattr(State, "fork", lambda _state: pytest.fail("a fork was made"))
    for options in (None, Options(concurrency_key="k"), Options(unique_key=b"u")):
        job = scene.submit(options=options)
        scene.end(job, Status.DEAD_LETTER)
        scene.end(scene.requeue(job))
