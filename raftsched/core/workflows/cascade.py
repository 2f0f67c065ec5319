"""Change other records after changes of jobs; it is the same for all operations.

Theory of operation. A handler changes the jobs of its operation. `Cascade` executes its writes on a fork of the state and
examines each change of a job, old and new:

- The job finished, or runs again: its workflow's counts and its schedule's list of unfinished runs change, and its
  dependants are resolved (`dependency_resolution`). A dependant that ends by that has a cascade of its own.
- The job ended, and has a hook for that end: the job that it asks for is stored (`jobs.hooks`).
- A run of a schedule ended, failed in an attempt or started late: the schedule's alarms change, and its owner is notified
  (`jobs.notices`).
- The job was leased or ready and is no longer, and it has a concurrency key below its limit: the first blocked job of
  the key is released in each region, since nobody knows which region has an idle worker. So while a place is free and
  jobs of the key are blocked, one of them can be leased, and no region waits for another's worker.

Bounds. One operation resolves at most `budget` dependants, over all generations; fewer if earlier operations of the entry
made many writes (`Context.inline_max`). For each job with unresolved dependants, background work keeps a cursor, and the
leader proposes steps of the same kind (`background_steps`). Nothing recurses: jobs to resolve are in a list, so a chain of
any length needs no stack.

Repeats are harmless. A step compares each dependant's verdict with the parent's present status. So it may begin again, or
meet dependants whose verdict was computed at their submission, or a parent that was requeued and ended again.

A job has *relations* if it has options or dependants. Most jobs have none, and cost two checks. For the others, changes
without any effect are skipped, too.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from msgspec.structs import replace

from raftsched import limits
from raftsched.core.jobs.admission import key_concurrency_max
from raftsched.core.jobs.changes import released
from raftsched.core.jobs.dependency_resolution import may_have_dependants, verdict_of, with_verdict
from raftsched.core.jobs.hooks import hook_of, submission
from raftsched.core.jobs.notices import happening_of, may_happen, recorded
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
    """Return `applied` with the cascade of its changes of jobs."""
    for write in applied.writes:
        if type(write) is PutJob and _matters(view, write):
            return _followed(view, applied, context)
    return applied


def _matters(view: View, change: PutJob) -> bool:
    """Return whether a job's change may affect others: it has relations, and ended, runs again, or may free a place."""
    old, new = change.old, change.new
    if new.status in FINISHED and (old is None or old.status not in FINISHED) and hook_of(view, new) is not None:
        return True
    if old is None or (new.spec.options is None and not new.has_dependants):
        return False
    key = old.key_group
    if key and (new.blocked or view.blocked_regions(old.spec.queue, key, limit=1)):
        return True
    if (old.status in FINISHED) is (new.status in FINISHED):
        return may_happen(view, old, new)
    return may_have_dependants(new) or (new.spec.options is not None and bool(new.spec.options.schedule_id))


def _followed(view: ForkableView, applied: Applied, context: Context) -> Applied:
    cascade = Cascade(view, context, budget=context.inline_max)
    cascade.put(*applied.writes)
    return cascade.applied(applied.result)


class _Resolution(NamedTuple):
    """Name a job whose dependants behind `after` are to be resolved."""

    job_id: JobId
    after: JobId | None


class Cascade:
    """Collect the writes of one operation and their effects within `budget`. Call `applied` last."""

    def __init__(self, view: ForkableView, context: Context, *, budget: int) -> None:
        self.fork = view.fork()
        """The state with all writes so far."""
        self.budget = budget
        """The number of jobs that can still be resolved or changed."""
        self._context = context
        self._changes: deque[PutJob] = deque()
        self._resolutions: list[_Resolution] = []
        self._tallies: dict[WorkflowId, Tally] = {}
        self._runs: dict[ScheduleId, list[tuple[Job, Job]]] = {}

    def put(self, *writes: Write) -> None:
        """Execute `writes`; the effects of changes of jobs follow in `run`."""
        self.fork.execute(writes)
        self._changes.extend(write for write in writes if isinstance(write, PutJob))

    def resolve_dependants(self, job_id: JobId, after: JobId | None) -> None:
        """Resolve the dependants of a job behind `after`."""
        self._resolutions.append(_Resolution(job_id, after))

    def run(self) -> None:
        """Make all changes that the budget allows, and leave background work for the rest."""
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
        for schedule_id, changes in self._runs.items():
            self._move_schedule(schedule_id, changes)
        if isinstance(result, WorkflowSaved) and result.workflow.id in self._tallies:
            result = result._replace(workflow=self.fork.workflow(result.workflow.id) or result.workflow)
        return Applied(result, self.fork.writes)

    # -- one change of a job

    def _follow(self, change: PutJob) -> None:
        old, new = change.old, change.new
        if new.status in FINISHED and (old is None or old.status not in FINISHED):
            hook = hook_of(self.fork, new)
            if hook is not None:
                self.fork.execute((submission(self.fork, new, hook, self._context),))
        if old is None:
            return
        if (old.status in FINISHED) is not (new.status in FINISHED):
            if may_have_dependants(new):
                self._resolutions.append(_Resolution(new.id, None))
            if new.spec.workflow_id:
                self._tallies.setdefault(WorkflowId(new.spec.workflow_id), Tally()).move(old, new)
        if new.spec.schedule_id:
            self._runs.setdefault(ScheduleId(new.spec.schedule_id), []).append((old, new))
        if old.spec.concurrency_key:
            self._free_place(old, new)

    def _move_workflow(self, workflow_id: WorkflowId, tally: Tally) -> None:
        old = self.fork.workflow(workflow_id)
        if old is not None:
            is_cancelling = self.fork.background_cursor(BackgroundKind.CANCEL_WORKFLOW, workflow_id) is not None
            self.fork.execute((PutWorkflow(old, tally.applied_to(old, self._context, is_cancelling=is_cancelling)),))

    def _move_schedule(self, schedule_id: ScheduleId, changes: list[tuple[Job, Job]]) -> None:
        """Update the schedule's list of unfinished runs and its alarms. Its revision stays: no user changed it."""
        old = self.fork.schedule(schedule_id)
        if old is None:
            return
        active, backfilling = dict.fromkeys(old.active), dict.fromkeys(old.backfilling)
        for before, job in changes:
            runs = backfilling if job.spec.options is not None and job.spec.options.is_backfill else active
            if (before.status in FINISHED) is (job.status in FINISHED):
                continue
            if job.status in FINISHED:
                runs.pop(job.id, None)
            elif len(runs) < limits.SCHEDULE_ACTIVE_MAX:
                runs[job.id] = None
        context = self._context
        happenings = (happening_of(self.fork, old, before, job, context) for before, job in changes)
        new = replace(old, active=tuple(active), backfilling=tuple(backfilling))
        new, writes = recorded(self.fork, new, [each for each in happenings if each is not None], context)
        if new != old:
            self.fork.execute((PutSchedule(old, new), *writes))

    # -- concurrency keys

    def _free_place(self, old: Job, new: Job) -> None:
        """Release the first blocked jobs if `old` took a place of its concurrency key and `new` does not."""
        place = self._place(old)
        if place is None or place == self._place(new):
            return
        queue, key = old.spec.queue, old.key_group
        fork = self.fork
        if fork.key_running_count(queue, key) >= key_concurrency_max(fork.queue(queue)):
            return
        for region in fork.blocked_regions(queue, key, limit=limits.BLOCKED_REGIONS_MAX):
            job_id = fork.first_blocked(queue, key, region)
            blocked = None if job_id is None else fork.job(job_id)
            if blocked is not None:
                fork.execute((PutJob(blocked, released(blocked, self._context)),))

    def _place(self, job: Job) -> tuple[str, str, bool] | None:
        """Return the place of its key that the job takes, leased or ready to be leased; None if it takes none."""
        leased = job.status in LEASED
        offered = job.status in WAITING and not job.blocked and job.due_at_ms <= self._context.now_ms
        return (job.spec.queue, job.key_group, leased) if leased or offered else None

    # -- dependants

    def _resolve(self, resolution: _Resolution) -> None:
        """Resolve the job's dependants by its present status, as far as the budget allows."""
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
        """Store the background work `kept` at `cursor`, and remove other work that resolves the job's dependants."""
        for kind in _RESOLVING:
            if kind is not kept and self.fork.background_cursor(kind, job_id) is not None:
                self.fork.execute((RemoveBackgroundWork(kind, job_id),))
        if kept is not None and self.fork.background_cursor(kept, job_id) != cursor:
            self.fork.execute((PutBackgroundWork(kept, job_id, cursor),))
