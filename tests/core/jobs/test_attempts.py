from __future__ import annotations

import pytest

from raftsched import limits
from raftsched.core.operations.codec import ExpiredLease, ExpireLeases, RecordOutcome, RejectCode
from raftsched.core.operations.control import AmendJob
from raftsched.core.operations.queues import ConfigureQueue
from raftsched.core.records.ids import FencingToken, JobId
from raftsched.core.records.job import AttemptEnd, DeadLetterReason, Job, JobError, Status
from raftsched.core.records.retry import RetryPolicy
from raftsched.core.records.spec import Options, SpecChanges
from raftsched.core.state.results import Expired, OutcomeRecorded, Refused
from tests.core.scene import TTL_MS, Scene, code_of, job_id, token_of

BOOM = JobError("ValueError", "boom", "trace")


# -- completion


def test_completion_ends_the_job_and_keeps_its_result(scene: Scene) -> None:
    job = scene.running()
    scene.wait(40)
    result = scene.complete(job, completion_id="c", result=b'{"digest":1}')
    ended = scene.now(job)
    assert result == OutcomeRecorded(ended, repeated=False)
    assert (ended.status, ended.lease, ended.finished_at_ms) == (Status.COMPLETED, None, scene.now_ms)
    assert (ended.updated_at_ms, ended.revision) == (scene.now_ms, scene.state.index)
    assert scene.state.results[job.id] == b'{"digest":1}'
    assert [(kept.token, kept.worker, kept.end, kept.completion_id) for kept in ended.attempts] == [
        (token_of(job), "w1", AttemptEnd.COMPLETED, "c")
    ]


def test_only_a_completion_with_a_result_stores_one(scene: Scene) -> None:
    scene.complete(scene.running(), result=b"")
    scene.fail(scene.running(), result=b"1")
    assert scene.state.results == {}


# -- repeats and late reports


@pytest.mark.parametrize("end", [AttemptEnd.COMPLETED, AttemptEnd.FAILED, AttemptEnd.SNOOZED])
def test_report_repeated_with_its_completion_id_gets_the_recorded_answer(scene: Scene, end: AttemptEnd) -> None:
    job = scene.running()
    scene.report(job, end, completion_id="c", delay_ms=5)
    recorded = scene.now(job)
    scene.wait(3)
    assert scene.report(job, end, completion_id="c", delay_ms=5) == OutcomeRecorded(recorded, repeated=True)
    assert scene.last.writes == ()


def test_late_result_of_a_worker_that_lost_its_lease_changes_nothing(scene: Scene) -> None:
    """Case D22."""
    job = scene.submit()
    first = scene.run(job, worker="a")
    scene.lose_worker(first)
    second = scene.run(job, worker="b")
    assert code_of(scene.complete(first, completion_id="a", result=b'"a"')) is RejectCode.LEASE_LOST
    assert code_of(scene.fail(first)) is RejectCode.LEASE_LOST
    assert code_of(scene.snooze(first, 0)) is RejectCode.LEASE_LOST
    assert scene.now(job) == second
    assert isinstance(scene.complete(second, result=b'"b"'), OutcomeRecorded)
    assert scene.state.results[job.id] == b'"b"'
    assert token_of(second) > token_of(first)


def test_late_result_of_an_attempt_that_is_no_longer_kept_is_refused(scene: Scene) -> None:
    job = scene.submit()
    first = scene.run(job)
    scene.snooze(first, 0, completion_id="c")
    for _ in range(limits.ATTEMPTS_KEPT_MAX):
        scene.snooze(scene.run(job), 0)
    assert len(scene.now(job).attempts) == limits.ATTEMPTS_KEPT_MAX
    assert code_of(scene.snooze(first, 0, completion_id="c")) is RejectCode.LEASE_LOST


def test_outcome_of_another_run_or_of_no_job_is_refused(scene: Scene) -> None:
    job = scene.running()
    result = scene.apply(RecordOutcome(job.id, job.run_number + 1, token_of(job), AttemptEnd.COMPLETED))
    assert code_of(result) is RejectCode.LEASE_LOST
    for unknown in (job_id(404), JobId(b""), JobId(b"x" * 600)):
        result = scene.apply(RecordOutcome(unknown, 1, FencingToken(1), AttemptEnd.COMPLETED))
        assert code_of(result) is RejectCode.NOT_FOUND


# -- failures


def test_failure_waits_for_its_backoff_and_keeps_the_error(scene: Scene) -> None:
    job = scene.running(retry=RetryPolicy(base_ms=1_000, jitter_thousandths=200))
    scene.fail(job, error=BOOM, jitter=500)
    failed = scene.now(job)
    assert (failed.status, failed.due_at_ms, failed.timed) == (Status.RETRYING, scene.now_ms + 1_100, True)
    assert (failed.failure_count, failed.failure_reason, failed.lease) == (1, "ValueError", None)
    assert failed.attempts[0].error == BOOM


# -- snoozes


# -- timeouts


# -- lost workers


def test_job_that_keeps_losing_its_workers_ends_in_the_dead_letters(scene: Scene) -> None:
    """Case W04."""
    job = scene.submit(max_attempts=100)
    for _ in range(limits.LOST_WORKERS_DEFAULT):
        scene.lose_worker(scene.run(job))
        scene.wait(60_000)
    dead = scene.now(job)
    assert (dead.status, dead.failure_reason) == (Status.DEAD_LETTER, DeadLetterReason.WORKER_LOST)
    assert (dead.failure_count, dead.lost_count) == (0, limits.LOST_WORKERS_DEFAULT)
    error = dead.attempts[-1].error
    assert error is not None
    assert error.type == "WorkerLost"
    assert "set max_lost_workers of its queue" in error.message


def lose_workers(scene: Scene, job: Job, count: int) -> Job:
    for _ in range(count):
        scene.lose_worker(scene.run(job))
        scene.wait(60_000)
    return scene.now(job)


def test_how_many_lost_workers_end_a_job_is_its_own_word_or_its_queues_or_the_default(scene: Scene) -> None:
    """Case N04."""
    scene.apply(ConfigureQueue("send_email", lost_workers_max=5))
    own = scene.submit(options=Options(lost_workers_max=limits.LOST_WORKERS_MAX))
    assert lose_workers(scene, own, 12).status is Status.RETRYING
    of_queue = scene.submit()
    assert lose_workers(scene, of_queue, 4).status is Status.RETRYING
    assert lose_workers(scene, of_queue, 1).status is Status.DEAD_LETTER
    begun = scene.submit()
    assert lose_workers(scene, begun, 4).lost_count == 4
    scene.apply(ConfigureQueue("send_email", lost_workers_max=0))
    assert lose_workers(scene, begun, 1).status is Status.DEAD_LETTER
    strict = scene.submit(options=Options(lost_workers_max=1))
    assert lose_workers(scene, strict, 1).status is Status.DEAD_LETTER


def test_amending_the_limit_of_lost_workers(scene: Scene) -> None:
    job = lose_workers(scene, scene.submit(), 2)
    refused = scene.apply(AmendJob(job.id, job.tenant, changes=SpecChanges(lost_workers_max=2)))
    assert isinstance(refused, Refused)
    assert "max_lost_workers" in refused.message
    scene.apply(AmendJob(job.id, job.tenant, changes=SpecChanges(lost_workers_max=4)))
    assert lose_workers(scene, job, 1).status is Status.RETRYING
    assert "max_lost_workers: none -> 4" in scene.now(job).notes[-1].detail
    assert lose_workers(scene, job, 1).status is Status.DEAD_LETTER


# -- expiry against what happened in the meantime


def test_expiry_leaves_a_job_that_completed_in_the_meantime(scene: Scene) -> None:
    """Cases D18 and D40: a finished job is not declared lost afterwards."""
    job = scene.running(timeout_ms=1_000)
    scene.wait(TTL_MS)
    scene.complete(job, result=b"1")
    ended = scene.now(job)
    for cause in (AttemptEnd.WORKER_LOST, AttemptEnd.TIMEOUT, AttemptEnd.CANCELLED):
        assert scene.expire(job, cause) == Expired((), (job.id,))
        assert scene.last.writes == ()
    assert scene.now(job) == ended
    assert list(scene.state.all_leased()) == []


# -- bounds


@pytest.mark.parametrize(
    ("end", "fields"),
    [
        (AttemptEnd.TIMEOUT, {}),
        (AttemptEnd.WORKER_LOST, {}),
        (AttemptEnd.CANCELLED, {}),
        (AttemptEnd.SNOOZED, {}),
        (AttemptEnd.SNOOZED, {"delay_ms": limits.DELAY_MS_MAX + 1}),
        (AttemptEnd.FAILED, {"delay_ms": -2}),
        (AttemptEnd.FAILED, {"delay_ms": 1 << 62}),
        (AttemptEnd.FAILED, {"jitter": 1_001}),
        (AttemptEnd.FAILED, {"jitter": -1_001}),
        (AttemptEnd.COMPLETED, {"result": b"x" * (limits.RESULT_BYTES_MAX + 1)}),
        (AttemptEnd.COMPLETED, {"completion_id": "c" * (limits.COMPLETION_ID_CHARS_MAX + 1)}),
        (AttemptEnd.FAILED, {"error": JobError("E", "m" * (limits.ERROR_MESSAGE_CHARS_MAX + 1))}),
        (AttemptEnd.FAILED, {"error": JobError("E" * (limits.ERROR_MESSAGE_CHARS_MAX + 1), "m")}),
        (AttemptEnd.FAILED, {"error": JobError("E", "m", "t" * (limits.ERROR_TRACE_CHARS_MAX + 1))}),
    ],
)
def test_outcome_out_of_range_is_refused(scene: Scene, end: AttemptEnd, fields: dict[str, object]) -> None:
    job = scene.running()
    assert code_of(scene.report(job, end, **fields)) is RejectCode.INVALID
    assert scene.now(job) == job


@pytest.mark.parametrize(
    "suspect",
    [
        ExpiredLease(job_id(1), FencingToken(1), AttemptEnd.COMPLETED),
        ExpiredLease(job_id(1), FencingToken(1), AttemptEnd.FAILED),
        ExpiredLease(job_id(1), FencingToken(1), AttemptEnd.TIMEOUT, jitter=1_001),
    ],
)
def test_expiry_out_of_range_is_refused_whole(scene: Scene, suspect: ExpiredLease) -> None:
    job = scene.running()
    scene.wait(TTL_MS)
    good = ExpiredLease(job.id, token_of(job), AttemptEnd.WORKER_LOST)
    assert code_of(scene.apply(ExpireLeases((good, suspect)))) is RejectCode.INVALID
    assert scene.now(job) == job


def test_bounds_themselves_are_taken_and_no_more(scene: Scene) -> None:
    job = scene.running()
    scene.snooze(job, limits.DELAY_MS_MAX)
    assert scene.now(job).due_at_ms == scene.now_ms + limits.DELAY_MS_MAX
    suspect = ExpiredLease(job_id(1), FencingToken(1), AttemptEnd.TIMEOUT)
    operation = ExpireLeases((suspect,) * (limits.EXPIRE_LEASES_MAX + 1))
    assert code_of(scene.apply(operation)) is RejectCode.INVALID
