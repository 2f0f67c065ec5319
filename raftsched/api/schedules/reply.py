"""Build the replies of schedules and ledgers, and find the schedule that a path names."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from aiohttp import web

from raftsched.api.access.principal import principal_of
from raftsched.api.http.consistency import etag
from raftsched.api.http.json_reply import encode, id_text, time_or_none, time_text
from raftsched.api.schedules.documents import named_schedule, schedule_document
from raftsched.core.records.ids import TENANT_DEFAULT, TimeMs, job_id_text, parse_job_id
from raftsched.core.records.schedule import Firing, FiringKind, Schedule, ScheduleId
from raftsched.errors import Invalid, NotFound
from raftsched.storage.reader import StateReader
from raftsched.wire.common import PauseDocument, is_name
from raftsched.wire.firings import FiringReply, SkippedDocument
from raftsched.wire.notices import AlarmDocument
from raftsched.wire.schedules import LatestDocument, ScheduleReply

_NULL: Final = msgspec.Raw(b"null")


def found_schedule(state: StateReader, request: web.Request, tenant: str | None) -> Schedule:
    """Return the schedule that the path names, by its id or by its name within the tenant; raises `NotFound`."""
    text = request.match_info["id"]
    found = _by_id(state, text) or (is_name(text) and named_schedule(state, tenant or TENANT_DEFAULT, text))
    if not found or not principal_of(request).sees(found.tenant):
        raise NotFound("there is no such schedule")
    return found


def changed_schedule(state: StateReader, request: web.Request, tenant: str | None) -> Schedule:
    """Return the schedule as `found_schedule` does, for a change; raises `Forbidden` if its queue is not the caller's."""
    schedule = found_schedule(state, request, tenant)
    principal_of(request).require_within_queues(schedule.template.spec.queue)
    return schedule


def _by_id(state: StateReader, text: str) -> Schedule | None:
    try:
        return state.schedule(ScheduleId(parse_job_id(text)))
    except Invalid:
        return None


def tagged(response: web.Response, schedule: Schedule) -> web.Response:
    """Return the response with the schedule's ETag, which runs do not change."""
    response.headers["ETag"] = etag(schedule.changed_revision)
    return response


def schedule_reply(
    schedule: Schedule, payload: bytes, fires_ms: TimeMs, latest: LatestDocument[str] | None
) -> ScheduleReply:
    """Return the schedule; `fires_ms` is its next fire time, 0 = none is known."""
    document: dict[str, Any] = schedule_document(schedule, payload, with_nulls=True)
    document["calendar"] = msgspec.Raw(encode(document["calendar"]))
    document["parameters"] = msgspec.Raw(encode(document["parameters"]))
    document["notify"] = msgspec.Raw(encode(document["notify"]))
    document["job"] = msgspec.Raw(encode(document["job"]))
    return ScheduleReply(
        id=job_id_text_of(schedule),
        status=_status(schedule),
        source=schedule.source or None,
        pause=_pause(schedule),
        next_at=time_or_none(fires_ms),
        last_at=time_or_none(schedule.last_at_ms),
        latest=latest,
        last_success_at=time_or_none(schedule.health.success_at_ms),
        alarms=[
            AlarmDocument(event=alarm.event.label, since=time_text(alarm.since_ms)) for alarm in schedule.health.alarms
        ],
        fired_count=schedule.fired_count,
        skipped_count=schedule.skipped_count,
        active=[job_id_text(job_id) for job_id in schedule.active],
        backfilling=[job_id_text(job_id) for job_id in schedule.backfilling],
        generation=schedule.generation,
        revision=schedule.revision,
        changed_revision=schedule.changed_revision,
        created_at=time_text(schedule.created_at_ms),
        updated_at=time_text(schedule.updated_at_ms),
        **document,
    )


def job_id_text_of(schedule: Schedule) -> str:
    """Return the text of a schedule's id, which is that of a UUID."""
    text = id_text(schedule.id)
    assert text is not None
    return text


def _status(schedule: Schedule) -> Literal["active", "manual", "paused", "ended"]:
    if schedule.timing.is_by_hand:
        return "manual"
    if not schedule.next_at_ms:
        return "ended"
    return "paused" if schedule.paused else "active"


def _pause(schedule: Schedule) -> PauseDocument[str] | None:
    if not schedule.paused:
        return None
    return PauseDocument(
        since=time_text(schedule.paused_at_ms),
        until=time_or_none(schedule.pause_until_ms),
        reason=schedule.pause_reason or None,
        by=None,
    )


def latest_reply(state: StateReader, schedule: Schedule, now_ms: int) -> LatestDocument[str] | None:
    """Return the latest ledger entry, with the state of its job; it reads one entry and one job."""
    entries = state.list_firings(schedule.id, limit=1, descending=True).items
    if not entries:
        return None
    firing = entries[0][1]
    job = state.job(firing.job_id) if firing.job_id else None
    return LatestDocument(
        instant=time_text(firing.fire_time_ms),
        kind=firing.kind.label,
        job_id=id_text(firing.job_id),
        status=job.status_at(now_ms).label if job is not None else None,
        reason=(firing.reason or (job.failure_reason if job is not None else "")) or None,
        lateness_ms=_lateness_ms(firing),
    )


def _lateness_ms(firing: Firing) -> int | None:
    return max(0, firing.decided_at_ms - firing.fire_time_ms) if firing.kind is FiringKind.PLANNED else None


def firing_reply(firing: Firing) -> FiringReply:
    return FiringReply(
        instant=time_text(firing.fire_time_ms),
        kind=firing.kind.label,
        fired=bool(firing.job_id),
        job_id=id_text(firing.job_id),
        reason=firing.reason or None,
        count=firing.count or None,
        last_instant=time_or_none(firing.last_fire_time_ms),
        decided_at=time_text(firing.decided_at_ms),
        lateness_ms=_lateness_ms(firing),
        generation=firing.generation,
        revision=firing.revision,
    )


def skipped_replies(skipped: list[tuple[int, str]]) -> list[SkippedDocument[str]]:
    return [SkippedDocument(instant=time_text(at_ms), reason=reason) for at_ms, reason in skipped]
