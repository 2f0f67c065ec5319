"""Jobs that depend on others: what may be named, how ended parents are judged, and what each end does (case D31)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from raftsched.core.checks.invariants import check
from raftsched.core.operations.codec import LeaseJobs, RejectCode
from raftsched.core.operations.control import PauseJob, RequeueJob, ResumeJob
from raftsched.core.records.ids import JobId, TimeMs, job_id_text
from raftsched.core.records.job import Condition, Job, Status, Verdict
from raftsched.core.records.spec import OnDependencyFailure, Options
from raftsched.core.state.results import Changed, Leased, Refused, Submitted
from tests.core.relations_scene import TiesScene, needs
from tests.core.scene import code_of, job_id

ENDS = (Status.COMPLETED, Status.DEAD_LETTER, Status.CANCELLED)


@pytest.fixture
def ties() -> Iterator[TiesScene]:
    """A scene that must be sound in the end."""
    scene = TiesScene()
    yield scene
    assert check(scene.state) == []


def failing() -> Options:
    return Options(on_dependency_failure=OnDependencyFailure.FAIL)


# -- what may be named


def test_dependency_on_a_job_that_is_not_there_is_refused_and_named(ties: TiesScene) -> None:
    result = ties.try_submit(depends_on=needs(job_id(404)))
    assert isinstance(result, Refused)
    assert (result.code, result.job_id) == (RejectCode.UNKNOWN_DEPENDENCY, job_id(404))
    assert job_id_text(job_id(404)) in result.message


def test_dependency_on_another_tenants_job_is_refused_as_if_it_were_not_there(ties: TiesScene) -> None:
    other = ties.submit(tenant="other")
    assert code_of(ties.try_submit(depends_on=needs(other))) is RejectCode.UNKNOWN_DEPENDENCY


@pytest.mark.parametrize("parents", [(job_id(1),), (JobId(b"short"),), (job_id(404), job_id(404))])
def test_dependency_on_itself_or_twice_or_on_no_id_is_refused(ties: TiesScene, parents: tuple[JobId, ...]) -> None:
    assert code_of(ties.try_submit(depends_on=needs(*parents))) is RejectCode.INVALID


def test_repeat_of_a_submit_finds_the_job_however_its_parents_stand_now(ties: TiesScene) -> None:
    parent = ties.submit()
    first = ties.submit(depends_on=needs(parent), idempotency_key="k")
    ties.end(parent)
    ties.purge(parent)
    again = ties.try_submit(depends_on=needs(parent), idempotency_key="k")
    assert isinstance(again, Submitted)
    assert (again.job.id, again.duplicate) == (first.id, True)


# -- waiting


def test_job_waits_for_all_its_parents_and_no_lease_is_given_before(ties: TiesScene) -> None:
    a, b = ties.submit(), ties.submit()
    child = ties.submit(depends_on=needs(a, b))
    assert (child.status, child.dependency_count, child.pending_count) == (Status.WAITING_DEPENDENCIES, 2, 2)
    ties.end(a)
    early = ties.apply(LeaseJobs("w1", 1_000, (child.id,)))
    assert isinstance(early, Leased)
    assert early.missed == (child.id,)
    ties.end(b)
    assert ties.status(child) is Status.QUEUED
    assert ties.verdicts(child) == [Verdict.MET, Verdict.MET]
    ties.end(child)


def test_released_job_whose_time_is_to_come_waits_for_it(ties: TiesScene) -> None:
    parent = ties.submit()
    child = ties.submit(depends_on=needs(parent), due_at_ms=TimeMs(ties.now_ms + 5_000))
    assert not child.timed
    ties.end(parent)
    assert (ties.status(child), ties.now(child).timed) == (Status.SCHEDULED, True)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("condition", Condition)
@pytest.mark.parametrize("is_late", [False, True])
def test_each_end_of_a_parent_meets_the_conditions_that_name_it(
    ties: TiesScene, end: Status, condition: Condition, *, is_late: bool
) -> None:
    parent = ties.submit()
    if is_late:
        ties.end(parent, end)
    child = ties.submit(depends_on=needs(parent, on=condition))
    if not is_late:
        ties.end(parent, end)
    met = condition is Condition.COMPLETION or (condition, end) in {
        (Condition.SUCCESS, Status.COMPLETED),
        (Condition.FAILURE, Status.DEAD_LETTER),
    }
    assert ties.status(child) is (Status.QUEUED if met else Status.SKIPPED)
    assert ties.verdicts(child) == [Verdict.MET if met else Verdict.UNMET]
    assert met or ties.now(child).failure_reason == f"dependency_failed: {job_id_text(parent.id)}"


def test_submit_under_a_parent_that_failed_answers_with_the_ended_job(ties: TiesScene) -> None:
    parent = ties.end(ties.submit(), Status.DEAD_LETTER)
    child = ties.submit(depends_on=needs(parent), options=failing())
    assert child.status is Status.DEAD_LETTER
    assert child == ties.now(child)


# -- a parent that ends otherwise


@pytest.mark.parametrize("end", [Status.DEAD_LETTER, Status.CANCELLED])
def test_chain_and_diamond_end_with_their_first_job_and_name_who_is_to_blame(ties: TiesScene, end: Status) -> None:
    root = ties.submit()
    chain = [root]
    for _ in range(4):
        chain.append(ties.submit(depends_on=needs(chain[-1])))
    left, right = ties.submit(depends_on=needs(root)), ties.submit(depends_on=needs(root), options=failing())
    join = ties.submit(depends_on=needs(left, right))
    ties.end(root, end)
    assert ties.statuses(*chain[1:]) == [Status.SKIPPED] * 4
    for parent, child in pairwise(chain):
        assert ties.now(child).failure_reason == f"dependency_failed: {job_id_text(parent.id)}"
    assert ties.statuses(left, right, join) == [Status.SKIPPED, Status.DEAD_LETTER, Status.SKIPPED]
    assert ties.chores() == []


def test_join_ends_at_once_though_another_parent_has_not_started(ties: TiesScene) -> None:
    a, b = ties.submit(), ties.submit()
    join = ties.submit(depends_on=needs(a, b))
    ties.end(a, Status.DEAD_LETTER)
    assert ties.status(join) is Status.SKIPPED
    ties.end(b)
    assert ties.status(join) is Status.SKIPPED


def test_condition_failure_or_completion_runs_after_a_failure_and_keeps_what_hangs_below(ties: TiesScene) -> None:
    root = ties.submit()
    mend = ties.submit(depends_on=needs(root, on=Condition.FAILURE))
    clean = ties.submit(depends_on=needs(mend, on=Condition.COMPLETION))
    ties.end(root, Status.DEAD_LETTER)
    assert ties.statuses(mend, clean) == [Status.QUEUED, Status.WAITING_DEPENDENCIES]
    ties.end(mend)
    assert ties.status(clean) is Status.QUEUED


def test_skipped_parent_meets_completion_only(ties: TiesScene) -> None:
    root = ties.submit()
    skipped = ties.submit(depends_on=needs(root))
    ties.end(root, Status.CANCELLED)
    outcomes = {on: ties.submit(depends_on=needs(skipped, on=on)).status for on in Condition}
    assert outcomes == {
        Condition.SUCCESS: Status.SKIPPED,
        Condition.FAILURE: Status.SKIPPED,
        Condition.COMPLETION: Status.QUEUED,
    }


def test_paused_job_is_told_and_goes_on_or_ends_as_its_parents_say(ties: TiesScene) -> None:
    a, b = ties.submit(), ties.submit()
    good, bad = ties.submit(depends_on=needs(a), paused=True), ties.submit(depends_on=needs(b))
    ties.apply(PauseJob(bad.id, "default"))
    ties.end(a)
    ties.end(b, Status.DEAD_LETTER)
    assert ties.statuses(good, bad) == [Status.PAUSED, Status.SKIPPED]
    ties.apply(ResumeJob(good.id, "default"))
    assert ties.status(good) is Status.QUEUED


def test_job_that_waits_again_after_its_pause_is_released_by_its_parent(ties: TiesScene) -> None:
    parent = ties.submit()
    child = ties.submit(depends_on=needs(parent), paused=True)
    ties.apply(ResumeJob(child.id, "default"))
    assert ties.status(child) is Status.WAITING_DEPENDENCIES
    ties.end(parent)
    assert ties.status(child) is Status.QUEUED


# -- requeue


def waiting_chain(ties: TiesScene) -> list[Job]:
    root = ties.submit()
    middle = ties.submit(depends_on=needs(root), options=failing())
    return [root, middle, ties.submit(depends_on=needs(middle))]


def test_requeued_parent_lets_all_wait_again_that_ended_for_want_of_it(ties: TiesScene) -> None:
    root, middle, last = waiting_chain(ties)
    ties.end(root, Status.DEAD_LETTER)
    ties.requeue(root)
    assert ties.statuses(middle, last) == [Status.WAITING_DEPENDENCIES] * 2
    again = ties.now(middle)
    assert (again.run_number, again.finished_at_ms, again.failure_reason) == (2, 0, "")
    assert (again.pending_count, again.unmet_count) == (1, 0)
    for job in (root, middle, last):
        ties.end(job)


def test_requeued_parent_revives_a_join_only_when_no_other_parent_is_wanting(ties: TiesScene) -> None:
    a, b = ties.submit(), ties.submit()
    join = ties.submit(depends_on=needs(a, b))
    ties.end(a, Status.DEAD_LETTER)
    ties.end(b, Status.CANCELLED)
    ties.requeue(a)
    assert ties.status(join) is Status.SKIPPED
    ties.end(a)
    ties.requeue(b)
    assert (ties.status(join), ties.now(join).pending_count) == (Status.WAITING_DEPENDENCIES, 1)
    ties.end(b)
    assert ties.status(join) is Status.QUEUED


def test_requeue_does_not_take_back_what_was_met(ties: TiesScene) -> None:
    root, other = ties.submit(), ties.submit()
    mend = ties.submit(depends_on=(*needs(root, on=Condition.FAILURE), *needs(other)))
    ties.end(root, Status.DEAD_LETTER)
    ties.requeue(root)
    ties.end(root)
    assert ties.status(mend) is Status.WAITING_DEPENDENCIES
    ties.end(other)
    assert ties.status(mend) is Status.QUEUED


def test_cancelled_chain_that_is_requeued_runs_in_its_order_again(ties: TiesScene) -> None:
    x = ties.submit()
    y = ties.submit(depends_on=needs(x))
    z = ties.submit(depends_on=needs(y))
    for job in (z, y, x):
        ties.end(job, Status.CANCELLED)
    for job in (x, y, z):
        ties.requeue(job)
    assert ties.statuses(x, y, z) == [Status.QUEUED, Status.WAITING_DEPENDENCIES, Status.WAITING_DEPENDENCIES]
    for job in (x, y, z):
        ties.end(job)


@pytest.mark.parametrize("end", [Status.CANCELLED, Status.DEAD_LETTER])
def test_requeue_is_refused_while_a_parent_has_ended_otherwise_and_names_it(ties: TiesScene, end: Status) -> None:
    good, bad = ties.submit(), ties.submit()
    child = ties.submit(depends_on=needs(good, bad))
    ties.end(child, Status.CANCELLED)
    ties.end(good)
    ties.end(bad, end)
    result = ties.apply(RequeueJob(child.id, "default"))
    assert isinstance(result, Refused)
    assert (result.code, result.job_id) == (RejectCode.DEPENDENCY_UNMET, bad.id)
    assert job_id_text(bad.id) in result.message
    ties.requeue(bad)
    assert ties.requeue(child).pending_count == 1
    ties.end(bad)
    assert ties.status(child) is Status.QUEUED


def test_requeued_child_waits_also_for_a_parent_that_was_met_and_runs_again(ties: TiesScene) -> None:
    parent = ties.submit()
    child = ties.submit(depends_on=needs(parent, on=Condition.COMPLETION))
    ties.end(parent, Status.DEAD_LETTER)
    ties.end(child, Status.DEAD_LETTER)
    ties.requeue(parent)
    assert ties.requeue(child).status is Status.WAITING_DEPENDENCIES
    ties.end(parent)
    assert ties.status(child) is Status.QUEUED


def test_requeued_child_of_parents_that_all_ended_as_they_should_runs_at_its_time(ties: TiesScene) -> None:
    parent = ties.submit()
    child = ties.submit(depends_on=needs(parent))
    ties.end(parent)
    ties.end(child, Status.DEAD_LETTER)
    ties.purge(parent)
    later = ties.apply(RequeueJob(child.id, "default", due_at_ms=TimeMs(ties.now_ms + 50)))
    assert isinstance(later, Changed)
    assert (later.job.status, later.job.timed, later.job.pending_count) == (Status.SCHEDULED, True, 0)


def test_requeued_child_keeps_the_end_of_a_parent_that_is_gone(ties: TiesScene) -> None:
    parent = ties.submit()
    child = ties.submit(depends_on=needs(parent))
    ties.end(parent, Status.DEAD_LETTER)
    ties.purge(parent)
    result = ties.apply(RequeueJob(child.id, "default"))
    assert isinstance(result, Refused)
    assert (result.code, "no longer kept" in result.message) == (RejectCode.DEPENDENCY_UNMET, True)


def test_child_that_was_cancelled_or_expired_is_not_revived(ties: TiesScene) -> None:
    root = ties.submit()
    child = ties.submit(depends_on=needs(root))
    ties.end(child, Status.CANCELLED)
    ties.end(root, Status.DEAD_LETTER)
    ties.requeue(root)
    assert ties.status(child) is Status.CANCELLED


def test_child_is_not_revived_while_another_job_holds_its_unique_key(ties: TiesScene) -> None:
    root = ties.submit()
    child = ties.submit(depends_on=needs(root), options=Options(unique_key=b"u"))
    below = ties.submit(depends_on=needs(child))
    ties.end(root, Status.DEAD_LETTER)
    ties.submit(options=Options(unique_key=b"u"))
    ties.requeue(root)
    assert ties.statuses(child, below) == [Status.SKIPPED] * 2
    ties.end(root)


def test_job_submitted_under_a_requeued_parent_waits_and_is_told(ties: TiesScene) -> None:
    root = ties.end(ties.submit(), Status.DEAD_LETTER)
    early = ties.submit(depends_on=needs(root))
    ties.requeue(root)
    late = ties.submit(depends_on=needs(root))
    assert ties.statuses(early, late) == [Status.WAITING_DEPENDENCIES] * 2
    ties.end(root)
    assert ties.statuses(early, late) == [Status.QUEUED] * 2


def test_two_jobs_can_not_come_to_depend_on_each_other(ties: TiesScene) -> None:
    """Case D30: of two submissions that name each other the first is refused, since the other isn't there."""
    assert code_of(ties.try_submit(depends_on=needs(job_id(2)))) is RejectCode.UNKNOWN_DEPENDENCY
    second = ties.try_submit(depends_on=needs(job_id(1)))
    assert code_of(second) is RejectCode.UNKNOWN_DEPENDENCY
