"""A stage for jobs that hang together: the real state over a store in memory, chores driven by hand, and short verbs.

Every step checks that a refusal wrote nothing and that no operation touched more jobs than its bound.
"""

from __future__ import annotations

from collections.abc import Iterator

from raftsched import limits
from raftsched.core.apply import apply
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import (
    CancelJob,
    ExpireLeases,
    LeaseJobs,
    PurgeJobs,
    RecordOutcome,
    RejectCode,
    SubmitJob,
    SubmitWorkflow,
)
from raftsched.core.operations.control import BackgroundKind, BlockJobs, DoBackgroundStep, RequeueJob
from raftsched.core.operations.queues import CancelWorkflow
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.job import AttemptEnd, Condition, Dependency, Job, Status, Verdict
from raftsched.core.records.spec import Options
from raftsched.core.records.workflow import Workflow, WorkflowId
from raftsched.core.state.results import (
    Changed,
    Context,
    Counted,
    Leased,
    Refused,
    Result,
    Submitted,
    WorkflowSaved,
)
from raftsched.core.state.writes import PutJob, RemoveJob, Write
from raftsched.storage.state import State
from raftsched.storage.store.memory_store import MemoryStore
from tests.core.scene import START_MS, submit_operation, token_of


def workflow_id(number: int) -> WorkflowId:
    return WorkflowId(b"w" + number.to_bytes(15, "big"))


def needs(*parents: Job | JobId, on: Condition = Condition.SUCCESS) -> tuple[Dependency, ...]:
    return tuple(Dependency(parent.id if isinstance(parent, Job) else parent, on) for parent in parents)


class RelationsScene:
    def __init__(self) -> None:
        self.state = State(MemoryStore())
        self.now_ms = START_MS
        self.touched_count = 0
        """Jobs that the last operation wrote or removed."""
        self.operation_count = 0
        self._submitted_count = 0

    # -- steps

    def apply(self, operation: Operation) -> Result:
        index = self.state.applied_index + 1
        now_ms = TimeMs(max(self.now_ms, self.state.cluster_time_ms))
        result, writes = apply(self.state, operation, Context(now_ms, index))
        if isinstance(result, Refused) and result.code is not RejectCode.CANCELLED:
            assert writes == (), "a refusal writes nothing"
        self.execute(writes, index, now_ms)
        changed = {write.new.id for write in writes if isinstance(write, PutJob)}
        removed = {write.old.id for write in writes if isinstance(write, RemoveJob)}
        self.touched_count = len(changed | removed)
        self.operation_count += 1
        assert self.touched_count <= touched_max(operation), f"{type(operation).__name__} touched {self.touched_count}"
        return result

    def execute(self, writes: tuple[Write, ...], index: int, now_ms: TimeMs) -> None:
        self.state.execute(writes)
        self.state.advance(index=index, term=1, now_ms=now_ms)

    def background_work(self) -> list[tuple[BackgroundKind, bytes]]:
        return [(kind, subject) for kind, subject, _ in self.state.all_background_work()]

    def drain(self) -> int:
        """Do all chores to their end; return how many steps that took."""
        steps = 0
        while pending := self.background_work():
            for kind, subject in pending:
                self.apply(DoBackgroundStep(kind, subject))
                steps += 1
                assert steps < 100_000, "chores come to an end"
        return steps

    # -- verbs

    def submit(self, **overrides: object) -> Job:
        result = self.try_submit(**overrides)
        assert isinstance(result, Submitted), result
        return result.job

    def try_submit(self, **overrides: object) -> Result:
        self._submitted_count += 1
        return self.apply(submit_operation(self._submitted_count, **overrides))

    def start(self, *jobs: Job | JobId) -> list[Job]:
        """Lease all of `jobs`, which must be ready, and of one region or none."""
        job_ids = tuple(one.id if isinstance(one, Job) else one for one in jobs)
        region = next((one.spec.region for one in jobs if isinstance(one, Job) and one.spec.region), "")
        result = self.apply(LeaseJobs("w1", 10_000, job_ids, region=region))
        assert isinstance(result, Leased)
        assert not result.missed, "all are ready"
        return [grant.job for grant in result.grants]

    def end(self, job: Job | JobId, how: Status = Status.COMPLETED) -> Job:
        """Let a ready, running or waiting job end in the given way."""
        now = self.now(job)
        if how is Status.CANCELLED:
            self.apply(CancelJob(now.id, now.tenant, force=True))
        else:
            running = now if now.lease is not None else self.start(now)[0]
            end = AttemptEnd.COMPLETED if how is Status.COMPLETED else AttemptEnd.FAILED
            self.apply(RecordOutcome(now.id, running.run_number, token_of(running), end, retryable=False))
        assert self.status(job) is how
        return self.now(job)

    def requeue(self, job: Job | JobId) -> Job:
        result = self.apply(RequeueJob(self.now(job).id, self.now(job).tenant))
        assert isinstance(result, Changed), result
        return result.job

    def purge(self, *jobs: Job | JobId) -> Result:
        return self.apply(PurgeJobs(tuple(self.now(job).id for job in jobs), TimeMs(self.now_ms + 1)))

    def cancel_workflow(self, number: int, tenant: str = "default") -> Result:
        return self.apply(CancelWorkflow(workflow_id(number), tenant))

    # -- looks

    def now(self, job: Job | JobId) -> Job:
        found = self.state.job(job.id if isinstance(job, Job) else job)
        assert found is not None
        return found

    def status(self, job: Job | JobId) -> Status:
        return self.now(job).status

    def statuses(self, *jobs: Job | JobId) -> list[Status]:
        return [self.status(job) for job in jobs]

    def workflow(self, number: int) -> Workflow:
        found = self.state.workflow(workflow_id(number))
        assert found is not None
        return found

    def verdicts(self, child: Job | JobId) -> list[Verdict]:
        """What each of its dependencies has come to, in the order of submission."""
        child_id = self.now(child).id
        edges = {(parent, row.child): row.verdict for parent, row in self.state.all_dependants()}
        return [edges[each.parent, child_id] for each in self.state.dependencies(child_id)]


def touched_max(operation: Operation) -> int:
    """The most jobs that an operation may write: those it names, and what follows within the bounds."""
    match operation:
        case DoBackgroundStep():
            return limits.BACKGROUND_STEP_ITEMS_MAX
        case SubmitJob():
            return 1 + len(operation.depends_on)
        case SubmitWorkflow():
            named = len(operation.jobs) + sum(len(each.depends_on) for each in operation.jobs)
            return named + limits.INLINE_DEPENDANTS_MAX
        case PurgeJobs():
            return len(operation.job_ids)
        case LeaseJobs() | BlockJobs():
            return len(operation.job_ids)
        case ExpireLeases():
            return 2 * len(operation.leases) + limits.INLINE_DEPENDANTS_MAX
        case CancelWorkflow():
            return limits.INLINE_DEPENDANTS_MAX
        case _:
            return 1 + limits.INLINE_DEPENDANTS_MAX


def workflow_job(
    number: int, workflow: int, *, depends_on: tuple[Dependency, ...] = (), **options: object
) -> SubmitJob:
    task = Options(workflow_id=workflow_id(workflow), task=f"t{number}", **options)  # type: ignore[arg-type]
    return submit_operation(number, options=task, depends_on=depends_on)


def workflow_part(
    number: int, jobs: list[SubmitJob], *, job_count: int | None = None, first: int = 0, **fields: object
) -> SubmitWorkflow:
    count = len(jobs) if job_count is None else job_count
    return SubmitWorkflow(workflow_id(number), "default", "nightly", count, first, tuple(jobs), **fields)  # type: ignore[arg-type]


def parts(number: int, jobs: list[SubmitJob], size: int, **fields: object) -> Iterator[SubmitWorkflow]:
    for first in range(0, len(jobs), size):
        yield workflow_part(number, jobs[first : first + size], job_count=len(jobs), first=first, **fields)


def saved(result: Result) -> Workflow:
    assert isinstance(result, WorkflowSaved), result
    return result.workflow


def count_of(result: Result) -> int:
    assert isinstance(result, Counted), result
    return result.count
