"""Workflows: stored whole or not at all, in parts where they are large; counted, cancelled, dropped and purged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from raftsched import limits
from raftsched.core.checks.invariants import check
from raftsched.core.operations.codec import LeaseJobs, RejectCode, SubmitJob
from raftsched.core.operations.control import AlarmKind, ChoreKind, RequeueJob, RingAlarms
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.job import Condition, Status
from raftsched.core.records.spec import OnDependencyFailure, Options
from raftsched.core.records.workflow import STAGING_MS_MAX, Workflow
from raftsched.core.state.results import Leased, Purged, Refused, WorkflowSaved
from tests.core.relations_scene import (
    TiesScene,
    needs,
    parts,
    saved,
    workflow_id,
    workflow_job,
    workflow_part,
)
from tests.core.scene import code_of, job_id, with_fields


@pytest.fixture
def ties() -> Iterator[TiesScene]:
    """A scene that must be sound in the end."""
    scene = TiesScene()
    yield scene
    assert check(scene.state) == []


def diamond(workflow: int = 1, base: int = 100) -> list[SubmitJob]:
    """a, then b and c, then d; the last comes first, since their order says nothing."""
    a, b, c = (job_id(base + number) for number in range(3))
    return [
        workflow_job(base + 3, workflow, depends_on=needs(b, c)),
        workflow_job(base + 1, workflow, depends_on=needs(a)),
        workflow_job(base + 2, workflow, depends_on=needs(a)),
        workflow_job(base + 0, workflow),
    ]


def counts(workflow: Workflow) -> tuple[int, int, int, int]:
    return (workflow.unfinished_count, workflow.failed_count, workflow.cancelled_count, workflow.skipped_count)


# -- in one part


def test_workflow_of_one_part_runs_at_once_from_its_roots(ties: TiesScene) -> None:
    workflow = saved(ties.apply(workflow_part(1, diamond())))
    assert (workflow.label, workflow.stored_count, workflow.unfinished_count) == ("running", 4, 4)
    d, b, c, a = (each.id for each in diamond())
    assert ties.statuses(a, b, c, d) == [Status.QUEUED] + [Status.WAITING_DEPENDENCIES] * 3
    for job in (a, b, c, d):
        ties.end(job)
    workflow = ties.workflow(1)
    assert (workflow.label, counts(workflow), workflow.finished_at_ms) == ("completed", (0, 0, 0, 0), ties.now_ms)
    assert ties.chores() == []


def test_workflow_counts_how_each_job_ended_and_goes_on_with_a_requeue(ties: TiesScene) -> None:
    ties.apply(workflow_part(1, diamond()))
    d, b, c, a = (each.id for each in diamond())
    ties.end(a)
    ties.end(c)
    ties.end(b, Status.DEAD_LETTER)
    assert ties.status(d) is Status.SKIPPED
    assert (ties.workflow(1).label, counts(ties.workflow(1))) == ("failed", (0, 1, 0, 1))
    ties.requeue(b)
    assert (ties.workflow(1).label, counts(ties.workflow(1))) == ("running", (2, 0, 0, 0))
    assert ties.workflow(1).finished_at_ms == 0
    ties.end(b)
    ties.end(d)
    assert (ties.workflow(1).label, counts(ties.workflow(1))) == ("completed", (0, 0, 0, 0))


def test_job_of_a_workflow_may_depend_on_a_job_elsewhere_that_has_failed(ties: TiesScene) -> None:
    other = ties.end(ties.submit(), Status.DEAD_LETTER)
    jobs = [workflow_job(100, 1, depends_on=needs(other)), workflow_job(101, 1, depends_on=needs(job_id(100)))]
    workflow = saved(ties.apply(workflow_part(1, jobs)))
    assert ties.statuses(job_id(100), job_id(101)) == [Status.SKIPPED] * 2
    assert (workflow.label, counts(workflow)) == ("completed", (0, 0, 0, 2))


def test_circle_is_refused_and_named(ties: TiesScene) -> None:
    a, b, c = (job_id(100 + number) for number in range(3))
    jobs = [
        workflow_job(100, 1, depends_on=needs(c)),
        workflow_job(101, 1, depends_on=needs(a)),
        workflow_job(102, 1, depends_on=needs(b)),
    ]
    result = ties.apply(workflow_part(1, jobs))
    assert isinstance(result, Refused)
    assert "t100 -> t102 -> t101 -> t100" in result.message


def test_job_that_depends_on_itself_or_on_nothing_known_is_refused(ties: TiesScene) -> None:
    itself = workflow_part(1, [workflow_job(100, 1, depends_on=needs(job_id(100)))])
    assert code_of(ties.apply(itself)) is RejectCode.INVALID
    unknown = workflow_part(1, [workflow_job(100, 1), workflow_job(101, 1, depends_on=needs(job_id(404)))])
    assert code_of(ties.apply(unknown)) is RejectCode.UNKNOWN_DEPENDENCY
    assert ties.state.workflow(workflow_id(1)) is None


@pytest.mark.parametrize(
    "change",
    [
        {"options": None},
        {"options": Options(workflow_id=workflow_id(1))},
        {"options": Options(workflow_id=workflow_id(2), task="t")},
        {"options": Options(workflow_id=workflow_id(1), task="t", unique_key=b"u")},
        {"tenant": "other"},
        {"idempotency_key": "k"},
        {"priority": 99},
        {"id": job_id(101)},
    ],
)
def test_jobs_that_do_not_fit_their_workflow_are_refused(ties: TiesScene, change: dict[str, object]) -> None:
    bad = with_fields(workflow_job(100, 1), **change)
    assert code_of(ties.apply(workflow_part(1, [bad, workflow_job(101, 1)]))) is RejectCode.INVALID


@pytest.mark.parametrize(
    "change",
    [
        {"id": b"short"},
        {"tenant": ""},
        {"name": ""},
        {"job_count": 0},
        {"job_count": limits.WORKFLOW_JOBS_MAX + 1},
        {"first": -1},
        {"first": 1},
        {"jobs": ()},
        {"jobs": (workflow_job(100, 1),) * (limits.WORKFLOW_PART_JOBS_MAX + 1), "job_count": 5_000},
        {"idempotency_key": "k" * 999},
    ],
)
def test_numbers_and_names_out_of_range_are_refused(ties: TiesScene, change: dict[str, object]) -> None:
    part = replace(workflow_part(1, [workflow_job(100, 1)]), **change)
    assert code_of(ties.apply(part)) is RejectCode.INVALID


def test_job_alone_can_not_join_a_workflow(ties: TiesScene) -> None:
    ties.apply(workflow_part(1, diamond()))
    assert code_of(ties.apply(workflow_job(200, 1))) is RejectCode.INVALID


# -- in parts


def chain(count: int, workflow: int = 1, base: int = 1_000) -> list[SubmitJob]:
    first = workflow_job(base, workflow)
    rest = (workflow_job(base + n, workflow, depends_on=needs(job_id(base + n - 1))) for n in range(1, count))
    return [first, *rest]


def test_nothing_runs_before_the_last_part_is_there(ties: TiesScene) -> None:
    roots = [workflow_job(100 + number, 1) for number in range(6)]
    first, second, third = parts(1, roots, 2)
    ties.apply(first)
    workflow = saved(ties.apply(second))
    assert (workflow.label, workflow.stored_count) == ("submitting", 4)
    assert ties.statuses(*(each.id for each in roots[:4])) == [Status.WAITING_DEPENDENCIES] * 4
    leased = ties.apply(LeaseJobs("w", 1_000, (job_id(100),)))
    assert isinstance(leased, Leased)
    assert not leased.grants
    assert saved(ties.apply(third)).label == "running"
    assert ties.statuses(*(each.id for each in roots)) == [Status.QUEUED] * 6


def test_parts_run_as_one_workflow_across_their_borders(ties: TiesScene) -> None:
    jobs = chain(7)
    for part in parts(1, jobs, 3):
        ties.apply(part)
    for each in jobs:
        ties.end(each.id)
    assert ties.workflow(1).label == "completed"


def test_part_applied_again_is_recognised_and_changes_nothing(ties: TiesScene) -> None:
    first, second = parts(1, chain(4), 2)
    for part in (first, first, second, second, first):
        known = ties.state.workflow(workflow_id(1))
        result = ties.apply(part)
        assert isinstance(result, WorkflowSaved)
        is_new = known is None or known.stored_count <= part.first
        assert result.duplicate is not is_new
    assert ties.workflow(1).unfinished_count == 4


def test_part_out_of_order_or_of_another_workflow_is_refused(ties: TiesScene) -> None:
    first, second, third = parts(1, chain(6), 2)
    assert code_of(ties.apply(second)) is RejectCode.STALE_PART
    ties.apply(first)
    assert code_of(ties.apply(third)) is RejectCode.STALE_PART
    for change in ({"tenant": "other"}, {"fingerprint": b"other"}, {"job_count": 7}, {"name": "other"}):
        other = replace(second, **change)
        if "tenant" in change:
            other = replace(other, jobs=tuple(replace(each, tenant="other") for each in other.jobs))
        assert code_of(ties.apply(other)) is RejectCode.INVALID


def test_part_with_the_id_of_a_known_job_is_refused(ties: TiesScene) -> None:
    ties.apply(workflow_part(1, [workflow_job(100, 1)]))
    assert code_of(ties.apply(workflow_part(2, [workflow_job(100, 2)]))) is RejectCode.INVALID


def test_staged_job_can_be_cancelled_but_not_run_by_a_requeue(ties: TiesScene) -> None:
    first, second = parts(1, chain(4), 2)
    ties.apply(first)
    root, child = first.jobs[0].id, first.jobs[1].id
    ties.end(root, Status.CANCELLED)
    assert ties.status(child) is Status.SKIPPED
    assert code_of(ties.apply(RequeueJob(root, "default"))) is RejectCode.NOT_STARTED
    ties.apply(second)
    assert ties.workflow(1).label == "cancelled"
    ties.requeue(root)
    assert [ties.status(each.id) for each in chain(4)] == [Status.QUEUED] + [Status.WAITING_DEPENDENCIES] * 3
    for each in chain(4):
        ties.end(each.id)


# -- idempotency


def test_submission_made_again_under_its_key_finds_the_workflow(ties: TiesScene) -> None:
    ties.apply(workflow_part(1, diamond(), idempotency_key="k", fingerprint=b"f"))
    again = ties.apply(workflow_part(2, diamond(2, 200), idempotency_key="k", fingerprint=b"f"))
    assert isinstance(again, WorkflowSaved)
    assert (again.workflow.id, again.duplicate) == (workflow_id(1), True)
    other = workflow_part(2, diamond(2, 200), idempotency_key="k", fingerprint=b"g")
    assert code_of(ties.apply(other)) is RejectCode.IDEMPOTENCY_MISMATCH


def test_submission_made_again_takes_the_place_of_one_that_was_left_half_done(ties: TiesScene) -> None:
    first, second = parts(1, chain(4), 2, idempotency_key="k", fingerprint=b"f")
    ties.apply(first)
    for part in parts(2, chain(4, 2, 2_000), 2, idempotency_key="k", fingerprint=b"f"):
        assert not ties.apply(part).duplicate  # type: ignore[union-attr]
    assert code_of(ties.apply(second)) is RejectCode.STALE_PART
    ties.drain()
    assert ties.state.workflow(workflow_id(1)) is None
    assert ties.state.workflow_id_for_key("default", "k") == workflow_id(2)
    assert [ties.state.job(each.id) for each in first.jobs] == [None, None]
    assert ties.workflow(2).label == "running"


# -- left half-done


def test_half_done_submission_is_dropped_when_no_part_came_for_a_while(ties: TiesScene) -> None:
    first, second = parts(1, chain(4), 2)
    ties.apply(first)
    outside = ties.submit(depends_on=needs(first.jobs[1].id, on=Condition.COMPLETION))
    skipped = ties.submit(depends_on=needs(first.jobs[1].id))
    ties.now_ms += STAGING_MS_MAX
    ties.apply(RingAlarms(((AlarmKind.WORKFLOW, workflow_id(1)),)))
    assert code_of(ties.apply(second)) is RejectCode.STALE_PART
    ties.drain()
    assert ties.state.workflow(workflow_id(1)) is None
    assert list(ties.state.all_workflow_jobs()) == []
    assert ties.statuses(outside, skipped) == [Status.QUEUED, Status.SKIPPED]
    again = ties.apply(next(parts(1, chain(4, base=2_000), 2)))
    assert isinstance(again, WorkflowSaved)
    assert not again.duplicate


def test_cancel_of_a_half_done_submission_drops_it(ties: TiesScene) -> None:
    first, second = parts(1, chain(4), 2)
    ties.apply(first)
    assert saved(ties.cancel_workflow(1)).cancel_requested_at_ms == ties.now_ms
    assert code_of(ties.apply(second)) is RejectCode.STALE_PART
    ties.drain()
    assert ties.state.workflow(workflow_id(1)) is None


def test_cancel_of_a_half_done_submission_that_has_ended_already_removes_it_at_once(ties: TiesScene) -> None:
    first, _ = parts(1, chain(4), 2)
    ties.apply(first)
    ties.end(first.jobs[0].id, Status.CANCELLED)
    assert saved(ties.cancel_workflow(1)).stored_count == 2
    assert ties.state.workflow(workflow_id(1)) is None
    assert ties.chores() == []
    assert list(ties.state.all_workflow_jobs()) == []


# -- cancel


def test_cancel_ends_what_has_not_ended_and_asks_what_runs(ties: TiesScene) -> None:
    ties.apply(workflow_part(1, diamond()))
    d, b, c, a = (each.id for each in diamond())
    ties.end(a)
    (running,) = ties.start(b)
    workflow = saved(ties.cancel_workflow(1))
    assert (workflow.label, workflow.unfinished_count) == ("cancelling", 1)
    assert ties.statuses(a, b, c, d) == [
        Status.COMPLETED,
        Status.CANCELLING,
        Status.CANCELLED,
        Status.CANCELLED,
    ]
    assert ties.chores() == []
    ties.end(running, Status.CANCELLED)
    assert (ties.workflow(1).label, counts(ties.workflow(1))) == ("cancelled", (0, 0, 3, 0))
    assert saved(ties.cancel_workflow(1)) == ties.workflow(1)


def test_cancel_refuses_what_is_not_there_or_has_ended(ties: TiesScene) -> None:
    ties.apply(workflow_part(1, [workflow_job(100, 1)]))
    assert code_of(ties.cancel_workflow(404)) is RejectCode.NOT_FOUND
    assert code_of(ties.cancel_workflow(1, "other")) is RejectCode.NOT_FOUND
    ties.end(job_id(100))
    assert code_of(ties.cancel_workflow(1)) is RejectCode.ALREADY_FINISHED


def test_no_job_of_a_cancelled_workflow_starts_before_the_chore_has_come_to_it(ties: TiesScene) -> None:
    jobs = [workflow_job(100 + number, 1) for number in range(limits.CHORE_INLINE_MAX + 1)]
    ties.apply(workflow_part(1, jobs))
    ties.cancel_workflow(1)
    last = jobs[-1].id
    assert ties.status(last) is Status.QUEUED
    leased = ties.apply(LeaseJobs("w", 1_000, (last,)))
    assert isinstance(leased, Leased)
    assert not leased.grants
    ties.drain()
    assert (ties.workflow(1).label, counts(ties.workflow(1))) == ("cancelled", (0, 0, len(jobs), 0))


@pytest.mark.parametrize("policy", [*OnDependencyFailure])
@pytest.mark.parametrize("root_number", [100, 999])
def test_cancel_of_a_wide_workflow_ends_all_its_jobs_as_cancelled(
    ties: TiesScene, root_number: int, policy: OnDependencyFailure
) -> None:
    """Whether the chore comes to the root first or last: what follows from its end must not be faster in another way."""
    leaves = range(200, 200 + 2 * limits.CHORE_STEPS_MAX)
    root = workflow_job(root_number, 1)
    wide = [workflow_job(number, 1, depends_on=needs(root.id), on_dependency_failure=policy) for number in leaves]
    for part in parts(1, [root, *wide], limits.WORKFLOW_PART_JOBS_MAX):
        ties.apply(part)
    outside = ties.submit(depends_on=needs(root.id))
    ties.cancel_workflow(1)
    ties.drain()
    assert {ties.status(each.id) for each in (root, *wide)} == {Status.CANCELLED}
    assert {ties.now(each.id).notes[-1].detail for each in wide} == {"with its workflow"}
    assert (ties.workflow(1).label, counts(ties.workflow(1))) == ("cancelled", (0, 0, 1 + len(wide), 0))
    assert ties.status(outside) is Status.SKIPPED


def test_job_that_ends_for_want_after_its_cancelled_workflow_runs_again_is_skipped(ties: TiesScene) -> None:
    parent, child = workflow_job(100, 1), workflow_job(101, 1, depends_on=needs(job_id(100)))
    ties.apply(workflow_part(1, [parent, child, workflow_job(102, 1)]))
    ties.end(parent.id, Status.DEAD_LETTER)
    ties.cancel_workflow(1)
    ties.requeue(parent.id)
    assert ties.status(child.id) is Status.WAITING_DEPENDENCIES
    ties.end(parent.id, Status.DEAD_LETTER)
    assert ties.status(child.id) is Status.SKIPPED
    assert counts(ties.workflow(1)) == (0, 1, 1, 1)


def test_requeue_after_a_cancel_lets_the_workflow_run_again(ties: TiesScene) -> None:
    ties.apply(workflow_part(1, diamond()))
    ties.cancel_workflow(1)
    a = diamond()[-1].id
    ties.requeue(a)
    assert (ties.workflow(1).label, ties.workflow(1).cancel_requested_at_ms) == ("running", 0)
    ties.end(a)
    assert ties.workflow(1).label == "cancelled"


def test_cancel_again_ends_what_was_requeued_behind_the_first_one(ties: TiesScene) -> None:
    jobs = [workflow_job(100 + number, 1) for number in range(limits.CHORE_INLINE_MAX + 1)]
    ties.apply(workflow_part(1, jobs))
    ties.cancel_workflow(1)
    ties.requeue(jobs[0].id)
    assert saved(ties.cancel_workflow(1)) == ties.workflow(1)
    ties.drain()
    assert (ties.status(jobs[0].id), ties.workflow(1).label) == (Status.QUEUED, "cancelling")
    assert saved(ties.cancel_workflow(1)).label == "cancelled"
    revision = ties.workflow(1).revision
    assert saved(ties.cancel_workflow(1)).revision == revision


# -- purge


def test_workflow_goes_with_its_last_job(ties: TiesScene) -> None:
    ties.apply(workflow_part(1, diamond(), idempotency_key="k"))
    d, b, c, a = (each.id for each in diamond())
    for job in (a, b, c, d):
        ties.end(job)
    ties.purge(a, b)
    assert ties.workflow(1).job_count == 4
    ties.purge(c, d)
    assert ties.state.workflow(workflow_id(1)) is None
    assert ties.state.workflow_id_for_key("default", "k") is None


def test_jobs_of_a_workflow_of_which_parts_are_to_come_are_kept_until_it_is_dropped(ties: TiesScene) -> None:
    first, _ = parts(1, chain(4), 2)
    ties.apply(first)
    ties.end(first.jobs[0].id, Status.CANCELLED)
    assert ties.purge(first.jobs[0].id, first.jobs[1].id) == Purged(0)
    ties.now_ms = TimeMs(ties.now_ms + STAGING_MS_MAX)
    ties.apply(RingAlarms(((AlarmKind.WORKFLOW, workflow_id(1)),)))
    assert (ChoreKind.DROP_WORKFLOW, workflow_id(1)) in ties.chores()
    ties.drain()
    assert ties.state.workflow(workflow_id(1)) is None


def test_purge_of_the_last_job_ends_what_was_still_to_be_done_with_its_workflow(
    ties: TiesScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CHORE_INLINE_MAX", 1)
    jobs = [workflow_job(100 + number, 1) for number in range(4)]
    for part in parts(1, jobs, 2):
        ties.apply(part)
    for each in jobs:
        ties.end(each.id, Status.CANCELLED)
    assert ties.chores() == [(ChoreKind.OPEN_WORKFLOW, workflow_id(1))]
    ties.purge(*(each.id for each in jobs))
    assert (ties.chores(), ties.state.workflow(workflow_id(1))) == ([], None)
    assert check(ties.state) == []
