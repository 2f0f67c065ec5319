"""How the handlers of `apply` read a job, change it and refuse.

All changes of a job go through `change`: it asks the table of transitions, stamps the revision and the time, and
asserts in production that the new record can be right. None of this writes; handlers return what is to be written.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from raftsched.core.bounds import JOB_ID_BYTES
from raftsched.core.ids import JobId
from raftsched.core.invariants import assert_change
from raftsched.core.job import Job
from raftsched.core.operations import RejectCode
from raftsched.core.transitions import Event, next_status, refusal
from raftsched.core.view import Applied, Context, Refused, View
from raftsched.errors import InvariantBroken


def find_job(view: View, job_id: JobId) -> Job | None:
    """Return the job, or None where there is none; an id of a wrong length, which no key can hold, names none."""
    return view.job(job_id) if len(job_id) == JOB_ID_BYTES else None


def change(job: Job, event: Event, context: Context, **fields: Any) -> Job:
    """Return `job` after `event`, with `fields` replaced.

    Raises `InvariantBroken` where the event is not legal: callers ask the table first wherever a user decides.
    """
    status = next_status(job.status, event)
    if status is None:
        raise InvariantBroken(f"job {job.id.hex()}: {refusal(job.status, event)}")
    new = replace(job, status=status, updated_at_ms=context.now_ms, revision=context.index, **fields)
    assert_change(job, new)
    return new


def refused(code: RejectCode, message: str) -> Applied:
    """Return a refusal that writes nothing."""
    return Applied(Refused(code, message))


def invalid(problem: str) -> Applied:
    """Return the refusal of an operation whose numbers or texts the state can't hold."""
    return Applied(Refused(RejectCode.INVALID, problem))
