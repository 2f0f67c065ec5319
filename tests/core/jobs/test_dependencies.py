"""Jobs that depend on others: what may be named, how ended parents are judged, and what each end does (case D31)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from raftsched.core.operations.codec import LeaseJobs, RejectCode
from raftsched.core.operations.control import PauseJob, RequeueJob, ResumeJob
from raftsched.core.records.ids import JobId, TimeMs, job_id_text
from raftsched.core.records.job import Condition, Job, Status, Verdict
from raftsched.core.records.spec import OnDependencyFailure, Options
from raftsched.core.state.results import Changed, Leased, Refused, Submitted
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


def test_job_waits_for_all_its_parents_and_no_lease_is_given_before(relations: RelationsScene) -> None:
    a, b = relations.submit(), relations.submit()
    child = relations.submit(depends_on=needs(a, b))
    assert (child.status, child.dependency_count, child.pending_count) == (Status.WAITING_DEPENDENCIES, 2, 2)
    relations.end(a)
    early = relations.apply(LeaseJobs("w1", 1_000, (child.id,)))
    assert isinstance(early, Leased)
    assert early.missed == (child.id,)
    relations.end(b)
    assert relations.status(child) is Status.QUEUED
    assert relations.verdicts(child) == [Verdict.MET, Verdict.MET]
    relations.end(child)


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


def test_submit_under_a_parent_that_failed_answers_with_the_ended_job(relations: RelationsScene) -> None:
    parent = relations.end(relations.submit(), Status.DEAD_LETTER)
    child = relations.submit(depends_on=needs(parent), options=failing())
    assert child.status is Status.DEAD_LETTER
    assert child == relations.now(child)


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


def test_join_ends_at_once_though_another_parent_has_not_started(relations: RelationsScene) -> None:
    a, b = relations.submit(), relations.submit()
    join = relations.submit(depends_on=needs(a, b))
    relations.end(a, Status.DEAD_LETTER)
    assert relations.status(join) is Status.SKIPPED
    relations.end(b)
    assert relations.status(join) is Status.SKIPPED


def test_condition_failure_or_completion_runs_after_a_failure_and_keeps_what_hangs_below(
    relations: RelationsScene,
) -> None:
    root = relations.submit()
    mend = relations.submit(depends_on=needs(root, on=Condition.FAILURE))
    clean = relations.submit(depends_on=needs(mend, on=Condition.COMPLETION))
    relations.end(root, Status.DEAD_LETTER)
    assert relations.statuses(mend, clean) == [Status.QUEUED, Status.WAITING_DEPENDENCIES]
    relations.end(mend)
    assert relations.status(clean) is Status.QUEUED


def test_skipped_parent_meets_completion_only(relations: RelationsScene) -> None:
    root = relations.submit()
    skipped = relations.submit(depends_on=needs(root))
    relations.end(root, Status.CANCELLED)
    outcomes = {on: relations.submit(depends_on=needs(skipped, on=on)).status for on in Condition}
    assert outcomes == {
        Condition.SUCCESS: Status.SKIPPED,
        Condition.FAILURE: Status.SKIPPED,
        Condition.COMPLETION: Status.QUEUED,
    }


def test_paused_job_is_told_and_goes_on_or_ends_as_its_parents_say(relations: RelationsScene) -> None:
    a, b = relations.submit(), relations.submit()
    good, bad = relations.submit(depends_on=needs(a), paused=True), relations.submit(depends_on=needs(b))
    relations.apply(PauseJob(bad.id, "default"))
    relations.end(a)
    relations.end(b, Status.DEAD_LETTER)
    assert relations.statuses(good, bad) == [Status.PAUSED, Status.SKIPPED]
    relations.apply(ResumeJob(good.id, "default"))
    assert relations.status(good) is Status.QUEUED


def test_job_that_waits_again_after_its_pause_is_released_by_its_parent(relations: RelationsScene) -> None:
    parent = relations.submit()
    child = relations.submit(depends_on=needs(parent), paused=True)
    relations.apply(ResumeJob(child.id, "default"))
    assert relations.status(child) is Status.WAITING_DEPENDENCIES
    relations.end(parent)
    assert relations.status(child) is Status.QUEUED


# -- requeue


def waiting_chain(relations: RelationsScene) -> list[Job]:
    root = relations.submit()
    middle = relations.submit(depends_on=needs(root), options=failing())
    return [root, middle, relations.submit(depends_on=needs(middle))]


def test_requeued_parent_lets_all_wait_again_that_ended_for_want_of_it(relations: RelationsScene) -> None:
    root, middle, last = waiting_chain(relations)
    relations.end(root, Status.DEAD_LETTER)
    relations.requeue(root)
    assert relations.statuses(middle, last) == [Status.WAITING_DEPENDENCIES] * 2
    again = relations.now(middle)
    assert (again.run_number, again.finished_at_ms, again.failure_reason) == (2, 0, "")
    assert (again.pending_count, again.unmet_count) == (1, 0)
    for job in (root, middle, last):
        relations.end(job)


def test_requeued_parent_revives_a_join_only_when_no_other_parent_is_wanting(relations: RelationsScene) -> None:
    a, b = relations.submit(), relations.submit()
    join = relations.submit(depends_on=needs(a, b))
    relations.end(a, Status.DEAD_LETTER)
    relations.end(b, Status.CANCELLED)
    relations.requeue(a)
    assert relations.status(join) is Status.SKIPPED
    relations.end(a)
    relations.requeue(b)
    assert (relations.status(join), relations.now(join).pending_count) == (Status.WAITING_DEPENDENCIES, 1)
    relations.end(b)
    assert relations.status(join) is Status.QUEUED


def test_requeue_does_not_take_back_what_was_met(relations: RelationsScene) -> None:
    root, other = relations.submit(), relations.submit()
    mend = relations.submit(depends_on=(*needs(root, on=Condition.FAILURE), *needs(other)))
    relations.end(root, Status.DEAD_LETTER)
    relations.requeue(root)
    relations.end(root)
    assert relations.status(mend) is Status.WAITING_DEPENDENCIES
    relations.end(other)
    assert relations.status(mend) is Status.QUEUED


def test_cancelled_chain_that_is_requeued_runs_in_its_order_again(relations: RelationsScene) -> None:
    x = relations.submit()
    y = relations.submit(depends_on=needs(x))
    z = relations.submit(depends_on=needs(y))
    for job in (z, y, x):
        relations.end(job, Status.CANCELLED)
    for job in (x, y, z):
        relations.requeue(job)
    assert relations.statuses(x, y, z) == [Status.QUEUED, Status.WAITING_DEPENDENCIES, Status.WAITING_DEPENDENCIES]
    for job in (x, y, z):
        relations.end(job)


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


def test_requeued_child_waits_also_for_a_parent_that_was_met_and_runs_again(relations: RelationsScene) -> None:
    parent = relations.submit()
    child = relations.submit(depends_on=needs(parent, on=Condition.COMPLETION))
    relations.end(parent, Status.DEAD_LETTER)
    relations.end(child, Status.DEAD_LETTER)
    relations.requeue(parent)
    assert relations.requeue(child).status is Status.WAITING_DEPENDENCIES
    relations.end(parent)
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


def test_child_that_was_cancelled_or_expired_is_not_revived(relations: RelationsScene) -> None:
    root = relations.submit()
    child = relations.submit(depends_on=needs(root))
    relations.end(child, Status.CANCELLED)
    relations.end(root, Status.DEAD_LETTER)
    relations.requeue(root)
    assert relations.status(child) is Status.CANCELLED


def test_child_is_not_revived_while_another_job_holds_its_unique_key(relations: RelationsScene) -> None:
    root = relations.submit()
    child = relations.submit(depends_on=needs(root), options=Options(unique_key=b"u"))
    below = relations.submit(depends_on=needs(child))
    relations.end(root, Status.DEAD_LETTER)
    relations.submit(options=Options(unique_key=b"u"))
    relations.requeue(root)
    assert relations.statuses(child, below) == [Status.SKIPPED] * 2
    relations.end(root)


def test_job_submitted_under_a_requeued_parent_waits_and_is_told(relations: RelationsScene) -> None:
    root = relations.end(relations.submit(), Status.DEAD_LETTER)
    early = relations.submit(depends_on=needs(root))
    relations.requeue(root)
    late = relations.submit(depends_on=needs(root))
    assert relations.statuses(early, late) == [Status.WAITING_DEPENDENCIES] * 2
    relations.end(root)
    assert relations.statuses(early, late) == [Status.QUEUED] * 2


def test_two_jobs_can_not_come_to_depend_on_each_other(relations: RelationsScene) -> None:
    """Case D30: of two submissions that name each other the first is refused, since the other isn't there."""
    assert code_of(relations.try_submit(depends_on=needs(job_id(2)))) is RejectCode.UNKNOWN_DEPENDENCY
    second = relations.try_submit(depends_on=needs(job_id(1)))
    assert code_of(second) is RejectCode.UNKNOWN_DEPENDENCY
