from __future__ import annotations

import pytest

from raftsched import limits
from raftsched.core.records.ids import FencingToken, TimeMs
from raftsched.core.records.job import Attempt, AttemptEnd, Status
from tests.core.scene import Scene


def test_status_of_a_waiting_job_is_queued_from_the_millisecond_it_is_due(scene: Scene) -> None:
    job = scene.submit(due_at_ms=scene.now_ms + 10)
    assert job.status_at(scene.now_ms + 9) is Status.SCHEDULED
    assert job.status_at(scene.now_ms + 10) is Status.QUEUED


@pytest.mark.parametrize("end", [AttemptEnd.COMPLETED, AttemptEnd.FAILED])
def test_status_of_any_other_job_is_its_own_whatever_the_time(scene: Scene, end: AttemptEnd) -> None:
    job = scene.running()
    assert job.status_at(scene.now_ms + 10**9) is Status.RUNNING
    scene.report(job, end, retryable=False)
    assert scene.now(job).status_at(scene.now_ms + 10**9) is scene.status(job)


def test_status_label_is_the_word_of_the_api() -> None:
    assert [status.label for status in Status] == [
        "scheduled", "waiting_dependencies", "queued", "running", "cancelling", "paused", "retrying", "completed",
        "failed", "dead_letter", "cancelled", "skipped",
    ]  # fmt: skip


def test_only_the_latest_attempts_are_kept(scene: Scene) -> None:
    job = scene.submit()
    for _ in range(limits.ATTEMPTS_KEPT_MAX + 2):
        scene.snooze(scene.run(job), 0)
    numbers = [kept.attempt_number for kept in scene.now(job).attempts]
    assert numbers == list(range(3, limits.ATTEMPTS_KEPT_MAX + 3))


def test_with_attempt_leaves_the_job_as_it_was(scene: Scene) -> None:
    job = scene.submit()
    attempt = Attempt(1, 1, FencingToken(1), "w", TimeMs(1), TimeMs(2), AttemptEnd.SNOOZED)
    assert job.with_attempt(attempt) == (attempt,)
    assert job.attempts == ()
