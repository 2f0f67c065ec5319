"""Planted into schedules, dependencies, limits and control: what goes wrong where things hang together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from raftsched.core.jobs import attempts as attempts_module
from raftsched.core.jobs import dependency_resolution as settling_module
from raftsched.core.jobs import submit as submit_module
from raftsched.core.jobs.admission import Gate
from raftsched.core.jobs.dependencies import dependency_writes
from raftsched.core.operations.base import Operation
from raftsched.core.operations.control import RequeueJob, StartRun
from raftsched.core.operations.queues import CancelWorkflow, PauseQueue
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.job import WAITING, Job
from raftsched.core.records.schedule import Schedule, ScheduleId
from raftsched.core.schedules import fire as firing_module
from raftsched.core.state.entries import Dependant
from raftsched.core.state.handlers import HANDLERS
from raftsched.core.state.results import Applied, Changed, Context, QueueSaved, WorkflowSaved
from raftsched.core.state.view import ForkableView
from raftsched.core.state.writes import PutJob
from raftsched.core.workflows import submit as workflows_module
from raftsched.core.workflows.cascade import Cascade
from raftsched.leader.maintenance.background_steps import BackgroundSteps
from raftsched.leader.now import Now
from raftsched.leader.schedules import firer as leader_firing
from raftsched.leader.schedules.fire_times import fire_times_of
from raftsched.leader.schedules.firer import Firing
from raftsched.leader.schedules.plan import plan_firing
from raftsched.leader.timers.deadlines import Deadlines
from raftsched.storage.tables import indexes as indexes_module

# -- schedules --------------------------------------------------------------------------------------------------------


def _accepts_any_fire_time(patch: Any) -> None:
    """The log takes decisions wherever they begin."""

    def stale(schedule: Schedule, operation: Any, _context: Context) -> str:
        return "" if operation.generation == schedule.generation else "the timing changed"

    patch.setattr(firing_module, "_stale", stale)


def _plans_at_first(patch: Any, look: Callable[[Schedule, Now], int]) -> None:
    """A new leader begins each schedule's instants where `look` says."""
    original, seen = Firing._plan, "_planted_seen"  # noqa: SLF001  # what is patched

    def plan(self: Firing, schedule: Schedule, now: Now) -> Any:
        known: set[ScheduleId] = self.__dict__.setdefault(seen, set())
        if schedule.id not in known:
            known.add(schedule.id)
            schedule = replace(schedule, next_at_ms=TimeMs(look(schedule, now)))
        return original(self, schedule, now)

    patch.setattr(Firing, "_plan", plan)


def decides_fire_times_twice(patch: Any) -> None:
    """A new leader decides once more what the last one decided last, and nobody stops it."""
    _accepts_any_fire_time(patch)
    _plans_at_first(patch, lambda schedule, _now: schedule.last_at_ms or schedule.next_at_ms)


def loses_firings_over_an_election(patch: Any) -> None:
    """A new leader counts from its own start: instants that came while nobody led are forgotten."""
    _accepts_any_fire_time(patch)

    def from_now_on(schedule: Schedule, now: Now) -> int:
        fire_times = fire_times_of(schedule.timing, from_ms=schedule.created_at_ms)
        latest, following = schedule.next_at_ms, fire_times.next_after(schedule.next_at_ms)
        while following is not None and following <= now.cluster_ms:
            latest, following = TimeMs(following), fire_times.next_after(following)
        return latest

    _plans_at_first(patch, from_now_on)


def fires_early(patch: Any) -> None:
    """The leader looks ahead, and the log believes it."""
    _accepts_any_fire_time(patch)

    def plan(schedule: Schedule, fire_times: Any, now_ms: int, draws: Any) -> Any:
        return plan_firing(schedule, fire_times, now_ms + 600, draws)

    patch.setattr(leader_firing, "plan_firing", plan)


def joins_whatever_the_policy(patch: Any) -> None:
    patch.setattr(firing_module._Round, "_may_join", lambda _self, _active: True)  # noqa: SLF001


def keeps_ended_runs_active(patch: Any) -> None:
    """A schedule never learns that its runs ended: it skips for the sake of what is over."""
    patch.setattr(Cascade, "_move_schedule", lambda _self, _schedule_id, _jobs: None)
    patch.setattr(firing_module._Round, "_unfinished", lambda _self, job_ids: job_ids)  # noqa: SLF001


# -- dependencies and workflows ---------------------------------------------------------------------------------------


def releases_with_the_first_parent(patch: Any) -> None:
    """A dependant starts as soon as one of its parents ended as it should."""
    original = settling_module._nearer  # noqa: SLF001  # what is patched

    def nearer(child: Job, context: Context, counts: dict[str, int]) -> Job:
        return original(child, context, counts | {"pending_count": 0})

    patch.setattr(settling_module, "_nearer", nearer)


def counts_ends_twice(patch: Any) -> None:
    """Whoever tells dependants of an end begins again, and counts once more what was counted."""
    original = Cascade._judge  # noqa: SLF001  # what is patched

    def judge(self: Cascade, parent: Job, dependant: Dependant) -> None:
        original(self, parent, dependant)
        original(self, parent, dependant)

    patch.setattr(Cascade, "_judge", judge)


def forgets_dependants(patch: Any) -> None:
    """Nobody tells dependants of the end of a parent whose lease ran out."""
    original = Cascade._resolve  # noqa: SLF001  # what is patched

    def tell(self: Cascade, telling: Any) -> None:
        parent = self.fork.job(telling.job_id)
        if parent is None or parent.lost_count == 0:
            original(self, telling)

    patch.setattr(Cascade, "_resolve", tell)


def opens_workflows_with_their_first_part(patch: Any) -> None:

    def at_once(job: Job, operation: Any, judged: Any, context: Context, *, is_staged: bool = False) -> Any:  # noqa: ARG001
        return dependency_writes(job, operation, judged, context, is_staged=False)

    patch.setattr(workflows_module, "dependency_writes", at_once)


def acknowledges_cancels_of_workflows_only(patch: Any) -> None:
    """A cancel of a workflow is answered, and forgotten."""
    original = HANDLERS[CancelWorkflow]

    def cancel(view: ForkableView, operation: CancelWorkflow, context: Context) -> Applied:
        applied = original(view, operation, context)
        return Applied(applied.result) if isinstance(applied.result, WorkflowSaved) else applied

    patch.setitem(HANDLERS, CancelWorkflow, cancel)


# -- limits -----------------------------------------------------------------------------------------------------------


def checks_limits_in_the_leader_only(patch: Any) -> None:
    """The log grants whatever the leader picked; what was said about the queue meanwhile comes too late."""
    patch.setattr(Gate, "admit", lambda _self, _job: True)


def forgets_blocked_jobs(patch: Any) -> None:
    """A run ends, and the next one of its key is not offered."""
    patch.setattr(Cascade, "_free_place", lambda _self, _old, _new: None)


def acknowledges_pauses_of_queues_only(patch: Any) -> None:
    original = HANDLERS[PauseQueue]

    def pause(view: ForkableView, operation: PauseQueue, context: Context) -> Applied:
        applied = original(view, operation, context)
        if operation.paused and isinstance(applied.result, QueueSaved):
            return Applied(applied.result)
        return applied

    patch.setitem(HANDLERS, PauseQueue, pause)


# -- single jobs ------------------------------------------------------------------------------------------------------


def requeues_within_the_same_run(patch: Any) -> None:
    """A requeued job keeps its run number: what an earlier attempt's worker says may count for it."""
    original = HANDLERS[RequeueJob]

    def requeue(view: ForkableView, operation: RequeueJob, context: Context) -> Applied:
        result, writes = original(view, operation, context)
        changed = [
            replace(write, new=replace(write.new, run_number=write.old.run_number))
            if isinstance(write, PutJob) and write.old is not None
            else write
            for write in writes
        ]
        return Applied(result, tuple(changed))

    patch.setitem(HANDLERS, RequeueJob, requeue)


def requeues_what_waits(patch: Any) -> None:
    """A requeue begins a new run of whatever waits."""
    original = HANDLERS[RequeueJob]

    def requeue(view: ForkableView, operation: RequeueJob, context: Context) -> Applied:
        job = view.job(operation.job_id)
        if job is not None and job.status in WAITING and job.tenant == operation.tenant:
            new = replace(job, run_number=job.run_number + 1, attempt_number=0, revision=context.index)
            return Applied(Changed(new), (PutJob(job, new),))
        return original(view, operation, context)

    patch.setitem(HANDLERS, RequeueJob, requeue)


def keeps_unique_claims_for_ever(patch: Any) -> None:
    """A job that ended still keeps others from its purpose."""
    patch.setattr(
        indexes_module, "has_unique_entry", lambda job: bool(job.spec.options and job.spec.options.unique_key)
    )
    patch.setattr(submit_module, "holds_unique_key", lambda _job, _now_ms: True)


def leases_again_what_began(patch: Any) -> None:
    """A run that begins at most once is given to another worker when its first one is lost."""
    patch.setattr(attempts_module, "_has_begun_for_good", lambda _job: False)


def starts_only_in_memory(patch: Any) -> None:
    """The start of a run is acknowledged, and not kept."""
    original = HANDLERS[StartRun]

    def start(view: ForkableView, operation: StartRun, context: Context) -> Applied:
        return Applied(original(view, operation, context).result)

    patch.setitem(HANDLERS, StartRun, start)


# -- the leader's part ------------------------------------------------------------------------------------------------


def never_handles_deadlines(patch: Any) -> None:
    """Nothing that is due by time happens."""

    def step(_self: Deadlines, _now: Now) -> Sequence[Operation]:
        return ()

    patch.setattr(Deadlines, "step", step)
    patch.setattr(Deadlines, "next_call_ms", lambda _self, _now: 1 << 62)


def leaves_background_work_to_others(patch: Any) -> None:
    """A leader continues no long work that it did not begin itself."""

    def step(_self: BackgroundSteps, _now: Now) -> Sequence[Operation]:
        return ()

    patch.setattr(BackgroundSteps, "step", step)
    patch.setattr(BackgroundSteps, "next_call_ms", lambda _self, _now: 1 << 62)
