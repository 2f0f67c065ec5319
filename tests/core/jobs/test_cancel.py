from __future__ import annotations

import pytest

from raftsched.core.operations.codec import CancelJob, RejectCode
from raftsched.core.records.ids import JobId
from raftsched.core.records.job import AttemptEnd, Status
from raftsched.core.state.results import Cancelled, Refused
from tests.core.control_scene import ControlScene, last_note
from tests.core.scene import Scene, code_of, job_id


def test_cancel_of_a_running_job_asks_its_worker_to_stop(scene: Scene) -> None:
    job = scene.running()
    scene.wait(3)
    assert scene.cancel(job) == Cancelled(scene.now(job))
    asked = scene.now(job)
    assert (asked.status, asked.lease) == (Status.CANCELLING, job.lease)
    assert (asked.cancel_requested_at_ms, asked.finished_at_ms) == (scene.now_ms, 0)


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


# -- by force, of parked jobs, and what is left of it


@pytest.mark.parametrize("is_cancelling", [False, True])
def test_cancel_by_force_ends_a_running_attempt_at_once(scene: ControlScene, is_cancelling: bool) -> None:
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


def test_cancel_by_force_of_what_does_not_run_is_an_ordinary_cancel(scene: ControlScene) -> None:
    job = scene.submit()
    scene.force_cancel(job)
    assert (scene.status(job), scene.audited().detail) == (Status.CANCELLED, "")
    scene.force_cancel(job)
    assert scene.last.writes == ()
    completed = scene.running()
    scene.complete(completed)
    assert code_of(scene.force_cancel(completed)) is RejectCode.ALREADY_FINISHED


def test_cancel_of_a_paused_job_leaves_no_pause(scene: ControlScene) -> None:
    job = scene.submit(paused=True)
    scene.cancel(job)
    assert (scene.status(job), scene.now(job).pause) == (Status.CANCELLED, None)


def test_cancel_leaves_a_note_and_a_line_of_the_audit_trail(scene: ControlScene) -> None:
    waiting, running = scene.submit(), scene.running()
    scene.cancel(waiting)
    assert last_note(scene.now(waiting)).action == "cancelled"
    scene.cancel(running)
    assert last_note(scene.now(running)).action == "cancel_requested"
    assert scene.audited().action == "job.cancel"


def test_cancel_refuses_the_name_of_an_actor_that_is_too_long(scene: ControlScene) -> None:
    job = scene.submit()
    assert code_of(scene.apply(CancelJob(job.id, "default", actor="a" * 1_000))) is RejectCode.INVALID
