"""Store a new job's dependencies, with the verdicts on parents that have ended.

A parent must be a stored job of the same tenant. So dependencies lead only to earlier jobs, and no order of submissions
can make a cycle. Only within one part of a workflow can jobs name each other; see `workflows`.

The verdict on a finished parent is computed at once. If the parent did not meet the condition, the same operation stores
and ends the new job, so that its submitter can read the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from msgspec.structs import replace

from raftsched import limits
from raftsched.core.checks.invariants import assert_change
from raftsched.core.jobs.changes import touch
from raftsched.core.jobs.dependency_resolution import ended, may_have_dependants, verdict_of
from raftsched.core.operations.codec import RejectCode, SubmitJob
from raftsched.core.records.bounds import JOB_ID_BYTES, range_problem
from raftsched.core.records.ids import JobId, job_id_text
from raftsched.core.records.job import WAITING, Job, Status, Verdict
from raftsched.core.records.transitions import Event, next_status
from raftsched.core.state.entries import Dependant
from raftsched.core.state.results import Applied, Context, Refused, Submitted
from raftsched.core.state.view import ForkableView, View
from raftsched.core.state.writes import PutDependant, PutDependencies, PutJob, Write

_WAITING: Final = next_status(None, Event.SUBMIT_WAITING) or Status.WAITING_DEPENDENCIES


class ParentVerdicts(NamedTuple):
    """Carry the verdicts on the parents of a new job."""

    verdicts: tuple[Verdict, ...]
    """One for each dependency, in order."""
    unmet: JobId | None
    """The first parent that did not meet its condition."""
    unmarked: tuple[JobId, ...]
    """Parents not marked as such yet; completed parents need no mark, since they never run again."""


def with_dependencies(view: ForkableView, applied: Applied, operation: SubmitJob, context: Context) -> Applied:
    """Return `applied` with the dependencies of its new job, or the refusal.

    It costs nothing for a job without dependencies.
    """
    result = applied.result
    if not operation.depends_on or not isinstance(result, Submitted) or result.duplicate:
        return applied
    if problem := dependencies_problem(operation):
        return Applied(Refused(RejectCode.INVALID, problem))
    judged = judge(operation, view.job)
    if isinstance(judged, Refused):
        return Applied(judged)
    fork = view.fork()
    fork.execute(write for write in applied.writes if not _is_new(write))
    fork.execute(dependency_writes(result.job, operation, judged, context))
    fork.execute(mark_parents(fork, judged.unmarked, context))
    job = fork.job(operation.id)
    assert job is not None
    return Applied(Submitted(job, duplicate=False), fork.writes)


def _is_new(write: Write) -> bool:
    return isinstance(write, PutJob) and write.old is None


def dependencies_problem(operation: SubmitJob) -> str:
    """Return why the state can't store the job's dependencies, or ""."""
    problem = range_problem("depends_on", len(operation.depends_on), 0, limits.DEPENDENCIES_MAX)
    if problem:
        return problem
    parents = {dependency.parent for dependency in operation.depends_on}
    if any(len(parent) != JOB_ID_BYTES for parent in parents):
        return f"depends_on: a job id has {JOB_ID_BYTES} bytes"
    if operation.id in parents:
        return "depends_on: the job can't depend on itself"
    if len(parents) != len(operation.depends_on):
        return "depends_on: names a job twice"
    return ""


def judge(operation: SubmitJob, find: Callable[[JobId], Job | None]) -> ParentVerdicts | Refused:
    """Return the verdicts on the parents that `find` returns, or the refusal that names a missing one."""
    verdicts: list[Verdict] = []
    unmet: JobId | None = None
    unmarked: list[JobId] = []
    for dependency in operation.depends_on:
        parent = find(dependency.parent)
        if parent is None or parent.tenant != operation.tenant:
            text = f"depends_on: there is no job {job_id_text(dependency.parent)}"
            return Refused(RejectCode.UNKNOWN_DEPENDENCY, text, dependency.parent)
        verdict = verdict_of(parent, dependency.condition)
        verdicts.append(verdict)
        if verdict is Verdict.UNMET and unmet is None:
            unmet = parent.id
        if parent.status is not Status.COMPLETED and not may_have_dependants(parent):
            unmarked.append(parent.id)
    return ParentVerdicts(tuple(verdicts), unmet, tuple(unmarked))


def dependency_writes(
    job: Job, operation: SubmitJob, judged: ParentVerdicts, context: Context, *, is_staged: bool = False
) -> Iterator[Write]:
    """Return the writes that store a new job with its dependencies. `is_staged`: parts of its workflow are missing.

    `job` is its record without dependencies.
    """
    pending_count = judged.verdicts.count(Verdict.PENDING) + is_staged
    parked = job.status in WAITING and (pending_count > 0 or judged.unmet is not None)
    new = replace(
        job,
        status=_WAITING if parked else job.status,
        timed=job.timed and not parked,
        dependency_count=len(operation.depends_on),
        pending_count=pending_count,
        unmet_count=judged.verdicts.count(Verdict.UNMET),
    )
    assert_change(None, new)
    yield PutJob(None, new, payload=operation.payload or None)
    if operation.depends_on:
        yield PutDependencies(new.id, operation.depends_on)
    for dependency, verdict in zip(operation.depends_on, judged.verdicts, strict=True):
        if verdict is not Verdict.PENDING:
            yield PutDependant(dependency.parent, Dependant(new.id, dependency.condition, verdict))
    if judged.unmet is not None:
        yield PutJob(new, ended(new, judged.unmet, context))


def mark_parents(view: View, parents: tuple[JobId, ...], context: Context) -> Iterator[Write]:
    """Return the writes that mark jobs as parents."""
    for job_id in parents:
        parent = view.job(job_id)
        if parent is not None and not parent.has_dependants:
            yield PutJob(parent, touch(parent, context, has_dependants=True))
