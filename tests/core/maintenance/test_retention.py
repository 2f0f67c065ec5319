from __future__ import annotations

import pytest

from raftsched import limits
from raftsched.core.checks.invariants import check
from raftsched.core.maintenance.retention import KEPT_AGAIN_MS, why_kept
from raftsched.core.operations.codec import MarkWorkers, PurgeJobs, RejectCode, WorkerMark
from raftsched.core.operations.queues import TrimAudit
from raftsched.core.records.bounds import TIME_MS_MAX
from raftsched.core.records.ids import TimeMs, job_id_text
from raftsched.core.records.job import Worker
from raftsched.core.state.results import Marked, Purged
from raftsched.core.state.writes import PutAudit
from tests.core.relations_scene import RelationsScene, needs
from tests.core.scene import Scene, code_of, job_id


def mark(scene: Scene, name: str = "w1", *, seen_ago_ms: int = 0, queues: tuple[str, ...] = ("q",)) -> WorkerMark:
    return WorkerMark(name, queues, 8, TimeMs(scene.now_ms - seen_ago_ms))


# -- retention


def test_purge_removes_a_finished_job_with_payload_result_and_key(scene: Scene) -> None:
    job = scene.running(idempotency_key="k")
    scene.complete(job, result=b"1")
    assert scene.apply(PurgeJobs((job.id,), TimeMs(scene.now_ms + 1))) == Purged(1)
    state = scene.state
    assert (state.jobs, state.payloads, state.results) == ({}, {}, {})
    assert state.job_id_for_key("default", "k") is None


def test_purge_leaves_a_parent_while_a_job_that_depends_on_it_has_not_ended() -> None:
    relations = RelationsScene()
    fast, slow = relations.submit(), relations.submit()
    child = relations.submit(depends_on=needs(fast, slow))
    relations.end(fast)
    assert relations.purge(fast) == Purged(0)
    assert job_id_text(child.id) in why_kept(relations.state, relations.now(fast), relations.now_ms)
    put_off = relations.now(fast)
    assert put_off.next_deadline_ms == relations.now_ms + KEPT_AGAIN_MS
    relations.end(slow)
    assert relations.purge(fast, slow) == Purged(0)
    relations.end(child)
    assert relations.purge(fast, slow) == Purged(2)
    assert check(relations.state) == []


def test_purge_by_hand_of_a_job_that_is_needed_leaves_it_as_it_is() -> None:
    relations = RelationsScene()
    parent = relations.submit()
    relations.submit(depends_on=needs(parent))
    before = relations.end(parent)
    assert relations.apply(PurgeJobs((parent.id,), TimeMs(TIME_MS_MAX), "ann")) == Purged(0)
    assert relations.now(parent) == before


def test_purge_looks_at_a_bounded_number_of_dependants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DEPENDENCIES_MAX", 3)
    relations = RelationsScene()
    parents = [relations.submit() for _ in range(3)]
    children = [relations.submit(depends_on=needs(parent)) for parent in parents for _ in range(2)]
    for job in (*parents, *children):
        relations.end(job)
    assert relations.purge(*parents) == Purged(2)
    assert relations.purge(parents[-1]) == Purged(1)
    assert check(relations.state) == []


def test_purge_that_somebody_asked_for_is_in_the_audit_trail(scene: Scene) -> None:
    job, other = scene.submit(), scene.submit()
    scene.cancel(job)
    assert scene.apply(PurgeJobs((job.id, other.id), TimeMs(TIME_MS_MAX), "ann")) == Purged(1)
    [line] = [write.entry for write in scene.last.writes if isinstance(write, PutAudit)]
    assert (line.actor, line.action, line.subject) == ("ann", "job.delete", f"job:{job_id_text(job.id)}")
    scene.cancel(other)
    scene.apply(PurgeJobs((other.id,), TimeMs(TIME_MS_MAX)))
    assert not any(isinstance(write, PutAudit) for write in scene.last.writes)


def test_purge_refuses_an_actor_that_is_too_long_and_more_jobs_than_its_bound(scene: Scene) -> None:
    long_named = PurgeJobs((), TimeMs(0), "x" * (limits.ACTOR_CHARS_MAX + 1))
    for operation in (long_named, PurgeJobs((job_id(1),) * (limits.PURGE_JOBS_MAX + 1), TimeMs(0))):
        assert code_of(scene.apply(operation)) is RejectCode.INVALID


# -- workers


def test_mark_writes_down_a_new_worker(scene: Scene) -> None:
    assert scene.apply(MarkWorkers((mark(scene, seen_ago_ms=5),))) == Marked(1)
    seen = TimeMs(scene.now_ms - 5)
    assert scene.state.workers == {"w1": Worker("w1", ("q",), 8, seen_at_ms=seen, first_seen_at_ms=seen)}


def test_mark_keeps_when_a_worker_was_first_seen(scene: Scene) -> None:
    scene.apply(MarkWorkers((mark(scene),)))
    first = scene.now_ms
    scene.wait(100)
    scene.apply(MarkWorkers((mark(scene, queues=("other",)),)))
    worker = scene.state.workers["w1"]
    assert (worker.first_seen_at_ms, worker.seen_at_ms, worker.queues) == (first, scene.now_ms, ("other",))


def test_mark_never_takes_a_worker_back_in_time(scene: Scene) -> None:
    scene.apply(MarkWorkers((mark(scene),)))
    seen = scene.now_ms
    scene.apply(MarkWorkers((mark(scene, seen_ago_ms=50),)))
    assert scene.state.workers["w1"].seen_at_ms == seen


def test_mark_ahead_of_cluster_time_counts_as_now(scene: Scene) -> None:
    scene.apply(MarkWorkers((mark(scene, seen_ago_ms=-99),)))
    assert scene.state.workers["w1"].seen_at_ms == scene.now_ms


def test_forget_removes_known_workers_only_and_none_that_is_marked_at_once(scene: Scene) -> None:
    scene.apply(MarkWorkers((mark(scene),)))
    assert scene.apply(MarkWorkers((mark(scene),), ("w1",))) == Marked(1)
    assert "w1" in scene.state.workers
    assert scene.apply(MarkWorkers((), ("w1", "w1", "unknown", ""))) == Marked(1)
    assert scene.state.workers == {}


@pytest.mark.parametrize(
    "bad",
    [
        WorkerMark("", (), 1, TimeMs(1)),
        WorkerMark("w", ("",), 1, TimeMs(1)),
        WorkerMark("w", ("q",) * (limits.QUEUES_PER_LEASE_MAX + 1), 1, TimeMs(1)),
        WorkerMark("w", (), -1, TimeMs(1)),
        WorkerMark("w", (), 1, TimeMs(-1)),
        WorkerMark("w", (), 1, TimeMs(TIME_MS_MAX + 1)),
    ],
)
def test_mark_refuses_numbers_and_names_out_of_range(scene: Scene, bad: WorkerMark) -> None:
    assert code_of(scene.apply(MarkWorkers((mark(scene), bad)))) is RejectCode.INVALID
    assert scene.state.workers == {}


# -- the audit trail


def test_trim_removes_the_oldest_lines_and_no_more_than_a_step(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BACKGROUND_STEP_ITEMS_MAX", 2)
    for _ in range(5):
        scene.cancel(scene.submit())
    audited = [index for index, _ in scene.state.audit]
    assert len(audited) == 5
    scene.apply(TrimAudit(audited[3]))
    assert [index for index, _ in scene.state.audit] == audited[2:]
    scene.apply(TrimAudit(audited[3]))
    assert [index for index, _ in scene.state.audit] == audited[3:]
    assert code_of(scene.apply(TrimAudit(-1))) is RejectCode.INVALID
