"""The state as a handful of dicts, indexes by full scans: what `apply` and `check` see in the tests of the core.

Executing a write checks that it fits: `old` must be what is stored, a new job must be new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from raftsched.core.apply import apply
from raftsched.core.ids import FencingToken, JobId, TimeMs
from raftsched.core.job import FINISHED, LEASED, WAITING, Job, Worker
from raftsched.core.operations import Operation
from raftsched.core.view import (
    Applied,
    Context,
    CounterKey,
    PutFence,
    PutJob,
    PutWorker,
    RemoveJob,
    RemoveWorker,
    TimerEntry,
    WaitingEntry,
    Write,
)


class PlainState:
    """An `AuditableView` over plain dicts."""

    def __init__(self) -> None:
        self.jobs: dict[JobId, Job] = {}
        self.payloads: dict[JobId, bytes] = {}
        self.results: dict[JobId, bytes] = {}
        self.workers: dict[str, Worker] = {}
        self.index = 0
        self._fence = FencingToken(0)
        self._now_ms = TimeMs(0)

    # -- what apply reads

    @property
    def fence(self) -> FencingToken:
        return self._fence

    def job(self, job_id: JobId) -> Job | None:
        return self.jobs.get(job_id)

    def payload(self, job_id: JobId) -> bytes:
        return self.payloads.get(job_id, b"")

    def job_id_for_key(self, tenant: str, idempotency_key: str) -> JobId | None:
        found = [job.id for job in self.jobs.values() if (job.tenant, job.idempotency_key) == (tenant, idempotency_key)]
        return found[0] if found else None

    def worker(self, name: str) -> Worker | None:
        return self.workers.get(name)

    # -- what check walks

    @property
    def cluster_time_ms(self) -> TimeMs:
        return self._now_ms

    def all_jobs(self) -> Iterator[Job]:
        return iter(self.jobs.values())

    def all_waiting(self) -> Iterator[WaitingEntry]:
        waiting = [job for job in self.jobs.values() if job.status in WAITING]
        waiting.sort(key=lambda job: (job.queue, -job.priority, job.due_at_ms, job.id))
        return (WaitingEntry(job.queue, job.priority, job.due_at_ms, job.id) for job in waiting)

    def all_timers(self) -> Iterator[TimerEntry]:
        timed = [job for job in self.jobs.values() if job.timed]
        return iter(sorted(TimerEntry(job.due_at_ms, job.id, job.queue, job.priority) for job in timed))

    def all_leased(self) -> Iterator[JobId]:
        return (job.id for job in self.jobs.values() if job.status in LEASED)

    def all_finished(self) -> Iterator[tuple[TimeMs, JobId]]:
        return ((job.finished_at_ms, job.id) for job in self.jobs.values() if job.status in FINISHED)

    def all_keys(self) -> Iterator[tuple[str, str, JobId]]:
        return ((job.tenant, job.idempotency_key, job.id) for job in self.jobs.values() if job.idempotency_key)

    def all_payload_ids(self) -> Iterator[JobId]:
        return iter(self.payloads)

    def all_result_ids(self) -> Iterator[JobId]:
        return iter(self.results)

    def counters(self) -> dict[CounterKey, int]:
        return dict(Counter(CounterKey(job.tenant, job.queue, job.status) for job in self.jobs.values()))

    # -- what the machine above the core does

    def step(self, operation: Operation, now_ms: int) -> Applied:
        """Apply one operation as a log entry of its own, stamped `now_ms`, and execute its writes."""
        self.index += 1
        self._now_ms = TimeMs(max(self._now_ms, now_ms))
        applied = apply(self, operation, Context(self._now_ms, self.index))
        self.execute(applied.writes)
        return applied

    def execute(self, writes: Iterable[Write]) -> None:
        for write in writes:
            match write:
                case PutJob():
                    self._put_job(write)
                case RemoveJob():
                    assert self.jobs.pop(write.old.id) == write.old
                    self.payloads.pop(write.old.id, None)
                    self.results.pop(write.old.id, None)
                case PutFence():
                    assert write.token > self._fence, "the fence only rises"
                    self._fence = write.token
                case PutWorker():
                    self.workers[write.worker.name] = write.worker
                case RemoveWorker():
                    del self.workers[write.name]

    def _put_job(self, write: PutJob) -> None:
        assert self.jobs.get(write.new.id) == write.old, "a write replaces what is stored"
        self.jobs[write.new.id] = write.new
        if write.payload is not None:
            self.payloads[write.new.id] = write.payload
        if write.result is not None:
            self.results[write.new.id] = write.result
