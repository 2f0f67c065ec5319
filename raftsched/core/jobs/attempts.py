"""End attempts: by a worker's report (RecordOutcome), by expiry (ExpireLeases), or at once (`aborted`, `lost`,
`overrun`).

A report counts only with the current fencing token of a running job. So each token has at most one accepted outcome, and
a run at most one completion. A repeat of an accepted report gets the recorded answer; any other late report is rejected
and changes nothing. The leader only suspects an expiry; token and times are checked again here, so a job that ended, or
runs elsewhere, in the meantime is not changed.

The lease of a cancelled job ends by the first report or expiry. That report is rejected, but it is the only rejection
with a write: it closes the lease. Its result is dropped.

Failures and timeouts count for `max_attempts`. Lost workers count separately (`max_lost_workers`): most losses are the
machine's fault, but a job that loses several workers is more likely the cause. Snoozes do not count.

A job that starts at most once is leased again only while its worker has not committed `StartRun`. Until then all reports
except giving it back are rejected. After that, every end except success dead-letters the job (G5). The reason says so,
since attempts may be left.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from raftsched import limits
from raftsched.core.jobs.admission import lost_workers_max
from raftsched.core.jobs.changes import change, find_job, invalid, refused
from raftsched.core.operations.codec import ExpiredLease, ExpireLeases, RecordOutcome, RejectCode
from raftsched.core.records.bounds import range_problem
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.job import Attempt, AttemptEnd, DeadLetterReason, Job, JobError, Lease, Status
from raftsched.core.records.retry import JITTER_MAX, backoff_ms, lost_delay_ms
from raftsched.core.records.spec import Options
from raftsched.core.records.transitions import Event
from raftsched.core.state.handlers import handles
from raftsched.core.state.results import Applied, Context, Expired, OutcomeRecorded, Refused
from raftsched.core.state.view import View
from raftsched.core.state.writes import PutJob
from raftsched.errors import InvariantBroken

REPORTED: Final = frozenset({AttemptEnd.COMPLETED, AttemptEnd.FAILED, AttemptEnd.SNOOZED})
"""Ends reported by workers."""
EXPIRED: Final = frozenset({AttemptEnd.TIMEOUT, AttemptEnd.WORKER_LOST, AttemptEnd.OUTAGE, AttemptEnd.CANCELLED})
"""Ends proposed by the leader."""
RETRY_ASKED: Final = "Retry"
"""Error type of a handler that requests another attempt itself; the job's lists of error types do not apply."""
TARGET_REFUSED_ERROR: Final = "TargetRefused"
"""Error type of an executor that may not connect to the address of a request."""
# Members of an enumeration cost a look-up each, and these are used for every report.
_CANCELLING: Final = Status.CANCELLING
_COMPLETED: Final = AttemptEnd.COMPLETED
_SNOOZED: Final = AttemptEnd.SNOOZED
CANCELLED_TEXT: Final = "the job is cancelled; what its worker reports no longer counts"
ONCE_TEXT: Final = "it starts at most once, and had started"
"""Appended to the reason of a job that was given up for this, although attempts may be left."""
GIVEN_BACK_ERROR: Final = "GivenBack"
"""Error type of an attempt that its worker gave back after its start was committed."""
_GIVEN_BACK: Final = "the worker gave the run back after its start was committed: what it had done by then is not known"
LOST_ERROR: Final = "WorkerLost"
"""Error type of the attempt whose lost worker ended the job."""
_LOST: Final = (
    "{} workers were lost while they ran it, the most that it may lose; if they and not the job were the cause, "
    "set max_lost_workers of its queue, or of jobs like it, higher, and retry it"
)
HEARTBEAT_ERROR: Final = "HeartbeatTimeout"
"""Error type of an attempt that ended because its handler was silent."""


# -- reports ----------------------------------------------------------------------------------------------------------


@handles(RecordOutcome)
def record_outcome(view: View, operation: RecordOutcome, context: Context) -> Applied:
    problem = _outcome_problem(operation)
    if problem:
        return invalid(problem)
    job = find_job(view, operation.job_id)
    if job is None:
        return refused(RejectCode.NOT_FOUND, "there is no such job")
    lease = job.lease
    if lease is None or lease.token != operation.token or job.run_number != operation.run_number:
        return _late(job, operation)
    attempt = _attempt(job, lease, operation.end, context, completion_id=operation.completion_id, error=operation.error)
    if job.status is _CANCELLING:
        stopped = _stopped(job, attempt, context)
        return Applied(Refused(RejectCode.CANCELLED, CANCELLED_TEXT), (PutJob(job, stopped),))
    if job.spec.options is not None and _must_start_first(job.spec.options, lease, operation.end):
        return refused(RejectCode.NOT_STARTED, "the run begins at most once, and its start was not committed")
    if operation.end is _COMPLETED:
        return _completed(job, attempt, operation, context)
    if operation.end is _SNOOZED:
        new = _snoozed(job, attempt, operation, context)
    else:
        new = _failed(job, attempt, operation, context)
    return Applied(OutcomeRecorded(new, repeated=False), (PutJob(job, new),))


def _completed(job: Job, attempt: Attempt, operation: RecordOutcome, context: Context) -> Applied:
    new = _ended(job, Event.COMPLETE, attempt, context, finished_at_ms=context.now_ms, failure_reason="")
    return Applied(OutcomeRecorded(new, repeated=False), (PutJob(job, new, result=operation.result or None),))


def _snoozed(job: Job, attempt: Attempt, operation: RecordOutcome, context: Context) -> Job:
    if _has_begun_for_good(job):
        lost = attempt if attempt.error is not None else replace(attempt, error=JobError(GIVEN_BACK_ERROR, _GIVEN_BACK))
        return _given_up(job, DeadLetterReason.WORKER_LOST, lost, context)
    return _again(job, Event.SNOOZE, attempt, context, operation.delay_ms)


def _failed(job: Job, attempt: Attempt, operation: RecordOutcome, context: Context) -> Job:
    failure_count = job.failure_count + 1
    asked = operation.delay_ms >= 0 or (operation.error is not None and operation.error.type == RETRY_ASKED)
    if not operation.retryable or (not asked and _is_hopeless(job.spec.options, operation.error)):
        return _given_up(job, _verdict(operation.error), attempt, context, failure_count=failure_count)
    if failure_count >= job.spec.max_attempts or _has_begun_for_good(job):
        return _given_up(job, DeadLetterReason.ATTEMPTS_EXHAUSTED, attempt, context, failure_count=failure_count)
    delay_ms = operation.delay_ms
    if delay_ms < 0:
        delay_ms = backoff_ms(job.spec.retry, failure_count, operation.jitter)
    reason = operation.error.type if operation.error is not None else ""
    return _again(job, Event.RETRY, attempt, context, delay_ms, failure_count=failure_count, failure_reason=reason)


def _verdict(error: JobError | None) -> str:
    """Return the reason of a dead letter that its worker asked for."""
    is_refused = error is not None and error.type == TARGET_REFUSED_ERROR
    return DeadLetterReason.TARGET_REFUSED if is_refused else DeadLetterReason.REJECTED


def _must_start_first(options: Options, lease: Lease, end: AttemptEnd) -> bool:
    """Return whether the start must be committed before this report; a snooze gives back a run that has not started."""
    return options.at_most_once and not lease.started and end is not AttemptEnd.SNOOZED


def _has_begun_for_good(job: Job) -> bool:
    """Return whether the run starts at most once, and has started."""
    options = job.spec.options
    return options is not None and options.at_most_once and job.lease is not None and job.lease.started


def _is_hopeless(options: Options | None, error: JobError | None) -> bool:
    """Return whether the job's options exclude errors of this type from retries."""
    if options is None or not (options.retry_on or options.no_retry):
        return False
    kind = error.type if error is not None else ""
    return kind in options.no_retry or (bool(options.retry_on) and kind not in options.retry_on)


def _late(job: Job, operation: RecordOutcome) -> Applied:
    """Answer a report with an old token by the record of the attempt with that token."""
    attempt = next((kept for kept in reversed(job.attempts) if kept.token == operation.token), None)
    if attempt is None:
        return refused(RejectCode.LEASE_LOST, f"fencing token {operation.token} is not the current one of this run")
    if attempt.end is AttemptEnd.CANCELLED:
        return refused(RejectCode.CANCELLED, CANCELLED_TEXT)
    if attempt.end not in REPORTED:
        return refused(
            RejectCode.LEASE_LOST, f"the lease of fencing token {operation.token} ended: {attempt.end.label}"
        )
    if operation.completion_id and attempt.completion_id == operation.completion_id and attempt.end is operation.end:
        return Applied(OutcomeRecorded(job, repeated=True))
    return refused(
        RejectCode.ALREADY_RECORDED, f"fencing token {operation.token} has reported already: {attempt.end.label}"
    )


def _outcome_problem(operation: RecordOutcome) -> str:
    if operation.end not in REPORTED:
        return f"end: a worker can't report {operation.end.label}"
    delay_ms_min = 0 if operation.end is _SNOOZED else -1
    return (
        range_problem("delay_ms", operation.delay_ms, delay_ms_min, limits.DELAY_MS_MAX)
        or range_problem("jitter", operation.jitter, -JITTER_MAX, JITTER_MAX)
        or range_problem("result bytes", len(operation.result), 0, limits.RESULT_BYTES_MAX)
        or range_problem("completion_id length", len(operation.completion_id), 0, limits.COMPLETION_ID_CHARS_MAX)
        or _error_problem(operation.error)
    )


# -- expiry -----------------------------------------------------------------------------------------------------------


@handles(ExpireLeases)
def expire_leases(view: View, operation: ExpireLeases, context: Context) -> Applied:
    problem = _expiry_problem(operation)
    if problem:
        return invalid(problem)
    # By job: the view doesn't show what this operation writes, so a job given twice must not end twice.
    writes: dict[JobId, PutJob] = {}
    kept: list[JobId] = []
    for suspect in operation.leases:
        job = None if suspect.job_id in writes else find_job(view, suspect.job_id)
        if job is None or job.lease is None or not _is_over(job, job.lease, suspect, context.now_ms):
            kept.append(suspect.job_id)
        else:
            writes[suspect.job_id] = PutJob(job, _expired(view, job, job.lease, suspect, context))
    return Applied(Expired(tuple(write.new for write in writes.values()), tuple(kept)), tuple(writes.values()))


def _is_over(job: Job, lease: Lease, suspect: ExpiredLease, now_ms: TimeMs) -> bool:
    if lease.token != suspect.token:
        return False
    if suspect.cause is AttemptEnd.CANCELLED:
        return job.status is Status.CANCELLING
    if suspect.cause is AttemptEnd.TIMEOUT:
        is_too_long = 0 < job.spec.timeout_ms <= now_ms - lease.granted_at_ms
        return is_too_long or (not lease.awaits_callback and _is_silent(job, now_ms))
    return not lease.awaits_callback and lease.ttl_ms <= now_ms - lease.granted_at_ms


def _is_silent(job: Job, now_ms: TimeMs) -> bool:
    """Return whether the handler may have been silent for too long.

    Heartbeats are only in the leader's memory. The record has only its latest change, for example a progress report,
    which counts as a sign of life.
    """
    options = job.spec.options
    return options is not None and 0 < options.heartbeat_timeout_ms <= now_ms - job.updated_at_ms


def _expired(view: View, job: Job, lease: Lease, suspect: ExpiredLease, context: Context) -> Job:
    cause = suspect.cause
    if cause is AttemptEnd.OUTAGE and job.status is not Status.CANCELLING and _has_begun_for_good(job):
        cause = AttemptEnd.WORKER_LOST  # it is never leased again, so it counts
    attempt = _attempt(job, lease, cause, context, error=_silence(job, lease, suspect, context.now_ms))
    if job.status is Status.CANCELLING:
        return _stopped(job, attempt, context)
    if suspect.cause is AttemptEnd.TIMEOUT:
        return _timed_out(job, attempt, suspect.jitter, context)
    if cause is AttemptEnd.OUTAGE:
        return _again(job, Event.GIVE_BACK, attempt, context, 0, failure_reason=AttemptEnd.OUTAGE.label)
    return _worker_lost(job, attempt, context, lost_workers_max(job, view.queue(job.spec.queue)))


def _silence(job: Job, lease: Lease, suspect: ExpiredLease, now_ms: TimeMs) -> JobError | None:
    """Return the error of an attempt that ended because of silence; None if it ended by its run time."""
    if suspect.cause is not AttemptEnd.TIMEOUT or job.spec.options is None:
        return None
    if 0 < job.spec.timeout_ms <= now_ms - lease.granted_at_ms:
        return None
    return JobError(HEARTBEAT_ERROR, f"no sign of life of the handler for {job.spec.options.heartbeat_timeout_ms} ms")


def _timed_out(job: Job, attempt: Attempt, jitter: int, context: Context) -> Job:
    reason = DeadLetterReason.TIMEOUT
    failure_count = job.failure_count + 1
    if failure_count >= job.spec.max_attempts or _has_begun_for_good(job):
        return _given_up(job, reason, attempt, context, failure_count=failure_count)
    delay_ms = backoff_ms(job.spec.retry, failure_count, jitter)
    return _again(job, Event.RETRY, attempt, context, delay_ms, failure_count=failure_count, failure_reason=reason)


def _worker_lost(job: Job, attempt: Attempt, context: Context, lost_count_max: int) -> Job:
    reason = DeadLetterReason.WORKER_LOST
    lost_count = job.lost_count + 1
    if lost_count >= lost_count_max or _has_begun_for_good(job):
        if not _has_begun_for_good(job):
            attempt = replace(attempt, error=JobError(LOST_ERROR, _LOST.format(lost_count)))
        return _given_up(job, reason, attempt, context, lost_count=lost_count)
    delay_ms = lost_delay_ms(lost_count)
    event = Event.RETRY if delay_ms else Event.GIVE_BACK
    return _again(job, event, attempt, context, delay_ms, lost_count=lost_count, failure_reason=reason)


def _expiry_problem(operation: ExpireLeases) -> str:
    problem = range_problem("leases", len(operation.leases), 0, limits.EXPIRE_LEASES_MAX)
    for suspect in operation.leases:
        if suspect.cause not in EXPIRED:
            return f"cause: a lease can't expire by {suspect.cause.label}"
        problem = problem or range_problem("jitter", suspect.jitter, -JITTER_MAX, JITTER_MAX)
    return problem


# -- at once ----------------------------------------------------------------------------------------------------------


def aborted(job: Job, context: Context, **fields: Any) -> Job:
    """Return a leased job after a user ended its attempt without waiting for its worker; its report is rejected."""
    attempt = _attempt(job, _lease_of(job), AttemptEnd.CANCELLED, context)
    return _ended(job, Event.ABORT, attempt, context, finished_at_ms=context.now_ms, **fields)


def lost(view: View, job: Job, context: Context) -> Job:
    """Return a leased job after the loss of its worker, however much of its lease is left; it counts as any such loss."""
    attempt = _attempt(job, _lease_of(job), AttemptEnd.WORKER_LOST, context)
    if job.status is _CANCELLING:
        return _stopped(job, attempt, context)
    return _worker_lost(job, attempt, context, lost_workers_max(job, view.queue(job.spec.queue)))


def overrun(job: Job, context: Context, **fields: Any) -> Job:
    """Return a leased job after its deadline: expired, or cancelled if a cancel was under way."""
    attempt = _attempt(job, _lease_of(job), AttemptEnd.TIMEOUT, context)
    if job.status is not Status.CANCELLING:
        fields |= {"failure_reason": DeadLetterReason.EXPIRED, "failure_count": job.failure_count + 1}
    return _ended(job, Event.EXPIRE, attempt, context, finished_at_ms=context.now_ms, **fields)


def _lease_of(job: Job) -> Lease:
    if job.lease is None:
        raise InvariantBroken(f"job {job.id.hex()} has no lease, but an attempt of it is to end")
    return job.lease


# -- common parts -----------------------------------------------------------------------------------------------------


def _attempt(
    job: Job,
    lease: Lease,
    end: AttemptEnd,
    context: Context,
    *,
    completion_id: str = "",
    error: JobError | None = None,
) -> Attempt:
    """Return the record of the attempt that ends now; in a cancelled job every attempt ends as cancelled."""
    return Attempt(
        run_number=job.run_number,
        attempt_number=job.attempt_number,
        token=lease.token,
        worker=lease.worker,
        started_at_ms=lease.granted_at_ms,
        ended_at_ms=context.now_ms,
        end=AttemptEnd.CANCELLED if job.status is _CANCELLING else end,
        completion_id=completion_id,
        error=error,
    )


def _ended(job: Job, event: Event, attempt: Attempt, context: Context, **fields: Any) -> Job:
    return change(job, event, context, lease=None, attempts=job.with_attempt(attempt), **fields)


def _again(job: Job, event: Event, attempt: Attempt, context: Context, delay_ms: int, **fields: Any) -> Job:
    """Return the job waiting for another attempt in `delay_ms`; with a delay of zero only a snoozed one has a timer."""
    due_at_ms = TimeMs(context.now_ms + delay_ms)
    fields |= {"due_at_ms": due_at_ms, "requested_at_ms": job.run_at_ms, "timed": delay_ms > 0 or event is Event.SNOOZE}
    return _ended(job, event, attempt, context, **fields)


def _given_up(job: Job, reason: str, attempt: Attempt, context: Context, **counts: int) -> Job:
    if _has_begun_for_good(job) and reason != DeadLetterReason.REJECTED:
        reason = f"{reason}: {ONCE_TEXT}"
    return _ended(job, Event.GIVE_UP, attempt, context, finished_at_ms=context.now_ms, failure_reason=reason, **counts)


def _stopped(job: Job, attempt: Attempt, context: Context) -> Job:
    return _ended(job, Event.STOP, attempt, context, finished_at_ms=context.now_ms)


def _error_problem(error: JobError | None) -> str:
    """Return the fault in the size of a reported error, or ""."""
    if error is None:
        return ""
    return (
        range_problem("error.type characters", len(error.type), 0, limits.ERROR_MESSAGE_CHARS_MAX)
        or range_problem("error.message characters", len(error.message), 0, limits.ERROR_MESSAGE_CHARS_MAX)
        or range_problem("error.trace characters", len(error.trace), 0, limits.ERROR_TRACE_CHARS_MAX)
    )
