"""Workflows: stored whole or not at all, in parts where they are large; counted, cancelled, dropped and purged."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from raftsched import limits
from raftsched.core.checks.invariants import check
from raftsched.core.operations.codec import RejectCode, SubmitJob
from raftsched.core.operations.control import BackgroundKind, DeadlineKind, HandleDeadlines
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.job import Condition, Status
from raftsched.core.records.spec import OnDependencyFailure, Options
from raftsched.core.records.workflow import STAGING_MS_MAX, Workflow
from raftsched.core.state.results import Purged, Refused, WorkflowSaved
from tests.core.relations_scene import (
    RelationsScene,
    needs,
    parts,
    saved,
    workflow_id,
    workflow_job,
    workflow_part,
)
from tests.core.scene import code_of, job_id, with_fields


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


def test_circle_is_refused_and_named(relations: RelationsScene) -> None:
    a, b, c = (job_id(100 + number) for number in range(3))
    jobs = [
        workflow_job(100, 1, depends_on=needs(c)),
        workflow_job(101, 1, depends_on=needs(a)),
        workflow_job(102, 1, depends_on=needs(b)),
    ]
    result = relations.apply(workflow_part(1, jobs))
    assert isinstance(result, Refused)
    assert "t100 -> t102 -> t101 -> t100" in result.message


def test_job_that_depends_on_itself_or_on_nothing_known_is_refused(relations: RelationsScene) -> None:
    itself = workflow_part(1, [workflow_job(100, 1, depends_on=needs(job_id(100)))])
    assert code_of(relations.apply(itself)) is RejectCode.INVALID
    unknown = workflow_part(1, [workflow_job(100, 1), workflow_job(101, 1, depends_on=needs(job_id(404)))])
    assert code_of(relations.apply(unknown)) is RejectCode.UNKNOWN_DEPENDENCY
    assert relations.state.workflow(workflow_id(1)) is None


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
def test_jobs_that_do_not_fit_their_workflow_are_refused(relations: RelationsScene, change: dict[str, object]) -> None:
    bad = with_fields(workflow_job(100, 1), **change)
    assert code_of(relations.apply(workflow_part(1, [bad, workflow_job(101, 1)]))) is RejectCode.INVALID


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
def test_numbers_and_names_out_of_range_are_refused(relations: RelationsScene, change: dict[str, object]) -> None:
    part = replace(workflow_part(1, [workflow_job(100, 1)]), **change)
    assert code_of(relations.apply(part)) is RejectCode.INVALID


def test_job_alone_can_not_join_a_workflow(relations: RelationsScene) -> None:
    relations.apply(workflow_part(1, diamond()))
    assert code_of(relations.apply(workflow_job(200, 1))) is RejectCode.INVALID


# -- in parts


def chain(count: int, workflow: int = 1, base: int = 1_000) -> list[SubmitJob]:
    first = workflow_job(base, workflow)
    rest = (workflow_job(base + n, workflow, depends_on=needs(job_id(base + n - 1))) for n in range(1, count))
    return [first, *rest]


def test_part_applied_again_is_recognised_and_changes_nothing(relations: RelationsScene) -> None:
    first, second = parts(1, chain(4), 2)
    for part in (first, first, second, second, first):
        known = relations.state.workflow(workflow_id(1))
        result = relations.apply(part)
        assert isinstance(result, WorkflowSaved)
        is_new = known is None or known.stored_count <= part.first
        assert result.duplicate is not is_new
    assert relations.workflow(1).unfinished_count == 4


def test_part_out_of_order_or_of_another_workflow_is_refused(relations: RelationsScene) -> None:
    first, second, third = parts(1, chain(6), 2)
    assert code_of(relations.apply(second)) is RejectCode.STALE_PART
    relations.apply(first)
    assert code_of(relations.apply(third)) is RejectCode.STALE_PART
    for change in ({"tenant": "other"}, {"fingerprint": b"other"}, {"job_count": 7}, {"name": "other"}):
        other = replace(second, **change)
        if "tenant" in change:
            other = replace(other, jobs=tuple(replace(each, tenant="other") for each in other.jobs))
        assert code_of(relations.apply(other)) is RejectCode.INVALID


def test_part_with_the_id_of_a_known_job_is_refused(relations: RelationsScene) -> None:
    relations.apply(workflow_part(1, [workflow_job(100, 1)]))
    assert code_of(relations.apply(workflow_part(2, [workflow_job(100, 2)]))) is RejectCode.INVALID


# -- idempotency


def test_submission_made_again_under_its_key_finds_the_workflow(relations: RelationsScene) -> None:
    relations.apply(workflow_part(1, diamond(), idempotency_key="k", fingerprint=b"f"))
    again = relations.apply(workflow_part(2, diamond(2, 200), idempotency_key="k", fingerprint=b"f"))
    assert isinstance(again, WorkflowSaved)
    assert (again.workflow.id, again.duplicate) == (workflow_id(1), True)
    other = workflow_part(2, diamond(2, 200), idempotency_key="k", fingerprint=b"g")
    assert code_of(relations.apply(other)) is RejectCode.IDEMPOTENCY_MISMATCH


def test_submission_made_again_takes_the_place_of_one_that_was_left_half_done(relations: RelationsScene) -> None:
    first, second = parts(1, chain(4), 2, idempotency_key="k", fingerprint=b"f")
    relations.apply(first)
    for part in parts(2, chain(4, 2, 2_000), 2, idempotency_key="k", fingerprint=b"f"):
        assert not relations.apply(part).duplicate  # type: ignore[union-attr]
    assert code_of(relations.apply(second)) is RejectCode.STALE_PART
    relations.drain()
    assert relations.state.workflow(workflow_id(1)) is None
    assert relations.state.workflow_id_for_key("default", "k") == workflow_id(2)
    assert [relations.state.job(each.id) for each in first.jobs] == [None, None]
    assert relations.workflow(2).label == "running"


# -- left half-done


def test_half_done_submission_is_dropped_when_no_part_came_for_a_while(relations: RelationsScene) -> None:
    first, second = parts(1, chain(4), 2)
    relations.apply(first)
    outside = relations.submit(depends_on=needs(first.jobs[1].id, on=Condition.COMPLETION))
    skipped = relations.submit(depends_on=needs(first.jobs[1].id))
    relations.now_ms += STAGING_MS_MAX
    relations.apply(HandleDeadlines(((DeadlineKind.WORKFLOW, workflow_id(1)),)))
    assert code_of(relations.apply(second)) is RejectCode.STALE_PART
    relations.drain()
    assert relations.state.workflow(workflow_id(1)) is None
    assert list(relations.state.all_workflow_jobs()) == []
    assert relations.statuses(outside, skipped) == [Status.QUEUED, Status.SKIPPED]
    again = relations.apply(next(parts(1, chain(4, base=2_000), 2)))
    assert isinstance(again, WorkflowSaved)
    assert not again.duplicate


def test_cancel_of_a_half_done_submission_drops_it(relations: RelationsScene) -> None:
    first, second = parts(1, chain(4), 2)
    relations.apply(first)
    assert saved(relations.cancel_workflow(1)).cancel_requested_at_ms == relations.now_ms
    assert code_of(relations.apply(second)) is RejectCode.STALE_PART
    relations.drain()
    assert relations.state.workflow(workflow_id(1)) is None


def test_cancel_of_a_half_done_submission_that_has_ended_already_removes_it_at_once(relations: RelationsScene) -> None:
    first, _ = parts(1, chain(4), 2)
    relations.apply(first)
    relations.end(first.jobs[0].id, Status.CANCELLED)
    assert saved(relations.cancel_workflow(1)).stored_count == 2
    assert relations.state.workflow(workflow_id(1)) is None
    assert relations.background_work() == []
    assert list(relations.state.all_workflow_jobs()) == []


# -- cancel


def test_cancel_refuses_what_is_not_there_or_has_ended(relations: RelationsScene) -> None:
    relations.apply(workflow_part(1, [workflow_job(100, 1)]))
    assert code_of(relations.cancel_workflow(404)) is RejectCode.NOT_FOUND
    assert code_of(relations.cancel_workflow(1, "other")) is RejectCode.NOT_FOUND
    relations.end(job_id(100))
    assert code_of(relations.cancel_workflow(1)) is RejectCode.ALREADY_FINISHED


@pytest.mark.parametrize("policy", [*OnDependencyFailure])
@pytest.mark.parametrize("root_number", [100, 999])
def test_cancel_of_a_wide_workflow_ends_all_its_jobs_as_cancelled(
    relations: RelationsScene, root_number: int, policy: OnDependencyFailure
) -> None:
    """Whether the chore comes to the root first or last: what follows from its end must not be faster in another way."""
    leaves = range(200, 200 + 2 * limits.BACKGROUND_STEP_ITEMS_MAX)
    root = workflow_job(root_number, 1)
    wide = [workflow_job(number, 1, depends_on=needs(root.id), on_dependency_failure=policy) for number in leaves]
    for part in parts(1, [root, *wide], limits.WORKFLOW_PART_JOBS_MAX):
        relations.apply(part)
    outside = relations.submit(depends_on=needs(root.id))
    relations.cancel_workflow(1)
    relations.drain()
    assert {relations.status(each.id) for each in (root, *wide)} == {Status.CANCELLED}
    assert {relations.now(each.id).notes[-1].detail for each in wide} == {"with its workflow"}
    assert (relations.workflow(1).label, counts(relations.workflow(1))) == ("cancelled", (0, 0, 1 + len(wide), 0))
    assert relations.status(outside) is Status.SKIPPED


def test_cancel_again_ends_what_was_requeued_behind_the_first_one(relations: RelationsScene) -> None:
    jobs = [workflow_job(100 + number, 1) for number in range(limits.INLINE_DEPENDANTS_MAX + 1)]
    relations.apply(workflow_part(1, jobs))
    relations.cancel_workflow(1)
    relations.requeue(jobs[0].id)
    assert saved(relations.cancel_workflow(1)) == relations.workflow(1)
    relations.drain()
    assert (relations.status(jobs[0].id), relations.workflow(1).label) == (Status.QUEUED, "cancelling")
    assert saved(relations.cancel_workflow(1)).label == "cancelled"
    revision = relations.workflow(1).revision
    assert saved(relations.cancel_workflow(1)).revision == revision


# -- purge


def test_jobs_of_a_workflow_of_which_parts_are_to_come_are_kept_until_it_is_dropped(relations: RelationsScene) -> None:
    first, _ = parts(1, chain(4), 2)
    relations.apply(first)
    relations.end(first.jobs[0].id, Status.CANCELLED)
    assert relations.purge(first.jobs[0].id, first.jobs[1].id) == Purged(0)
    relations.now_ms = TimeMs(relations.now_ms + STAGING_MS_MAX)
    relations.apply(HandleDeadlines(((DeadlineKind.WORKFLOW, workflow_id(1)),)))
    assert (BackgroundKind.DROP_WORKFLOW, workflow_id(1)) in relations.background_work()
    relations.drain()
    assert relations.state.workflow(workflow_id(1)) is None


def test_purge_of_the_last_job_ends_what_was_still_to_be_done_with_its_workflow(
    relations: RelationsScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "INLINE_DEPENDANTS_MAX", 1)
    jobs = [workflow_job(100 + number, 1) for number in range(4)]
    for part in parts(1, jobs, 2):
        relations.apply(part)
    for each in jobs:
        relations.end(each.id, Status.CANCELLED)
    assert relations.background_work() == [(BackgroundKind.OPEN_WORKFLOW, workflow_id(1))]
    relations.purge(*(each.id for each in jobs))
    assert (relations.background_work(), relations.state.workflow(workflow_id(1))) == ([], None)
    assert check(relations.state) == []
