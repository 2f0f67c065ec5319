"""An overlay shows what the state shows once its writes are executed, whatever is asked of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

import pytest
from msgspec.structs import replace

from raftsched import limits
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import CancelJob
from raftsched.core.operations.control import ChoreKind, HoldJobs, RequeueJob
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.job import FINISHED, WAITING, Status
from raftsched.core.records.schedule import Firing, FiringKind, ScheduleId
from raftsched.core.records.spec import Options
from raftsched.core.records.workflow import WorkflowId
from raftsched.core.state.entries import Dependant, HeldEntry, LogSize
from raftsched.core.state.overlay import Overlay
from raftsched.core.state.view import View
from raftsched.core.state.writes import PutFiring, PutJob, PutLog, RemoveFirings, RemoveJob, Write
from raftsched.storage.state import State
from tests.core.relations_scene import TiesScene, needs, workflow_id, workflow_job, workflow_part
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

    def held_of(queue: str, key: str, region: str) -> list[JobId]:
        found: list[JobId] = []
        while (one := view.first_held(queue, key, region, after=found[-1] if found else None)) is not None:
            found.append(one)
        assert not found or region in view.held_regions(queue, key, limit=len(REGIONS))
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
        "first held": {(place, region): held_of(*place, region) for place in places if place[1] for region in REGIONS},
        "held": {queue: all_held(view, queue, limit) for queue in QUEUES},
        "idempotency": [view.job_id_for_key("default", f"i{number}") for number in range(4)],
        "unique": [view.job_id_for_unique("default", b"u%d" % number) for number in range(3)],
        "workflows": [view.workflow(workflow_id(number)) for number in range(1, 4)],
        "workflow keys": [view.workflow_id_for_key("default", f"w{number}") for number in range(1, 4)],
        "workflow jobs": [jobs_of(workflow_id(number)) for number in range(1, 4)],
        "chores": {(kind, each): view.chore(kind, each) for kind in ChoreKind for each in (*ids, workflow_id(1))},
        "workers": view.worker("w1"),
        "queues": [view.queue(queue) for queue in QUEUES],
        "queue count": view.queue_count(),
    }


def all_held(view: View, queue: str, limit: int) -> list[JobId]:
    found: list[JobId] = []
    after: HeldEntry | None = None
    while page := view.held_jobs(queue, after=after, limit=limit):
        found.extend(page)
        last = view.job(page[-1])
        assert last is not None
        assert last.spec.options is not None
        after = HeldEntry(
            queue, last.spec.options.concurrency_key, last.spec.priority, last.due_at_ms, last.id, last.spec.region
        )
    return found


class OverlayScene(TiesScene):
    """Compares, at each operation, what an overlay shows beforehand with what is there afterwards."""

    limit = 2

    def execute(self, writes: tuple[Write, ...], index: int, now_ms: TimeMs) -> None:
        overlay = Overlay(self.state)
        overlay.put(*writes)
        assert overlay.writes == writes
        promised = looks(overlay, self.limit)
        super().execute(writes, index, now_ms)
        assert promised == looks(self.state, self.limit)


def random_options(rng: random.Random) -> Options:
    return Options(concurrency_key=rng.choice(KEYS), unique_key=rng.choice([b"", b"", b"u0", b"u1", b"u2"]))


def random_operation(scene: OverlayScene, rng: random.Random, number: int) -> Operation:
    jobs = [*scene.state.all_jobs()]
    ids = [job.id for job in jobs]
    ended = [job for job in jobs if job.status in FINISHED]
    match rng.randrange(8):
        case 0 if ended:
            return RequeueJob(rng.choice(ended).id, "default")
        case 1 if jobs:
            return CancelJob(rng.choice(ids), "default", force=True)
        case 2 if jobs:
            return HoldJobs(tuple(job.id for job in jobs if job.status in WAITING))
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
def test_overlay_shows_what_the_state_shows_afterwards(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHORE_INLINE_MAX", 2)
    rng = random.Random(seed)
    scene = OverlayScene()
    scene.limit = rng.choice([1, 2, 3, 50])
    for number in range(1, 28):
        scene.apply(random_operation(scene, rng, number))
        ready = [job for job in scene.state.all_jobs() if job.status in WAITING and not job.held]
        if ready and rng.random() < 0.5:
            job = rng.choice(ready)
            if (
                scene.state.key_running_count(
                    job.spec.queue, job.spec.options.concurrency_key if job.spec.options else ""
                )
                == 0
            ):
                scene.end(job, rng.choice([Status.COMPLETED, Status.DEAD_LETTER]))
        if rng.random() < 0.2:
            scene.purge(*(job for job in scene.state.all_jobs() if job.status in FINISHED))
    scene.drain()


def test_overlay_of_several_operations_shows_all_of_them() -> None:
    scene = TiesScene()
    parent = scene.submit()
    overlay = Overlay(scene.state)
    child = scene.submit(depends_on=needs(parent))
    stale = scene.now(child)
    overlay.put(RemoveJob(stale))
    assert overlay.job(child.id) is None
    assert overlay.dependants(parent.id, after=None, limit=10) == []
    assert overlay.job(parent.id) == scene.now(parent)


def test_overlay_shows_lines_of_a_ledger_in_order_and_without_those_removed() -> None:
    state = TiesScene().state
    owner = ScheduleId(b"s" * 16)
    old = [Firing(TimeMs(at)) for at in (10, 20, 30, 40)]
    state.execute([PutFiring(owner, line) for line in old])
    overlay = Overlay(state)
    new = Firing(TimeMs(25), FiringKind.MANUAL)
    overlay.put(PutFiring(owner, new), RemoveFirings(owner, (old[0], old[2])))
    assert overlay.firings(owner, after=None, until_ms=None, limit=10) == [old[1], new, old[3]]
    assert overlay.firings(owner, after=old[1], until_ms=40, limit=10) == [new]
    assert overlay.firings(owner, after=None, until_ms=None, limit=1) == [old[1]]
    assert overlay.firing(owner, TimeMs(25), FiringKind.MANUAL) == new
    assert overlay.firing(owner, TimeMs(30), FiringKind.PLANNED) is None


def test_overlay_adds_up_the_pieces_of_a_log() -> None:
    scene = TiesScene()
    job = scene.submit()
    overlay = Overlay(scene.state)
    overlay.put(PutLog(job.id, 1, 1, b"one\n", 1), PutLog(job.id, 1, 1, b"two!\n", 2))
    assert overlay.log_size(job.id, 1, 1) == LogSize(9, 2, 2)
    assert scene.state.log_size(job.id, 1, 1) == LogSize(0, 0, 0)


def test_overlay_never_writes_to_what_lies_beneath() -> None:
    scene = TiesScene()
    job = scene.submit()
    overlay = Overlay(scene.state)
    overlay.put(PutJob(job, scene.now(job), payload=b"other"), RemoveJob(job))
    assert isinstance(scene.state, State)
    assert scene.now(job) == job
    assert scene.state.payload(job.id) == b'{"to":"a@example.org"}'


def test_overlay_shows_jobs_that_are_held_and_offered_again_by_its_writes() -> None:
    scene = TiesScene()
    low, high = (scene.submit(options=Options(concurrency_key="k"), priority=priority) for priority in (1, 9))
    overlay = Overlay(scene.state)
    held = [PutJob(job, replace(job, held=True)) for job in (low, high)]
    overlay.put(*held)
    assert overlay.first_held("send_email", "k") == high.id
    assert overlay.first_held("send_email", "k", after=high.id) == low.id
    assert overlay.held_jobs("send_email", limit=1) == [high.id]
    overlay.put(PutJob(held[1].new, high))
    assert overlay.first_held("send_email", "k") == low.id
    assert overlay.held_jobs("send_email", limit=10) == [low.id]
