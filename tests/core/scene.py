"""A small stage for the tests of the core: a plain state, a clock that only the test moves, and short verbs.

Every step checks all invariants, that a refusal wrote nothing (but for the documented one), and that nothing that
finished ever changed.
"""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec.structs import replace

from raftsched.core.checks.invariants import check
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import (
    CancelJob,
    ExpiredLease,
    ExpireLeases,
    LeaseJobs,
    RecordOutcome,
    RejectCode,
    SubmitJob,
)
from raftsched.core.records.ids import FencingToken, JobId, TimeMs
from raftsched.core.records.job import FINISHED, AttemptEnd, Job, Status
from raftsched.core.records.retry import RetryPolicy
from raftsched.core.records.schedule import Template
from raftsched.core.records.spec import JobSpec
from raftsched.core.state.results import Applied, Leased, Refused, Result, Submitted
from tests.core.plain_state import PlainState

START_MS = 1_700_000_000_000
TTL_MS = 10_000
PLAIN_RETRY = RetryPolicy(jitter_thousandths=0)


def job_id(number: int) -> JobId:
    return JobId(number.to_bytes(16, "big"))


def submit_operation(number: int, **overrides: object) -> SubmitJob:
    spec = JobSpec("send_email", "send_email", 5, 3, 0, PLAIN_RETRY)
    plain = SubmitJob(job_id(number), "default", spec, TimeMs(0), b'{"to":"a@example.org"}')
    return with_fields(plain, **overrides)


Specified = TypeVar("Specified", Job, SubmitJob, Template)


def with_fields(record: Specified, **fields: Any) -> Specified:
    """Return `record` with `fields` replaced, be they its own or its specification's."""
    own = {name: fields.pop(name) for name in list(fields) if name in JobSpec.__struct_fields__}
    return replace(record, spec=replace(record.spec, **own), **fields)


class Scene:
    def __init__(self) -> None:
        self.state = PlainState()
        self.now_ms = START_MS
        self.last = Applied(Submitted(job=None, duplicate=False))  # type: ignore[arg-type]  # nothing happened yet
        self._submitted_count = 0

    # -- steps

    def apply(self, operation: Operation) -> Result:
        finished = {job.id: job for job in self.state.all_jobs() if job.status in FINISHED}
        self.last = self.state.step(operation, self.now_ms)
        result = self.last.result
        if isinstance(result, Refused) and result.code is not RejectCode.CANCELLED:
            assert self.last.writes == (), "a refusal writes nothing"
        assert check(self.state) == []
        for known in finished.values():
            assert self.state.job(known.id) in {None, known}, "finished is final"
        return result

    def wait(self, ms: int) -> None:
        self.now_ms += ms

    # -- verbs

    def submit(self, **overrides: object) -> Job:
        self._submitted_count += 1
        result = self.apply(submit_operation(self._submitted_count, **overrides))
        assert isinstance(result, Submitted), result
        return result.job

    def lease(self, *jobs: Job, worker: str = "w1", ttl_ms: int = TTL_MS) -> Leased:
        result = self.apply(LeaseJobs(worker, ttl_ms, tuple(job.id for job in jobs)))
        assert isinstance(result, Leased), result
        return result

    def run(self, job: Job, worker: str = "w1") -> Job:
        """Lease `job`, which must be ready."""
        (grant,) = self.lease(job, worker=worker).grants
        return grant.job

    def running(self, **overrides: object) -> Job:
        return self.run(self.submit(**overrides))

    def report(self, job: Job, end: AttemptEnd, **fields: object) -> Result:
        """Report with the token that `job` had when the test got it."""
        return self.apply(RecordOutcome(job.id, job.run_number, token_of(job), end, **fields))  # type: ignore[arg-type]

    def complete(self, job: Job, **fields: object) -> Result:
        return self.report(job, AttemptEnd.COMPLETED, **fields)

    def fail(self, job: Job, **fields: object) -> Result:
        return self.report(job, AttemptEnd.FAILED, **fields)

    def snooze(self, job: Job, delay_ms: int, **fields: object) -> Result:
        return self.report(job, AttemptEnd.SNOOZED, delay_ms=delay_ms, **fields)

    def expire(self, job: Job, cause: AttemptEnd, jitter: int = 0) -> Result:
        return self.apply(ExpireLeases((ExpiredLease(job.id, token_of(job), cause, jitter),)))

    def lose_worker(self, job: Job) -> Result:
        """Let the lease's time pass, then expire it."""
        self.wait(TTL_MS)
        return self.expire(job, AttemptEnd.WORKER_LOST)

    def cancel(self, job: Job, tenant: str = "default") -> Result:
        return self.apply(CancelJob(job.id, tenant))

    # -- looks

    def now(self, job: Job) -> Job:
        """The job as it stands."""
        found = self.state.job(job.id)
        assert found is not None
        return found

    def status(self, job: Job) -> Status:
        return self.now(job).status


def token_of(job: Job) -> FencingToken:
    assert job.lease is not None, "this job was not leased when the test got it"
    return job.lease.token


def code_of(result: Result) -> RejectCode:
    assert isinstance(result, Refused), result
    return result.code
