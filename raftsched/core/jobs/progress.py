"""Handle StartRun, ReportProgress and AppendLog: reports of a worker about a running attempt.

All of them need the current token. Progress and logs belong to one attempt, and the next begins with none. Reports after
the end of a lease are rejected, so two attempts are never mixed (case W16).
"""

from __future__ import annotations

from msgspec.structs import replace

from raftsched import limits
from raftsched.core.jobs.admission import is_being_cancelled
from raftsched.core.jobs.attempts import CANCELLED_TEXT
from raftsched.core.jobs.changes import find_job, invalid, refused, touch
from raftsched.core.operations.codec import RejectCode
from raftsched.core.operations.control import AppendLog, ReportProgress, StartRun
from raftsched.core.records.bounds import range_problem
from raftsched.core.records.ids import FencingToken, JobId
from raftsched.core.records.job import AttemptEnd, Job, Lease, Status
from raftsched.core.state.handlers import handles
from raftsched.core.state.results import Applied, Changed, Context, Counted, Logged
from raftsched.core.state.view import View
from raftsched.core.state.writes import PutJob, PutLog

_SEQUENCE_MAX = (1 << 53) - 1
"""The largest integer that every JSON parser keeps exact."""


@handles(StartRun)
def start_run(view: View, operation: StartRun, context: Context) -> Applied:
    problem = range_problem(
        "callback_digest bytes", len(operation.callback_digest), 0, limits.CALLBACK_DIGEST_BYTES_MAX
    )
    if problem:
        return invalid(problem)
    job = find_job(view, operation.job_id)
    if job is None:
        return refused(RejectCode.NOT_FOUND, "there is no such job")
    lease = _current_lease(job, operation.run_number, operation.token)
    if job.status is Status.CANCELLING and lease is not None:
        return refused(RejectCode.CANCELLED, CANCELLED_TEXT)
    if lease is None:
        return _late(job, operation.token)
    callback_digest = operation.callback_digest or lease.callback_digest
    if lease.started and callback_digest == lease.callback_digest:
        return Applied(Changed(job))
    if job.spec.options is not None and is_being_cancelled(view, job.spec.options):
        return refused(RejectCode.CANCELLED, "the job's workflow is cancelled: nothing of it begins any more")
    new = touch(job, context, lease=replace(lease, started=True, callback_digest=callback_digest))
    return Applied(Changed(new), (PutJob(job, new),))


@handles(ReportProgress)
def report_progress(view: View, operation: ReportProgress, context: Context) -> Applied:
    problem = range_problem("reports", len(operation.reports), 0, limits.PROGRESS_REPORTS_MAX)
    for report in operation.reports:
        problem = problem or range_problem("progress bytes", len(report.progress), 0, limits.PROGRESS_BYTES_MAX)
    if problem:
        return invalid(problem)
    # By job: the view doesn't show what this operation writes; of several reports of a job the last one stays.
    writes: dict[JobId, PutJob] = {}
    kept_count = 0
    for report in operation.reports:
        job = find_job(view, report.job_id)
        if job is not None and _current_lease(job, report.run_number, report.token) is not None:
            writes[job.id] = PutJob(job, touch(job, context, progress=report.progress))
            kept_count += 1
    return Applied(Counted(kept_count), tuple(writes.values()))


@handles(AppendLog)
def append_log(view: View, operation: AppendLog, _context: Context) -> Applied:
    problem = _lines_problem(operation)
    if problem:
        return invalid(problem)
    job = find_job(view, operation.job_id)
    if job is None:
        return refused(RejectCode.NOT_FOUND, "there is no such job")
    if _current_lease(job, operation.run_number, operation.token) is None:
        return _late(job, operation.token)
    size = view.log_size(job.id, job.run_number, job.attempt_number)
    if 0 < operation.sequence <= size.last_sequence:
        return Applied(Logged(size.byte_count, repeated=True))
    byte_count = size.byte_count + len(operation.lines)
    if byte_count > limits.LOG_BYTES_MAX or size.piece_count >= limits.LOG_PIECES_MAX:
        return refused(
            RejectCode.LOG_FULL,
            f"the attempt's log has {size.byte_count} bytes in {size.piece_count} pieces, "
            f"and may have {limits.LOG_BYTES_MAX} in {limits.LOG_PIECES_MAX}",
        )
    piece = PutLog(job.id, job.run_number, job.attempt_number, operation.lines, operation.sequence)
    return Applied(Logged(byte_count, repeated=False), (piece,))


def _current_lease(job: Job, run_number: int, token: FencingToken) -> Lease | None:
    """Return the job's lease if run and token are the current ones, else None."""
    lease = job.lease
    return lease if lease is not None and lease.token == token and job.run_number == run_number else None


def _late(job: Job, token: FencingToken) -> Applied:
    ended = next((kept for kept in reversed(job.attempts) if kept.token == token), None)
    if ended is not None and ended.end is AttemptEnd.CANCELLED:
        return refused(RejectCode.CANCELLED, CANCELLED_TEXT)
    return refused(RejectCode.LEASE_LOST, f"fencing token {token} is not the current one of this run")


def _lines_problem(operation: AppendLog) -> str:
    if not operation.lines.endswith(b"\n"):
        return "lines: each must end with a line feed"
    try:
        operation.lines.decode()
    except UnicodeDecodeError:
        return "lines: must be UTF-8"
    return range_problem("lines bytes", len(operation.lines), 1, limits.LOG_PIECE_BYTES_MAX) or range_problem(
        "sequence", operation.sequence, 0, _SEQUENCE_MAX
    )
