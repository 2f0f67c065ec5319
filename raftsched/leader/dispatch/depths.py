"""Measure how full the queues are, for people and autoscalers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from raftsched.core.records.ids import JobId
from raftsched.core.records.job import LEASED, WAITING, Job, Status
from raftsched.leader.view import LeaderView

DUE_TIMERS_MAX: Final = 1_000
"""Timed jobs that are due, read one by one for an exact count: a few milliseconds of work."""
BLOCKED_COUNTED_MAX: Final = 1_000
"""Blocked jobs of a queue, counted one by one; more of them count as ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDepth:
    """One queue at one moment."""

    queue: str
    counts: dict[Status, int]
    """Jobs by the status that users see; statuses without jobs are left out."""
    exact: bool
    """False: so many timed jobs are due that not all were looked at; `QUEUED` then counts too few, and the other
    waiting statuses as many too much."""
    oldest_wait_ms: int
    """Wait of the longest-due job that waits for a worker; 0 = none waits."""
    waiting_workers: int
    """Workers that wait for jobs of this queue now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueScale:
    """Inputs for the number of workers that a queue should have, at one moment: for one tenant's jobs, or for all."""

    queue: str
    ready_count: int
    """Jobs that are due and wait for nothing but a worker, and the queue's limits."""
    exact: bool
    """False: `ready_count` may be too small, as in `QueueDepth`, or count blocked jobs beyond `BLOCKED_COUNTED_MAX`."""
    running_count: int
    delayed_count: int
    """Jobs that wait for their time."""
    oldest_wait_ms: int
    waiting_workers: int
    """Workers that wait for jobs of this queue now."""
    worker_count: int
    """Living workers that take jobs of this queue."""
    worker_slots: int
    """Jobs that a typical worker of the queue runs at the same time; 1 if none is known."""
    wanted_workers: int
    """Workers of that size needed for all running and ready jobs, within the queue's pause and `concurrency_max`. Its
    rate is not considered: it says nothing about workers."""


@dataclass(slots=True)
class _Tally:
    counts: Counter[Status]
    exact: bool = True


def queue_depths(
    view: LeaderView,
    queues: Iterable[str],
    now_ms: int,
    *,
    waiting_workers: Callable[[str], int],
    tenant: str | None = None,
) -> list[QueueDepth]:
    """Return the depth of each of these queues, in their order; the jobs are those of one tenant or of all.

    The counters tell stored statuses apart; jobs that became due by time alone are moved to `QUEUED` here. Costs some
    microseconds a queue and up to `DUE_TIMERS_MAX` reads.
    """
    return [
        QueueDepth(
            queue=queue,
            counts={status: count for status, count in sorted(tally.counts.items()) if count},
            exact=tally.exact,
            oldest_wait_ms=oldest_wait_ms(view, queue, now_ms, tenant) if WAITING & tally.counts.keys() else 0,
            waiting_workers=waiting_workers(queue),
        )
        for queue, tally in _tallies(view, queues, now_ms, tenant).items()
    ]


def queue_scale(
    view: LeaderView,
    queue: str,
    now_ms: int,
    *,
    waiting_workers: int,
    worker_count: int,
    worker_slots: int,
    tenant: str | None = None,
) -> QueueScale:
    """Return the queue's numbers for autoscalers, of one tenant's jobs or of all; zeros if there are no jobs and workers.

    Costs as much as its `queue_depths`, and up to `BLOCKED_COUNTED_MAX` reads. The queue's `concurrency_max` counts as
    if all of it were the tenant's.
    """
    tally = _tallies(view, (queue,), now_ms, tenant)[queue]
    blocked = view.blocked_jobs(queue, limit=BLOCKED_COUNTED_MAX)
    blocked_count = len(blocked) if tenant is None else sum(_is_of(view, job_id, tenant) for job_id in blocked)
    ready_count = max(tally.counts[Status.QUEUED] - blocked_count, 0)
    running_count = sum(tally.counts[status] for status in LEASED)
    settings = view.queue(queue)
    wanted_slots = running_count + (0 if settings is not None and settings.paused else ready_count)
    if settings is not None and settings.concurrency_max:
        wanted_slots = max(running_count, min(wanted_slots, settings.concurrency_max))
    return QueueScale(
        queue=queue,
        ready_count=ready_count,
        exact=tally.exact and len(blocked) < BLOCKED_COUNTED_MAX,
        running_count=running_count,
        delayed_count=sum(tally.counts[status] for status in WAITING if status is not Status.QUEUED),
        oldest_wait_ms=oldest_wait_ms(view, queue, now_ms, tenant),
        waiting_workers=waiting_workers,
        worker_count=worker_count,
        worker_slots=worker_slots,
        wanted_workers=-(-wanted_slots // max(worker_slots, 1)),
    )


def _is_of(view: LeaderView, job_id: JobId, tenant: str) -> bool:
    job = view.job(job_id)
    return job is not None and job.tenant == tenant


def oldest_wait_ms(view: LeaderView, queue: str, now_ms: int, tenant: str | None = None) -> int:
    """Return the wait of the longest-due job that waits for a worker, of one tenant's jobs or of all.

    Time before its parents ended, or in a pause of the job, does not count. Blocked ones are left out. 0 = none waits.
    """
    firsts = (first for first in view.first_of_lanes(queue) if tenant in (None, first.tenant))
    longest_ms = 0
    for due_at_ms, job_id in sorted((first.due_at_ms, first.job_id) for first in firsts):
        if now_ms - due_at_ms <= longest_ms:
            break
        job = view.job(job_id)
        longest_ms = max(longest_ms, 0 if job is None else now_ms - job.ready_since_ms)
    return longest_ms


def due_by_time(view: LeaderView, now_ms: int) -> tuple[list[Job], bool]:
    """Return the jobs that users see as `queued` although another status is stored, and whether these are all.

    They are the first `DUE_TIMERS_MAX` by due time.
    """
    due = view.timers(until_ms=now_ms, limit=DUE_TIMERS_MAX)
    jobs = (view.job(entry.job_id) for entry in due)
    moved = [job for job in jobs if job is not None and job.status is not job.status_at(now_ms)]
    return moved, len(due) < DUE_TIMERS_MAX


def _tallies(view: LeaderView, queues: Iterable[str], now_ms: int, tenant: str | None) -> dict[str, _Tally]:
    """Return the jobs of each queue by the status that users see."""
    tallies = {queue: _Tally(Counter(view.queue_counts(queue, tenant))) for queue in queues}
    _move_due(view, now_ms, tenant, tallies)
    return tallies


def _move_due(view: LeaderView, now_ms: int, tenant: str | None, tallies: dict[str, _Tally]) -> None:
    due, is_all = due_by_time(view, now_ms)
    for job in due:
        if job.spec.queue in tallies and tenant in (None, job.tenant):
            counts = tallies[job.spec.queue].counts
            counts[job.status] -= 1
            counts[Status.QUEUED] += 1
    if not is_all:
        for tally in tallies.values():
            tally.exact = not any(tally.counts[status] for status in WAITING if status is not Status.QUEUED)
