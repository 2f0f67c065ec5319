"""List schedules: when each fires in words, its next fire time, and what became of its latest one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from raftsched.client.records import ScheduleInfo
from raftsched.dashboard.form_values import form_values
from raftsched.dashboard.page import Answer, Redirect, Rendered
from raftsched.dashboard.rendering import url
from raftsched.dashboard.schedules.timing_words import timing_words
from raftsched.dashboard.view import View
from raftsched.errors import NotFound

_PAGE_SCHEDULES: Final = 50
_FILTERS: Final = ("queue", "owner", "label", "source", "paused", "tenant")
LATE_MS: Final = 5_000
"""A decision is called late from this delay on, unless the schedule has a rule of its own."""


async def show(view: View) -> Answer:
    """Return a page of the schedules that match the filter in the URL, or the one with the name that is asked for."""
    kept = {name: view.query[name] for name in _FILTERS if name in view.query}
    if name := view.query.get("name"):
        try:
            found = await view.client.schedules.get(name, tenant=kept.get("tenant"))
        except NotFound:
            view.error = (
                f"There is no schedule with the name {name}. Filters below find it by its queue, owner or label."
            )
        else:
            return Redirect(url(f"/schedules/{found.id}"))
    query: dict[str, Any] = {**kept, "limit": _PAGE_SCHEDULES, "cursor": view.query.get("cursor")}
    schedules, cursor = await view.client.page(ScheduleInfo, "/schedules", "schedules", query)
    return Rendered(
        "schedules/list.html",
        {
            "rows": [(schedule, words_of(schedule), marks_of(schedule, view.now)) for schedule in schedules],
            "kept": form_values(kept),
            "name": view.query.get("name", ""),
            "next_url": url("/schedules", kept, cursor=cursor) if cursor else None,
            "is_first": "cursor" not in view.query,
        },
    )


def words_of(schedule: ScheduleInfo) -> str:
    """Return when it fires, in words."""
    at = f"{schedule.at:%Y-%m-%d %H:%M:%S} UTC" if schedule.at is not None else None
    return timing_words(schedule.cron, schedule.every, at)


def marks_of(schedule: ScheduleInfo, now: datetime) -> list[tuple[str, str]]:
    """Return what is wrong with it: pairs of a kind (`bad`, `warn`) and words."""
    marks = [("bad" if alarm.event in ("dead_letter", "missed") else "warn", alarm.event) for alarm in schedule.alarms]
    if schedule.status == "active" and schedule.next_at is not None:
        overdue = now - schedule.next_at
        if overdue > timedelta(milliseconds=LATE_MS):
            marks.append(("bad", "overdue"))
    latest = schedule.latest
    if latest is not None:
        if latest.job_id is None:
            marks.append(("warn", "skipped"))
        if is_late(latest.lateness_ms, schedule) and "late" not in {name for _, name in marks}:
            marks.append(("warn", "late"))
    return marks


def is_late(lateness_ms: int | None, schedule: ScheduleInfo) -> bool:
    """Return whether a decision came later than the schedule's rule allows, or noticeably late if it has none."""
    limit_ms = LATE_MS if schedule.late_after_seconds is None else schedule.late_after_seconds * 1000
    return lateness_ms is not None and lateness_ms > limit_ms
