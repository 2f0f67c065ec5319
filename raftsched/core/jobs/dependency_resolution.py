"""Resolve dependencies: change a job when a parent ends or runs again. Pure: a record in, a record out.

Each edge from a parent to a child has a verdict, and only a change of the verdict changes the child. So repeated or late
steps, and several ends in a row, do not corrupt its counts. The rules:

- A met dependency stays met. The child is released when none of its dependencies is pending.
- An unmet dependency ends the child at once, whatever its other parents do: it is skipped or dead-lettered. A child
  whose workflow is being cancelled is `cancelled`, as the background steps would do.
- When a parent is requeued, its unmet dependencies are pending again. A child that ended because of unmet dependencies
  waits again when none is unmet. Children that ended in another way do not change.
- When a user requeues a child, the verdicts on all its parents are computed again: it waits for every running parent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from raftsched.core.jobs.cancel import cancelled_with_workflow
from raftsched.core.jobs.changes import change, noted, touch
from raftsched.core.records.ids import JobId, TimeMs, job_id_text
from raftsched.core.records.job import FINISHED, MEETS, Condition, DeadLetterReason, Job, Status, Verdict
from raftsched.core.records.spec import OnDependencyFailure, of_new_run
from raftsched.core.records.transitions import Event, next_status
from raftsched.core.records.workflow import WorkflowId
from raftsched.core.state.entries import Dependant
from raftsched.core.state.results import Context
from raftsched.core.state.view import View
from raftsched.errors import InvariantBroken


def may_have_dependants(job: Job) -> bool:
    """Return whether other jobs may depend on `job`; jobs of a workflow are not marked as parents."""
    return job.has_dependants or bool(job.spec.workflow_id)


def verdict_of(parent: Job, condition: Condition) -> Verdict:
    """Return the verdict on a dependency by the present status of `parent`."""
    if parent.status not in FINISHED:
        return Verdict.PENDING
    return Verdict.MET if parent.status in MEETS[condition] else Verdict.UNMET


class DependencyEdge(NamedTuple):
    """Carry the edge from a parent to a job, with its present verdict."""

    parent: JobId
    dependant: Dependant
    was: Verdict

    @property
    def verdict(self) -> Verdict:
        return self.dependant.verdict


def current_edges(view: View, child: Job) -> Iterator[DependencyEdge]:
    """Yield the job's dependencies with verdicts by the present statuses of their parents.

    If a parent is no longer kept, the stored verdict is used. Costs two look-ups a parent.
    """
    for dependency in view.dependencies(child.id):
        edge = _edge(view, dependency.parent, child.id)
        parent = view.job(dependency.parent)
        verdict = edge.verdict if parent is None else verdict_of(parent, edge.condition)
        yield DependencyEdge(dependency.parent, edge._replace(verdict=verdict), edge.verdict)


def _edge(view: View, parent: JobId, child: JobId) -> Dependant:
    number = int.from_bytes(child, "big")
    before = JobId((number - 1).to_bytes(len(child), "big")) if number else None
    found = view.dependants(parent, after=before, limit=1)
    if not found or found[0].child != child:
        raise InvariantBroken(f"job {child.hex()} depends on {parent.hex()}, which does not know of it")
    return found[0]


def with_verdict(view: View, child: Job, parent: JobId, context: Context, *, was: Verdict, now: Verdict) -> Job:
    """Return `child` after a change of the verdict on its dependency on `parent`; unchanged if it has no effect."""
    pending_count = child.pending_count + (now is Verdict.PENDING) - (was is Verdict.PENDING)
    unmet_count = child.unmet_count + (now is Verdict.UNMET) - (was is Verdict.UNMET)
    counts = {"pending_count": pending_count, "unmet_count": unmet_count}
    if child.status in FINISHED:
        if not ended_by_dependency(child):
            return child
        return touch(child, context, **counts) if unmet_count else _revived(view, child, parent, context, counts)
    if now is Verdict.UNMET:
        if next_status(child.status, Event.SKIP) is not None and _is_workflow_cancelled(view, child):
            return cancelled_with_workflow(touch(child, context, **counts), context)
        return ended(child, parent, context, **counts)
    return _nearer(child, context, counts)


def opened(child: Job, context: Context) -> Job:
    """Return `child` after the last part of its workflow was applied."""
    if not child.pending_count:
        return child
    counts = {"pending_count": child.pending_count - 1}
    if child.status in FINISHED:
        return touch(child, context, **counts) if ended_by_dependency(child) else child
    return _nearer(child, context, counts)


def ended(child: Job, parent: JobId, context: Context, **counts: int) -> Job:
    """Return `child` after `parent` did not meet the condition; a leased child continues to run."""
    policy = child.spec.options.on_dependency_failure if child.spec.options is not None else OnDependencyFailure.SKIP
    event = Event.SKIP if policy is OnDependencyFailure.SKIP else Event.FAIL_DEPENDENCY
    status = next_status(child.status, event)
    if status is None:
        return touch(child, context, **counts)
    reason = f"{DeadLetterReason.DEPENDENCY_FAILED}: {job_id_text(parent)}"
    fields: dict[str, Any] = {
        "finished_at_ms": context.now_ms,
        "failure_reason": reason,
        "timed": False,
        "blocked": False,
        "pause": None,
        "notes": noted(child, context, status.label, detail=reason),
    }
    return change(child, event, context, **fields, **counts)


def ended_by_dependency(job: Job) -> bool:
    """Return whether the job ended because of an unmet dependency."""
    if job.status is Status.DEAD_LETTER:
        return job.failure_reason.startswith(DeadLetterReason.DEPENDENCY_FAILED)
    return job.status is Status.SKIPPED


def _is_workflow_cancelled(view: View, child: Job) -> bool:
    workflow_id = child.spec.workflow_id
    workflow = view.workflow(WorkflowId(workflow_id)) if workflow_id else None
    return workflow is not None and workflow.cancel_requested_at_ms > 0


def _nearer(child: Job, context: Context, counts: dict[str, int]) -> Job:
    """Return `child` with new counts; it is released if nothing is pending."""
    if counts["pending_count"] or child.status is not Status.WAITING_DEPENDENCIES:
        return touch(child, context, **counts)
    later = child.due_at_ms > context.now_ms
    return change(child, Event.RELEASE_LATER if later else Event.RELEASE, context, timed=later, **counts)


def _revived(view: View, child: Job, parent: JobId, context: Context, counts: dict[str, int]) -> Job:
    """Return a new run of the job, unless another job has taken its unique key."""
    spec = of_new_run(child.spec, context.now_ms)
    if spec.options is not None and spec.options.unique_key:
        holder = view.job_id_for_unique(child.tenant, spec.options.unique_key)
        if holder not in {None, child.id}:
            return touch(child, context, **counts)
    event = Event.REQUEUE_LATER if child.due_at_ms > context.now_ms else Event.REQUEUE
    if counts["pending_count"]:
        event = Event.REQUEUE_WAITING
    return change(
        child,
        event,
        context,
        run_number=child.run_number + 1,
        attempt_number=0,
        failure_count=0,
        lost_count=0,
        started_at_ms=TimeMs(0),
        finished_at_ms=TimeMs(0),
        kept_until_ms=TimeMs(0),
        failure_reason="",
        timed=event is Event.REQUEUE_LATER,
        spec=spec,
        notes=noted(child, context, "requeued", detail=f"with {job_id_text(parent)}; was {child.failure_reason}"),
        **counts,
    )
