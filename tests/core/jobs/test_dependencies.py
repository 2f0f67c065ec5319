"""Jobs that depend on others: what may be named, how ended parents are judged, and what each end does (case D31)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from raftsched.core.operations.codec import RejectCode
from raftsched.core.operations.control import RequeueJob
from raftsched.core.records.ids import JobId, TimeMs, job_id_text
from raftsched.core.records.job import Condition, Status, Verdict
from raftsched.core.records.spec import OnDependencyFailure, Options
from raftsched.core.state.results import Changed, Refused, Submitted
from tests.core.relations_scene import RelationsScene, needs
from tests.core.scene import code_of, job_id

ENDS = (Status.COMPLETED, Status.DEAD_LETTER, Status.CANCELLED)


def failing() -> Options:
    return Options(on_dependency_failure=OnDependencyFailure.FAIL)


# -- what may be named


def test_dependency_on_a_job_that_is_not_there_is_refused_and_named(relations: RelationsScene) -> None:
    result = relations.try_submit(depends_on=needs(job_id(404)))
    assert isinstance(result, Refused)
    assert (result.code, result.job_id) == (RejectCode.UNKNOWN_DEPENDENCY, job_id(404))
    assert job_id_text(job_id(404)) in result.message


def test_dependency_on_another_tenants_job_is_refused_as_if_it_were_not_there(relations: RelationsScene) -> None:
    other = relations.submit(tenant="other")
    assert code_of(relations.try_submit(depends_on=needs(other))) is RejectCode.UNKNOWN_DEPENDENCY


@pytest.mark.parametrize("parents", [(job_id(1),), (JobId(b"short"),), (job_id(404), job_id(404))])
def test_dependency_on_itself_or_twice_or_on_no_id_is_refused(
    relations: RelationsScene, parents: tuple[JobId, ...]
) -> None:
    assert code_of(relations.try_submit(depends_on=needs(*parents))) is RejectCode.INVALID


def test_repeat_of_a_submit_finds_the_job_however_its_parents_stand_now(relations: RelationsScene) -> None:
    parent = relations.submit()
    first = relations.submit(depends_on=needs(parent), idempotency_key="k")
    relations.end(parent)
    relations.purge(parent)
    again = relations.try_submit(depends_on=needs(parent), idempotency_key="k")
    assert isinstance(again, Submitted)
    assert (again.job.id, again.duplicate) == (first.id, True)


# -- waiting


def test_released_job_whose_time_is_to_come_waits_for_it(relations: RelationsScene) -> None:
    parent = relations.submit()
    child = relations.submit(depends_on=needs(parent), due_at_ms=TimeMs(relations.now_ms + 5_000))
    assert not child.timed
    relations.end(parent)
    assert (relations.status(child), relations.now(child).timed) == (Status.SCHEDULED, True)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("condition", Condition)
@pytest.mark.parametrize("is_late", [False, True])
def test_each_end_of_a_parent_meets_the_conditions_that_name_it(
    relations: RelationsScene, end: Status, condition: Condition, *, is_late: bool
) -> None:
    parent = relations.submit()
    if is_late:
        relations.end(parent, end)
    child = relations.submit(depends_on=needs(parent, on=condition))
    if not is_late:
        relations.end(parent, end)
    met = condition is Condition.COMPLETION or (condition, end) in {
        (Condition.SUCCESS, Status.COMPLETED),
        (Condition.FAILURE, Status.DEAD_LETTER),
    }
    assert relations.status(child) is (Status.QUEUED if met else Status.SKIPPED)
    assert relations.verdicts(child) == [Verdict.MET if met else Verdict.UNMET]
    assert met or relations.now(child).failure_reason == f"dependency_failed: {job_id_text(parent.id)}"


# -- a parent that ends otherwise


@pytest.mark.parametrize("end", [Status.DEAD_LETTER, Status.CANCELLED])
def test_chain_and_diamond_end_with_their_first_job_and_name_who_is_to_blame(
    relations: RelationsScene, end: Status
) -> None:
    root = relations.submit()
    chain = [root]
    for _ in range(4):
        chain.append(relations.submit(depends_on=needs(chain[-1])))
    left, right = relations.submit(depends_on=needs(root)), relations.submit(depends_on=needs(root), options=failing())
    join = relations.submit(depends_on=needs(left, right))
    relations.end(root, end)
    assert relations.statuses(*chain[1:]) == [Status.SKIPPED] * 4
    for parent, child in pairwise(chain):
        assert relations.now(child).failure_reason == f"dependency_failed: {job_id_text(parent.id)}"
    assert relations.statuses(left, right, join) == [Status.SKIPPED, Status.DEAD_LETTER, Status.SKIPPED]
    assert relations.background_work() == []


# -- requeue


@pytest.mark.parametrize("end", [Status.CANCELLED, Status.DEAD_LETTER])
def test_requeue_is_refused_while_a_parent_has_ended_otherwise_and_names_it(
    relations: RelationsScene, end: Status
) -> None:
    good, bad = relations.submit(), relations.submit()
    child = relations.submit(depends_on=needs(good, bad))
    relations.end(child, Status.CANCELLED)
    relations.end(good)
    relations.end(bad, end)
    result = relations.apply(RequeueJob(child.id, "default"))
    assert isinstance(result, Refused)
    assert (result.code, result.job_id) == (RejectCode.DEPENDENCY_UNMET, bad.id)
    assert job_id_text(bad.id) in result.message
    relations.requeue(bad)
    assert relations.requeue(child).pending_count == 1
    relations.end(bad)
    assert relations.status(child) is Status.QUEUED


def test_requeued_child_of_parents_that_all_ended_as_they_should_runs_at_its_time(relations: RelationsScene) -> None:
    parent = relations.submit()
    child = relations.submit(depends_on=needs(parent))
    relations.end(parent)
    relations.end(child, Status.DEAD_LETTER)
    relations.purge(parent)
    later = relations.apply(RequeueJob(child.id, "default", due_at_ms=TimeMs(relations.now_ms + 50)))
    assert isinstance(later, Changed)
    assert (later.job.status, later.job.timed, later.job.pending_count) == (Status.SCHEDULED, True, 0)


def test_requeued_child_keeps_the_end_of_a_parent_that_is_gone(relations: RelationsScene) -> None:
    parent = relations.submit()
    child = relations.submit(depends_on=needs(parent))
    relations.end(parent, Status.DEAD_LETTER)
    relations.purge(parent)
    result = relations.apply(RequeueJob(child.id, "default"))
    assert isinstance(result, Refused)
    assert (result.code, "no longer kept" in result.message) == (RejectCode.DEPENDENCY_UNMET, True)


def test_child_is_not_revived_while_another_job_holds_its_unique_key(relations: RelationsScene) -> None:
    root = relations.submit()
    child = relations.submit(depends_on=needs(root), options=Options(unique_key=b"u"))
    below = relations.submit(depends_on=needs(child))
    relations.end(root, Status.DEAD_LETTER)
    relations.submit(options=Options(unique_key=b"u"))
    relations.requeue(root)
    assert relations.statuses(child, below) == [Status.SKIPPED] * 2
    relations.end(root)


def test_two_jobs_can_not_come_to_depend_on_each_other(relations: RelationsScene) -> None:
    """Case D30: of two submissions that name each other the first is refused, since the other isn't there."""
    assert code_of(relations.try_submit(depends_on=needs(job_id(2)))) is RejectCode.UNKNOWN_DEPENDENCY
    second = relations.try_submit(depends_on=needs(job_id(1)))
    assert code_of(second) is RejectCode.UNKNOWN_DEPENDENCY
