"""Tell the whole story of a job: why it is not running, each attempt, its log, its data, who did what to it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

from raftsched.client import Job
from raftsched.client.records import AuditEntry, History, JobInfo, LogLine, Runs
from raftsched.dashboard import fields
from raftsched.dashboard.formats import duration
from raftsched.dashboard.page import Answer, Page, Rendered
from raftsched.dashboard.pages.job_actions import legal_actions
from raftsched.dashboard.view import View
from raftsched.errors import Unavailable

_LOG_LINES_MAX: Final = 400
_AUDIT_MAX: Final = 20
_AXIS: Final = 1000
"""Width of the time line, in units of its drawing."""
_BAR_MIN: Final = 6
_KINDS: Final = {"completed": "good", "snoozed": "warn", "cancelled": "quiet", None: "busy"}
"""Colours of the ends of attempts; others are bad."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Bar:
    """One attempt in the time line, from the submission to now or to the end."""

    run_number: int
    attempt: Any
    kind: str
    left: float
    width: float
    waited_ms: float
    """From the end of the attempt before, or from the submission."""


async def show(view: View) -> Answer:
    """Return the page of a job."""
    handle = view.client.job(view.match["id"])
    job, runs, history, explained, audit = await asyncio.gather(
        handle.get(), handle.runs(), handle.history(), _or_none(handle.explain()), _audit(view)
    )
    run, attempt = fields.whole(view.query, "run"), fields.whole(view.query, "attempt")
    log = await _tail(handle, run, attempt) if job.attempt_number or attempt else deque()
    return Rendered(
        "job/job.html",
        {
            "job": job,
            "bars": bars_of(job, runs, view.now),
            "runs": runs,
            "reasons": () if explained is None or job.is_finished else explained.reasons,
            "is_explained": explained is not None,
            "log": log,
            "log_is_cut": len(log) == _LOG_LINES_MAX,
            "shown_attempt": (log[-1].run_number, log[-1].attempt_number) if log else (run, attempt),
            "story": _story(history),
            "is_short": history.truncated or runs.truncated,
            "audit": audit,
            "actions": legal_actions(view, job),
            "ago": lambda moment: duration((view.now - moment).total_seconds() * 1000),
        },
    )


def bars_of(job: JobInfo, runs: Runs, now: datetime) -> Sequence[Bar]:
    """Return the attempts in the time line, in the order of their starts."""
    start, end = job.created_at, job.completed_at or now
    whole_ms = max(1.0, _ms(start, end))
    bars = []
    idle_since = start
    for run in runs.runs:
        for attempt in run.attempts:
            left = min(_AXIS - _BAR_MIN, max(0.0, _AXIS * _ms(start, attempt.started_at) / whole_ms))
            ended = attempt.ended_at or end
            width = max(float(_BAR_MIN), _AXIS * _ms(attempt.started_at, ended) / whole_ms)
            kind = _KINDS.get(attempt.end, "bad")
            waited_ms = max(0.0, _ms(idle_since, attempt.started_at))
            bars.append(Bar(run.run_number, attempt, kind, left, min(width, _AXIS - left), waited_ms))
            idle_since = ended
    return bars


def _ms(start: datetime, end: datetime) -> float:
    return (end - start).total_seconds() * 1000


async def _tail(handle: Job, run: int | None, attempt: int | None) -> deque[LogLine]:
    """Return the last lines of an attempt's log, by default the latest one's."""
    lines: deque[LogLine] = deque(maxlen=_LOG_LINES_MAX)
    async for line in handle.logs(run=run, attempt=attempt):
        lines.append(line)
    return lines


def _story(history: History) -> Sequence[Any]:
    """Return the events, the latest first."""
    return list(reversed(history.events))


async def _audit(view: View) -> Sequence[AuditEntry]:
    """Return the audit entries about the job; none for a reader who may not see them."""
    if not view.may("audit"):
        return ()
    query = {"subject": f"job:{view.match['id']}", "limit": _AUDIT_MAX}
    entries, _ = await view.client.page(AuditEntry, "/audit", "entries", query)
    return entries


async def _or_none(read: Awaitable[T]) -> T | None:
    """Return what is read, or None if only a leader could tell."""
    try:
        return await read
    except Unavailable:
        return None


PAGES: Final = (Page(path="/jobs/{id}", show=show),)
