"""What a bulk request does to each of its jobs, as operations."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from raftsched.api.http.actor import signed
from raftsched.api.jobs.convert import priority_number
from raftsched.api.jobs.replay import Changes, replay_operation
from raftsched.api.json.times import due_at_ms, due_or_now_ms, pause_end_ms
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import CancelJob
from raftsched.core.operations.control import AmendJob, PauseJob, RequeueJob, ResumeJob
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.job import FINISHED, LEASED, WAITING, Job, Status
from raftsched.core.records.spec import SpecChanges
from raftsched.errors import Invalid
from raftsched.wire.bulk import BulkRequest

_UNLEASED: Final = tuple(sorted((*WAITING, Status.WAITING_DEPENDENCIES, Status.PAUSED)))
_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "cancel": frozenset({"force"}),
    "pause": frozenset({"until", "for_seconds", "reason"}),
    "resume": frozenset(),
    "retry": frozenset({"run_at", "delay_seconds"}),
    "replay": frozenset({"run_at", "delay_seconds"}),
    "reschedule": frozenset({"run_at", "delay_seconds"}),
    "reprioritise": frozenset({"priority"}),
    "delete": frozenset(),
}
"""The fields of a request that say something with each action."""
_ALL_FIELDS: Final = ("force", "run_at", "delay_seconds", "priority", "until", "for_seconds", "reason")

STATUSES: Final[Mapping[str, tuple[Status, ...]]] = {
    "cancel": (*_UNLEASED, *sorted(LEASED - {Status.CANCELLING})),
    "pause": tuple(status for status in _UNLEASED if status is not Status.PAUSED),
    "resume": (Status.PAUSED,),
    "retry": (Status.DEAD_LETTER,),
    "replay": tuple(sorted(FINISHED - {Status.FAILED})),
    "reschedule": _UNLEASED,
    "reprioritise": _UNLEASED,
    "delete": tuple(sorted(FINISHED - {Status.FAILED})),
}
"""What an action is meant for, where a filter names no status."""

REORDERS: Final = frozenset({"reschedule", "reprioritise"})
"""These change the order in which waiting jobs are kept: a walk in that order could meet its own work again."""


class Action(NamedTuple):
    """What is done to each job."""

    name: str
    operation: Callable[[Job], Operation] | None
    """None for `delete`, which is one operation for many jobs."""


class Tools(NamedTuple):
    """What operations are made with."""

    actor: str
    now_ms: int
    new_job_id: Callable[[], JobId]
    payload: Callable[[JobId], bytes]
    dead_letter_reason: str
    """Only dead letters that were given up for it; "" = any."""
    key: str
    """The request's idempotency key; a repeated request replays no job twice."""


def action_of(wanted: BulkRequest, tools: Tools) -> Action:
    """Return what `wanted` asks for; raises `Invalid` naming a field that says nothing with its action, or is missing."""
    name = wanted.action
    for field in _ALL_FIELDS:
        if getattr(wanted, field) is not None and field not in _FIELDS[name]:
            raise Invalid(f"{field}: can't stand with the action {name}", field=field)
    if tools.key and name != "replay":
        raise Invalid(
            "Idempotency-Key: only a replay needs one; the other actions can be repeated", field="Idempotency-Key"
        )
    if name == "reprioritise" and wanted.priority is None:
        raise Invalid("priority: is required with the action reprioritise", field="priority")
    if name == "reschedule" and wanted.run_at is None and wanted.delay_seconds is None:
        raise Invalid("run_at: it or delay_seconds is required with the action reschedule", field="run_at")
    due_ms = due_or_now_ms(due_at_ms(wanted.run_at, wanted.delay_seconds, tools.now_ms, ""))
    return Action(name, _operation_of(wanted, due_ms, tools))


def _operation_of(wanted: BulkRequest, due_ms: TimeMs, tools: Tools) -> Callable[[Job], Operation] | None:
    actor = tools.actor
    match wanted.action:
        case "cancel":
            return lambda job: CancelJob(job.id, job.tenant, force=bool(wanted.force), actor=actor)
        case "pause":
            until_ms = pause_end_ms(wanted.until, wanted.for_seconds, tools.now_ms)
            return lambda job: PauseJob(job.id, job.tenant, until_ms, wanted.reason or "", actor)
        case "resume":
            return lambda job: ResumeJob(job.id, job.tenant, actor)
        case "retry":
            return lambda job: RequeueJob(job.id, job.tenant, due_ms, tools.dead_letter_reason, actor)
        case "reschedule":
            return lambda job: AmendJob(job.id, job.tenant, due_at_ms=due_ms, actor=actor)
        case "reprioritise":
            priority = priority_number(wanted.priority or 0)
            return lambda job: AmendJob(job.id, job.tenant, changes=SpecChanges(priority=priority), actor=actor)
        case "replay":
            return lambda job: _replay(job, due_ms, tools)
        case "delete":
            return None


def _replay(job: Job, due_ms: TimeMs, tools: Tools) -> Operation:
    key = fingerprint = ""
    if tools.key:
        digest = hashlib.blake2b(tools.key.encode() + job.id, digest_size=16).hexdigest()
        key = fingerprint = f"replay-{digest}"
    operation = replay_operation(
        job,
        tools.payload(job.id),
        Changes(due_ms),
        job_id=tools.new_job_id(),
        key=key,
        fingerprint=fingerprint.encode(),
    )
    return signed(operation, tools.actor)
