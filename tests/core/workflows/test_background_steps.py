"""Long work in steps: fan-out, fan-in and chains of ten thousand, and whatever comes between two steps."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from raftsched import limits
from raftsched.core.checks.invariants import check
from raftsched.core.operations.codec import PurgeJobs, RejectCode
from raftsched.core.operations.control import ChoreKind, DoChore, RequeueJob
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.job import Condition, Job, Status, Verdict
from raftsched.core.records.schedule import Firing, ScheduleId
from raftsched.core.state.results import Counted, Purged
from raftsched.core.state.writes import PutChore, PutFiring
from tests.core.relations_scene import (
    TiesScene,
    count_of,
    needs,
    parts,
    workflow_id,
    workflow_job,
)
from tests.core.scene import code_of, job_id

MANY = 10_000


@pytest.fixture
def ties() -> Iterator[TiesScene]:
    """A scene that must be sound in the end."""
    scene = TiesScene()
    yield scene
    assert check(scene.state) == []


def fan(ties: TiesScene, count: int, **overrides: object) -> tuple[Job, list[Job]]:
    root = ties.submit()
    return root, [ties.submit(depends_on=needs(root), **overrides) for _ in range(count)]


# -- ten thousand


def test_fan_out_of_ten_thousand_is_released_in_bounded_steps(ties: TiesScene) -> None:
    root, children = fan(ties, MANY)
    ties.end(root)
    assert ties.touched_count == 1 + limits.CHORE_INLINE_MAX
    assert ties.drain() == (MANY - limits.CHORE_INLINE_MAX) / limits.CHORE_STEPS_MAX + 0.5
    assert {ties.status(child) for child in children} == {Status.QUEUED}


def test_fan_in_of_ten_thousand_waits_for_the_last_one(ties: TiesScene) -> None:
    jobs = [workflow_job(100 + number, 1) for number in range(MANY)]
    parents = tuple(job.id for job in jobs)
    jobs.append(workflow_job(100 + MANY, 1, depends_on=needs(*parents)))
    for part in parts(1, jobs, limits.WORKFLOW_PART_JOBS_MAX):
        ties.apply(part)
    ties.drain()
    sink = jobs[-1].id
    for first in range(0, MANY, limits.LEASE_CAPACITY_MAX):
        ties.start(*parents[first : first + limits.LEASE_CAPACITY_MAX])
    for parent in parents[:-1]:
        ties.end(parent)
        assert ties.touched_count == 2
    assert (ties.status(sink), ties.now(sink).pending_count) == (Status.WAITING_DEPENDENCIES, 1)
    ties.end(parents[-1])
    assert ties.status(sink) is Status.QUEUED
    ties.end(sink)
    assert ties.workflow(1).label == "completed"


def test_chain_of_ten_thousand_ends_and_is_revived_without_depth(ties: TiesScene) -> None:
    chain = [workflow_job(100, 1)]
    chain += [workflow_job(100 + n, 1, depends_on=needs(job_id(99 + n))) for n in range(1, MANY)]
    for part in parts(1, chain, limits.WORKFLOW_PART_JOBS_MAX):
        ties.apply(part)
    ties.drain()
    recursion_limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(300)
        ties.end(chain[0].id, Status.DEAD_LETTER)
        steps = ties.drain()
        assert steps <= MANY / limits.CHORE_STEPS_MAX + 1
        assert ties.status(chain[-1].id) is Status.SKIPPED
        assert (ties.workflow(1).label, ties.workflow(1).skipped_count) == ("failed", MANY - 1)
        ties.requeue(chain[0].id)
        assert ties.drain() <= MANY / limits.CHORE_STEPS_MAX + 1
    finally:
        sys.setrecursionlimit(recursion_limit)
    assert {ties.status(each.id) for each in chain[1:]} == {Status.WAITING_DEPENDENCIES}
    assert ties.workflow(1).unfinished_count == MANY
    ties.cancel_workflow(1)
    ties.drain()
    assert (ties.workflow(1).label, ties.workflow(1).unfinished_count) == ("cancelled", 0)


# -- between two steps


def telling(root: Job, kind: ChoreKind = ChoreKind.SETTLE_DEPENDANTS) -> DoChore:
    return DoChore(kind, root.id)


def test_step_of_a_chore_that_is_not_there_does_nothing(ties: TiesScene) -> None:
    assert ties.apply(telling(ties.submit())) == Counted(0)
    assert code_of(ties.apply(DoChore(ChoreKind.DROP_LEDGER, b""))) is RejectCode.INVALID
    assert code_of(ties.apply(DoChore(ChoreKind.DROP_LEDGER, b"x" * 600))) is RejectCode.INVALID


def test_children_submitted_while_others_are_still_to_be_told_are_told_once(ties: TiesScene) -> None:
    root, children = fan(ties, limits.CHORE_INLINE_MAX + 5)
    other = ties.submit()
    ties.end(root)
    late = ties.submit(depends_on=needs(root, other))
    assert (late.pending_count, ties.verdicts(late)) == (1, [Verdict.MET, Verdict.PENDING])
    ties.drain()
    assert ties.now(late).pending_count == 1
    ties.end(other)
    assert {ties.status(job) for job in (*children, late)} == {Status.QUEUED}


def test_parent_requeued_before_all_were_told_keeps_those_waiting_and_takes_back_the_others(ties: TiesScene) -> None:
    root, children = fan(ties, limits.CHORE_INLINE_MAX + 5)
    ties.end(root, Status.DEAD_LETTER)
    assert ties.status(children[-1]) is Status.WAITING_DEPENDENCIES
    ties.requeue(root)
    ties.drain()
    assert {ties.status(child) for child in children} == {Status.WAITING_DEPENDENCIES}
    assert {ties.now(child).pending_count for child in children} == {1}


def test_parent_that_ended_again_before_all_were_revived_settles_everybody(ties: TiesScene) -> None:
    root, children = fan(ties, 3 * limits.CHORE_STEPS_MAX)
    ties.end(root, Status.DEAD_LETTER)
    ties.drain()
    ties.requeue(root)
    assert ties.chores() == [(ChoreKind.REVIVE_DEPENDANTS, root.id)]
    ties.end(root)
    assert ties.chores() == [(ChoreKind.SETTLE_DEPENDANTS, root.id)]
    ties.drain()
    assert {ties.status(child) for child in children} == {Status.QUEUED}
    assert {(ties.now(child).pending_count, ties.now(child).unmet_count) for child in children} == {(0, 0)}


def test_parent_is_not_purged_before_all_its_children_know(ties: TiesScene) -> None:
    root, children = fan(ties, limits.CHORE_INLINE_MAX + 5)
    ties.end(root)
    assert ties.purge(root) == Purged(0)
    ties.drain()
    assert {ties.status(child) for child in children} == {Status.QUEUED}
    for child in children:
        ties.end(child)
    assert ties.purge(root) == Purged(1)


def test_children_purged_between_two_steps_are_passed_over(ties: TiesScene) -> None:
    root, children = fan(ties, 2 * limits.CHORE_STEPS_MAX)
    for child in children[150:160]:
        ties.end(child, Status.CANCELLED)
    ties.end(root)
    ties.purge(*children[150:160])
    ties.drain()
    assert {ties.status(child) for child in children[:150] + children[160:]} == {Status.QUEUED}


def test_chore_of_a_job_that_is_gone_is_done(ties: TiesScene) -> None:
    ties.state.execute([PutChore(ChoreKind.SETTLE_DEPENDANTS, job_id(404))])
    ties.state.advance(index=1, term=1, now_ms=ties.now_ms)
    assert count_of(ties.apply(DoChore(ChoreKind.SETTLE_DEPENDANTS, job_id(404)))) == 1
    assert ties.chores() == []


def test_wide_tree_ends_in_bounded_steps_each_branch_by_a_chore_of_its_own(
    ties: TiesScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CHORE_INLINE_MAX", 3)
    monkeypatch.setattr(limits, "CHORE_STEPS_MAX", 4)
    root, children = fan(ties, 10)
    leaves = [ties.submit(depends_on=needs(child)) for child in children for _ in range(10)]
    ties.end(root, Status.CANCELLED)
    ties.drain()
    assert {ties.status(job) for job in (*children, *leaves)} == {Status.SKIPPED}


# -- workflows and ledgers


def test_large_workflow_is_opened_and_cancelled_in_steps_whatever_happens_between(ties: TiesScene) -> None:
    jobs = [workflow_job(100 + number, 1) for number in range(5 * limits.CHORE_STEPS_MAX)]
    for part in parts(1, jobs, 300):
        ties.apply(part)
    ids = [each.id for each in jobs]
    assert ties.chores() == [(ChoreKind.OPEN_WORKFLOW, workflow_id(1))]
    assert ties.statuses(ids[0], ids[-1]) == [Status.QUEUED, Status.WAITING_DEPENDENCIES]
    ties.end(ids[-1], Status.CANCELLED)
    assert code_of(ties.apply(RequeueJob(ids[-1], "default"))) is RejectCode.NOT_STARTED
    ties.cancel_workflow(1)
    assert len(ties.chores()) == 2
    ties.drain()
    assert {ties.status(each) for each in ids} == {Status.CANCELLED}
    assert (ties.workflow(1).label, ties.workflow(1).cancelled_count) == ("cancelled", len(ids))


def test_dropped_submission_goes_only_when_everybody_outside_knows(ties: TiesScene) -> None:
    first, _ = parts(1, [workflow_job(MANY, 1), workflow_job(MANY + 1, 1)], 1)
    ties.apply(first)
    staged = needs(job_id(MANY), on=Condition.COMPLETION)
    children = [ties.submit(depends_on=staged) for _ in range(3 * limits.CHORE_STEPS_MAX)]
    ties.cancel_workflow(1)
    ties.apply(DoChore(ChoreKind.DROP_WORKFLOW, workflow_id(1)))
    assert ties.status(job_id(MANY)) is Status.CANCELLED, "it stays until the last one was told"
    ties.drain()
    assert ties.state.job(job_id(MANY)) is None
    assert {ties.status(child) for child in children} == {Status.QUEUED}


def test_ledger_of_a_deleted_schedule_goes_in_steps(ties: TiesScene) -> None:
    owner = ScheduleId(b"s" * 16)
    count = 2 * limits.CHORE_STEPS_MAX + 1
    lines = [PutFiring(owner, Firing(TimeMs(1_000 + number))) for number in range(count)]
    ties.state.execute([*lines, PutChore(ChoreKind.DROP_LEDGER, owner)])
    ties.state.advance(index=1, term=1, now_ms=ties.now_ms)
    assert ties.drain() == 3
    assert ties.state.firings(owner, after=None, until_ms=None, limit=10) == []


# -- purge


def test_purge_of_jobs_with_many_parents_is_bounded_by_what_goes_with_them(
    ties: TiesScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DEPENDENCIES_MAX", 5)
    roots = [ties.submit() for _ in range(4)]
    children = [ties.submit(depends_on=needs(*roots)) for _ in range(3)]
    ties.end(roots[0], Status.CANCELLED)
    ids = tuple(child.id for child in children)
    purge = PurgeJobs(ids, TimeMs(ties.now_ms + 1))
    assert [ties.apply(purge) for _ in range(4)] == [Purged(1), Purged(1), Purged(1), Purged(0)]
    assert list(ties.state.all_dependants()) == []


def test_purged_parents_are_no_parents_any_more(ties: TiesScene) -> None:
    root = ties.end(ties.submit())
    ties.purge(root)
    assert code_of(ties.try_submit(depends_on=needs(root))) is RejectCode.UNKNOWN_DEPENDENCY
