"""Handle SubmitWorkflow, which stores jobs completely or not at all, and CancelWorkflow, which ends unfinished ones.

Theory of operation. A workflow that fits into one operation is stored by it, ready to run. A larger one comes in parts, in
order. Until the last part each job counts its workflow as one more pending dependency; then background steps open them.
If no part has come for a while, background steps drop the parts of the lost client.

A part that was applied before is recognised by the workflow's id and the count of stored jobs. A repeated submission with
the same idempotency key finds the workflow. If parts of that are missing, its submitter has given up, and it is replaced
by the new one.

Parents are in this part, in an earlier one, or elsewhere in the state. So only the jobs of one part can form a cycle, which
is rejected and named.
"""

from __future__ import annotations

from msgspec.structs import replace

from raftsched import limits
from raftsched.core.jobs.changes import invalid, refused
from raftsched.core.jobs.dependencies import (
    ParentVerdicts,
    dependencies_problem,
    dependency_writes,
    judge,
    mark_parents,
)
from raftsched.core.jobs.quotas import jobs_refusal
from raftsched.core.jobs.submit import new_job, submit_problem
from raftsched.core.operations.codec import RejectCode, SubmitJob, SubmitWorkflow
from raftsched.core.operations.control import BackgroundKind
from raftsched.core.operations.queues import CancelWorkflow
from raftsched.core.records.bounds import (
    JOB_ID_BYTES,
    actor_problem,
    key_problem,
    name_problem,
    range_problem,
)
from raftsched.core.records.ids import JobId, TimeMs, job_id_text
from raftsched.core.records.job import Job
from raftsched.core.records.workflow import Workflow
from raftsched.core.state.audit import audited
from raftsched.core.state.handlers import handles
from raftsched.core.state.results import Applied, Context, Refused, WorkflowSaved
from raftsched.core.state.view import ForkableView, View
from raftsched.core.state.writes import PutAudit, PutBackgroundWork, PutWorkflow, Write
from raftsched.core.workflows.background_steps import begin
from raftsched.core.workflows.cascade import Cascade
from raftsched.core.workflows.dag import find_cycle

# -- submission -------------------------------------------------------------------------------------------------------


@handles(SubmitWorkflow)
def submit_workflow(view: ForkableView, operation: SubmitWorkflow, context: Context) -> Applied:
    problem = _problem(operation)
    if problem:
        return invalid(problem)
    known = view.workflow(operation.id)
    if known is None:
        return _first_part(view, operation, context)
    if not _is_same(known, operation):
        return invalid("id: belongs to another workflow")
    if view.background_cursor(BackgroundKind.DROP_WORKFLOW, known.id) is not None:
        return refused(RejectCode.STALE_PART, "what was stored of this workflow is being thrown away")
    if operation.first + len(operation.jobs) <= known.stored_count:
        return Applied(WorkflowSaved(known, duplicate=True))
    if operation.first != known.stored_count:
        return refused(RejectCode.STALE_PART, f"first: the next part begins at {known.stored_count}")
    return _store(view, operation, context, old=known, before=known)


def _first_part(view: ForkableView, operation: SubmitWorkflow, context: Context) -> Applied:
    makes_room: tuple[Write, ...] = ()
    other = _of_key(view, operation)
    if other is not None:
        if other.fingerprint != operation.fingerprint:
            return refused(RejectCode.IDEMPOTENCY_MISMATCH, "idempotency_key: was used before with another body")
        if other.is_whole:
            return Applied(WorkflowSaved(other, duplicate=True))
        makes_room = _making_room(other, context)
    if operation.first:
        return refused(RejectCode.STALE_PART, "first: there is no such workflow, begin at 0")
    started = Workflow(
        id=operation.id,
        tenant=operation.tenant,
        name=operation.name,
        job_count=operation.job_count,
        idempotency_key=operation.idempotency_key,
        fingerprint=operation.fingerprint,
        created_at_ms=context.now_ms,
    )
    return _store(view, operation, context, old=None, before=started, makes_room=makes_room)


def _of_key(view: View, operation: SubmitWorkflow) -> Workflow | None:
    if not operation.idempotency_key:
        return None
    workflow_id = view.workflow_id_for_key(operation.tenant, operation.idempotency_key)
    return None if workflow_id is None else view.workflow(workflow_id)


def _is_same(known: Workflow, operation: SubmitWorkflow) -> bool:
    return (
        known.tenant == operation.tenant
        and known.name == operation.name
        and known.job_count == operation.job_count
        and known.fingerprint == operation.fingerprint
    )


def _store(
    view: ForkableView,
    operation: SubmitWorkflow,
    context: Context,
    *,
    old: Workflow | None,
    before: Workflow,
    makes_room: tuple[Write, ...] = (),
) -> Applied:
    """Store the part that follows `before`, and open the workflow after the last part.

    All jobs that are left of it must be within the tenant's quota, so that it is not rejected halfway.
    """
    if refusal := jobs_refusal(view, operation.tenant, operation.job_count - operation.first):
        return Applied(refusal)
    cascade = Cascade(view, context, budget=context.inline_max)
    workflow = replace(
        before,
        stored_count=before.stored_count + len(operation.jobs),
        unfinished_count=before.unfinished_count + len(operation.jobs),
        updated_at_ms=context.now_ms,
        finished_at_ms=TimeMs(0),
        revision=context.index,
    )
    cascade.put(*makes_room, PutWorkflow(old, workflow))
    if refusal := _store_jobs(view, cascade, operation, context):
        return Applied(refusal)
    if workflow.is_whole:
        cascade.put(_audit(workflow, "submit", operation.actor, context, f"{workflow.job_count} jobs"))
        if operation.first:
            begin(cascade, BackgroundKind.OPEN_WORKFLOW, workflow.id, context)
    return cascade.applied(WorkflowSaved(workflow))


def _store_jobs(view: View, cascade: Cascade, operation: SubmitWorkflow, context: Context) -> Refused | None:
    """Store the part's jobs with their dependencies, or return the refusal."""
    jobs = {each.id: new_job(each, context, actor=operation.actor) for each in operation.jobs}

    def find(job_id: JobId) -> Job | None:
        return jobs.get(job_id) or view.job(job_id)

    judged: list[ParentVerdicts] = []
    for each in operation.jobs:
        if view.job(each.id) is not None:
            return Refused(RejectCode.INVALID, "jobs: an id belongs to another job", each.id)
        parents = judge(each, find)
        if isinstance(parents, Refused):
            return parents
        judged.append(parents)
    is_staged = len(operation.jobs) < operation.job_count
    for each, parents in zip(operation.jobs, judged, strict=True):
        cascade.put(*dependency_writes(jobs[each.id], each, parents, context, is_staged=is_staged))
        cascade.put(*mark_parents(cascade.fork, parents.unmarked, context))
    return None


def _making_room(known: Workflow, context: Context) -> tuple[Write, ...]:
    """Return the writes that give up an incomplete workflow: its key is freed, and its jobs will be dropped."""
    new = replace(known, idempotency_key="", updated_at_ms=context.now_ms, revision=context.index)
    return (PutWorkflow(known, new), PutBackgroundWork(BackgroundKind.DROP_WORKFLOW, known.id))


# -- cancel -----------------------------------------------------------------------------------------------------------


@handles(CancelWorkflow)
def cancel_workflow(view: ForkableView, operation: CancelWorkflow, context: Context) -> Applied:
    problem = actor_problem(operation.actor)
    if problem:
        return invalid(problem)
    known = view.workflow(operation.id) if len(operation.id) == JOB_ID_BYTES else None
    if known is None or known.tenant != operation.tenant:
        return refused(RejectCode.NOT_FOUND, "there is no such workflow")
    if known.is_whole and not known.unfinished_count and not known.cancel_requested_at_ms:
        return refused(RejectCode.ALREADY_FINISHED, f"the workflow is {known.label}")
    kind = BackgroundKind.CANCEL_WORKFLOW if known.is_whole else BackgroundKind.DROP_WORKFLOW
    if known.cancel_requested_at_ms and not _is_left_over(view, kind, known, context):
        return Applied(WorkflowSaved(known))
    new = replace(known, cancel_requested_at_ms=context.now_ms, updated_at_ms=context.now_ms, revision=context.index)
    cascade = Cascade(view, context, budget=context.inline_max)
    cascade.put(PutWorkflow(known, new), _audit(new, "cancel", operation.actor, context))
    begin(cascade, kind, known.id, context)
    return cascade.applied(WorkflowSaved(new))


def _is_left_over(view: ForkableView, kind: BackgroundKind, known: Workflow, context: Context) -> bool:
    """Return whether a cancelled workflow has jobs that were requeued since, and that no step will cancel."""
    if view.background_cursor(kind, known.id) is not None:
        return False
    trial = Cascade(view, context, budget=context.inline_max)
    begin(trial, kind, known.id, context)
    return bool(trial.fork.writes)


def _audit(workflow: Workflow, verb: str, actor: str, context: Context, detail: str = "") -> PutAudit:
    subject = f"workflow:{job_id_text(JobId(workflow.id))}"
    return audited(context, f"workflow.{verb}", subject, tenant=workflow.tenant, actor=actor, detail=detail)


# -- validation -------------------------------------------------------------------------------------------------------


def _problem(operation: SubmitWorkflow) -> str:
    return (
        range_problem("id bytes", len(operation.id), JOB_ID_BYTES, JOB_ID_BYTES)
        or name_problem("tenant", operation.tenant)
        or name_problem("name", operation.name)
        or key_problem(operation.idempotency_key)
        or actor_problem(operation.actor)
        or range_problem("job_count", operation.job_count, 1, limits.WORKFLOW_JOBS_MAX)
        or range_problem("jobs", len(operation.jobs), 1, limits.WORKFLOW_PART_JOBS_MAX)
        or range_problem("first", operation.first, 0, operation.job_count - len(operation.jobs))
        or _jobs_problem(operation)
    )


def _jobs_problem(operation: SubmitWorkflow) -> str:
    """Return the fault of one of the jobs, or of all together, or ""."""
    ids = {each.id for each in operation.jobs}
    if len(ids) != len(operation.jobs):
        return "jobs: an id is there twice"
    dependency_count = sum(len(each.depends_on) for each in operation.jobs)
    problem = range_problem("depends_on of all jobs", dependency_count, 0, limits.DEPENDENCIES_MAX)
    for each in operation.jobs:
        problem = problem or _job_problem(operation, each)
    return problem or _cycle_problem(operation.jobs, ids)


def _job_problem(operation: SubmitWorkflow, job: SubmitJob) -> str:
    options = job.spec.options
    if options is None or options.workflow_id != operation.id or not options.task:
        return "jobs: each has the workflow's id and a task name in its options"
    if job.tenant != operation.tenant:
        return "jobs: all are of the workflow's tenant"
    if job.idempotency_key or options.unique_key:
        return "jobs: the workflow has an idempotency key, its jobs have none and are not unique"
    problem = submit_problem(job) or dependencies_problem(job)
    return f"jobs: task {options.task!r}: {problem}" if problem else ""


def _cycle_problem(jobs: tuple[SubmitJob, ...], ids: set[JobId]) -> str:
    parents = {job.id: [each.parent for each in job.depends_on if each.parent in ids] for job in jobs}
    cycle = find_cycle(parents)
    if not cycle:
        return ""
    tasks = {job.id: job.spec.options.task for job in jobs if job.spec.options is not None}
    return f"depends_on: a cycle: {' -> '.join(tasks[job_id] for job_id in cycle)}"
