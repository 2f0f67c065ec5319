"""Read, change and reject jobs, for the handlers of `apply`.

All transitions of a job go through `change`: it checks the table of transitions, sets revision and time, and asserts in
production that the new record is possible. `touch` does the same for changes without a transition. They do not write;
handlers return the writes.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from raftsched.core.checks.invariants import assert_change
from raftsched.core.operations.codec import RejectCode
from raftsched.core.records.bounds import JOB_ID_BYTES
from raftsched.core.records.ids import JobId, job_id_text
from raftsched.core.records.job import Job, Note, Status
from raftsched.core.records.transitions import Event, next_status, refusal
from raftsched.core.state.audit import audited
from raftsched.core.state.results import Applied, Context, Refused
from raftsched.core.state.view import View
from raftsched.core.state.writes import PutAudit
from raftsched.errors import InvariantBroken


def find_job(view: View, job_id: JobId) -> Job | None:
    """Return the job, or None if there is none, also for an id of a wrong length."""
    return view.job(job_id) if len(job_id) == JOB_ID_BYTES else None


def change(job: Job, event: Event, context: Context, **fields: Any) -> Job:
    """Return `job` after `event`, with `fields` replaced.

    Raises `InvariantBroken` if the event is not legal; handlers of user requests check the table first.
    """
    status = next_status(job.status, event)
    if status is None:
        raise InvariantBroken(f"job {job.id.hex()}: {refusal(job.status, event)}")
    new = replace(job, status=status, updated_at_ms=context.now_ms, revision=context.index, **fields)
    assert_change(job, new)
    return new


def touch(job: Job, context: Context, **fields: Any) -> Job:
    """Return `job` with `fields` replaced and the same status, for changes without a transition, like progress."""
    new = replace(job, updated_at_ms=context.now_ms, revision=context.index, **fields)
    assert_change(job, new)
    return new


def released(job: Job, context: Context) -> Job:
    """Return a blocked job as one of the ready index; it has a timer again, by which it counts as due, if it had one."""
    return touch(job, context, blocked=False, timed=job.status is not Status.QUEUED)


def own_job(view: View, job_id: JobId, tenant: str) -> Job | None:
    """Return the job if it belongs to the tenant, else None."""
    job = find_job(view, job_id)
    return job if job is not None and job.tenant == tenant else None


def noted(job: Job, context: Context, action: str, *, actor: str = "", detail: str = "") -> tuple[Note, ...]:
    """Return the notes of `job` with one more, of now."""
    return job.with_note(Note(context.now_ms, action, actor, detail, context.index))


def job_audited(job: Job, context: Context, verb: str, *, actor: str = "", detail: str = "") -> PutAudit:
    """Return the line of the audit trail for a user's change of `job`."""
    return audited(context, f"job.{verb}", f"job:{job_id_text(job.id)}", tenant=job.tenant, actor=actor, detail=detail)


def refused(code: RejectCode, message: str) -> Applied:
    """Return a refusal that writes nothing."""
    return Applied(Refused(code, message))


def invalid(problem: str) -> Applied:
    """Return the refusal of an operation whose numbers or texts the state can't store."""
    return Applied(Refused(RejectCode.INVALID, problem))
