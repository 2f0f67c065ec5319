"""Handle DoBackgroundStep: do long work in bounded, replicated steps; the operation that begins the work does the first.

Theory of operation. Background work is a row: its kind, its subject, and a cursor. The leader proposes one step after
another until the row is removed; the next leader continues at the cursor. A step changes at most
`limits.BACKGROUND_STEP_ITEMS_MAX` jobs or lines, their cascade included. For the rest it leaves the row, or adds rows.
Each step reads the state again, so anything may have happened between two steps.

Jobs of a workflow are cancelled, opened or dropped in the order of their ids. Dropping needs several passes: first the
jobs end, so that their dependants are resolved, and later they are removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from raftsched import limits
from raftsched.core.jobs.admission import key_concurrency_max
from raftsched.core.jobs.cancel import cancelled_with_workflow
from raftsched.core.jobs.changes import invalid, released
from raftsched.core.jobs.dependency_resolution import opened
from raftsched.core.operations.control import BackgroundKind, DoBackgroundStep
from raftsched.core.records.bounds import range_problem
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.job import FINISHED, Job
from raftsched.core.records.schedule import ScheduleId
from raftsched.core.records.workflow import WorkflowId
from raftsched.core.state.entries import BlockedEntry
from raftsched.core.state.handlers import handles
from raftsched.core.state.results import Applied, Context, Counted
from raftsched.core.state.view import ForkableView, View
from raftsched.core.state.writes import (
    PutBackgroundWork,
    PutJob,
    RemoveBackgroundWork,
    RemoveFirings,
    RemoveJob,
    RemoveWorkflow,
)
from raftsched.core.workflows.cascade import Cascade

_RESOLVING: Final = (BackgroundKind.RESOLVE_DEPENDANTS, BackgroundKind.REVIVE_DEPENDANTS)


@handles(DoBackgroundStep)
def do_background_step(view: ForkableView, operation: DoBackgroundStep, context: Context) -> Applied:
    problem = range_problem("subject bytes", len(operation.subject), 1, limits.NAME_CHARS_MAX)
    if problem:
        return invalid(problem)
    cursor = view.background_cursor(operation.kind, operation.subject)
    if cursor is None:
        return Applied(Counted(0))
    cascade = Cascade(view, context, budget=limits.BACKGROUND_STEP_ITEMS_MAX)
    _STEPS[operation.kind](cascade, operation.subject, cursor, context)
    cascade.run()
    count = limits.BACKGROUND_STEP_ITEMS_MAX - max(cascade.budget, 0)
    return cascade.applied(Counted(max(count, 1)))


def begin(cascade: Cascade, kind: BackgroundKind, subject: bytes, context: Context) -> None:
    """Do as much of the work as the budget allows, and leave a row for the rest."""
    _STEPS[kind](cascade, subject, b"", context)


def is_resolving(view: View, job: Job) -> bool:
    """Return whether dependants of the job are still to be resolved."""
    return any(view.background_cursor(kind, job.id) is not None for kind in _RESOLVING)


# -- the steps --------------------------------------------------------------------------------------------------------

_Step = Callable[[Cascade, bytes, bytes, Context], None]


def _resolve(cascade: Cascade, subject: bytes, cursor: bytes, _context: Context) -> None:
    cascade.resolve_dependants(JobId(subject), JobId(cursor) if cursor else None)


def _open(cascade: Cascade, subject: bytes, cursor: bytes, context: Context) -> None:
    jobs = _next_jobs(cascade, BackgroundKind.OPEN_WORKFLOW, subject, cursor, cascade.budget)
    for job in jobs:
        new = opened(job, context)
        if new is not job:
            cascade.put(PutJob(job, new))
    cascade.budget -= len(jobs)


def _cancel(cascade: Cascade, subject: bytes, cursor: bytes, context: Context) -> None:
    """Cancel jobs; half of the budget is left for their dependants."""
    jobs = _next_jobs(cascade, BackgroundKind.CANCEL_WORKFLOW, subject, cursor, max(cascade.budget // 2, 1))
    for job in jobs:
        _cancel_job(cascade, job, context, force=False)
    cascade.budget -= len(jobs)


def _drop(cascade: Cascade, subject: bytes, cursor: bytes, context: Context) -> None:
    """End unfinished jobs and remove finished ones; after the last job begin again if any is left."""
    kind = BackgroundKind.DROP_WORKFLOW
    jobs = _next_jobs(cascade, kind, subject, cursor, max(cascade.budget // 2, 1))
    for job in jobs:
        if job.status not in FINISHED:
            _cancel_job(cascade, job, context, force=True)
        elif not is_resolving(cascade.fork, job):
            cascade.put(RemoveJob(job))
    cascade.budget -= len(jobs)
    fork = cascade.fork
    workflow = fork.workflow(WorkflowId(subject))
    if fork.workflow_jobs(WorkflowId(subject), after=None, limit=1):
        if fork.background_cursor(kind, subject) is None:
            cascade.put(PutBackgroundWork(kind, subject))
    elif workflow is not None:
        cascade.put(RemoveWorkflow(workflow))


def _drop_ledger(cascade: Cascade, subject: bytes, _cursor: bytes, _context: Context) -> None:
    schedule_id, limit = ScheduleId(subject), max(cascade.budget, 1)
    lines = cascade.fork.firings(schedule_id, after=None, until_ms=None, limit=limit)
    if lines:
        cascade.put(RemoveFirings(schedule_id, tuple(lines)))
    _move_on(cascade, BackgroundKind.DROP_LEDGER, subject, b"" if len(lines) == limit else None)
    cascade.budget -= len(lines)


def _release_blocked(cascade: Cascade, subject: bytes, cursor: bytes, context: Context) -> None:
    """Release blocked jobs whose key has a free place, in all regions.

    The first lease takes the place, so others may be blocked again. Each job is examined once.
    """
    fork = cascade.fork
    name, limit = subject.decode(), max(cascade.budget, 1)
    key_max = key_concurrency_max(fork.queue(name))
    after = _blocked_decoder.decode(cursor) if cursor else None
    entries = [fork.job(job_id) for job_id in fork.blocked_jobs(name, after=after, limit=limit)]
    jobs = [job for job in entries if job is not None]
    room: dict[tuple[str, str], int] = {}
    for job in jobs:
        key = job.key_group
        place = (key, job.spec.region)
        room.setdefault(place, key_max - fork.key_running_count(name, key))
        if room[place] > 0:
            room[place] -= 1
            cascade.put(PutJob(job, released(job, context)))
    last = _blocked_encode(_blocked_entry(jobs[-1])) if len(jobs) == limit else None
    _move_on(cascade, BackgroundKind.RELEASE_BLOCKED, subject, last)
    cascade.budget -= len(jobs)


_blocked_decoder = msgspec.msgpack.Decoder(BlockedEntry)
_blocked_encode = msgspec.msgpack.Encoder().encode

_STEPS: Final[Mapping[BackgroundKind, _Step]] = {
    BackgroundKind.RESOLVE_DEPENDANTS: _resolve,
    BackgroundKind.REVIVE_DEPENDANTS: _resolve,
    BackgroundKind.OPEN_WORKFLOW: _open,
    BackgroundKind.CANCEL_WORKFLOW: _cancel,
    BackgroundKind.DROP_LEDGER: _drop_ledger,
    BackgroundKind.RELEASE_BLOCKED: _release_blocked,
    BackgroundKind.DROP_WORKFLOW: _drop,
}


# -- common parts -----------------------------------------------------------------------------------------------------


def _next_jobs(cascade: Cascade, kind: BackgroundKind, subject: bytes, cursor: bytes, limit: int) -> list[Job]:
    """Return up to `limit` next jobs of a workflow; the cursor moves behind them, or the work ends with the last job."""
    fork = cascade.fork
    after = JobId(cursor) if cursor else None
    job_ids = fork.workflow_jobs(WorkflowId(subject), after=after, limit=limit + 1)
    is_last = len(job_ids) <= limit
    job_ids = job_ids[:limit]
    _move_on(cascade, kind, subject, None if is_last else job_ids[-1])
    jobs = map(fork.job, job_ids)
    return [job for job in jobs if job is not None]


def _move_on(cascade: Cascade, kind: BackgroundKind, subject: bytes, cursor: bytes | None) -> None:
    """Move the work's cursor; None = the work is done."""
    known = cascade.fork.background_cursor(kind, subject)
    if cursor is not None and cursor != known:
        cascade.put(PutBackgroundWork(kind, subject, cursor))
    elif cursor is None and known is not None:
        cascade.put(RemoveBackgroundWork(kind, subject))


def _cancel_job(cascade: Cascade, job: Job, context: Context, *, force: bool) -> None:
    if job.status in FINISHED:
        return
    new = cancelled_with_workflow(job, context, force=force)
    if new is not job:
        cascade.put(PutJob(job, new))


def _blocked_entry(job: Job) -> BlockedEntry:
    return BlockedEntry(
        job.spec.queue, job.key_group, job.spec.priority, TimeMs(job.due_at_ms), job.id, job.spec.region
    )
