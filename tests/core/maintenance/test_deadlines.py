from __future__ import annotations

import pytest
from msgspec.structs import replace

from raftsched import limits
from raftsched.core.operations.codec import RejectCode
from raftsched.core.operations.control import BackgroundKind, DeadlineKind, HandleDeadlines
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.job import AttemptEnd, DeadLetterReason, Job, Status
from raftsched.core.records.workflow import STAGING_MS_MAX, Workflow, WorkflowId
from raftsched.core.state.results import Counted
from raftsched.core.state.writes import PutBackgroundWork, PutWorkflow
from tests.core.control_scene import QUEUE, ControlScene, last_note, options
from tests.core.scene import START_MS, code_of, job_id, submit_operation

SOON = TimeMs(START_MS + 10)


def assert_expired(job: Job) -> None:
    assert (job.status, job.failure_reason) == (Status.DEAD_LETTER, DeadLetterReason.EXPIRED)
    assert last_note(job).action == "expired"


# -- expiry and deadline


@pytest.mark.parametrize("field", ["expires_at_ms", "deadline_ms"])
def test_job_that_nobody_started_in_time_expires_at_that_millisecond_and_not_before(
    scene: ControlScene, field: str
) -> None:
    """Case W15."""
    job = scene.submit(options=options(**{field: SOON}))
    scene.wait(9)
    assert scene.ring(job) == Counted(0)
    assert scene.last.writes == ()
    scene.wait(1)
    assert scene.ring(job) == Counted(1)
    assert_expired(scene.now(job))
    assert (scene.now(job).attempt_number, scene.now(job).finished_at_ms) == (0, scene.now_ms)
    assert scene.ring(job) == Counted(0)


@pytest.mark.parametrize("field", ["expires_at_ms", "deadline_ms"])
def test_expired_job_is_never_leased_whether_or_not_its_deadline_has_rung(scene: ControlScene, field: str) -> None:
    job = scene.submit(options=options(**{field: SOON}))
    scene.wait(10)
    assert scene.lease(job).missed == (job.id,)


def test_job_that_started_in_time_does_not_expire_while_it_runs(scene: ControlScene) -> None:
    job = scene.running(options=options(expires_at_ms=SOON))
    scene.wait(1_000)
    assert scene.ring(job) == Counted(0)
    scene.complete(job)
    assert scene.status(job) is Status.COMPLETED


def test_deadline_ends_a_running_attempt_whose_report_is_refused_then(scene: ControlScene) -> None:
    job = scene.running(options=options(deadline_ms=SOON))
    scene.wait(10)
    assert scene.ring(job) == Counted(1)
    ended = scene.now(job)
    assert_expired(ended)
    assert (ended.lease, ended.attempts[-1].end) == (None, AttemptEnd.TIMEOUT)
    assert code_of(scene.complete(job)) is RejectCode.LEASE_LOST


def test_deadline_of_a_cancelling_job_ends_it_as_cancelled(scene: ControlScene) -> None:
    job = scene.running(options=options(deadline_ms=SOON))
    scene.cancel(job)
    scene.wait(10)
    assert scene.ring(job) == Counted(1)
    ended = scene.now(job)
    assert (ended.status, ended.attempts[-1].end, ended.failure_reason) == (Status.CANCELLED, AttemptEnd.CANCELLED, "")


def test_job_that_has_started_in_time_goes_on_with_its_further_attempts(scene: ControlScene) -> None:
    retrying = scene.running(options=options(expires_at_ms=SOON))
    scene.fail(retrying, delay_ms=20)
    scene.wait(20)
    assert scene.ring(retrying) == Counted(0)
    scene.complete(scene.run(retrying))
    assert scene.status(retrying) is Status.COMPLETED


def test_paused_and_scheduled_jobs_expire(scene: ControlScene) -> None:
    paused = scene.submit(options=options(expires_at_ms=SOON), paused=True)
    scheduled = scene.submit(options=options(expires_at_ms=SOON), due_at_ms=SOON + 5)
    scene.wait(10)
    assert scene.ring(paused, scheduled) == Counted(2)
    for job in (paused, scheduled):
        assert_expired(scene.now(job))
        assert (scene.now(job).pause, scene.now(job).timed) == (None, False)


# -- pauses


def test_pause_of_a_job_ends_at_its_time(scene: ControlScene) -> None:
    job = scene.submit()
    scene.pause(job, until_ms=SOON)
    scene.wait(9)
    assert scene.ring(job) == Counted(0)
    scene.wait(1)
    assert scene.ring(job) == Counted(1)
    assert (scene.status(job), last_note(scene.now(job)).action) == (Status.QUEUED, "resumed")
    assert scene.run(job).attempt_number == 1


def test_job_whose_pause_and_expiry_end_together_expires(scene: ControlScene) -> None:
    job = scene.submit(options=options(expires_at_ms=SOON))
    scene.pause(job, until_ms=SOON)
    scene.wait(10)
    scene.ring(job)
    assert_expired(scene.now(job))


def test_pause_of_a_queue_ends_at_its_time(scene: ControlScene) -> None:
    job = scene.submit()
    scene.pause_queue(until_ms=SOON)
    scene.wait(9)
    assert scene.ring_queue() == Counted(0)
    assert scene.lease(job).missed == (job.id,)
    scene.wait(1)
    assert scene.ring_queue() == Counted(1)
    assert scene.audited().action == "queue.resume"
    assert scene.run(job).attempt_number == 1
    assert scene.ring_queue() == Counted(0)


# -- workflows


def left_half_staged(scene: ControlScene) -> Workflow:
    workflow = Workflow(
        WorkflowId(b"w" * 16), "default", "etl", 2, stored_count=1, unfinished_count=1, created_at_ms=TimeMs(START_MS),
        updated_at_ms=TimeMs(START_MS), revision=1,
    )  # fmt: skip
    scene.state.execute([PutWorkflow(None, workflow)])
    return workflow


def test_workflow_that_was_left_half_submitted_is_dropped_by_a_background_step(scene: ControlScene) -> None:
    workflow = left_half_staged(scene)
    deadline = HandleDeadlines(((DeadlineKind.WORKFLOW, bytes(workflow.id)),))
    now_ms = START_MS + STAGING_MS_MAX
    assert scene.state.step(deadline, now_ms - 1).result == Counted(0)
    applied = scene.state.step(deadline, now_ms)
    assert applied.result == Counted(1)
    moved = replace(workflow, updated_at_ms=TimeMs(now_ms), revision=scene.state.index)
    assert applied.writes == (
        PutWorkflow(workflow, moved),
        PutBackgroundWork(BackgroundKind.DROP_WORKFLOW, workflow.id),
    )
    assert scene.state.step(deadline, now_ms).result == Counted(0), (
        "an alarm that rang is not due again by the same time"
    )
    again = scene.state.step(deadline, now_ms + STAGING_MS_MAX)
    assert not [write for write in again.writes if isinstance(write, PutBackgroundWork)], (
        "a chore that is there goes on"
    )


def test_whole_workflow_has_no_deadline(scene: ControlScene) -> None:
    workflow = left_half_staged(scene)
    scene.state.execute([PutWorkflow(workflow, replace(workflow, stored_count=2))])
    deadline = HandleDeadlines(((DeadlineKind.WORKFLOW, bytes(workflow.id)),))
    assert scene.state.step(deadline, START_MS + STAGING_MS_MAX).result == Counted(0)


# -- what is no alarm


@pytest.mark.parametrize("kind", DeadlineKind)
@pytest.mark.parametrize("subject", [b"", b"x" * 16, b"\xff", b"a\0b", QUEUE.encode(), b"n" * 1_000])
def test_deadline_of_nothing_does_nothing(scene: ControlScene, kind: DeadlineKind, subject: bytes) -> None:
    scene.submit()
    scene.configure(concurrency_max=1)
    assert scene.apply(HandleDeadlines(((kind, subject),))) == Counted(0)
    assert scene.last.writes == ()


def test_deadline_named_twice_rings_once(scene: ControlScene) -> None:
    job = scene.submit(options=options(expires_at_ms=SOON))
    scene.wait(10)
    assert scene.ring(job, job) == Counted(1)


def test_more_deadlines_than_one_operation_may_ring_are_refused(scene: ControlScene) -> None:
    deadlines = tuple((DeadlineKind.JOB, bytes(job_id(number))) for number in range(limits.HANDLE_DEADLINES_MAX + 1))
    assert code_of(scene.apply(HandleDeadlines(deadlines))) is RejectCode.INVALID


def test_expired_job_stays_found_under_its_idempotency_key(scene: ControlScene) -> None:
    job = scene.submit(options=options(expires_at_ms=SOON), idempotency_key="k")
    scene.wait(10)
    scene.ring(job)
    repeat = scene.apply(submit_operation(99, options=options(expires_at_ms=SOON), idempotency_key="k"))
    assert repeat.job.id == JobId(job.id)  # type: ignore[union-attr]  # it was submitted before
