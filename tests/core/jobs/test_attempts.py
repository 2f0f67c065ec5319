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


def test_completion_without_a_result_stores_none(scene: Scene) -> None:
    scene.complete(scene.running(), result=b"")
    assert scene.state.results == {}


def test_completion_after_a_failure_clears_the_failure_reason_but_keeps_the_attempt(scene: Scene) -> None:
    job = scene.running()
    scene.fail(job, error=BOOM, delay_ms=0)
    assert scene.now(job).failure_reason == "ValueError"
    scene.complete(scene.run(job))
    ended = scene.now(job)
    assert (ended.failure_reason, ended.failure_count) == ("", 1)
    assert [(kept.end, kept.error) for kept in ended.attempts] == [
        (AttemptEnd.FAILED, BOOM),
        (AttemptEnd.COMPLETED, None),
    ]


# -- repeats and late reports


@pytest.mark.parametrize("end", [AttemptEnd.COMPLETED, AttemptEnd.FAILED, AttemptEnd.SNOOZED])
def test_report_repeated_with_its_completion_id_gets_the_recorded_answer(scene: Scene, end: AttemptEnd) -> None:
    job = scene.running()
    scene.report(job, end, completion_id="c", delay_ms=5)
    recorded = scene.now(job)
    scene.wait(3)
    assert scene.report(job, end, completion_id="c", delay_ms=5) == OutcomeRecorded(recorded, repeated=True)
    assert scene.last.writes == ()


def test_report_repeated_while_the_job_runs_again_gets_the_recorded_answer(scene: Scene) -> None:
    job = scene.running()
    scene.fail(job, completion_id="c", delay_ms=0)
    second = scene.run(job)
    assert scene.fail(job, completion_id="c", delay_ms=0) == OutcomeRecorded(second, repeated=True)
    assert scene.now(job) == second


@pytest.mark.parametrize(("first", "second"), [("c", "d"), ("c", ""), ("", "c"), ("", "")])
def test_second_report_under_another_completion_id_is_refused(scene: Scene, first: str, second: str) -> None:
    job = scene.running()
    scene.complete(job, completion_id=first, result=b"1")
    assert code_of(scene.complete(job, completion_id=second, result=b"2")) is RejectCode.ALREADY_RECORDED
    assert scene.state.results[job.id] == b"1"


def test_another_outcome_under_the_same_completion_id_is_refused(scene: Scene) -> None:
    job = scene.running()
    scene.fail(job, completion_id="c", retryable=False)
    assert code_of(scene.complete(job, completion_id="c")) is RejectCode.ALREADY_RECORDED
    assert scene.status(job) is Status.DEAD_LETTER


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


def test_late_result_is_refused_also_while_nobody_else_runs_the_job(scene: Scene) -> None:
    job = scene.running()
    scene.lose_worker(job)
    assert code_of(scene.complete(job)) is RejectCode.LEASE_LOST
    assert scene.status(job) is Status.QUEUED


def test_late_result_of_an_attempt_that_is_no_longer_kept_is_refused(scene: Scene) -> None:
    job = scene.submit()
    first = scene.run(job)
    scene.snooze(first, 0, completion_id="c")
    for _ in range(limits.ATTEMPTS_KEPT_MAX):
        scene.snooze(scene.run(job), 0)
    assert len(scene.now(job).attempts) == limits.ATTEMPTS_KEPT_MAX
    assert code_of(scene.snooze(first, 0, completion_id="c")) is RejectCode.LEASE_LOST


@pytest.mark.parametrize("offset", [-1, 1, 1_000])
def test_outcome_with_a_token_that_was_never_this_jobs_is_refused(scene: Scene, offset: int) -> None:
    job = scene.running()
    token = FencingToken(token_of(job) + offset)
    result = scene.apply(RecordOutcome(job.id, job.run_number, token, AttemptEnd.COMPLETED))
    assert code_of(result) is RejectCode.LEASE_LOST
    assert scene.now(job) == job


def test_outcome_with_the_token_of_another_job_is_refused(scene: Scene) -> None:
    job, other = scene.running(), scene.running()
    result = scene.apply(RecordOutcome(job.id, job.run_number, token_of(other), AttemptEnd.COMPLETED))
    assert code_of(result) is RejectCode.LEASE_LOST


def test_outcome_of_another_run_is_refused(scene: Scene) -> None:
    job = scene.running()
    result = scene.apply(RecordOutcome(job.id, job.run_number + 1, token_of(job), AttemptEnd.COMPLETED))
    assert code_of(result) is RejectCode.LEASE_LOST


def test_outcome_of_a_job_that_was_never_leased_is_refused(scene: Scene) -> None:
    job = scene.submit()
    result = scene.apply(RecordOutcome(job.id, 1, FencingToken(0), AttemptEnd.COMPLETED))
    assert code_of(result) is RejectCode.LEASE_LOST


@pytest.mark.parametrize("unknown", [job_id(404), JobId(b""), JobId(b"x" * 600)])
def test_outcome_of_an_unknown_job_is_not_found(scene: Scene, unknown: JobId) -> None:
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


def test_failures_back_off_further_each_time_until_the_attempts_are_used_up(scene: Scene) -> None:
    job = scene.submit(max_attempts=3)
    delays = []
    for _ in range(2):
        scene.fail(scene.run(job))
        delays.append(scene.now(job).due_at_ms - scene.now_ms)
        scene.wait(delays[-1])
    scene.fail(scene.run(job), error=BOOM)
    dead = scene.now(job)
    assert delays == [1_000, 2_000]
    assert (dead.status, dead.failure_reason) == (Status.DEAD_LETTER, DeadLetterReason.ATTEMPTS_EXHAUSTED)
    assert (dead.failure_count, dead.finished_at_ms) == (3, scene.now_ms)


@pytest.mark.parametrize(("delay_ms", "timed"), [(0, False), (7_000, True)])
def test_failure_can_ask_for_its_own_delay(scene: Scene, delay_ms: int, timed: bool) -> None:
    job = scene.running()
    scene.fail(job, delay_ms=delay_ms)
    failed = scene.now(job)
    assert (failed.status, failed.due_at_ms, failed.timed) == (Status.RETRYING, scene.now_ms + delay_ms, timed)


def test_failure_that_gives_up_is_dead_lettered_as_rejected(scene: Scene) -> None:
    job = scene.running(max_attempts=1)
    scene.fail(job, retryable=False)
    dead = scene.now(job)
    assert (dead.status, dead.failure_reason, dead.failure_count) == (
        Status.DEAD_LETTER, DeadLetterReason.REJECTED, 1,
    )  # fmt: skip


def test_failure_never_stores_a_result(scene: Scene) -> None:
    scene.fail(scene.running(), result=b"1")
    assert scene.state.results == {}


# -- snoozes


def test_snooze_waits_without_using_up_an_attempt(scene: Scene) -> None:
    job = scene.submit(max_attempts=1)
    for count in range(1, 6):
        scene.snooze(scene.run(job), 500)
        snoozed = scene.now(job)
        assert (snoozed.status, snoozed.due_at_ms, snoozed.timed) == (Status.SCHEDULED, scene.now_ms + 500, True)
        assert (snoozed.attempt_number, snoozed.failure_count, snoozed.lost_count) == (count, 0, 0)
        scene.wait(500)


def test_snooze_for_no_time_is_ready_at_once_without_a_timer(scene: Scene) -> None:
    job = scene.running()
    scene.snooze(job, 0)
    assert not scene.now(job).timed
    assert scene.run(job).attempt_number == 2


# -- timeouts


def test_timeout_counts_as_a_failure_and_backs_off(scene: Scene) -> None:
    job = scene.running(timeout_ms=5_000, max_attempts=2)
    scene.wait(5_000)
    assert scene.expire(job, AttemptEnd.TIMEOUT) == Expired((scene.now(job),), ())
    timed_out = scene.now(job)
    assert (timed_out.status, timed_out.due_at_ms) == (Status.RETRYING, scene.now_ms + 1_000)
    assert (timed_out.failure_count, timed_out.failure_reason) == (1, "timeout")
    scene.wait(1_000)
    again = scene.run(job)
    scene.wait(5_000)
    scene.expire(again, AttemptEnd.TIMEOUT)
    dead = scene.now(job)
    assert (dead.status, dead.failure_reason) == (Status.DEAD_LETTER, DeadLetterReason.TIMEOUT)
    assert [kept.end for kept in dead.attempts] == [AttemptEnd.TIMEOUT] * 2


@pytest.mark.parametrize(("timeout_ms", "age_ms"), [(5_000, 4_999), (0, 10**9)])
def test_timeout_that_is_not_reached_is_left_alone(scene: Scene, timeout_ms: int, age_ms: int) -> None:
    job = scene.running(timeout_ms=timeout_ms)
    scene.wait(age_ms)
    assert scene.expire(job, AttemptEnd.TIMEOUT) == Expired((), (job.id,))
    assert scene.now(job) == job


def test_timeout_uses_the_jitter_of_the_leader(scene: Scene) -> None:
    job = scene.running(timeout_ms=1, retry=RetryPolicy(base_ms=1_000, jitter_thousandths=200))
    scene.wait(1)
    scene.expire(job, AttemptEnd.TIMEOUT, jitter=-1_000)
    assert scene.now(job).due_at_ms == scene.now_ms + 800


# -- lost workers


def test_first_lost_worker_puts_the_job_back_at_once_without_using_up_an_attempt(scene: Scene) -> None:
    job = scene.running(max_attempts=1)
    scene.lose_worker(job)
    back = scene.now(job)
    assert (back.status, back.due_at_ms, back.timed) == (Status.QUEUED, scene.now_ms, False)
    assert (back.failure_count, back.lost_count, back.failure_reason) == (0, 1, "worker_lost")


def test_second_lost_worker_makes_the_job_wait_a_little(scene: Scene) -> None:
    job = scene.running()
    scene.lose_worker(job)
    scene.lose_worker(scene.run(job))
    back = scene.now(job)
    assert (back.status, back.due_at_ms, back.timed) == (Status.RETRYING, scene.now_ms + 2_000, True)


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


def test_lease_that_is_younger_than_its_ttl_is_left_alone(scene: Scene) -> None:
    job = scene.running()
    scene.wait(TTL_MS - 1)
    assert scene.expire(job, AttemptEnd.WORKER_LOST) == Expired((), (job.id,))
    scene.wait(1)
    assert scene.expire(job, AttemptEnd.WORKER_LOST) == Expired((scene.now(job),), ())


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


def test_expiry_leaves_a_job_that_another_worker_has_by_now(scene: Scene) -> None:
    """Case D18: the second worker keeps the run."""
    job = scene.submit()
    first = scene.run(job, worker="a")
    scene.lose_worker(first)
    second = scene.run(job, worker="b")
    scene.wait(TTL_MS)
    assert scene.expire(first, AttemptEnd.WORKER_LOST) == Expired((), (job.id,))
    assert scene.now(job) == second


def test_expiry_of_the_grace_leaves_a_job_that_nobody_cancelled(scene: Scene) -> None:
    job = scene.running()
    scene.wait(10**6)
    assert scene.expire(job, AttemptEnd.CANCELLED) == Expired((), (job.id,))
    assert scene.now(job) == job


def test_expiry_of_the_grace_needs_no_age(scene: Scene) -> None:
    job = scene.running()
    scene.cancel(job)
    assert scene.expire(job, AttemptEnd.CANCELLED) == Expired((scene.now(job),), ())


def test_expiry_ends_a_job_named_twice_once(scene: Scene) -> None:
    job = scene.running(timeout_ms=1)
    scene.wait(TTL_MS)
    lost = ExpiredLease(job.id, token_of(job), AttemptEnd.WORKER_LOST)
    late = ExpiredLease(job.id, token_of(job), AttemptEnd.TIMEOUT)
    assert scene.apply(ExpireLeases((lost, late))) == Expired((scene.now(job),), (job.id,))
    assert (scene.now(job).lost_count, scene.now(job).failure_count) == (1, 0)


def test_expiry_sorts_ended_from_kept_in_order(scene: Scene) -> None:
    jobs = [scene.running() for _ in range(3)]
    scene.wait(TTL_MS)
    young = scene.running()
    named: list[Job] = [jobs[2], young, jobs[0]]
    suspects = tuple(ExpiredLease(job.id, token_of(job), AttemptEnd.WORKER_LOST) for job in named)
    unknown = ExpiredLease(JobId(b""), FencingToken(1), AttemptEnd.WORKER_LOST)
    result = scene.apply(ExpireLeases((*suspects, unknown)))
    assert result == Expired((scene.now(jobs[2]), scene.now(jobs[0])), (young.id, unknown.job_id))
    assert scene.now(jobs[1]) == jobs[1]


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


def test_expiry_of_more_leases_than_its_bound_is_refused(scene: Scene) -> None:
    suspect = ExpiredLease(job_id(1), FencingToken(1), AttemptEnd.TIMEOUT)
    operation = ExpireLeases((suspect,) * (limits.EXPIRE_LEASES_MAX + 1))
    assert code_of(scene.apply(operation)) is RejectCode.INVALID


def test_longest_snooze_is_taken(scene: Scene) -> None:
    job = scene.running()
    scene.snooze(job, limits.DELAY_MS_MAX)
    assert scene.now(job).due_at_ms == scene.now_ms + limits.DELAY_MS_MAX
