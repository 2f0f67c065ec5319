"""Make the operations of a bulk request, one for each of its jobs."""

from __future__ import annotations

import hashlib
from typing import Any, Final, NamedTuple

from raftsched.api.backend import Backend
from raftsched.api.http.actor import signed
from raftsched.api.jobs.control.replay import changes_of, replay_operation
from raftsched.api.jobs.control.routes import OPERATIONS_OF_VERBS, Change, ChangeContext
from raftsched.core.operations.base import Operation
from raftsched.core.records.job import Job
from raftsched.errors import Invalid
from raftsched.wire.bulk import BulkRequest
from raftsched.wire.control import ReplayRequest
from raftsched.wire.verbs import JOB, Verb

_FIELDS: Final = tuple(dict.fromkeys(field for verb in JOB.values() if verb.meant_for for field in verb.options))
"""The fields of all actions in a bulk request."""


class Action(NamedTuple):
    """The action on each job."""

    verb: Verb
    operation: Change | None
    """None for `delete`, which is one operation for many jobs."""


def action_of(wanted: BulkRequest, context: ChangeContext, *, key: str, backend: Backend) -> Action:
    """Return the action of `wanted`; raises `Invalid` naming a field that is missing, or is not of its action."""
    verb = JOB[wanted.action]
    fields = {field: value for field in _FIELDS if (value := getattr(wanted, field)) is not None}
    for field in fields:
        if field not in verb.options:
            raise Invalid(f"{field}: is not allowed with the action {verb.name}", field=field)
    if key and not verb.is_keyed:
        raise Invalid(
            "Idempotency-Key: only a replay needs one; the other actions can be repeated", field="Idempotency-Key"
        )
    if verb.needs_field and not fields:
        first, *others = verb.options
        subject = f"{' or '.join(('it', *others))} is" if others else "is"
        raise Invalid(f"{first}: {subject} required with the action {verb.name}", field=first)
    request: Any = None if verb.request is None else verb.request(**fields)
    if verb.name == "replay":
        return Action(verb, _replay(request, context, key, backend))
    operation_of = OPERATIONS_OF_VERBS.get(verb.name)
    return Action(verb, None if operation_of is None else operation_of(request, context))


def _replay(wanted: ReplayRequest, context: ChangeContext, key: str, backend: Backend) -> Change:
    """Return what replays a job; with the request's idempotency key, a repeated request replays no job twice."""
    changes = changes_of(wanted, context.now_ms)

    def change(job: Job) -> Operation:
        digest = hashlib.blake2b(key.encode() + job.id, digest_size=16).hexdigest()
        own_key = f"replay-{digest}" if key else ""
        operation = replay_operation(
            job,
            backend.fresh_state().payload(job.id),
            changes,
            job_id=backend.new_job_id(),
            key=own_key,
            fingerprint=own_key.encode(),
        )
        return signed(operation, context.actor)

    return change
