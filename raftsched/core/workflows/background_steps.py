"""DoChore: long work in bounded steps, each replicated; and the first step, which is done where the work is begun.

Theory of operation. A chore is a row: what is to be done, with whom, and how far it has come. The leader proposes one
step after another until the row is gone, and whoever leads next goes on where the row stands. A step touches at most
`limits.CHORE_STEPS_MAX` jobs or lines, what follows from them included (`cascade`); what remains is the row, or
more chores. Each step looks at the state anew, so anything may have happened between two of them.

What is cancelled, opened or dropped is walked by job id. Dropping walks a workflow's jobs again and again: first they
end, so that whoever depends on them is told, and are removed once everybody has been.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from raftsched import limits
from raftsched.core.jobs.admission import key_concurrency_max
from raftsched.core.jobs.cancel import cancelled_with_workflow
from raftsched.core.jobs.changes import invalid, touch
from raftsched.core.jobs.dependency_resolution import opened
from raftsched.core.operations.control import ChoreKind, DoChore
from raftsched.core.records.bounds import range_problem
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.job import FINISHED, Job
from raftsched.core.records.schedule import ScheduleId
from raftsched.core.records.workflow import WorkflowId
from raftsched.core.state.entries import HeldEntry
from raftsched.core.state.results import Applied, Context, Counted
from raftsched.core.state.view import ForkableView, View
from raftsched.core.state.writes import (
    PutChore,
    PutJob,
    RemoveChore,
    RemoveFirings,
    RemoveJob,
    RemoveWorkflow,
)
from raftsched.core.workflows.cascade import Consequences

_TELLING: Final = (ChoreKind.SETTLE_DEPENDANTS, ChoreKind.REVIVE_DEPENDANTS)


def do_chore(view: ForkableView, operation: DoChore, context: Context) -> Applied:
    problem = range_problem("subject bytes", len(operation.subject), 1, limits.NAME_CHARS_MAX)
    if problem:
        return invalid(problem)
    cursor = view.chore(operation.kind, operation.subject)
    if cursor is None:
        return Applied(Counted(0))
    consequences = Consequences(view, context, budget=limits.CHORE_STEPS_MAX)
    _STEPS[operation.kind](consequences, operation.subject, cursor, context)
    consequences.settle()
    count = limits.CHORE_STEPS_MAX - max(consequences.budget, 0)
    return consequences.applied(Counted(max(count, 1)))


def begin(consequences: Consequences, kind: ChoreKind, subject: bytes, context: Context) -> None:
    """Do as much of a chore as the budget allows; a row is left where that is not all."""
    _STEPS[kind](consequences, subject, b"", context)


def is_telling(view: View, job: Job) -> bool:
    """Whether some of the job's dependants have yet to be told how it stands."""
    return any(view.chore(kind, job.id) is not None for kind in _TELLING)


# -- the steps --------------------------------------------------------------------------------------------------------

_Step = Callable[[Consequences, bytes, bytes, Context], None]


def _tell(consequences: Consequences, subject: bytes, cursor: bytes, _context: Context) -> None:
    consequences.tell_dependants(JobId(subject), JobId(cursor) if cursor else None)


def _open(consequences: Consequences, subject: bytes, cursor: bytes, context: Context) -> None:
    jobs = _next_jobs(consequences, ChoreKind.OPEN_WORKFLOW, subject, cursor, consequences.budget)
    for job in jobs:
        new = opened(job, context)
        if new is not job:
            consequences.put(PutJob(job, new))
    consequences.budget -= len(jobs)


def _cancel(consequences: Consequences, subject: bytes, cursor: bytes, context: Context) -> None:
    """Half of the budget is left for those whom the cancelled jobs' dependants are."""
    jobs = _next_jobs(consequences, ChoreKind.CANCEL_WORKFLOW, subject, cursor, max(consequences.budget // 2, 1))
    for job in jobs:
        _cancel_job(consequences, job, context, force=False)
    consequences.budget -= len(jobs)


def _drop(consequences: Consequences, subject: bytes, cursor: bytes, context: Context) -> None:
    """End jobs that have not ended, remove those that have; at the end of the walk begin anew while any is left."""
    kind = ChoreKind.DROP_WORKFLOW
    jobs = _next_jobs(consequences, kind, subject, cursor, max(consequences.budget // 2, 1))
    for job in jobs:
        if job.status not in FINISHED:
            _cancel_job(consequences, job, context, force=True)
        elif not is_telling(consequences.fork, job):
            consequences.put(RemoveJob(job))
    consequences.budget -= len(jobs)
    fork = consequences.fork
    workflow = fork.workflow(WorkflowId(subject))
    if fork.workflow_jobs(WorkflowId(subject), after=None, limit=1):
        if fork.chore(kind, subject) is None:
            consequences.put(PutChore(kind, subject))
    elif workflow is not None:
        consequences.put(RemoveWorkflow(workflow))


def _drop_ledger(consequences: Consequences, subject: bytes, _cursor: bytes, _context: Context) -> None:
    schedule_id, limit = ScheduleId(subject), max(consequences.budget, 1)
    lines = consequences.fork.firings(schedule_id, after=None, until_ms=None, limit=limit)
    if lines:
        consequences.put(RemoveFirings(schedule_id, tuple(lines)))
    _move_on(consequences, ChoreKind.DROP_LEDGER, subject, b"" if len(lines) == limit else None)
    consequences.budget -= len(lines)


def _release_held(consequences: Consequences, subject: bytes, cursor: bytes, context: Context) -> None:
    """Offer held jobs again for which their key has a place, whichever region takes it first.

    Each is looked at once, so it may be held again.
    """
    fork = consequences.fork
    name, limit = subject.decode(), max(consequences.budget, 1)
    key_max = key_concurrency_max(fork.queue(name))
    after = _held_decoder.decode(cursor) if cursor else None
    entries = [fork.job(job_id) for job_id in fork.held_jobs(name, after=after, limit=limit)]
    jobs = [job for job in entries if job is not None]
    room: dict[tuple[str, str], int] = {}
    for job in jobs:
        key = job.spec.concurrency_key
        place = (key, job.spec.region)
        room.setdefault(place, key_max - fork.key_running_count(name, key))
        if room[place] > 0:
            room[place] -= 1
            consequences.put(PutJob(job, touch(job, context, held=False)))
    last = _held_encode(_held_entry(jobs[-1])) if len(jobs) == limit else None
    _move_on(consequences, ChoreKind.RELEASE_HELD, subject, last)
    consequences.budget -= len(jobs)


_held_decoder = msgspec.msgpack.Decoder(HeldEntry)
_held_encode = msgspec.msgpack.Encoder().encode

_STEPS: Final[Mapping[ChoreKind, _Step]] = {
    ChoreKind.SETTLE_DEPENDANTS: _tell,
    ChoreKind.REVIVE_DEPENDANTS: _tell,
    ChoreKind.OPEN_WORKFLOW: _open,
    ChoreKind.CANCEL_WORKFLOW: _cancel,
    ChoreKind.DROP_LEDGER: _drop_ledger,
    ChoreKind.RELEASE_HELD: _release_held,
    ChoreKind.DROP_WORKFLOW: _drop,
}


# -- what they share --------------------------------------------------------------------------------------------------


def _next_jobs(consequences: Consequences, kind: ChoreKind, subject: bytes, cursor: bytes, limit: int) -> list[Job]:
    """The next jobs of a workflow, at most `limit`; the chore moves behind them, or goes where they are the last."""
    fork = consequences.fork
    after = JobId(cursor) if cursor else None
    job_ids = fork.workflow_jobs(WorkflowId(subject), after=after, limit=limit + 1)
    is_last = len(job_ids) <= limit
    job_ids = job_ids[:limit]
    _move_on(consequences, kind, subject, None if is_last else job_ids[-1])
    jobs = map(fork.job, job_ids)
    return [job for job in jobs if job is not None]


def _move_on(consequences: Consequences, kind: ChoreKind, subject: bytes, cursor: bytes | None) -> None:
    """Let the chore stand at `cursor`; None = it is done."""
    known = consequences.fork.chore(kind, subject)
    if cursor is not None and cursor != known:
        consequences.put(PutChore(kind, subject, cursor))
    elif cursor is None and known is not None:
        consequences.put(RemoveChore(kind, subject))


def _cancel_job(consequences: Consequences, job: Job, context: Context, *, force: bool) -> None:
    if job.status in FINISHED:
        return
    new = cancelled_with_workflow(job, context, force=force)
    if new is not job:
        consequences.put(PutJob(job, new))


def _held_entry(job: Job) -> HeldEntry:
    return HeldEntry(
        job.spec.queue, job.spec.concurrency_key, job.spec.priority, TimeMs(job.due_at_ms), job.id, job.spec.region
    )
