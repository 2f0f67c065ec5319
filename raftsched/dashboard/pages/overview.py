"""Show what is wrong first, most urgent first, and then how much there is to do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from raftsched import limits
from raftsched.client.records import Overview, ScheduleInfo
from raftsched.dashboard.formats import duration, number, words
from raftsched.dashboard.page import Answer, Page, Rendered
from raftsched.dashboard.rendering import url
from raftsched.dashboard.view import View

_LONG_WAIT_MS: Final = 60_000
_LATE: Final = timedelta(seconds=60)
_SHOWN_WAITS: Final = 3
_KINDS: Final = {"critical": "bad", "warning": "warn", "note": "busy"}
_URGENCY: Final = ("bad", "warn", "busy")
_TILES: Final = ("queued", "running", "scheduled", "retrying", "paused", "completed", "dead_letter")


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that is wrong: how badly, in words, since when, and what to do about it."""

    kind: str
    """`bad` needs somebody now, `warn` soon, `busy` is worth knowing."""
    label: str
    text: str
    todo: str
    link: str
    since: str | None = None


async def show(view: View) -> Answer:
    """Return the first page."""
    overview, (schedules, more_schedules) = await asyncio.gather(
        view.client.overview(),
        view.client.page(ScheduleInfo, "/schedules", "schedules", {"limit": limits.PAGE_JOBS_MAX}),
    )
    troubles = [
        *_of_cluster(view),
        *_of_queues(view, overview),
        *_of_dead_letters(overview),
        *_of_schedules(view, schedules),
    ]
    return Rendered(
        "overview/overview.html",
        {
            "troubles": sorted(troubles, key=lambda trouble: _URGENCY.index(trouble.kind)),
            "totals": {name: overview.jobs.get(name, 0) for name in _TILES},
            "overview": overview,
            "are_all_schedules_seen": more_schedules is None,
            "cluster": view.cluster,
        },
    )


def _of_cluster(view: View) -> Iterator[Trouble]:
    """Yield the problems that the cluster sees itself."""
    for problem in view.cluster.problems:
        kind = _KINDS.get(problem.severity, "warn")
        yield Trouble(kind, words(problem.code), problem.text, problem.cure, url("/cluster"), problem.since)


def _of_queues(view: View, overview: Overview) -> Iterator[Trouble]:
    for queue in overview.longest_waits[:_SHOWN_WAITS]:
        if queue.oldest_wait_ms > _LONG_WAIT_MS:
            yield Trouble(
                "bad" if not view.cluster.workers else "warn",
                "long wait",
                f"The oldest job of {queue.name} has waited for {duration(queue.oldest_wait_ms)};"
                f" {number(queue.queued)} are due, {number(queue.running)} run.",
                "Start more workers for it, or look why its jobs are slow."
                if view.cluster.workers
                else "No worker runs: start one with `raftsched worker`.",
                url("/jobs", queue=queue.name, status="queued"),
            )
    for queue in overview.paused:
        pause = queue.settings.pause
        reason = f": {pause.reason}" if pause is not None and pause.reason else ""
        yield Trouble(
            "warn",
            "queue paused",
            f"{queue.name} is paused{reason}; {number(queue.queued)} jobs are due.",
            "Resume it when its reason is gone.",
            url(f"/queues/{queue.name}"),
            pause.since.isoformat() if pause is not None else None,
        )
    if overview.paused_count > len(overview.paused):
        more = overview.paused_count - len(overview.paused)
        yield Trouble("warn", "queue paused", f"{number(more)} more queues are paused.", "", url("/queues"))


def _of_dead_letters(overview: Overview) -> Iterator[Trouble]:
    for reason, count in overview.dead_letters.items():
        yield Trouble(
            "warn",
            "dead letters",
            f"{number(count)} {'job was' if count == 1 else 'jobs were'} given up: {words(reason)}.",
            "Read the error, fix its cause, and requeue them together.",
            url("/jobs", status="dead_letter", reason=reason),
        )


def _of_schedules(view: View, schedules: Sequence[ScheduleInfo]) -> Iterator[Trouble]:
    for schedule in schedules:
        name, link = schedule.name or schedule.id, url(f"/schedules/{schedule.id}")
        for alarm in schedule.alarms:
            yield Trouble("warn", "schedule", f"{name}: {words(alarm.event)}.", "Look at its latest runs.", link)
        is_late = schedule.next_at is not None and view.now - schedule.next_at > _LATE
        if is_late and schedule.pause is None and schedule.next_at is not None:
            todo = "Each fire time is decided by the leader: look whether there is one, and at its clock."
            yield Trouble(
                "bad",
                "schedule late",
                f"{name} has not been decided in time.",
                todo,
                link,
                schedule.next_at.isoformat(),
            )


PAGES: Final = (Page(path="/", nav="Overview", show=show),)
