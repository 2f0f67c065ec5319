"""Build the replies of queues, and read a queue's name from the path."""

from __future__ import annotations

from aiohttp import web

from raftsched.api.access.principal import Principal, principal_of
from raftsched.api.http.json_reply import time_or_none, time_text
from raftsched.api.jobs.convert import shown_hook
from raftsched.api.queue_activity import PERIOD_MS, Period, QueueActivity
from raftsched.core.jobs import rate_limit as bucket
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.queue import Queue
from raftsched.errors import NotFound
from raftsched.wire.common import PauseDocument, is_name
from raftsched.wire.queues import ActivityDocument, ActivityPeriodDocument, QueueSettingsReply, RateReply


def named_queue(request: web.Request) -> str:
    """Return the queue's name in the path; raises `NotFound` for a text that is not a name, or another tenant's."""
    name = request.match_info["name"]
    if not is_name(name) or not principal_of(request).sees_queue(name):
        raise NotFound("there is no such queue: this is not a queue's name")
    return name


def settings_reply(queue: Queue, caller: Principal) -> QueueSettingsReply:
    """Return the settings as the caller may see them: of a shared queue without what concerns other tenants."""
    is_whole = not caller.is_bound or caller.owns_queue(queue.name)
    return QueueSettingsReply(
        pause=_pause(queue),
        rate=_rate(queue),
        concurrency=queue.concurrency_max or None,
        key_concurrency=queue.key_concurrency_max or None,
        ageing_seconds=queue.ageing_ms / 1000 if queue.ageing_ms else None,
        retention_seconds=queue.retention_ms / 1000 if queue.retention_ms else None,
        max_lost_workers=queue.lost_workers_max or None,
        weights={each.tenant: each.weight for each in queue.weights if caller.sees(each.tenant)},
        on_failure=shown_hook(queue.on_failure) if is_whole else None,
        on_success=shown_hook(queue.on_success) if is_whole else None,
        revision=queue.revision or None,
        updated_at=time_or_none(queue.updated_at_ms),
    )


def activity_reply(activity: QueueActivity, queue: str, caller: Principal, now_ms: int) -> ActivityDocument[str]:
    """Return the latest minutes of a queue, of the jobs that the caller may see."""
    periods = list(activity.periods(queue, caller.scope, now_ms))
    total = Period()
    for _, period in periods:
        total.add(period)
    return ActivityDocument(
        period_seconds=PERIOD_MS / 1000,
        wait_p99_ms=total.wait_ms(),
        periods=[
            ActivityPeriodDocument(
                at=time_text(TimeMs(at_ms)),
                submitted=period.submitted,
                started=period.started,
                completed=period.completed,
                failed=period.failed,
                wait_p99_ms=period.wait_ms(),
            )
            for at_ms, period in periods
        ],
    )


def _rate(queue: Queue) -> RateReply | None:
    if not queue.rate_count:
        return None
    return RateReply(count=queue.rate_count, per_seconds=queue.rate_period_ms / 1000, burst=bucket.burst(queue))


def _pause(queue: Queue) -> PauseDocument[str] | None:
    if not queue.paused:
        return None
    return PauseDocument(
        since=time_text(queue.paused_at_ms),
        until=time_or_none(queue.pause_until_ms),
        reason=queue.pause_reason or None,
        by=queue.paused_by or None,
    )
