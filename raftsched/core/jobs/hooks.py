"""Submit the job that another's end asks for: its hook.

A job has a hook for its success or failure, else its queue has. It is stored by the operation that ends the job, in the
same log entry (`workflows.cascade`). So each end has its hook exactly once, whatever leader, and no end is without it. The
id of the hook follows from the job and its run. A job that a hook submitted has no hooks, not even those of its queue, so
hooks never cause each other.

Facts of the end replace placeholders in the hook's payload (`facts`).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgspec

from raftsched.core.jobs.facts import facts_of_end, filled, for_executor
from raftsched.core.jobs.submit import new_job
from raftsched.core.operations.codec import SubmitJob
from raftsched.core.records.ids import JobId, TimeMs, job_id_text
from raftsched.core.records.job import MEETS, Condition, Job
from raftsched.core.records.schedule import ScheduleId
from raftsched.core.records.spec import Hook, with_options
from raftsched.core.state.results import Context
from raftsched.core.state.view import View
from raftsched.core.state.writes import PutJob
from raftsched.errors import InvariantBroken

_SUCCEEDED: Final = MEETS[Condition.SUCCESS]
_FAILED: Final = MEETS[Condition.FAILURE]


def hook_of(view: View, job: Job) -> Hook | None:
    """Return the hook of the job's present status; None if it has none, or has not ended."""
    has_succeeded = job.status in _SUCCEEDED
    if not has_succeeded and job.status not in _FAILED:
        return None
    options = job.spec.options
    if options is not None:
        if options.is_message:
            return None
        own = options.on_success if has_succeeded else options.on_failure
        if own is not None:
            return own
    queue = view.queue(job.spec.queue)
    if queue is None:
        return None
    return queue.on_success if has_succeeded else queue.on_failure


def submission(view: View, job: Job, hook: Hook, context: Context) -> PutJob:
    """Return the write that stores the job which `hook` asks for after the end of `job`."""
    hook_id = event_job_id(b"%s.%d" % (job.id, job.run_number), context.now_ms)
    if view.job(hook_id) is not None:
        raise InvariantBroken(f"job {job.id.hex()}: the hook of run {job.run_number} is stored before its end")
    schedule_id = job.spec.schedule_id
    facts = facts_of_end(job, view.schedule(ScheduleId(schedule_id)) if schedule_id else None)
    if hook.spec.options is not None and hook.spec.options.call is not None:
        facts = for_executor(facts)
    operation = SubmitJob(
        id=hook_id,
        tenant=job.tenant,
        spec=with_options(hook.spec, hook_of=job.id),
        due_at_ms=context.now_ms,
        payload=filled(hook.payload, facts) if hook.payload else msgspec.json.encode(facts),
    )
    stored = new_job(operation, context, actor=f"job:{job_id_text(job.id)}")
    return PutJob(None, stored, payload=operation.payload)


def event_job_id(cause: bytes, now_ms: TimeMs) -> JobId:
    """Return an id in the form of a UUIDv7: the time of the event, and a digest of its cause instead of chance."""
    digest = bytearray(blake2b(cause, digest_size=10).digest())
    digest[0] = 0x70 | (digest[0] & 0x0F)
    digest[2] = 0x80 | (digest[2] & 0x3F)
    return JobId(now_ms.to_bytes(6, "big") + bytes(digest))
