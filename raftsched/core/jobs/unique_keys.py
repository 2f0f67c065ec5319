"""Decide who holds an idempotency key or a unique key: at most one job of a tenant at a time.

An idempotency key is held while its job is stored, or until its time; a unique key until the job is finished, or until
its time. Time alone writes nothing: an expired key stays in its index until another job needs it, which then takes it
over in the same log entry. So no key is held longer than it should be (case D21), and a refusal names the holder.
"""

from __future__ import annotations

from raftsched.core.jobs.changes import touch
from raftsched.core.operations.codec import RejectCode
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.job import FINISHED, Job
from raftsched.core.records.spec import with_options
from raftsched.core.state.results import Applied, Context, Refused
from raftsched.core.state.view import View
from raftsched.core.state.writes import PutJob
from raftsched.errors import InvariantBroken


def holds_idempotency_key(job: Job, now_ms: int) -> bool:
    until_ms = job.spec.options.idempotency_until_ms if job.spec.options is not None else 0
    return bool(job.idempotency_key) and (not until_ms or now_ms < until_ms)


def holds_unique_key(job: Job, now_ms: int) -> bool:
    options = job.spec.options
    if options is None or not options.unique_key:
        return False
    return now_ms < options.unique_until_ms if options.unique_until_ms else job.status not in FINISHED


def holder_of_idempotency_key(view: View, tenant: str, idempotency_key: str) -> Job | None:
    """Return the job in the index, whether it still holds the key or not."""
    return _found(view, view.job_id_for_key(tenant, idempotency_key), tenant) if idempotency_key else None


def holder_of_unique_key(view: View, tenant: str, unique_key: bytes) -> Job | None:
    """Return the job in the index, whether it still holds the key or not."""
    return _found(view, view.job_id_for_unique(tenant, unique_key), tenant) if unique_key else None


def unique_conflict(holder: Job) -> Applied:
    """Return the refusal that names the holder of the key."""
    return Applied(
        Refused(RejectCode.UNIQUE_CONFLICT, "unique: another job is there for the same purpose", job_id=holder.id)
    )


def take_overs(context: Context, *, idempotency: Job | None, unique: Job | None) -> tuple[PutJob, ...]:
    """Return the writes by which jobs lose expired keys; they must precede the write of the new holder."""
    before: dict[JobId, Job] = {}
    after: dict[JobId, Job] = {}
    if idempotency is not None:
        before[idempotency.id] = idempotency
        after[idempotency.id] = touch(idempotency, context, idempotency_key="")
    if unique is not None:
        before.setdefault(unique.id, unique)
        after[unique.id] = without_unique_key(after.get(unique.id, unique), context)
    return tuple(PutJob(before[job_id], new) for job_id, new in after.items())


def without_unique_key(job: Job, context: Context) -> Job:
    return touch(job, context, spec=with_options(job.spec, unique_key=b"", unique_until_ms=TimeMs(0)))


def _found(view: View, job_id: JobId | None, tenant: str) -> Job | None:
    if job_id is None:
        return None
    job = view.job(job_id)
    if job is None:
        raise InvariantBroken(f"a key of tenant {tenant!r} names job {job_id.hex()}, which is not there")
    return job
