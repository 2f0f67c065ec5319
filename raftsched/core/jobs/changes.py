"""How the handlers of `apply` read a job, change it and refuse.

All transitions of a job go through `change`: it asks the table, stamps the revision and the time, and asserts in
production that the new record can be right. `touch` does the same for what is no transition. None of this writes;
handlers return what is to be written.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from raftsched.core.checks.invariants import assert_change
from raftsched.core.operations.codec import RejectCode
from raftsched.core.records.bounds import JOB_ID_BYTES
from raftsched.core.records.ids import JobId, job_id_text
from raftsched.core.records.job import Job, Note
from raftsched.core.records.transitions import Event, next_status, refusal
from raftsched.core.state.audit import audited
from raftsched.core.state.results import Applied, Context, Refused
from raftsched.core.state.view import View
from raftsched.core.state.writes import PutAudit
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


def touch(job: Job, context: Context, **fields: Any) -> Job:
    """Return `job` with `fields` replaced and its status as it was: what is no transition, such as a report of progress."""
    new = replace(job, updated_at_ms=context.now_ms, revision=context.index, **fields)
    assert_change(job, new)
    return new


def own_job(view: View, job_id: JobId, tenant: str) -> Job | None:
    """Return the job where it is the tenant's; another tenant's is not there."""
    job = find_job(view, job_id)
    return job if job is not None and job.tenant == tenant else None


def noted(job: Job, context: Context, action: str, *, actor: str = "", detail: str = "") -> tuple[Note, ...]:
    """The notes of `job` after one more, of now."""
    return job.with_note(Note(context.now_ms, action, actor, detail, context.index))


def job_audited(job: Job, context: Context, verb: str, *, actor: str = "", detail: str = "") -> PutAudit:
    """Return the line of the audit trail for what someone did to `job`."""
    return audited(context, f"job.{verb}", f"job:{job_id_text(job.id)}", tenant=job.tenant, actor=actor, detail=detail)


def refused(code: RejectCode, message: str) -> Applied:
    """Return a refusal that writes nothing."""
    return Applied(Refused(code, message))


def invalid(problem: str) -> Applied:
    """Return the refusal of an operation whose numbers or texts the state can't hold."""
    return Applied(Refused(RejectCode.INVALID, problem))
