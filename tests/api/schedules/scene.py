"""Verbs for the tests of schedules."""

from __future__ import annotations

from typing import Any, Final

from raftsched.api.http.json_reply import time_text
from raftsched.core.operations.schedules import Decision, FireSchedule
from raftsched.core.records.ids import TimeMs, parse_job_id
from raftsched.core.records.schedule import ScheduleId
from raftsched.core.state.results import Fired
from tests.api.node import Answer, Api

REPORT: Final[dict[str, Any]] = {"name": "report", "job": {"name": "build_report", "payload": {"n": 1}}}
"""A schedule but for its timing."""

MINUTE: Final = 60_000
at = time_text


async def saved(api: Api, **fields: Any) -> Any:
    """Save a schedule, by default at each full hour, and return it."""
    when = {} if fields.keys() & {"cron", "every", "at"} else {"cron": "0 * * * *"}
    answer = await api.post("schedules", REPORT | when | fields)
    assert answer.status in (200, 201), answer.body
    return answer.json


async def patch(api: Api, key: str, changes: dict[str, Any] | bytes, **headers: str) -> Answer:
    return await api.patch(f"schedules/{key}", changes, **headers)


def decided(
    api: Api,
    schedule: dict[str, Any],
    fire_time_ms: int,
    *,
    late_ms: int = 0,
    reason: str = "",
    count: int = 1,
    step_ms: int = MINUTE,
) -> None:
    """Decide for an instant, or skip `count` of them, as the leader does."""
    schedule_id = ScheduleId(parse_job_id(schedule["id"]))
    last_ms = fire_time_ms + (count - 1) * step_ms
    api.node.clock.now_ms = last_ms + late_ms
    if reason:
        decision = Decision(TimeMs(fire_time_ms), reason=reason, count=count, last_fire_time_ms=TimeMs(last_ms))
    else:
        decision = Decision(TimeMs(fire_time_ms), api.node.new_job_id(), TimeMs(fire_time_ms))
    result = api.node.apply(FireSchedule(schedule_id, 1, (decision,), TimeMs(last_ms + step_ms)))
    assert isinstance(result, Fired), result
