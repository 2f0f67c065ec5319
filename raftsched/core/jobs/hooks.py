"""Submit the job that another's end asks for: its hook.

A job has a hook for its success or failure, else its queue has. It is stored by the operation that ends the job, in the
same log entry (`workflows.cascade`). So each end has its hook exactly once, whatever leader, and no end is without it. The
id of the hook follows from the job and its run. A job that a hook submitted has no hooks, not even those of its queue, so
hooks never cause each other.

Facts of the end replace placeholders in the hook's payload. A placeholder can only be inside a text, since two braces in
a row are not JSON elsewhere. So the facts are inserted as escaped text, without parsing the payload.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

import msgspec

from raftsched.core.jobs.submit import new_job
from raftsched.core.operations.codec import SubmitJob
from raftsched.core.records.ids import JobId, TimeMs, job_id_text, run_id_text
from raftsched.core.records.job import MEETS, Condition, Job
from raftsched.core.records.spec import Hook, with_options
from raftsched.core.state.results import Context
from raftsched.core.state.view import View
from raftsched.core.state.writes import PutJob
from raftsched.errors import InvariantBroken

PLACEHOLDER: Final = re.compile(rb"\{\{cause\.([a-z_]*)\}\}")
_FACT_CHARS_MAX: Final = 500
"""Length of a fact in place of a placeholder: a hook has few of them, and fits into the payload of a job."""
_SUCCEEDED: Final = MEETS[Condition.SUCCESS]
_FAILED: Final = MEETS[Condition.FAILURE]


def hook_of(view: View, job: Job) -> Hook | None:
    """Return the hook of the job's present status; None if it has none, or has not ended."""
    has_succeeded = job.status in _SUCCEEDED
    if not has_succeeded and job.status not in _FAILED:
        return None
    options = job.spec.options
    if options is not None:
        if options.hook_of:
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
    hook_id = _hook_id(job, context.now_ms)
    if view.job(hook_id) is not None:
        raise InvariantBroken(f"job {job.id.hex()}: the hook of run {job.run_number} is stored before its end")
    facts = facts_of(job)
    if hook.spec.options is not None and hook.spec.options.call is not None:
        facts = {name: _literal(value) for name, value in facts.items()}
    operation = SubmitJob(
        id=hook_id,
        tenant=job.tenant,
        spec=with_options(hook.spec, hook_of=job.id),
        due_at_ms=context.now_ms,
        payload=filled(hook.payload, facts) if hook.payload else msgspec.json.encode(facts),
    )
    stored = new_job(operation, context, actor=f"job:{job_id_text(job.id)}")
    return PutJob(None, stored, payload=operation.payload)


def facts_of(job: Job) -> Mapping[str, object]:
    """Return what is known of the end of a job's run, by the names of placeholders."""
    error = job.attempts[-1].error if job.attempts else None
    return {
        "job_id": job_id_text(job.id),
        "run_id": run_id_text(job.id, job.run_number),
        "name": job.spec.name,
        "queue": job.spec.queue,
        "status": job.status.label,
        "reason": job.failure_reason or None,
        "error": None if error is None else f"{error.type}: {error.message}" if error.message else error.type,
        "attempts": job.attempt_number,
    }


def _literal(fact: object) -> object:
    """Return a fact whose braces an executor does not take for a placeholder of its own."""
    return fact.replace("{{", "{{{{") if isinstance(fact, str) else fact


FACTS: Final = ("job_id", "run_id", "name", "queue", "status", "reason", "error", "attempts")
"""The names of placeholders, as `{{cause.error}}`."""


def filled(payload: bytes, facts: Mapping[str, object]) -> bytes:
    """Return JSON text with the facts in place of placeholders; unknown ones are left."""

    def fact(match: re.Match[bytes]) -> bytes:
        name = match[1].decode()
        if name not in facts:
            return match[0]
        value = facts[name]
        text = "" if value is None else str(value)[:_FACT_CHARS_MAX]
        return msgspec.json.encode(text)[1:-1]

    return PLACEHOLDER.sub(fact, payload)


def _hook_id(job: Job, now_ms: TimeMs) -> JobId:
    """Return an id in the form of a UUIDv7: the time of the end, and a digest of the run instead of chance."""
    digest = bytearray(blake2b(b"%s.%d" % (job.id, job.run_number), digest_size=10).digest())
    digest[0] = 0x70 | (digest[0] & 0x0F)
    digest[2] = 0x80 | (digest[2] & 0x3F)
    return JobId(now_ms.to_bytes(6, "big") + bytes(digest))
