"""Lines of the audit trail: who did what to what, kept in the state itself, in the log entry that did it.

What changed is told as users know it: fields by their names in the API, times and spans as it writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from raftsched.core.records.job import Job, Options
from raftsched.core.records.queue import Queue
from raftsched.core.records.schedule import Schedule
from raftsched.core.records.texts import seconds_text, span_text, time_text
from raftsched.core.state.entries import AuditEntry
from raftsched.core.state.results import Context
from raftsched.core.state.writes import PutAudit

_VALUE_CHARS_MAX: Final = 200
_NONE: Final = "none"
_NO_OPTIONS: Final = Options()
_Told = Mapping[str, Callable[[Any], str]]
"""How each field is told, by its name in the API, of a record."""


def audited(
    context: Context, action: str, subject: str, *, tenant: str = "", actor: str = "", detail: str = ""
) -> PutAudit:
    """Return the write of one line. `action` is `<noun>.<verb>`, `subject` is `<noun>:<id or name>`."""
    return PutAudit(AuditEntry(context.now_ms, actor, action, subject, tenant, detail, context.index))


def job_changes(before: Job, after: Job) -> str:
    """Return what an amendment changed, `field: before -> after`; "" where nothing did. Texts and notes are left out."""
    return _changes(before, after, _JOB)


def queue_changes(before: Queue, after: Queue) -> str:
    """Return which settings changed, `field: before -> after`; "" where none did."""
    return _changes(before, after, _QUEUE)


def schedule_changes(before: Schedule, after: Schedule, *, payload_changed: bool = False) -> str:
    """Return which fields of a schedule changed, `field: before -> after`, of the payload only that it did."""
    text = _changes(before, after, _SCHEDULE)
    if not payload_changed:
        return text
    return f"{text}; job.payload" if text else "job.payload"


def _changes(before: object, after: object, told: _Told) -> str:
    pairs = ((name, tell(before), tell(after)) for name, tell in told.items())
    return "; ".join(f"{name}: {_cut(old)} -> {_cut(new)}" for name, old, new in pairs if old != new)


def _cut(text: str) -> str:
    return text if len(text) <= _VALUE_CHARS_MAX else f"{text[:_VALUE_CHARS_MAX]}…"


# -- how values are told ----------------------------------------------------------------------------------------------


def _seconds(ms: int) -> str:
    return seconds_text(ms) if ms else _NONE


def _count(number: int) -> str:
    return str(number) if number else _NONE


def _text(text: str) -> str:
    return text or _NONE


def _listed(texts: tuple[str, ...]) -> str:
    return ", ".join(texts) or _NONE


def _json(value: object) -> str:
    return _NONE if value is None else msgspec.json.encode(value).decode()


def _options(job: Any) -> Options:
    return job.options or _NO_OPTIONS


def _rate(queue: Queue) -> str:
    if not queue.rate_count:
        return _NONE
    burst = f", burst {queue.rate_burst}" if queue.rate_burst else ""
    return f"{queue.rate_count} per {span_text(queue.rate_period_ms)}{burst}"


def _template(tell: Callable[[Any], str]) -> Callable[[Schedule], str]:
    return lambda schedule: tell(schedule.template)


def _retry_policy(job: Any) -> str:
    policy = job.retry
    spans = ", ".join(f"{name} {span_text(ms)}" for name, ms in (("base", policy.base_ms), ("cap", policy.cap_ms)))
    delays = f", delays {_listed(tuple(map(span_text, policy.delays_ms)))}" if policy.delays_ms else ""
    factors = f"factor {seconds_text(policy.factor_thousandths)}, jitter {seconds_text(policy.jitter_thousandths)}"
    return f"{policy.backoff.name.lower()}, {spans}, {factors}{delays}"


_JOB: Final[_Told] = {
    "run_at": lambda job: time_text(job.due_at_ms),
    "priority": lambda job: str(job.priority),
    "queue": lambda job: job.queue,
    "max_attempts": lambda job: str(job.max_attempts),
    "timeout_seconds": lambda job: _seconds(job.timeout_ms),
    "tags": lambda job: _listed(job.tags),
    "expires_at": lambda job: time_text(_options(job).expires_at_ms),
    "deadline": lambda job: time_text(_options(job).deadline_ms),
    "max_lost_workers": lambda job: _count(_options(job).lost_workers_max),
}
_QUEUE: Final[_Told] = {
    "rate": _rate,
    "concurrency": lambda queue: _count(queue.concurrency_max),
    "key_concurrency": lambda queue: _count(queue.key_concurrency_max),
    "ageing_seconds": lambda queue: _seconds(queue.ageing_ms),
    "retention_seconds": lambda queue: _seconds(queue.retention_ms),
    "max_lost_workers": lambda queue: _count(queue.lost_workers_max),
    "weights": lambda queue: _listed(tuple(f"{each.tenant}={each.weight}" for each in queue.weights)),
}
_TEMPLATE: Final[_Told] = {
    "name": lambda job: job.name,
    "queue": lambda job: job.queue,
    "priority": lambda job: str(job.priority),
    "max_attempts": lambda job: str(job.max_attempts),
    "timeout_seconds": lambda job: _seconds(job.timeout_ms),
    "heartbeat_timeout_seconds": lambda job: _seconds(_options(job).heartbeat_timeout_ms),
    "retry_policy": _retry_policy,
    "retry_on": lambda job: _listed(_options(job).retry_on),
    "no_retry": lambda job: _listed(_options(job).no_retry),
    "start": lambda job: "at_most_once" if _options(job).at_most_once else "at_least_once",
    "concurrency_key": lambda job: _text(_options(job).concurrency_key),
    "on_dependency_failure": lambda job: _options(job).on_dependency_failure.name.lower(),
    "tags": lambda job: _listed(job.tags),
    "region": lambda job: _text(job.region),
    "expires_in_seconds": lambda job: _seconds(job.expires_after_ms),
    "deadline_in_seconds": lambda job: _seconds(job.deadline_after_ms),
    "retention_seconds": lambda job: _seconds(_options(job).retention_ms),
    "max_lost_workers": lambda job: _count(_options(job).lost_workers_max),
}
_SCHEDULE: Final[_Told] = {
    "source": lambda schedule: _text(schedule.source),
    "cron": lambda schedule: _text(schedule.timing.cron),
    "every": lambda schedule: _text(schedule.timing.every),
    "at": lambda schedule: time_text(schedule.timing.at_ms),
    "timezone": lambda schedule: schedule.timing.timezone,
    "start_at": lambda schedule: time_text(schedule.timing.start_at_ms),
    "end_at": lambda schedule: time_text(schedule.timing.end_at_ms),
    "jitter_seconds": lambda schedule: _seconds(schedule.timing.jitter_ms),
    "dst_gap": lambda schedule: schedule.timing.dst_gap,
    "dst_overlap": lambda schedule: schedule.timing.dst_overlap,
    "max_firings": lambda schedule: _count(schedule.timing.max_firings),
    "calendar": lambda schedule: _json(schedule.timing.calendar),
    "overlap": lambda schedule: schedule.overlap.name.lower(),
    "misfire": lambda schedule: schedule.misfire.name.lower(),
    "catchup_window_seconds": lambda schedule: _seconds(schedule.catchup_window_ms),
    "pause.until": lambda schedule: time_text(schedule.pause_until_ms or None),
    **{f"job.{name}": _template(tell) for name, tell in _TEMPLATE.items()},
}
