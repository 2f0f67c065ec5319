"""Make lines of the audit trail. They are part of the state and written by the log entry that they describe.

Changes are described as users know them: fields by their names in the API, times and spans in its formats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from raftsched.core.records.job import Job
from raftsched.core.records.notices import Watch, notices_text
from raftsched.core.records.parameters import parameters_text
from raftsched.core.records.queue import Queue
from raftsched.core.records.schedule import Schedule
from raftsched.core.records.spec import SPEC_TEXTS, JobSpec, Options, hook_text
from raftsched.core.records.tenant import Tenant
from raftsched.core.records.texts import (
    NONE,
    list_text,
    optional_count,
    optional_seconds,
    optional_text,
    span_text,
    time_text,
)
from raftsched.core.state.entries import AuditEntry
from raftsched.core.state.results import Context
from raftsched.core.state.writes import PutAudit

_VALUE_CHARS_MAX: Final = 200
_NO_OPTIONS: Final = Options()
_NO_WATCH: Final = Watch()
_Told = Mapping[str, Callable[[Any], str]]
"""Functions that format the fields of a record, by the fields' names in the API."""


def audited(
    context: Context, action: str, subject: str, *, tenant: str = "", actor: str = "", detail: str = ""
) -> PutAudit:
    """Return the write of one line. `action` is `<noun>.<verb>`, `subject` is `<noun>:<id or name>`."""
    return PutAudit(AuditEntry(context.now_ms, actor, action, subject, tenant, detail, context.index, context.origin))


def job_changes(before: Job, after: Job) -> str:
    """Return the changes of an amendment as `field: before -> after`; "" if there are none. Texts are left out."""
    return _changes(before, after, _JOB)


def queue_changes(before: Queue, after: Queue) -> str:
    """Return the changed settings as `field: before -> after`; "" if there are none."""
    return _changes(before, after, _QUEUE)


def tenant_changes(before: Tenant, after: Tenant) -> str:
    """Return the changed settings as `field: before -> after`; "" if there are none."""
    return _changes(before, after, _TENANT)


def schedule_changes(before: Schedule, after: Schedule, *, payload_changed: bool = False) -> str:
    """Return the changed fields of a schedule as `field: before -> after`; a changed payload is only named."""
    text = _changes(before, after, _SCHEDULE)
    if not payload_changed:
        return text
    return f"{text}; job.payload" if text else "job.payload"


def _changes(before: object, after: object, told: _Told) -> str:
    pairs = ((name, tell(before), tell(after)) for name, tell in told.items())
    return "; ".join(f"{name}: {_cut(old)} -> {_cut(new)}" for name, old, new in pairs if old != new)


def _cut(text: str) -> str:
    return text if len(text) <= _VALUE_CHARS_MAX else f"{text[:_VALUE_CHARS_MAX]}…"


# -- formats of values ------------------------------------------------------------------------------------------------


def _json(value: object) -> str:
    return NONE if value is None else msgspec.json.encode(value).decode()


def _rate(queue: Queue) -> str:
    if not queue.rate_count:
        return NONE
    burst = f", burst {queue.rate_burst}" if queue.rate_burst else ""
    return f"{queue.rate_count} per {span_text(queue.rate_period_ms)}{burst}"


def _of_template(tell: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda schedule: tell(schedule.template)


def _of_spec(tell: Callable[[JobSpec], str]) -> Callable[[Any], str]:
    """Return the function that formats a part of the specification for a record that has one."""
    return lambda holder: tell(holder.spec)


_JOB: Final[_Told] = {
    "run_at": lambda job: time_text(job.due_at_ms),
    **{name: _of_spec(tell) for name, tell in SPEC_TEXTS.items()},
    "expires_at": lambda job: time_text((job.spec.options or _NO_OPTIONS).expires_at_ms),
    "deadline": lambda job: time_text((job.spec.options or _NO_OPTIONS).deadline_ms),
}
_QUEUE: Final[_Told] = {
    "rate": _rate,
    "concurrency": lambda queue: optional_count(queue.concurrency_max),
    "key_concurrency": lambda queue: optional_count(queue.key_concurrency_max),
    "ageing_seconds": lambda queue: optional_seconds(queue.ageing_ms),
    "retention_seconds": lambda queue: optional_seconds(queue.retention_ms),
    "max_lost_workers": lambda queue: optional_count(queue.lost_workers_max),
    "on_failure": lambda queue: hook_text(queue.on_failure),
    "on_success": lambda queue: hook_text(queue.on_success),
    "weights": lambda queue: list_text(tuple(f"{each.tenant}={each.weight}" for each in queue.weights)),
}
_TENANT: Final[_Told] = {
    "unfinished_jobs": lambda tenant: optional_count(tenant.unfinished_jobs_max),
    "schedules": lambda tenant: optional_count(tenant.schedules_max),
    "submits_per_second": lambda tenant: optional_count(tenant.submits_per_second),
    "submit_burst": lambda tenant: optional_count(tenant.submit_burst),
    "weight": lambda tenant: str(tenant.weight),
}
_TEMPLATE: Final[_Told] = {
    **{name: _of_spec(tell) for name, tell in SPEC_TEXTS.items()},
    "expires_in_seconds": lambda template: optional_seconds(template.expires_after_ms),
    "deadline_in_seconds": lambda template: optional_seconds(template.deadline_after_ms),
}
_SCHEDULE: Final[_Told] = {
    "source": lambda schedule: optional_text(schedule.source),
    "description": lambda schedule: optional_text(schedule.about.description),
    "owner": lambda schedule: optional_text(schedule.about.owner),
    "labels": lambda schedule: list_text(tuple(f"{name}={text}" for name, text in schedule.about.labels)),
    "parameters": lambda schedule: parameters_text(schedule.parameters),
    "cron": lambda schedule: optional_text(schedule.timing.cron),
    "every": lambda schedule: optional_text(schedule.timing.every),
    "at": lambda schedule: time_text(schedule.timing.at_ms),
    "timezone": lambda schedule: schedule.timing.timezone,
    "start_at": lambda schedule: time_text(schedule.timing.start_at_ms),
    "end_at": lambda schedule: time_text(schedule.timing.end_at_ms),
    "jitter_seconds": lambda schedule: optional_seconds(schedule.timing.jitter_ms),
    "dst_gap": lambda schedule: schedule.timing.dst_gap,
    "dst_overlap": lambda schedule: schedule.timing.dst_overlap,
    "max_firings": lambda schedule: optional_count(schedule.timing.max_firings),
    "calendar": lambda schedule: _json(schedule.timing.calendar),
    "overlap": lambda schedule: schedule.overlap.name.lower(),
    "misfire": lambda schedule: schedule.misfire.name.lower(),
    "catchup_window_seconds": lambda schedule: optional_seconds(schedule.catchup_window_ms),
    "expect_success_within_seconds": lambda schedule: optional_seconds((schedule.watch or _NO_WATCH).success_within_ms),
    "late_after_seconds": lambda schedule: optional_seconds((schedule.watch or _NO_WATCH).late_after_ms),
    "notify": lambda schedule: notices_text((schedule.watch or _NO_WATCH).notices),
    "pause.until": lambda schedule: time_text(schedule.pause_until_ms or None),
    **{f"job.{name}": _of_template(tell) for name, tell in _TEMPLATE.items()},
}
