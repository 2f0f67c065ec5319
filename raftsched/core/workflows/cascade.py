"""What follows from changes of jobs for other records, the same whoever made them.

Theory of operation. A handler changes the jobs that its operation is about. `Cascade` executes its writes on a fork
of the state and looks at each job's change, old and new:

- It is finished, or no longer so: its workflow's counts move, its schedule's list of unfinished runs does, and its
  dependants are told (`dependency_resolution`). A dependant that ends by that is a finished job
  itself: the same follows from it.
- It left the lease, or the ready index, of its concurrency key: if the key is below its limit, the first held job of
  the key is offered again, one of each region: nobody knows which region has a worker to spare. So there is always a
  job of a key to be leased while some are held and a place is free, and no region waits for another's worker.

Bounds. At most `budget` dependants are told by one operation, across all generations (and fewer where the operations
before it in the entry have come to many writes, `Context.inline_max`); for each job whose dependants are
not all told a chore remembers where to go on, and the leader has it done in steps of the same kind (`chores`). Nothing
recurses: jobs whose dependants are to be told stand in a list, so a chain of any length takes no stack.

What is done twice is harmless. A chore compares each dependant's verdict with how the parent stands now, so it may begin
anew, or meet dependants that were judged when they were submitted, or a parent that was requeued and ended again.

A job is *tied* when it has options or dependants. Most are not, and cost one look at each; of the others, changes from
which nothing can follow are left as they are, too.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from msgspec.structs import replace

from raftsched import limits
from raftsched.core.jobs.admission import key_concurrency_max
from raftsched.core.jobs.changes import touch
from raftsched.core.jobs.dependency_resolution import may_have_dependants, verdict_of, with_verdict
from raftsched.core.operations.control import BackgroundKind
from raftsched.core.records.ids import JobId
from raftsched.core.records.job import FINISHED, LEASED, WAITING, Job, Verdict
from raftsched.core.records.schedule import ScheduleId
from raftsched.core.records.workflow import WorkflowId
from raftsched.core.state.entries import Dependant
from raftsched.core.state.results import Applied, Context, Result, WorkflowSaved
from raftsched.core.state.view import ForkableView, View
from raftsched.core.state.writes import (
    PutBackgroundWork,
    PutDependant,
    PutJob,
    PutSchedule,
    PutWorkflow,
    RemoveBackgroundWork,
    Write,
)
from raftsched.core.workflows.counts import Tally

_RESOLVING: Final = (BackgroundKind.RESOLVE_DEPENDANTS, BackgroundKind.REVIVE_DEPENDANTS)


def with_cascade(view: ForkableView, applied: Applied, context: Context) -> Applied:
    """Return `applied` with all that follows from the changes of jobs in it."""
    for write in applied.writes:
        if type(write) is PutJob and _matters(view, write):
            return _followed(view, applied, context)
    return applied


def _matters(view: View, change: PutJob) -> bool:
    """Whether anything may follow from a job's change: it is tied, and ended or runs again or may have freed a place."""
    old, new = change.old, change.new
    if old is None or (new.spec.options is None and not new.has_dependants):
        return False
    key = old.spec.concurrency_key
    if key and (new.blocked or view.blocked_regions(old.spec.queue, key, limit=1)):
        return True
    if (old.status in FINISHED) is (new.status in FINISHED):
        return False
    return may_have_dependants(new) or (new.spec.options is not None and bool(new.spec.options.schedule_id))


def _followed(view: ForkableView, applied: Applied, context: Context) -> Applied:
    cascade = Cascade(view, context, budget=context.inline_max)
    cascade.put(*applied.writes)
    return cascade.applied(applied.result)


class _Resolution(NamedTuple):
    """A job whose dependants behind `after` are to be told how it stands."""

    job_id: JobId
    after: JobId | None


class Cascade:
    """The writes of one operation, and what follows from them within `budget`. Used up by `applied`."""

    def __init__(self, view: ForkableView, context: Context, *, budget: int) -> None:
        self.fork = view.fork()
        """The state with what was put and what has followed so far."""
        self.budget = budget
        """How many more jobs may be told or changed."""
        self._context = context
        self._changes: deque[PutJob] = deque()
        self._resolutions: list[_Resolution] = []
        self._tallies: dict[WorkflowId, Tally] = {}
        self._runs: dict[ScheduleId, list[Job]] = {}

    def put(self, *writes: Write) -> None:
        """Take over `writes`; what follows from changes of jobs in them follows in `applied`."""
        self.fork.execute(writes)
        self._changes.extend(write for write in writes if isinstance(write, PutJob))

    def resolve_dependants(self, job_id: JobId, after: JobId | None) -> None:
        """Go on telling the dependants of a job behind `after`."""
        self._resolutions.append(_Resolution(job_id, after))

    def run(self) -> None:
        """Let all follow that the budget allows, and leave chores for the rest."""
        while self._changes or self._resolutions:
            while self._changes:
                self._follow(self._changes.popleft())
            if self._resolutions:
                self._resolve(self._resolutions.pop())

    def applied(self, result: Result) -> Applied:
        """Return `result` with all writes."""
        self.run()
        for workflow_id, tally in self._tallies.items():
            self._move_workflow(workflow_id, tally)
        for schedule_id, jobs in self._runs.items():
            self._move_schedule(schedule_id, jobs)
        if isinstance(result, WorkflowSaved) and result.workflow.id in self._tallies:
            result = result._replace(workflow=self.fork.workflow(result.workflow.id) or result.workflow)
        return Applied(result, self.fork.writes)

    # -- one change of a job

    def _follow(self, change: PutJob) -> None:
        old, new = change.old, change.new
        if old is None:
            return
        if (old.status in FINISHED) is not (new.status in FINISHED):
            if may_have_dependants(new):
                self._resolutions.append(_Resolution(new.id, None))
            if new.spec.options is not None:
                self._note_end(old, new)
        if old.spec.concurrency_key:
            self._free_place(old, new)

    def _note_end(self, old: Job, new: Job) -> None:
        """Remember that a workflow's or schedule's job ended, or is to run again."""
        options = new.spec.options
        assert options is not None
        if options.workflow_id:
            self._tallies.setdefault(WorkflowId(options.workflow_id), Tally()).move(old, new)
        if options.schedule_id:
            self._runs.setdefault(ScheduleId(options.schedule_id), []).append(new)

    def _move_workflow(self, workflow_id: WorkflowId, tally: Tally) -> None:
        old = self.fork.workflow(workflow_id)
        if old is not None:
            is_cancelling = self.fork.background_cursor(BackgroundKind.CANCEL_WORKFLOW, workflow_id) is not None
            self.fork.execute((PutWorkflow(old, tally.applied_to(old, self._context, is_cancelling=is_cancelling)),))

    def _move_schedule(self, schedule_id: ScheduleId, jobs: list[Job]) -> None:
        """Keep its runs to those that are not finished. The revision stays: nothing is changed or decided."""
        old = self.fork.schedule(schedule_id)
        if old is None:
            return
        active, backfilling = dict.fromkeys(old.active), dict.fromkeys(old.backfilling)
        for job in jobs:
            runs = backfilling if job.spec.options is not None and job.spec.options.is_backfill else active
            if job.status in FINISHED:
                runs.pop(job.id, None)
            elif len(runs) < limits.SCHEDULE_ACTIVE_MAX:
                runs[job.id] = None
        new = replace(old, active=tuple(active), backfilling=tuple(backfilling))
        if new != old:
            self.fork.execute((PutSchedule(old, new),))

    # -- concurrency keys

    def _free_place(self, old: Job, new: Job) -> None:
        """Offer the first held jobs again where `old` counted among those of its key that may run, and `new` does not."""
        place = self._place(old)
        if place is None or place == self._place(new):
            return
        queue, key = old.spec.queue, old.spec.concurrency_key
        fork = self.fork
        if fork.key_running_count(queue, key) >= key_concurrency_max(fork.queue(queue)):
            return
        for region in fork.blocked_regions(queue, key, limit=limits.BLOCKED_REGIONS_MAX):
            job_id = fork.first_blocked(queue, key, region)
            blocked = None if job_id is None else fork.job(job_id)
            if blocked is not None:
                fork.execute((PutJob(blocked, touch(blocked, self._context, blocked=False)),))

    def _place(self, job: Job) -> tuple[str, str, bool] | None:
        """Where the job keeps others of its key back or would be offered before them; None = nowhere."""
        leased = job.status in LEASED
        offered = job.status in WAITING and not job.blocked and job.due_at_ms <= self._context.now_ms
        return (job.spec.queue, job.spec.concurrency_key, leased) if leased or offered else None

    # -- dependants

    def _resolve(self, resolution: _Resolution) -> None:
        """Tell the job's dependants how it stands, as far as the budget goes."""
        parent = self.fork.job(resolution.job_id)
        if parent is None:
            self._save_background_work(resolution.job_id, None)
            return
        room = max(self.budget, 0)
        dependants = self.fork.dependants(parent.id, after=resolution.after, limit=room + 1)
        for dependant in dependants[:room]:
            self._judge(parent, dependant)
        self.budget -= min(len(dependants), room)
        if len(dependants) <= room:
            self._save_background_work(parent.id, None)
        else:
            kind = _RESOLVING[0] if parent.status in FINISHED else _RESOLVING[1]
            self._save_background_work(parent.id, kind, dependants[room - 1].child if room else resolution.after or b"")

    def _judge(self, parent: Job, dependant: Dependant) -> None:
        was, now = dependant.verdict, verdict_of(parent, dependant.condition)
        if was in {now, Verdict.MET}:
            return
        self.fork.execute((PutDependant(parent.id, dependant._replace(verdict=now)),))
        child = self.fork.job(dependant.child)
        if child is None:
            return
        new = with_verdict(self.fork, child, parent.id, self._context, was=was, now=now)
        if new is not child:
            self.put(PutJob(child, new))

    def _save_background_work(self, job_id: JobId, kept: BackgroundKind | None, cursor: bytes = b"") -> None:
        """Leave the chore `kept` with the job, at `cursor`, and no other of those that tell its dependants."""
        for kind in _RESOLVING:
            if kind is not kept and self.fork.background_cursor(kind, job_id) is not None:
                self.fork.execute((RemoveBackgroundWork(kind, job_id),))
        if kept is not None and self.fork.background_cursor(kept, job_id) != cursor:
            self.fork.execute((PutBackgroundWork(kept, job_id, cursor),))
