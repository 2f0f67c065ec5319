"""Convert a schedule's document to the operation that saves it, and a stored schedule back to its document.

The document of a stored schedule, sent again, changes nothing. Amendments change this document, and the changes by a
file are found by comparing two documents. A digest of the document's meaning shows whether a schedule has changed, so
the order of keys and explicit defaults make no difference.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from raftsched.api.access.principal import Principal
from raftsched.api.access.requests import require_queues
from raftsched.api.http.json_reply import requested_time_or_none, seconds_or_none, time_text
from raftsched.api.jobs.calls import payload_of
from raftsched.api.jobs.convert import (
    job_document,
    options_of_body,
    spec_of,
    without_nulls,
)
from raftsched.api.json.times import milliseconds, moment_ms, span_ms
from raftsched.api.schedules.calendars import calendar_document
from raftsched.api.schedules.notices import watch_document, watch_of
from raftsched.api.schedules.parameters import check_placeholders, parameter_document, parameters_of
from raftsched.api.schedules.timing import anchored, first_fire_time, passed_count, timing_of
from raftsched.core.operations.schedules import SaveSchedule
from raftsched.core.records.ids import TENANT_DEFAULT, TimeMs, parse_job_id
from raftsched.core.records.retry import RetryPolicy
from raftsched.core.records.schedule import About, Misfire, Overlap, Schedule, ScheduleId, Template, Timing
from raftsched.core.records.spec import Options, normalized
from raftsched.errors import Invalid
from raftsched.storage.reader import StateReader
from raftsched.wire.jobs import JobBody
from raftsched.wire.schedules import ScheduleRequest

_POLICY_DEFAULT: Final = RetryPolicy()
_OPTIONS_DEFAULT: Final = Options()
_FINGERPRINT_BYTES: Final = 16
_DAY_MS: Final = 86_400_000


class SaveContext(NamedTuple):
    """The details of a save: actor, time and condition."""

    new_id: ScheduleId
    now_ms: int
    caller: Principal
    if_revision: int = 0
    create_only: bool = False
    source: str = ""
    """Source that the schedule is applied from; "" = unchanged."""


# -- saving -----------------------------------------------------------------------------------------------------------


def save_operation(state: StateReader, wanted: ScheduleRequest, context: SaveContext, *, at: str = "") -> SaveSchedule:
    """Return the operation that saves `wanted`; raises `Invalid` naming the field below the path `at`."""
    prefix = f"{at}." if at else ""
    tenant = wanted.tenant or TENANT_DEFAULT
    known = named_schedule(state, tenant, wanted.name)
    if known is not None:
        context.caller.require_within_queues(known.template.spec.queue, f"{prefix}name")
    _check(wanted, context.now_ms, prefix)
    parameters = parameters_of(wanted, prefix)
    timing = timing_of(wanted, prefix=prefix)
    template, payload = template_of(wanted.job, f"{prefix}job.")
    check_placeholders(wanted.job, payload, parameters, f"{prefix}job.")
    operation = SaveSchedule(
        id=context.new_id,
        tenant=tenant,
        name=wanted.name,
        timing=anchored(timing, known, context.now_ms),
        template=template,
        overlap=Overlap[wanted.overlap.upper()],
        misfire=Misfire[wanted.misfire.upper()],
        catchup_window_ms=_window_ms(wanted.catchup_window_seconds),
        next_at_ms=TimeMs(0),
        fingerprint=b"",
        payload=payload,
        passed_count=passed_count(known, context.now_ms),
        if_revision=context.if_revision,
        create_only=context.create_only,
        actor=context.caller.name,
        pause_until_ms=_pause_until(wanted, prefix),
        source=context.source,
        about=about_of(wanted),
        watch=watch_of(wanted, prefix),
        parameters=parameters,
    )
    hooks = [each.hook.spec for each in operation.watch.notices] if operation.watch is not None else []
    require_queues(context.caller, (template.spec, *hooks), f"{prefix}job.")
    return replace(
        operation,
        next_at_ms=first_fire_time(operation.timing, known, now_ms=context.now_ms, prefix=prefix),
        fingerprint=_fingerprint(operation, timing),
    )


def _check(wanted: ScheduleRequest, now_ms: int, prefix: str) -> None:
    """Raise `Invalid` or `Malformed` for a name, time or date that no schedule may have."""
    if _looks_like_id(wanted.name):
        raise Invalid(f"{prefix}name: must not look like an id, since paths take either", field=f"{prefix}name")
    if wanted.at is not None:
        moment_ms(wanted.at, f"{prefix}at")
    only_dates = wanted.calendar and wanted.calendar.only_dates
    if only_dates and max(only_dates) < time_text(TimeMs(now_ms - _DAY_MS))[: len("2027-12-24")]:
        field = f"{prefix}calendar.only_dates"
        raise Invalid(f"{field}: have all passed, so nothing would ever run", field=field)


def _looks_like_id(name: str) -> bool:
    try:
        parse_job_id(name)
    except Invalid:
        return False
    return True


def named_schedule(state: StateReader, tenant: str, name: str) -> Schedule | None:
    """Return the schedule of this name; None if there is none."""
    schedule_id = state.schedule_id_for_name(tenant, name)
    return None if schedule_id is None else state.schedule(schedule_id)


def _fingerprint(operation: SaveSchedule, timing: Timing) -> bytes:
    payload = json.dumps(json.loads(operation.payload), sort_keys=True) if operation.payload else ""
    meaning = (
        timing,
        operation.template,
        operation.overlap,
        operation.misfire,
        operation.catchup_window_ms,
        payload,
        operation.about,
        operation.parameters,
        operation.watch,
    )
    return hashlib.blake2b(msgspec.msgpack.encode(meaning), digest_size=_FINGERPRINT_BYTES).digest()


def about_of(wanted: ScheduleRequest) -> About:
    """Return the texts for people about the schedule."""
    return About(wanted.description or "", wanted.owner or "", tuple(sorted(wanted.labels.items())))


def _window_ms(seconds: float | None) -> int:
    """Return the catch-up window; 0 means the default, so a window of 0 seconds is stored as 1 ms."""
    return 0 if seconds is None else max(1, milliseconds(seconds))


def _pause_until(wanted: ScheduleRequest, prefix: str) -> TimeMs:
    """Return the end of the pause that is saved with the schedule; 0 = none, as for any past time."""
    if wanted.pause_until is None:
        return TimeMs(0)
    return moment_ms(wanted.pause_until, f"{prefix}pause_until")


def template_of(job: JobBody, prefix: str) -> tuple[Template, bytes]:
    template = Template(
        spec_of(job, normalized(options_of_body(job, prefix)), prefix),
        expires_after_ms=span_ms(job.expires_in_seconds),
        deadline_after_ms=span_ms(job.deadline_in_seconds),
    )
    return template, payload_of(job, prefix)


# -- documents --------------------------------------------------------------------------------------------------------


def schedule_document(schedule: Schedule | SaveSchedule, payload: bytes, *, with_nulls: bool = False) -> dict[str, Any]:
    """Return the document that saves this schedule; texts are as they were written, defaults are explicit."""
    timing = schedule.timing
    document: dict[str, Any] = {
        "name": schedule.name,
        "tenant": schedule.tenant,
        "cron": timing.cron or None,
        "every": timing.every or None,
        "at": requested_time_or_none(timing.at_ms),
        "timezone": timing.timezone,
        "dst_gap": timing.dst_gap,
        "dst_overlap": timing.dst_overlap,
        "start_at": requested_time_or_none(timing.start_at_ms),
        "end_at": requested_time_or_none(timing.end_at_ms),
        "calendar": calendar_document(timing.calendar),
        "jitter_seconds": seconds_or_none(timing.jitter_ms),
        "overlap": schedule.overlap.label,
        "misfire": schedule.misfire.label,
        "catchup_window_seconds": seconds_or_none(schedule.catchup_window_ms),
        "max_firings": timing.max_firings or None,
        "description": schedule.about.description or None,
        "owner": schedule.about.owner or None,
        "labels": dict(schedule.about.labels),
        "parameters": [parameter_document(each) for each in schedule.parameters],
        **watch_document(schedule.watch),
        "job": job_document(schedule.template, payload),
    }
    return document if with_nulls else without_nulls(document)
