"""Handle AwaitCallback: a request's target has accepted it, and reports the outcome of the run itself.

The executor that sent the request is done with it, so nobody renews the lease. It ends by the report of the target, which
counts as a worker's would (`attempts`); by the job's timeout, which such jobs must have; or by a cancel, at once (`cancel`).

The target proves itself by a token that the executor made for this attempt and committed, as a digest, with its start,
before it sent the request. So the report can come at any time, also before the executor has read the response.
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest
from typing import Final

from msgspec.structs import replace

from raftsched.core.jobs.attempts import CANCELLED_TEXT
from raftsched.core.jobs.changes import find_job, invalid, refused, touch
from raftsched.core.operations.codec import RejectCode
from raftsched.core.operations.control import AwaitCallback
from raftsched.core.records.ids import FencingToken
from raftsched.core.records.job import AttemptEnd, Job, Status
from raftsched.core.state.handlers import handles
from raftsched.core.state.results import Applied, Context, OutcomeRecorded
from raftsched.core.state.view import View
from raftsched.core.state.writes import PutJob

DIGEST_BYTES: Final = 16


@handles(AwaitCallback)
def await_callback(view: View, operation: AwaitCallback, context: Context) -> Applied:
    job = find_job(view, operation.job_id)
    if job is None:
        return refused(RejectCode.NOT_FOUND, "there is no such job")
    lease = job.lease
    if lease is None or lease.token != operation.token or job.run_number != operation.run_number:
        return _late(job, operation)
    if job.status is Status.CANCELLING:
        return refused(RejectCode.CANCELLED, CANCELLED_TEXT)
    if lease.awaits_callback:
        return Applied(OutcomeRecorded(job, repeated=True))
    if not lease.callback_digest or not job.spec.timeout_ms:
        return invalid("status: a run awaits a callback only if its start has a callback_token and its job a timeout")
    new = touch(job, context, lease=replace(lease, awaits_callback=True))
    return Applied(OutcomeRecorded(new, repeated=False), (PutJob(job, new),))


def _late(job: Job, operation: AwaitCallback) -> Applied:
    """Answer for an attempt that has ended: the target may have been faster than the executor's report."""
    ended = next((kept for kept in reversed(job.attempts) if kept.token == operation.token), None)
    if ended is not None and ended.completion_id.startswith(_COMPLETION_PREFIX):
        return Applied(OutcomeRecorded(job, repeated=True))
    if ended is not None and ended.end is AttemptEnd.CANCELLED:
        return refused(RejectCode.CANCELLED, CANCELLED_TEXT)
    return refused(RejectCode.LEASE_LOST, f"fencing token {operation.token} is not the current one of this run")


# -- the token --------------------------------------------------------------------------------------------------------

_COMPLETION_PREFIX: Final = "callback-"


def token_digest(token: str) -> bytes:
    """Return what is stored of a callback token."""
    return blake2b(token.encode(), digest_size=DIGEST_BYTES).digest()


def completion_id_of(token: str) -> str:
    """Return the completion id of the report under this token, the same for every repeat."""
    return _COMPLETION_PREFIX + token_digest(token).hex()


def fencing_token_of(job: Job, run_number: int, token: str) -> FencingToken | None:
    """Return the fencing token of the attempt for which a callback token was made; None if it is for no such attempt.

    An attempt that has ended counts too, so that a repeated report is answered like the first.
    """
    lease = job.lease
    is_current = lease is not None and lease.callback_digest and job.run_number == run_number
    if is_current and lease is not None and compare_digest(lease.callback_digest, token_digest(token)):
        return lease.token
    reported = completion_id_of(token)
    return next(
        (
            kept.token
            for kept in reversed(job.attempts)
            if kept.completion_id == reported and kept.run_number == run_number
        ),
        None,
    )
