from __future__ import annotations

import pytest

from raftsched.core.operations.codec import CancelJob, RejectCode
from raftsched.core.records.ids import JobId
from raftsched.core.records.job import AttemptEnd, Job, Status
from raftsched.core.state.results import Cancelled, Leased, Refused
from tests.core.control_scene import ControlScene, last_note
from tests.core.scene import Scene, code_of, job_id, token_of


def scheduled(scene: Scene) -> Job:
    return scene.submit(due_at_ms=scene.now_ms + 1_000)


def queued(scene: Scene) -> Job:
    return scene.submit()


def retrying(scene: Scene) -> Job:
    job = scene.running()
    scene.fail(job)
    return scene.now(job)


@pytest.mark.parametrize("waiting", [scheduled, queued, retrying])
def test_cancel_of_a_waiting_job_is_final_at_once(scene: Scene, waiting: object) -> None:
    assert callable(waiting)
    job = waiting(scene)
    scene.wait(3)
    assert scene.cancel(job) == Cancelled(scene.now(job))
    ended = scene.now(job)
    assert (ended.status, ended.finished_at_ms, ended.cancel_requested_at_ms) == (
        Status.CANCELLED, scene.now_ms, scene.now_ms,
    )  # fmt: skip
    assert not ended.timed
    scene.wait(10_000)
    assert scene.lease(job) == Leased((), (job.id,))


def test_cancel_of_a_running_job_asks_its_worker_to_stop(scene: Scene) -> None:
    job = scene.running()
    scene.wait(3)
    assert scene.cancel(job) == Cancelled(scene.now(job))
    asked = scene.now(job)
    assert (asked.status, asked.lease) == (Status.CANCELLING, job.lease)
    assert (asked.cancel_requested_at_ms, asked.finished_at_ms) == (scene.now_ms, 0)


@pytest.mark.parametrize("leased", [False, True])
def test_cancelling_twice_succeeds_and_changes_nothing(scene: Scene, leased: bool) -> None:
    job = scene.running() if leased else scene.submit()
    scene.cancel(job)
    first = scene.now(job)
    scene.wait(5)
    assert scene.cancel(job) == Cancelled(first)
    assert scene.last.writes == ()


@pytest.mark.parametrize("end", [AttemptEnd.COMPLETED, AttemptEnd.FAILED])
def test_cancel_of_a_job_that_ended_otherwise_is_refused_with_the_reason(scene: Scene, end: AttemptEnd) -> None:
    job = scene.running()
    scene.report(job, end, retryable=False)
    result = scene.cancel(job)
    assert isinstance(result, Refused)
    assert result.code is RejectCode.ALREADY_FINISHED
    assert scene.now(job).status.label in result.message


def test_cancel_of_an_unknown_job_and_of_another_tenants_answer_alike(scene: Scene) -> None:
    """Case A22."""
    job = scene.submit()
    unknown = scene.apply(CancelJob(job_id(404), "default"))
    assert code_of(unknown) is RejectCode.NOT_FOUND
    assert scene.cancel(job, tenant="other") == unknown
    assert scene.apply(CancelJob(JobId(b"short"), "default")) == unknown
    assert scene.now(job) == job


@pytest.mark.parametrize("end", [AttemptEnd.COMPLETED, AttemptEnd.FAILED, AttemptEnd.SNOOZED])
def test_cancel_that_came_first_beats_any_outcome(scene: Scene, end: AttemptEnd) -> None:
    """Case D36."""
    job = scene.running()
    scene.cancel(job)
    scene.wait(3)
    result = scene.report(job, end, completion_id="c", result=b"1", delay_ms=0)
    assert code_of(result) is RejectCode.CANCELLED
    ended = scene.now(job)
    assert (ended.status, ended.lease, ended.finished_at_ms) == (Status.CANCELLED, None, scene.now_ms)
    assert [(kept.end, kept.token) for kept in ended.attempts] == [(AttemptEnd.CANCELLED, token_of(job))]
    assert list(scene.state.all_result_ids()) == []
    assert scene.cancel(job) == Cancelled(ended)


def test_completion_that_came_first_beats_the_cancel(scene: Scene) -> None:
    """Case D36."""
    job = scene.running()
    scene.complete(job, result=b"1")
    assert code_of(scene.cancel(job)) is RejectCode.ALREADY_FINISHED
    assert scene.status(job) is Status.COMPLETED
    assert scene.state.results[job.id] == b"1"


def test_outcome_repeated_after_a_cancel_hears_of_the_cancel_again(scene: Scene) -> None:
    """Case D36: the worker's retry of its lost reply gets the same answer."""
    job = scene.running()
    scene.cancel(job)
    first = scene.complete(job, completion_id="c")
    assert scene.complete(job, completion_id="c") == first
    assert scene.last.writes == ()
    assert code_of(scene.complete(job, completion_id="other")) is RejectCode.CANCELLED


def test_cancel_between_lease_and_first_report_keeps_the_job_from_ever_retrying(scene: Scene) -> None:
    """Case D36: no retry for a cancelled job."""
    job = scene.running(max_attempts=10)
    scene.cancel(job)
    scene.fail(job)
    scene.wait(10**9)
    assert scene.lease(job) == Leased((), (job.id,))


@pytest.mark.parametrize("cause", [AttemptEnd.WORKER_LOST, AttemptEnd.TIMEOUT, AttemptEnd.CANCELLED])
def test_cancelled_job_whose_lease_runs_out_is_cancelled_and_nothing_else(scene: Scene, cause: AttemptEnd) -> None:
    job = scene.running(timeout_ms=1_000)
    scene.cancel(job)
    scene.wait(10_000)
    scene.expire(job, cause)
    ended = scene.now(job)
    assert (ended.status, ended.failure_count, ended.lost_count) == (Status.CANCELLED, 0, 0)
    assert ended.attempts[-1].end is AttemptEnd.CANCELLED
    assert code_of(scene.complete(job)) is RejectCode.CANCELLED


# -- by force, of parked jobs, and what is left of it


@pytest.mark.parametrize("is_cancelling", [False, True])
def test_cancel_by_force_ends_a_running_attempt_at_once(is_cancelling: bool) -> None:
    scene = ControlScene()
    job = scene.running()
    requested_at_ms = scene.now_ms
    if is_cancelling:
        scene.cancel(job)
    scene.wait(3)
    assert scene.force_cancel(job, actor="ann") == Cancelled(scene.now(job))
    ended = scene.now(job)
    assert (ended.status, ended.lease, ended.finished_at_ms) == (Status.CANCELLED, None, scene.now_ms)
    assert ended.cancel_requested_at_ms == (requested_at_ms if is_cancelling else scene.now_ms)
    assert ended.attempts[-1].end is AttemptEnd.CANCELLED
    assert (scene.audited().action, scene.audited().actor, scene.audited().detail) == ("job.cancel", "ann", "by force")
    assert code_of(scene.complete(job)) is RejectCode.CANCELLED
    assert scene.now(job) == ended


def test_cancel_by_force_of_what_does_not_run_is_an_ordinary_cancel() -> None:
    scene = ControlScene()
    job = scene.submit()
    scene.force_cancel(job)
    assert (scene.status(job), scene.audited().detail) == (Status.CANCELLED, "")
    scene.force_cancel(job)
    assert scene.last.writes == ()
    completed = scene.running()
    scene.complete(completed)
    assert code_of(scene.force_cancel(completed)) is RejectCode.ALREADY_FINISHED


def test_cancel_of_a_paused_job_leaves_no_pause() -> None:
    scene = ControlScene()
    job = scene.submit(paused=True)
    scene.cancel(job)
    assert (scene.status(job), scene.now(job).pause) == (Status.CANCELLED, None)


def test_cancel_leaves_a_note_and_a_line_of_the_audit_trail() -> None:
    scene = ControlScene()
    waiting, running = scene.submit(), scene.running()
    scene.cancel(waiting)
    assert last_note(scene.now(waiting)).action == "cancelled"
    scene.cancel(running)
    assert last_note(scene.now(running)).action == "cancel_requested"
    assert scene.audited().action == "job.cancel"


def test_cancel_refuses_the_name_of_an_actor_that_is_too_long() -> None:
    scene = ControlScene()
    job = scene.submit()
    assert code_of(scene.apply(CancelJob(job.id, "default", actor="a" * 1_000))) is RejectCode.INVALID
