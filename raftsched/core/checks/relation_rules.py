"""Check the invariants between related records: parents and children, workflows, schedules, background work, logs.

Long work is done in steps, so two records can disagree while background work on them is left; each rule says for which.
The rules follow from the guarantees, not from the code. They cost a few look-ups per job with relations, and no memory
per job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from raftsched import limits
from raftsched.core.checks.finished_statuses import MEETS, WORKFLOW_COUNTS
from raftsched.core.checks.violation import Violation, named
from raftsched.core.operations.control import BackgroundKind
from raftsched.core.records.bounds import JOB_ID_BYTES
from raftsched.core.records.ids import JobId
from raftsched.core.records.job import (
    FINISHED,
    Condition,
    DeadLetterReason,
    Dependency,
    Job,
    Status,
    Verdict,
)
from raftsched.core.records.schedule import Schedule, ScheduleId
from raftsched.core.records.tenant import WEIGHT_MAX, Tenant
from raftsched.core.records.workflow import Workflow, WorkflowId
from raftsched.core.state.entries import Dependant
from raftsched.core.state.view import AuditableView

_RESOLVING: Final = (BackgroundKind.RESOLVE_DEPENDANTS, BackgroundKind.REVIVE_DEPENDANTS)
_PAGE_JOBS: Final = 1_000


def check_relations(view: AuditableView) -> Iterator[Violation]:
    """Check all relations except those of single jobs, which `check_relations_of` checks."""
    yield from _check_edges(view)
    yield from _check_workflows(view)
    for schedule in view.all_schedules():
        yield from _check_schedule(view, schedule)
    yield from _check_ledgers(view)
    for tenant in view.all_tenants():
        yield from _check_tenant(view, tenant)
    yield from _check_background_work(view)
    yield from _check_logs(view)


def check_relations_of(view: AuditableView, job: Job) -> Iterator[Violation]:
    """Check one job's relations; it costs nothing for a job without any."""
    if job.dependency_count or job.pending_count or job.unmet_count:
        yield from _check_dependencies(view, job)
    if job.spec.options is not None and job.spec.options.schedule_id and job.status not in FINISHED:
        schedule = view.schedule(ScheduleId(job.spec.options.schedule_id))
        if schedule is not None:
            runs = schedule.backfilling if job.spec.options.is_backfill else schedule.active
            if job.id not in runs and len(runs) < limits.SCHEDULE_ACTIVE_MAX:
                yield Violation("a schedule knows its unfinished jobs", named("job", job.id), repr(schedule))


# -- dependencies -----------------------------------------------------------------------------------------------------


def _check_dependencies(view: AuditableView, job: Job) -> Iterator[Violation]:
    dependencies = view.dependencies(job.id)
    subject = named("job", job.id)
    if len(dependencies) != job.dependency_count:
        yield Violation("a job counts its parents", subject, f"{job.dependency_count}, not {len(dependencies)}")
    verdicts: Counter[Verdict] = Counter()
    for dependency in dependencies:
        edge = _edge(view, dependency, job.id)
        if edge is None:
            yield Violation("each parent knows its dependant", subject, repr(dependency))
            continue
        verdicts[edge.verdict] += 1
        yield from _check_verdict(view, dependency, edge)
    counts = (job.pending_count, job.unmet_count)
    expected = (verdicts[Verdict.PENDING] + _is_staged(view, job), verdicts[Verdict.UNMET])
    # A job that ended for another reason is not updated any more; a new run counts again.
    if counts != expected and (job.status not in FINISHED or _ended_by_dependency(job)):
        yield Violation("a job counts what it waits for", subject, f"(pending, unmet) {counts}, not {expected}")


def _check_verdict(view: AuditableView, dependency: Dependency, edge: Dependant) -> Iterator[Violation]:
    parent = view.job(dependency.parent)
    subject = named("job", edge.child)
    if parent is None:
        if edge.verdict is Verdict.PENDING:
            yield Violation("no parent is removed before its dependants are resolved", subject, repr(dependency))
        return
    # A completed parent never runs again, so it needs no mark for dependants with a verdict.
    is_told = edge.verdict is Verdict.MET or (edge.verdict is Verdict.UNMET and parent.status is Status.COMPLETED)
    if not is_told and not (parent.has_dependants or parent.spec.workflow_id):
        yield Violation("a parent is marked as one", named("job", parent.id), repr(edge))
    stands = edge.verdict in (Verdict.MET, _verdict(parent, edge.condition))
    if not stands and not _is_unresolved(view, parent.id, edge.child):
        yield Violation("a dependency has the verdict of its parent's status", subject, f"{edge!r} of {parent!r}")


def _verdict(parent: Job, condition: Condition) -> Verdict:
    if parent.status not in FINISHED:
        return Verdict.PENDING
    return Verdict.MET if parent.status in MEETS[condition] else Verdict.UNMET


def _is_unresolved(view: AuditableView, parent: JobId, child: JobId) -> bool:
    """Return whether a background step is still to resolve the dependency."""
    cursors = (view.background_cursor(kind, parent) for kind in _RESOLVING)
    return any(cursor is not None and child > cursor for cursor in cursors)


def _is_staged(view: AuditableView, job: Job) -> bool:
    """Return whether the job waits for missing parts of its workflow, or for the workflow to be opened."""
    if not job.spec.workflow_id:
        return False
    workflow = view.workflow(WorkflowId(job.spec.workflow_id))
    if workflow is not None and not workflow.is_whole:
        return True
    cursor = view.background_cursor(BackgroundKind.OPEN_WORKFLOW, job.spec.workflow_id)
    return cursor is not None and job.id > cursor


def _ended_by_dependency(job: Job) -> bool:
    if job.status is Status.SKIPPED:
        return True
    return job.status is Status.DEAD_LETTER and job.failure_reason.startswith(DeadLetterReason.DEPENDENCY_FAILED)


def _edge(view: AuditableView, dependency: Dependency, child: JobId) -> Dependant | None:
    """Return the stored edge from a parent to its child."""
    number = int.from_bytes(child, "big")
    before = JobId((number - 1).to_bytes(len(child), "big")) if number else None
    found = view.dependants(dependency.parent, after=before, limit=1)
    is_there = bool(found) and (found[0].child, found[0].condition) == (child, dependency.condition)
    return found[0] if is_there else None


def _check_edges(view: AuditableView) -> Iterator[Violation]:
    expected_count = 0
    for child, dependencies in view.all_dependencies():
        job = view.job(child)
        expected_count += len(dependencies)
        if job is None or job.dependency_count != len(dependencies):
            yield Violation("dependencies have their job", named("job", child), repr(job))
    if sum(1 for _ in view.all_dependants()) == expected_count:
        return
    for parent, edge in view.all_dependants():
        if Dependency(parent, edge.condition) not in view.dependencies(edge.child):
            yield Violation("a dependant depends on its parent", named("job", parent), repr(edge))


# -- workflows --------------------------------------------------------------------------------------------------------


def _check_workflows(view: AuditableView) -> Iterator[Violation]:
    known: bytes = b""
    for workflow_id, job_id in view.all_workflow_jobs():
        if workflow_id != known and view.workflow(workflow_id) is None:
            yield Violation(
                "a job of a workflow has its workflow", named("job", job_id), named("workflow", workflow_id)
            )
        known = workflow_id
    for workflow in view.all_workflows():
        if view.background_cursor(BackgroundKind.DROP_WORKFLOW, workflow.id) is None:
            yield from _check_workflow(view, workflow)


def _check_workflow(view: AuditableView, workflow: Workflow) -> Iterator[Violation]:
    subject = named("workflow", workflow.id)
    statuses = Counter(job.status for job in _jobs_of(view, workflow))
    ended = {name: sum(statuses[status] for status in counted) for name, counted in WORKFLOW_COUNTS.items()}
    unfinished_count = sum(count for status, count in statuses.items() if status not in FINISHED)
    if workflow.unfinished_count != unfinished_count:
        yield Violation("a workflow counts its unfinished jobs", subject, f"{unfinished_count} in {workflow!r}")
    removed_count = workflow.stored_count - statuses.total()
    if not 0 <= workflow.stored_count <= workflow.job_count or removed_count < 0:
        yield Violation("a workflow has no more jobs than it says", subject, f"{statuses.total()} in {workflow!r}")
    for name, count in ended.items():
        # Jobs that retention has removed are still counted.
        if not count <= getattr(workflow, name) <= count + max(removed_count, 0):
            yield Violation("a workflow counts how its jobs ended", subject, f"{name} {count} in {workflow!r}")
    if bool(workflow.finished_at_ms) is not (workflow.is_whole and not workflow.unfinished_count):
        yield Violation("a workflow is finished with its last job", subject, repr(workflow))


def _jobs_of(view: AuditableView, workflow: Workflow) -> Iterator[Job]:
    after: JobId | None = None
    while job_ids := view.workflow_jobs(workflow.id, after=after, limit=_PAGE_JOBS):
        yield from filter(None, map(view.job, job_ids))
        after = job_ids[-1]


# -- schedules --------------------------------------------------------------------------------------------------------


def _check_schedule(view: AuditableView, schedule: Schedule) -> Iterator[Violation]:
    subject = named("schedule", schedule.id)
    for runs, is_backfill in ((schedule.active, False), (schedule.backfilling, True)):
        if len(set(runs)) < len(runs) or len(runs) > limits.SCHEDULE_ACTIVE_MAX:
            yield Violation("a schedule's active jobs are there once, and bounded", subject, repr(runs))
        for job_id in runs:
            job = view.job(job_id)
            if job is None or job.status in FINISHED or not _is_run_of(schedule, job, is_backfill=is_backfill):
                told = repr(job or job_id.hex())
                yield Violation("a schedule's active jobs are its own and unfinished", subject, told)
    if schedule.next_deadline_ms and schedule.last_at_ms >= schedule.next_at_ms > 0:
        yield Violation("a schedule's next instant is behind its last", subject, repr(schedule))
    if bool(schedule.paused_at_ms) is not schedule.paused:
        yield Violation("a schedule's pause has a beginning", subject, repr(schedule))
    if not 0 < schedule.changed_revision <= schedule.revision:
        yield Violation("a schedule was changed by somebody, at its revision or before", subject, repr(schedule))


def _is_run_of(schedule: Schedule, job: Job, *, is_backfill: bool) -> bool:
    options = job.spec.options
    return options is not None and options.schedule_id == schedule.id and options.is_backfill is is_backfill


def _check_ledgers(view: AuditableView) -> Iterator[Violation]:
    known: bytes = b""
    for schedule_id, firing in view.all_firings():
        if schedule_id != known and not _has_ledger(view, schedule_id):
            yield Violation("a ledger has its schedule", named("schedule", schedule_id), repr(firing))
        known = schedule_id


def _has_ledger(view: AuditableView, schedule_id: ScheduleId) -> bool:
    """Return whether the schedule exists, or its ledger is being dropped."""
    return (
        view.schedule(schedule_id) is not None
        or view.background_cursor(BackgroundKind.DROP_LEDGER, schedule_id) is not None
    )


# -- tenants ----------------------------------------------------------------------------------------------------------


def _check_tenant(view: AuditableView, tenant: Tenant) -> Iterator[Violation]:
    numbers = (tenant.unfinished_jobs_max, tenant.schedules_max, tenant.submits_per_second, tenant.submit_burst)
    if min(numbers) < 0 or not 1 <= tenant.weight <= WEIGHT_MAX or tenant.revision < 1:
        yield Violation("a tenant's settings are in range", f"tenant {tenant.name}", repr(tenant))
    if view.tenant(tenant.name) != tenant:
        yield Violation("a tenant's settings in memory are those stored", f"tenant {tenant.name}", repr(tenant))


# -- background work, logs --------------------------------------------------------------------------------------------


def _check_background_work(view: AuditableView) -> Iterator[Violation]:
    for kind, subject, cursor in view.all_background_work():
        if not _has_subject(view, kind, subject):
            yield Violation("background work has its subject", subject.hex(), f"{kind.name.lower()} at {cursor.hex()}")


def _has_subject(view: AuditableView, kind: BackgroundKind, subject: bytes) -> bool:
    match kind:
        case BackgroundKind.RESOLVE_DEPENDANTS | BackgroundKind.REVIVE_DEPENDANTS:
            return view.job(JobId(subject)) is not None
        case BackgroundKind.OPEN_WORKFLOW | BackgroundKind.CANCEL_WORKFLOW | BackgroundKind.DROP_WORKFLOW:
            return view.workflow(WorkflowId(subject)) is not None
        case BackgroundKind.RELEASE_BLOCKED:
            return view.queue(subject.decode()) is not None
        case BackgroundKind.DROP_LEDGER:
            return len(subject) == JOB_ID_BYTES and view.schedule(ScheduleId(subject)) is None


def _check_logs(view: AuditableView) -> Iterator[Violation]:
    for job_id, run_number, attempt_number, size in view.all_logs():
        job = view.job(job_id)
        where = (run_number, attempt_number)
        if job is None or where > (job.run_number, job.attempt_number) or min(where) < 1:
            yield Violation("a log has its attempt", named("job", job_id), f"{where} of {job!r}")
        elif not 0 < size.byte_count <= limits.LOG_BYTES_MAX:
            yield Violation("a log is bounded", named("job", job_id), f"{size} in {where}")
