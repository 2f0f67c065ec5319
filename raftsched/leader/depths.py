"""How full the queues are, for people and autoscalers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from raftsched.core.job import WAITING, Status
from raftsched.leader.view import LeaderView

DUE_TIMERS_MAX: Final = 1_000
"""Timed jobs that are due, read one by one for an exact count: a few milliseconds of work."""
_PRIORITIES: Final = range(10)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDepth:
    """One queue at one moment."""

    queue: str
    counts: dict[Status, int]
    """Jobs by the status users see; statuses without jobs are left out."""
    exact: bool
    """False: so many timed jobs are due that not all were looked at; `QUEUED` then counts too few, and `SCHEDULED` and
    `RETRYING` as many too much."""
    oldest_wait_ms: int
    """How long the job that is due longest has waited for a worker, whoever's it is; 0 = none waits."""
    waiting_workers: int
    """Workers that wait for jobs of this queue now."""


@dataclass(slots=True)
class _Tally:
    counts: dict[Status, int] = field(default_factory=lambda: defaultdict(int))
    exact: bool = True


def queue_depths(
    view: LeaderView, now_ms: int, *, waiting_workers: Callable[[str], int], tenant: str | None = None
) -> list[QueueDepth]:
    """Every queue that holds jobs, of one tenant or of all, by name.

    The counters tell stored statuses apart; jobs that became due by time alone are moved to `QUEUED` here. Costs some
    microseconds a queue and up to `DUE_TIMERS_MAX` reads.
    """
    tallies: dict[str, _Tally] = defaultdict(_Tally)
    for key, count in view.counters().items():
        if count and tenant in (None, key.tenant):
            tallies[key.queue].counts[key.status] += count
    _move_due(view, now_ms, tenant, tallies)
    return [
        QueueDepth(
            queue=queue,
            counts={status: count for status, count in sorted(tally.counts.items()) if count},
            exact=tally.exact,
            oldest_wait_ms=_oldest_wait_ms(view, queue, now_ms) if WAITING & tally.counts.keys() else 0,
            waiting_workers=waiting_workers(queue),
        )
        for queue, tally in sorted(tallies.items())
    ]


def _move_due(view: LeaderView, now_ms: int, tenant: str | None, tallies: dict[str, _Tally]) -> None:
    due = view.timers(until_ms=now_ms, limit=DUE_TIMERS_MAX)
    for entry in due:
        job = view.job(entry.job_id)
        if job is not None and tenant in (None, job.tenant) and job.status is not job.status_at(now_ms):
            counts = tallies[job.queue].counts
            counts[job.status] -= 1
            counts[Status.QUEUED] += 1
    if len(due) == DUE_TIMERS_MAX:
        for tally in tallies.values():
            tally.exact = not (tally.counts[Status.SCHEDULED] or tally.counts[Status.RETRYING])


def _oldest_wait_ms(view: LeaderView, queue: str, now_ms: int) -> int:
    firsts = (view.waiting(queue, priority, due_until_ms=now_ms, limit=1) for priority in _PRIORITIES)
    return max((now_ms - first[0].due_at_ms for first in firsts if first), default=0)
