"""Build the operation that replays a job: a clone with a link to its original.

The clone has the payload and options of its original, but not its times and relations: no expiry or deadline, no
dependencies, no workflow, no schedule, and no unique key, which its original may still hold.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import UNSET

from raftsched import limits
from raftsched.api.jobs.calls import json_bytes
from raftsched.api.jobs.convert import priority_number
from raftsched.api.json.times import due_at_ms, due_or_now_ms
from raftsched.core.operations.codec import SubmitJob
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.job import Job
from raftsched.core.records.spec import JobSpec, SpecChanges, amended, with_options
from raftsched.wire.control import ReplayRequest


class Changes(NamedTuple):
    """Differences of the clone from its original; None and "" = the same."""

    due_ms: TimeMs = TimeMs(0)
    payload: bytes | None = None
    queue: str = ""
    priority: int | None = None


def changes_of(wanted: ReplayRequest, now_ms: int) -> Changes:
    """Return the changes that a request asks for; raises `Malformed`, `TooLarge` or `Invalid` naming the field."""
    return Changes(
        due_or_now_ms(due_at_ms(wanted.run_at, wanted.delay_seconds, now_ms, "")),
        None if wanted.payload is UNSET else json_bytes(wanted.payload, limits.PAYLOAD_BYTES_MAX, "payload"),
        wanted.queue or "",
        None if wanted.priority is None else priority_number(wanted.priority),
    )


def replay_operation(
    job: Job, payload: bytes, changes: Changes, *, job_id: JobId, key: str = "", fingerprint: bytes = b""
) -> SubmitJob:
    """Return the operation that submits a clone of `job` under `job_id`."""
    return SubmitJob(
        id=job_id,
        tenant=job.tenant,
        spec=_spec(job, changes),
        due_at_ms=changes.due_ms,
        payload=payload if changes.payload is None else changes.payload,
        idempotency_key=key,
        fingerprint=fingerprint,
    )


def _spec(job: Job, changes: Changes) -> JobSpec:
    spec = amended(job.spec, SpecChanges(queue=changes.queue or None, priority=changes.priority))
    return with_options(
        spec,
        expires_at_ms=None,
        deadline_ms=None,
        unique_key=b"",
        unique_until_ms=TimeMs(0),
        idempotency_until_ms=TimeMs(0),
        schedule_id=b"",
        fire_time_ms=None,
        is_backfill=False,
        workflow_id=b"",
        task="",
        replay_of=job.id,
        hook_of=b"",
        notice_of=b"",
    )
