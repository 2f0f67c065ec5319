"""Show one schedule: its next fire times, a calendar of a month, its ledger, and how its latest runs went.

Each part is one page of a list of the API, so the page costs the same however long the schedule has run.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from raftsched.client.records import Firing, JobInfo, Preview, ScheduleInfo
from raftsched.dashboard.form_values import form_values
from raftsched.dashboard.page import Answer, Rendered
from raftsched.dashboard.pages.schedules.listing import LATE_MS, is_late, marks_of, words_of
from raftsched.dashboard.rendering import url
from raftsched.dashboard.schedules.clock_changes import ClockChange, clock_changes
from raftsched.dashboard.schedules.month import Month, month_of
from raftsched.dashboard.view import View

_PAGE_ENTRIES: Final = 30
_LEDGER_KEPT: Final = 1_000
_NEXT_COUNT: Final = 6
_MONTH_PREVIEW_COUNT: Final = 750
"""Fire times to come that a month shows: all of an hourly schedule."""
_DAY_PREVIEW_COUNT: Final = 60
_RUNS_COUNT: Final = 100
_YEAR: Final = timedelta(days=366)
_MARGIN: Final = timedelta(hours=3)
_TIMING: Final = ("cron", "every", "at", "timezone", "dst_gap", "dst_overlap", "start_at", "end_at", "calendar")


@dataclass(frozen=True, slots=True)
class DstPreview:
    """A clock change to come, and what a schedule does around it."""

    change: ClockChange
    firings: Sequence[datetime]
    """Its fire times from some hours before the change to some hours after."""
    is_complete: bool

    def wall(self, at: datetime) -> str:
        """Return the time on the clocks of the zone."""
        return f"{at.astimezone(self.change.zone):%a %H:%M:%S}"


async def show(view: View) -> Answer:
    """Return the page of a schedule."""
    schedule = await view.client.schedules.get(view.match["id"])
    zone = zone_of(schedule)
    month = month_of(view.query.get("month", ""), view.now, zone)
    path = f"/schedules/{schedule.id}/firings"
    kept = {name: view.query[name] for name in ("kind", "fired") if name in view.query}
    entries, kept_entries, coming, following, jobs, dst = await asyncio.gather(
        view.client.page(Firing, path, "firings", {**kept, "limit": _PAGE_ENTRIES, "cursor": view.query.get("cursor")}),
        view.client.page(Firing, path, "firings", {"limit": _LEDGER_KEPT}),
        _coming(view, schedule, month),
        view.client.schedules.next(schedule.id, count=_NEXT_COUNT),
        view.client.page(JobInfo, "/jobs", "jobs", {"schedule": schedule.id, "order": "desc", "limit": _RUNS_COUNT}),
        _dst_preview(view, schedule, zone),
    )
    return Rendered(
        "schedules/schedule.html",
        {
            "schedule": schedule,
            "words": words_of(schedule),
            "marks": marks_of(schedule, view.now),
            "next": following,
            "overdue_before": view.now - timedelta(milliseconds=LATE_MS),
            "entries": [(entry, is_late(entry.lateness_ms, schedule)) for entry in entries[0]],
            "entries_next": _ledger_url(schedule, kept, entries[1]),
            "is_first_entries": "cursor" not in view.query,
            "kept": form_values(kept),
            "month": month,
            "weeks": month.weeks(view.now, kept_entries[0], coming),
            "coming_until": _end_of(coming, month),
            "ledger_since": kept_entries[0][-1].instant if kept_entries[1] else None,
            "ledger": ledger_statistics(kept_entries[0], schedule),
            "runs": run_statistics(jobs[0]),
            "latest_jobs": jobs[0][:10],
            "dst": dst,
            "job_name": (schedule.job or {}).get("name", ""),
            "job_queue": (schedule.job or {}).get("queue") or (schedule.job or {}).get("name", ""),
        },
    )


def zone_of(schedule: ScheduleInfo) -> ZoneInfo:
    """Return the zone; UTC if this node does not know it."""
    try:
        return ZoneInfo(schedule.timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")


def timing_of(schedule: ScheduleInfo) -> dict[str, Any]:
    """Return its timing as a preview takes it."""
    return {name: value for name in _TIMING if (value := getattr(schedule, name)) is not None}


async def _coming(view: View, schedule: ScheduleInfo, month: Month) -> Preview | None:
    """Return the fire times of the month that are still to come; None if there are none."""
    first = max(view.now, month.start)
    if first >= month.end or schedule.status in ("ended", "manual"):
        return None
    count = _MONTH_PREVIEW_COUNT
    if schedule.max_firings:
        count = min(count, schedule.max_firings - schedule.fired_count)
    return await view.client.schedules.preview(
        after=first - timedelta(milliseconds=1), count=max(1, count), **timing_of(schedule)
    )


def _end_of(coming: Preview | None, month: Month) -> datetime | None:
    """Return until when fire times to come are shown; None = for the whole month."""
    if coming is None or len(coming.firings) < _MONTH_PREVIEW_COUNT or coming.firings[-1] >= month.end:
        return None
    return coming.firings[-1]


async def _dst_preview(view: View, schedule: ScheduleInfo, zone: ZoneInfo) -> DstPreview | None:
    """Return what happens at the next clock change of its zone; None if there is none within a year."""
    change = next(clock_changes(zone, view.now, view.now + _YEAR), None)
    if change is None or schedule.status in ("ended", "manual"):
        return None
    preview = await view.client.schedules.preview(
        after=change.at - _MARGIN, count=_DAY_PREVIEW_COUNT, **timing_of(schedule)
    )
    around = [at for at in preview.firings if at <= change.at + _MARGIN]
    return DstPreview(change, around, is_complete=len(around) < _DAY_PREVIEW_COUNT)


def _ledger_url(schedule: ScheduleInfo, kept: Mapping[str, str], cursor: str | None) -> str | None:
    return f"{url(f'/schedules/{schedule.id}', kept, cursor=cursor)}#ledger" if cursor else None


def ledger_statistics(entries: Sequence[Firing], schedule: ScheduleInfo) -> dict[str, Any]:
    """Return how often it fired and was skipped, why, and how late its decisions were."""
    lateness = sorted(entry.lateness_ms for entry in entries if entry.fired and entry.lateness_ms is not None)
    reasons: Counter[str] = Counter()
    for entry in entries:
        if not entry.fired:
            reasons[entry.reason or "unknown"] += entry.count or 1
    return {
        "fired": sum(entry.fired for entry in entries),
        "skipped": sum(reasons.values()),
        "reasons": reasons.most_common(),
        "late": sum(is_late(each, schedule) for each in lateness),
        "lateness_median_ms": quantile(lateness, 0.5),
        "lateness_p99_ms": quantile(lateness, 0.99),
    }


def run_statistics(jobs: Sequence[JobInfo]) -> dict[str, Any]:
    """Return how the latest runs ended, and how long they took."""
    times = sorted(job.execution_time_ms for job in jobs if job.execution_time_ms is not None)
    return {
        "count": len(jobs),
        "statuses": Counter(job.status for job in jobs).most_common(),
        "median_ms": quantile(times, 0.5),
        "p99_ms": quantile(times, 0.99),
        "longest_ms": times[-1] if times else None,
    }


def quantile(ordered: Sequence[int], share: float) -> int | None:
    """Return the value below which this share of the sorted values lies; None if there are none."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def utc_text(at: datetime | None) -> str:
    """Return a time as an input of a form takes it."""
    if at is None:
        return ""
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds" if at.microsecond else "seconds")
