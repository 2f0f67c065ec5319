"""The stage of the core's tests with everything that a job can be told to do.

Each step checks all invariants, that a refusal wrote nothing, that a run that ended never changed but for its claims,
and that no limit of a queue is exceeded.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from raftsched.core.checks.invariants import check
from raftsched.core.jobs.admission import key_concurrency_max
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import CancelJob, RejectCode
from raftsched.core.operations.control import (
    AmendJob,
    AppendLog,
    BlockJobs,
    DeadlineKind,
    HandleDeadlines,
    PauseJob,
    Progress,
    ReportProgress,
    RequeueJob,
    ResumeJob,
    StartRun,
)
from raftsched.core.operations.queues import ConfigureQueue, PauseQueue
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.job import FINISHED, LEASED, Job, Note
from raftsched.core.records.queue import Queue
from raftsched.core.records.spec import Options, SpecChanges, with_options
from raftsched.core.state.entries import AuditEntry
from raftsched.core.state.results import Changed, QueueSaved, Refused, Result
from raftsched.core.state.view import AuditableView
from raftsched.core.state.writes import PutAudit, PutJob, Write
from tests.core.scene import Scene, token_of

QUEUE = "send_email"


class ControlScene(Scene):
    # -- steps

    def apply(self, operation: Operation) -> Result:
        ended = {job.id: job for job in self.state.all_jobs() if job.status in FINISHED}
        self.last = self.state.step(operation, self.now_ms)
        result = self.last.result
        if isinstance(result, Refused) and result.code is not RejectCode.CANCELLED:
            assert self.last.writes == (), "a refusal writes nothing"
        assert check(self.state) == []
        for known in ended.values():
            now = self.state.job(known.id)
            assert now is None or now.run_number > known.run_number or told_alike(now, known), "an end is final"
        assert_limits_hold(self.state, self.last.writes)
        return result

    # -- verbs

    def pause(self, job: Job, **fields: object) -> Result:
        return self.apply(PauseJob(job.id, "default", **fields))  # type: ignore[arg-type]  # a test's own words

    def resume(self, job: Job, **fields: object) -> Result:
        return self.apply(ResumeJob(job.id, "default", **fields))  # type: ignore[arg-type]

    def amend(self, job: Job, **fields: object) -> Result:
        changes = {name: fields.pop(name) for name in list(fields) if name in SpecChanges.__struct_fields__}
        return self.apply(AmendJob(job.id, "default", SpecChanges(**changes), **fields))  # type: ignore[arg-type]

    def requeue(self, job: Job, **fields: object) -> Result:
        return self.apply(RequeueJob(job.id, "default", **fields))  # type: ignore[arg-type]

    def force_cancel(self, job: Job, **fields: object) -> Result:
        return self.apply(CancelJob(job.id, "default", force=True, **fields))  # type: ignore[arg-type]

    def start(self, job: Job) -> Result:
        return self.apply(StartRun(job.id, job.run_number, token_of(job)))

    def progress(self, job: Job, text: bytes) -> Result:
        return self.apply(ReportProgress((Progress(job.id, job.run_number, token_of(job), text),)))

    def log(self, job: Job, lines: bytes, sequence: int = 0) -> Result:
        return self.apply(AppendLog(job.id, job.run_number, token_of(job), lines, sequence))

    def hold(self, *jobs: Job) -> Result:
        return self.apply(BlockJobs(tuple(job.id for job in jobs)))

    def ring(self, *jobs: Job) -> Result:
        return self.apply(HandleDeadlines(tuple((DeadlineKind.JOB, bytes(job.id)) for job in jobs)))

    def ring_queue(self, name: str = QUEUE) -> Result:
        return self.apply(HandleDeadlines(((DeadlineKind.QUEUE, name.encode()),)))

    def configure(self, **fields: object) -> Queue:
        if "rate_count" in fields:
            fields.setdefault("rate_burst", fields["rate_count"])  # all at once after a rest
        return saved(self.apply(ConfigureQueue(QUEUE, **fields)))  # type: ignore[arg-type]

    def pause_queue(self, *, paused: bool = True, **fields: object) -> Queue:
        return saved(self.apply(PauseQueue(QUEUE, paused, **fields)))  # type: ignore[arg-type]

    # -- looks

    def audited(self) -> AuditEntry:
        """The line that the last step left in the audit trail."""
        (entry,) = (write.entry for write in self.last.writes if isinstance(write, PutAudit))
        return entry

    def written_jobs(self) -> list[Job]:
        return [write.new for write in self.last.writes if isinstance(write, PutJob)]


def told_alike(now: Job, then: Job) -> bool:
    """Whether two records tell the same end: claims may lapse, and others may depend on the job or need it."""
    return untold(now) == untold(then)


def untold(job: Job) -> Job:
    return replace(
        job,
        spec=with_options(job.spec, unique_key=b"", unique_until_ms=TimeMs(0)),
        idempotency_key="",
        has_dependants=False,
        pending_count=0,
        unmet_count=0,
        kept_until_ms=TimeMs(0),
        updated_at_ms=TimeMs(0),
        revision=0,
    )


def assert_limits_hold(state: AuditableView, writes: Iterable[Write]) -> None:
    """No lease exceeds a limit of its queue, counted from the records alone; a lowered limit takes nothing away."""
    granted = [write.new for write in writes if isinstance(write, PutJob) and is_grant(write)]
    for job in granted:
        queue, key = state.queue(job.spec.queue), job.spec.concurrency_key
        leased = [other for other in state.all_jobs() if other.status in LEASED and other.spec.queue == job.spec.queue]
        if queue is not None and queue.concurrency_max:
            assert len(leased) <= queue.concurrency_max, "concurrency_max holds"
        if key:
            of_key = [other for other in leased if (other.tenant, other.spec.concurrency_key) == (job.tenant, key)]
            assert len(of_key) <= key_concurrency_max(queue), "key_concurrency_max holds"
        assert queue is None or not queue.paused, "a paused queue gives no leases"


def is_grant(write: PutJob) -> bool:
    return write.new.lease is not None and (write.old is None or write.old.lease is None)


def changed(result: Result) -> Job:
    assert isinstance(result, Changed), result
    return result.job


def saved(result: Result) -> Queue:
    assert isinstance(result, QueueSaved), result
    return result.queue


def options(**fields: object) -> Options:
    return Options(**fields)  # type: ignore[arg-type]


def last_note(job: Job) -> Note:
    return job.notes[-1]
