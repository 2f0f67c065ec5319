"""Long work in steps: fan-out, fan-in and chains of ten thousand, and whatever comes between two steps."""

from __future__ import annotations

import sys

import pytest

from raftsched import limits
from raftsched.core.operations.codec import PurgeJobs, RejectCode
from raftsched.core.operations.control import BackgroundKind, DoBackgroundStep, RequeueJob
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.job import Condition, Job, Status, Verdict
from raftsched.core.records.schedule import Firing, ScheduleId
from raftsched.core.state.results import Counted, Purged
from raftsched.core.state.writes import PutBackgroundWork, PutFiring
from tests.core.relations_scene import (
    RelationsScene,
    count_of,
    needs,
    parts,
    workflow_id,
    workflow_job,
)
from tests.core.scene import code_of, job_id

MANY = 10_000


def fan(relations: RelationsScene, count: int, **overrides: object) -> tuple[Job, list[Job]]:
    root = relations.submit()
    return root, [relations.submit(depends_on=needs(root), **overrides) for _ in range(count)]


# -- ten thousand


def test_fan_out_of_ten_thousand_is_released_in_bounded_steps(relations: RelationsScene) -> None:
    root, children = fan(relations, MANY)
    relations.end(root)
    assert relations.touched_count == 1 + limits.INLINE_DEPENDANTS_MAX
    assert relations.drain() == (MANY - limits.INLINE_DEPENDANTS_MAX) / limits.BACKGROUND_STEP_ITEMS_MAX + 0.5
    assert {relations.status(child) for child in children} == {Status.QUEUED}


def test_fan_in_of_ten_thousand_waits_for_the_last_one(relations: RelationsScene) -> None:
    jobs = [workflow_job(100 + number, 1) for number in range(MANY)]
    parents = tuple(job.id for job in jobs)
    jobs.append(workflow_job(100 + MANY, 1, depends_on=needs(*parents)))
    for part in parts(1, jobs, limits.WORKFLOW_PART_JOBS_MAX):
        relations.apply(part)
    relations.drain()
    sink = jobs[-1].id
    for first in range(0, MANY, limits.LEASE_CAPACITY_MAX):
        relations.start(*parents[first : first + limits.LEASE_CAPACITY_MAX])
    for parent in parents[:-1]:
        relations.end(parent)
        assert relations.touched_count == 2
    assert (relations.status(sink), relations.now(sink).pending_count) == (Status.WAITING_DEPENDENCIES, 1)
    relations.end(parents[-1])
    assert relations.status(sink) is Status.QUEUED
    relations.end(sink)
    assert relations.workflow(1).label == "completed"


def test_chain_of_ten_thousand_ends_and_is_revived_without_depth(relations: RelationsScene) -> None:
    chain = [workflow_job(100, 1)]
    chain += [workflow_job(100 + n, 1, depends_on=needs(job_id(99 + n))) for n in range(1, MANY)]
    for part in parts(1, chain, limits.WORKFLOW_PART_JOBS_MAX):
        relations.apply(part)
    relations.drain()
    recursion_limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(300)
        relations.end(chain[0].id, Status.DEAD_LETTER)
        steps = relations.drain()
        assert steps <= MANY / limits.BACKGROUND_STEP_ITEMS_MAX + 1
        assert relations.status(chain[-1].id) is Status.SKIPPED
        assert (relations.workflow(1).label, relations.workflow(1).skipped_count) == ("failed", MANY - 1)
        relations.requeue(chain[0].id)
        assert relations.drain() <= MANY / limits.BACKGROUND_STEP_ITEMS_MAX + 1
    finally:
        sys.setrecursionlimit(recursion_limit)
    assert {relations.status(each.id) for each in chain[1:]} == {Status.WAITING_DEPENDENCIES}
    assert relations.workflow(1).unfinished_count == MANY
    relations.cancel_workflow(1)
    relations.drain()
    assert (relations.workflow(1).label, relations.workflow(1).unfinished_count) == ("cancelled", 0)


# -- between two steps


def telling(root: Job, kind: BackgroundKind = BackgroundKind.RESOLVE_DEPENDANTS) -> DoBackgroundStep:
    return DoBackgroundStep(kind, root.id)


def test_step_of_a_background_step_that_is_not_there_does_nothing(relations: RelationsScene) -> None:
    assert relations.apply(telling(relations.submit())) == Counted(0)
    assert code_of(relations.apply(DoBackgroundStep(BackgroundKind.DROP_LEDGER, b""))) is RejectCode.INVALID
    assert code_of(relations.apply(DoBackgroundStep(BackgroundKind.DROP_LEDGER, b"x" * 600))) is RejectCode.INVALID


def test_children_submitted_while_others_are_still_to_be_told_are_told_once(relations: RelationsScene) -> None:
    root, children = fan(relations, limits.INLINE_DEPENDANTS_MAX + 5)
    other = relations.submit()
    relations.end(root)
    late = relations.submit(depends_on=needs(root, other))
    assert (late.pending_count, relations.verdicts(late)) == (1, [Verdict.MET, Verdict.PENDING])
    relations.drain()
    assert relations.now(late).pending_count == 1
    relations.end(other)
    assert {relations.status(job) for job in (*children, late)} == {Status.QUEUED}


def test_parent_requeued_before_all_were_told_keeps_those_waiting_and_takes_back_the_others(
    relations: RelationsScene,
) -> None:
    root, children = fan(relations, limits.INLINE_DEPENDANTS_MAX + 5)
    relations.end(root, Status.DEAD_LETTER)
    assert relations.status(children[-1]) is Status.WAITING_DEPENDENCIES
    relations.requeue(root)
    relations.drain()
    assert {relations.status(child) for child in children} == {Status.WAITING_DEPENDENCIES}
    assert {relations.now(child).pending_count for child in children} == {1}


def test_parent_that_ended_again_before_all_were_revived_settles_everybody(relations: RelationsScene) -> None:
    root, children = fan(relations, 3 * limits.BACKGROUND_STEP_ITEMS_MAX)
    relations.end(root, Status.DEAD_LETTER)
    relations.drain()
    relations.requeue(root)
    assert relations.background_work() == [(BackgroundKind.REVIVE_DEPENDANTS, root.id)]
    relations.end(root)
    assert relations.background_work() == [(BackgroundKind.RESOLVE_DEPENDANTS, root.id)]
    relations.drain()
    assert {relations.status(child) for child in children} == {Status.QUEUED}
    assert {(relations.now(child).pending_count, relations.now(child).unmet_count) for child in children} == {(0, 0)}


def test_parent_is_not_purged_before_all_its_children_know(relations: RelationsScene) -> None:
    root, children = fan(relations, limits.INLINE_DEPENDANTS_MAX + 5)
    relations.end(root)
    assert relations.purge(root) == Purged(0)
    relations.drain()
    assert {relations.status(child) for child in children} == {Status.QUEUED}
    for child in children:
        relations.end(child)
    assert relations.purge(root) == Purged(1)


def test_children_purged_between_two_steps_are_passed_over(relations: RelationsScene) -> None:
    root, children = fan(relations, 2 * limits.BACKGROUND_STEP_ITEMS_MAX)
    for child in children[150:160]:
        relations.end(child, Status.CANCELLED)
    relations.end(root)
    relations.purge(*children[150:160])
    relations.drain()
    assert {relations.status(child) for child in children[:150] + children[160:]} == {Status.QUEUED}


def test_background_step_of_a_job_that_is_gone_is_done(relations: RelationsScene) -> None:
    relations.state.execute([PutBackgroundWork(BackgroundKind.RESOLVE_DEPENDANTS, job_id(404))])
    relations.state.advance(index=1, term=1, now_ms=relations.now_ms)
    assert count_of(relations.apply(DoBackgroundStep(BackgroundKind.RESOLVE_DEPENDANTS, job_id(404)))) == 1
    assert relations.background_work() == []


def test_wide_tree_ends_in_bounded_steps_each_branch_by_a_background_step_of_its_own(
    relations: RelationsScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "INLINE_DEPENDANTS_MAX", 3)
    monkeypatch.setattr(limits, "BACKGROUND_STEP_ITEMS_MAX", 4)
    root, children = fan(relations, 10)
    leaves = [relations.submit(depends_on=needs(child)) for child in children for _ in range(10)]
    relations.end(root, Status.CANCELLED)
    relations.drain()
    assert {relations.status(job) for job in (*children, *leaves)} == {Status.SKIPPED}


# -- workflows and ledgers


def test_large_workflow_is_opened_and_cancelled_in_steps_whatever_happens_between(relations: RelationsScene) -> None:
    jobs = [workflow_job(100 + number, 1) for number in range(5 * limits.BACKGROUND_STEP_ITEMS_MAX)]
    for part in parts(1, jobs, 300):
        relations.apply(part)
    ids = [each.id for each in jobs]
    assert relations.background_work() == [(BackgroundKind.OPEN_WORKFLOW, workflow_id(1))]
    assert relations.statuses(ids[0], ids[-1]) == [Status.QUEUED, Status.WAITING_DEPENDENCIES]
    relations.end(ids[-1], Status.CANCELLED)
    assert code_of(relations.apply(RequeueJob(ids[-1], "default"))) is RejectCode.NOT_STARTED
    relations.cancel_workflow(1)
    assert len(relations.background_work()) == 2
    relations.drain()
    assert {relations.status(each) for each in ids} == {Status.CANCELLED}
    assert (relations.workflow(1).label, relations.workflow(1).cancelled_count) == ("cancelled", len(ids))


def test_dropped_submission_goes_only_when_everybody_outside_knows(relations: RelationsScene) -> None:
    first, _ = parts(1, [workflow_job(MANY, 1), workflow_job(MANY + 1, 1)], 1)
    relations.apply(first)
    staged = needs(job_id(MANY), on=Condition.COMPLETION)
    children = [relations.submit(depends_on=staged) for _ in range(3 * limits.BACKGROUND_STEP_ITEMS_MAX)]
    relations.cancel_workflow(1)
    relations.apply(DoBackgroundStep(BackgroundKind.DROP_WORKFLOW, workflow_id(1)))
    assert relations.status(job_id(MANY)) is Status.CANCELLED, "it stays until the last one was told"
    relations.drain()
    assert relations.state.job(job_id(MANY)) is None
    assert {relations.status(child) for child in children} == {Status.QUEUED}


def test_ledger_of_a_deleted_schedule_goes_in_steps(relations: RelationsScene) -> None:
    owner = ScheduleId(b"s" * 16)
    count = 2 * limits.BACKGROUND_STEP_ITEMS_MAX + 1
    lines = [PutFiring(owner, Firing(TimeMs(1_000 + number))) for number in range(count)]
    relations.state.execute([*lines, PutBackgroundWork(BackgroundKind.DROP_LEDGER, owner)])
    relations.state.advance(index=1, term=1, now_ms=relations.now_ms)
    assert relations.drain() == 3
    assert relations.state.firings(owner, after=None, until_ms=None, limit=10) == []


# -- purge


def test_purge_of_jobs_with_many_parents_is_bounded_by_what_goes_with_them(
    relations: RelationsScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DEPENDENCIES_MAX", 5)
    roots = [relations.submit() for _ in range(4)]
    children = [relations.submit(depends_on=needs(*roots)) for _ in range(3)]
    relations.end(roots[0], Status.CANCELLED)
    ids = tuple(child.id for child in children)
    purge = PurgeJobs(ids, TimeMs(relations.now_ms + 1))
    assert [relations.apply(purge) for _ in range(4)] == [Purged(1), Purged(1), Purged(1), Purged(0)]
    assert list(relations.state.all_dependants()) == []


def test_purged_parents_are_no_parents_any_more(relations: RelationsScene) -> None:
    root = relations.end(relations.submit())
    relations.purge(root)
    assert code_of(relations.try_submit(depends_on=needs(root))) is RejectCode.UNKNOWN_DEPENDENCY
