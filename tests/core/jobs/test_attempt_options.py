"""How the options of a job change the end of its attempts: at most once, errors that are not tried again, heartbeats."""

from __future__ import annotations

import pytest

from raftsched import limits
from raftsched.core.jobs.attempts import HEARTBEAT_ERROR, ONCE_TEXT
from raftsched.core.operations.codec import RejectCode
from raftsched.core.records.job import AttemptEnd, DeadLetterReason, Job, JobError, Status
from raftsched.core.state.results import Expired, OutcomeRecorded
from tests.core.control_scene import ControlScene, changed, options
from tests.core.scene import TTL_MS, code_of

AT_MOST_ONCE = options(at_most_once=True)


def begun(scene: ControlScene, **fields: object) -> Job:
    job = scene.running(options=AT_MOST_ONCE, **fields)
    return changed(scene.start(job))


# -- at most once


@pytest.mark.parametrize("end", [AttemptEnd.COMPLETED, AttemptEnd.FAILED])
def test_outcome_of_a_run_that_was_not_started_is_refused(scene: ControlScene, end: AttemptEnd) -> None:
    job = scene.running(options=AT_MOST_ONCE)
    assert code_of(scene.report(job, end)) is RejectCode.NOT_STARTED
    assert scene.now(job) == job
    scene.start(job)
    assert isinstance(scene.report(job, end), OutcomeRecorded)


def test_run_that_was_not_started_can_be_given_back_and_leased_again(scene: ControlScene) -> None:
    job = scene.running(options=AT_MOST_ONCE)
    scene.snooze(job, 0)
    assert scene.run(job).attempt_number == 2


def test_run_whose_worker_was_lost_before_the_start_is_leased_again(scene: ControlScene) -> None:
    job = scene.running(options=AT_MOST_ONCE)
    scene.lose_worker(job)
    assert scene.status(job) is Status.QUEUED
    assert not scene.run(job).lease.started  # type: ignore[union-attr]  # it was just leased


def test_completion_of_a_started_run_counts(scene: ControlScene) -> None:
    job = begun(scene)
    scene.complete(job)
    assert scene.status(job) is Status.COMPLETED


@pytest.mark.parametrize("cause", [AttemptEnd.WORKER_LOST, AttemptEnd.OUTAGE])
def test_started_run_whose_worker_is_lost_ends_in_the_dead_letters(scene: ControlScene, cause: AttemptEnd) -> None:
    """RELIABILITY G5: it is never restarted, so an outage counts as a lost worker."""
    job = begun(scene)
    scene.wait(TTL_MS)
    scene.expire(job, cause)
    ended = scene.now(job)
    assert ended.attempts[-1].end is AttemptEnd.WORKER_LOST
    assert (ended.status, ended.failure_reason, ended.lost_count) == (
        Status.DEAD_LETTER, f"{DeadLetterReason.WORKER_LOST}: {ONCE_TEXT}", 1,
    )  # fmt: skip
    assert scene.lease(job).missed == (job.id,)


@pytest.mark.parametrize(
    ("retryable", "reason"),
    [(True, f"{DeadLetterReason.ATTEMPTS_EXHAUSTED}: {ONCE_TEXT}"), (False, DeadLetterReason.REJECTED)],
)
def test_started_run_that_fails_is_never_leased_again(scene: ControlScene, retryable: bool, reason: str) -> None:
    job = begun(scene, max_attempts=9)
    scene.fail(job, retryable=retryable, delay_ms=0)
    assert (scene.status(job), scene.now(job).failure_reason) == (Status.DEAD_LETTER, reason)


def test_started_run_that_asks_to_be_called_again_is_never_leased_again(scene: ControlScene) -> None:
    job = begun(scene)
    scene.snooze(job, 0)
    ended = scene.now(job)
    assert (ended.status, ended.attempts[-1].end) == (Status.DEAD_LETTER, AttemptEnd.SNOOZED)
    assert ended.failure_reason == f"{DeadLetterReason.WORKER_LOST}: {ONCE_TEXT}"
    assert ended.attempts[-1].error is not None
    assert "not known" in ended.attempts[-1].error.message


def test_started_run_that_takes_too_long_is_never_leased_again(scene: ControlScene) -> None:
    job = begun(scene, timeout_ms=50)
    scene.wait(50)
    scene.expire(job, AttemptEnd.TIMEOUT)
    reason = f"{DeadLetterReason.TIMEOUT}: {ONCE_TEXT}"
    assert (scene.status(job), scene.now(job).failure_reason) == (Status.DEAD_LETTER, reason)


def test_started_run_begins_once_more_only_when_a_user_says_so(scene: ControlScene) -> None:
    job = begun(scene)
    scene.lose_worker(job)
    scene.requeue(job)
    again = scene.run(job)
    assert (again.run_number, again.lease and again.lease.started) == (2, False)
    assert code_of(scene.complete(again)) is RejectCode.NOT_STARTED


def test_report_of_a_cancelled_run_is_refused_as_cancelled_whether_it_was_started(scene: ControlScene) -> None:
    job = scene.running(options=AT_MOST_ONCE)
    scene.cancel(job)
    assert code_of(scene.complete(job)) is RejectCode.CANCELLED
    assert scene.status(job) is Status.CANCELLED


def test_start_means_nothing_to_a_job_that_may_run_again(scene: ControlScene) -> None:
    job = scene.running()
    scene.start(job)
    scene.fail(job, delay_ms=0)
    assert scene.run(job).attempt_number == 2


# -- errors that are not tried again


@pytest.mark.parametrize(
    ("fields", "error", "is_retried"),
    [
        ({"retry_on": ("TimeoutError",)}, "TimeoutError", True),
        ({"retry_on": ("TimeoutError",)}, "ValueError", False),
        ({"no_retry": ("ValueError",)}, "ValueError", False),
        ({"no_retry": ("ValueError",)}, "TimeoutError", True),
        ({"retry_on": ("A", "B"), "no_retry": ("B",)}, "B", False),
        ({"retry_on": ("A", "B"), "no_retry": ("B",)}, "A", True),
        ({"retry_on": ("A",)}, "", False),
        ({"no_retry": ("A",)}, "", True),
        ({"deadline_ms": 1 << 47}, "ValueError", True),
    ],
)
def test_failure_is_tried_again_by_the_type_of_its_error(
    scene: ControlScene, fields: dict[str, object], error: str, is_retried: bool
) -> None:
    job = scene.running(options=options(**fields))
    scene.fail(job, error=JobError(error, "text") if error else None)
    if is_retried:
        assert scene.status(job) is Status.RETRYING
    else:
        assert (scene.status(job), scene.now(job).failure_reason) == (Status.DEAD_LETTER, DeadLetterReason.REJECTED)


def test_lost_worker_is_no_error_that_a_job_can_list(scene: ControlScene) -> None:
    """Case W04: the loss counts apart, and ends a job that takes its workers down."""
    job = scene.submit(options=options(retry_on=("Nothing",)), max_attempts=1)
    for _ in range(limits.LOST_WORKERS_DEFAULT):
        scene.wait(TTL_MS * 10)
        scene.lose_worker(scene.run(job))
    ended = scene.now(job)
    assert (ended.status, ended.failure_reason) == (Status.DEAD_LETTER, DeadLetterReason.WORKER_LOST)
    assert (ended.lost_count, ended.failure_count) == (limits.LOST_WORKERS_DEFAULT, 0)


# -- heartbeats of the handler


def test_handler_that_is_silent_for_too_long_times_out(scene: ControlScene) -> None:
    """Case W03."""
    job = scene.running(options=options(heartbeat_timeout_ms=100))
    scene.wait(99)
    assert scene.expire(job, AttemptEnd.TIMEOUT) == Expired((), (job.id,))
    scene.wait(1)
    scene.expire(job, AttemptEnd.TIMEOUT)
    ended = scene.now(job)
    assert (ended.status, ended.failure_reason, ended.failure_count) == (Status.RETRYING, DeadLetterReason.TIMEOUT, 1)
    error = ended.attempts[-1].error
    assert error is not None
    assert (ended.attempts[-1].end, error.type) == (AttemptEnd.TIMEOUT, HEARTBEAT_ERROR)


def test_progress_breaks_the_silence_even_where_the_leader_has_not_heard_it(scene: ControlScene) -> None:
    job = scene.running(options=options(heartbeat_timeout_ms=100))
    scene.wait(60)
    scene.progress(job, b"1")
    scene.wait(60)
    assert scene.expire(job, AttemptEnd.TIMEOUT) == Expired((), (job.id,))


def test_silence_that_ends_the_last_attempt_ends_in_the_dead_letters(scene: ControlScene) -> None:
    job = scene.running(options=options(heartbeat_timeout_ms=100), max_attempts=1)
    scene.wait(100)
    scene.expire(job, AttemptEnd.TIMEOUT)
    assert (scene.status(job), scene.now(job).failure_reason) == (Status.DEAD_LETTER, DeadLetterReason.TIMEOUT)


def test_run_time_that_is_over_is_no_silence(scene: ControlScene) -> None:
    job = scene.running(options=options(heartbeat_timeout_ms=100), timeout_ms=100)
    scene.wait(100)
    scene.expire(job, AttemptEnd.TIMEOUT)
    assert scene.now(job).attempts[-1].error is None


@pytest.mark.parametrize("report", [{"delay_ms": 500}, {"error": JobError("Retry", "not yet")}])
def test_a_handler_that_asks_for_another_attempt_gets_it_whatever_the_lists_say(
    scene: ControlScene, report: dict[str, object]
) -> None:
    job = scene.running(options=options(retry_on=("TimeoutError",), no_retry=("ValueError",)))
    scene.fail(job, **({"error": JobError("ValueError", "x")} | report))
    assert scene.status(job) is Status.RETRYING
