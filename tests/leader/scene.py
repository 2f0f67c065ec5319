"""A leader's world without cluster, disk or waiting: the real core and state, a clock set by hand, and a log that
applies at once."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from raftsched.core.apply import apply
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import CancelJob, ExpireLeases, LeaseJobs, MarkWorkers, RecordOutcome, SubmitJob
from raftsched.core.operations.queues import ConfigureQueue, PauseQueue
from raftsched.core.records.ids import FencingToken, JobId, JobIdFactory, TimeMs
from raftsched.core.records.job import AttemptEnd, Job, Status
from raftsched.core.records.retry import RetryPolicy
from raftsched.core.records.spec import JobSpec, Options
from raftsched.core.state.results import Context, Leased, QueueSaved, Result, Submitted
from raftsched.core.state.writes import PutFence, PutJob, RemoveJob, Write
from raftsched.leader.dispatch.dispatcher import Waiter
from raftsched.leader.duties import Change, Duties, Order
from raftsched.leader.leases.keeper import HeartbeatAnswer
from raftsched.leader.now import Now
from raftsched.leader.settings import LeaderSettings
from raftsched.storage.state import State
from raftsched.storage.store.memory_store import MemoryStore

START_MS = 1_800_000_000_000
TTL_MS = 10_000


class HandClock:
    """A clock that stands still until it is told the time. Both its clocks move together, unless the wall is set."""

    def __init__(self) -> None:
        self.passed_ms = 0
        self.wall_offset_ms = START_MS

    def monotonic(self) -> float:
        return self.passed_ms / 1000

    def wall_ms(self) -> int:
        return self.wall_offset_ms + self.passed_ms

    def advance(self, ms: int) -> None:
        self.passed_ms += ms


class World:
    """State, clock and log of one leader."""

    def __init__(self, *, seed: int = 1, clock: HandClock | None = None) -> None:
        self.clock = clock or HandClock()
        self.random = random.Random(seed)
        self.state = State(MemoryStore())
        self.log: list[Operation] = []
        """All that was applied."""
        self.on_changes: Callable[[Sequence[Change]], None] | None = None
        self.on_records: Callable[[Sequence[Write]], None] | None = None
        self._ids = JobIdFactory(self.random.randbytes)

    @property
    def now(self) -> Now:
        return Now.of(self.clock, self.state.cluster_time_ms)

    def apply(self, *operations: Operation, age_ms: int = 0) -> list[Result]:
        """Apply one log entry of `operations`, stamped by the wall clock `age_ms` ago."""
        now_ms = TimeMs(max(self.state.cluster_time_ms, self.clock.wall_ms() - age_ms))
        context = Context(now_ms, self.state.applied_index + 1)
        results: list[Result] = []
        changes: list[Change] = []
        records: list[Write] = []
        for operation in operations:
            result, writes = apply(self.state, operation, context)
            self.state.execute(writes)
            for write in writes:
                if isinstance(write, PutJob):
                    changes.append((write.old, write.new))
                elif isinstance(write, RemoveJob):
                    changes.append((write.old, None))
                elif not isinstance(write, PutFence):
                    records.append(write)
            results.append(result)
        self.state.advance(index=context.index, term=1, now_ms=now_ms)
        self.log += operations
        if records and self.on_records is not None:
            self.on_records(records)
        if changes and self.on_changes is not None:
            self.on_changes(changes)
        return results

    def new_job_id(self) -> JobId:
        return self._ids.next(self.clock.wall_ms())

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def submission(
        self,
        queue: str = "mail",
        *,
        priority: int = 5,
        delay_ms: int = 0,
        timeout_ms: int = 0,
        max_attempts: int = 3,
        tenant: str = "default",
        region: str = "",
        name: str = "",
        **options: Any,
    ) -> SubmitJob:
        now_ms = self.clock.wall_ms()
        return SubmitJob(
            id=self.new_job_id(),
            tenant=tenant,
            spec=JobSpec(
                name=name or queue,
                queue=queue,
                priority=priority,
                max_attempts=max_attempts,
                timeout_ms=timeout_ms,
                retry=RetryPolicy(jitter_thousandths=0),
                region=region,
                options=Options(**options) if options else None,
            ),
            due_at_ms=TimeMs(now_ms + delay_ms if delay_ms else 0),
            payload=b'{"n":1}',
        )

    def submit(self, queue: str = "mail", *, count: int = 1, **fields: Any) -> list[JobId]:
        """Submit `count` jobs in one log entry; return their ids, in order."""
        results = self.apply(*(self.submission(queue, **fields) for _ in range(count)))
        return [result.job.id for result in results if isinstance(result, Submitted)]

    def submit_one(self, queue: str = "mail", **fields: Any) -> JobId:
        return self.submit(queue, **fields)[0]

    def lease(self, job_id: JobId, worker: str = "w1", *, ttl_ms: int = TTL_MS) -> FencingToken:
        """Lease the job behind the leader's back; return the token."""
        (result,) = self.apply(LeaseJobs(worker, ttl_ms, (job_id,), region=self.job(job_id).spec.region))
        assert isinstance(result, Leased)
        assert result.grants, "the job could not be leased"
        return token_of(result.grants[0].job)

    def cancel(self, job_id: JobId) -> None:
        self.apply(CancelJob(job_id, self.job(job_id).tenant))

    def configure(self, queue: str = "mail", **settings: Any) -> None:
        if "rate_count" in settings:
            settings.setdefault("rate_burst", settings["rate_count"])  # all at once after a rest
        (result,) = self.apply(ConfigureQueue(queue, **settings))
        assert isinstance(result, QueueSaved)

    def pause(self, queue: str = "mail", *, for_ms: int = 0) -> None:
        """Pause a queue, for good or for a time."""
        until_ms = TimeMs(self.now.cluster_ms + for_ms if for_ms else 0)
        self.apply(PauseQueue(queue, paused=True, until_ms=until_ms))

    def resume(self, queue: str = "mail") -> None:
        self.apply(PauseQueue(queue, paused=False))

    def complete(self, job: Job) -> Result:
        return self.report(job, AttemptEnd.COMPLETED)

    def report(self, job: Job, end: AttemptEnd, *, delay_ms: int = -1) -> Result:
        return self.apply(RecordOutcome(job.id, job.run_number, token_of(job), end, delay_ms=delay_ms))[0]

    def job(self, job_id: JobId) -> Job:
        job = self.state.job(job_id)
        assert job is not None
        return job

    def status(self, job_id: JobId) -> Status:
        return self.job(job_id).status


class Leader:
    """`Duties` over a world, stepped by hand: operations are applied as soon as they are ordered, unless held back."""

    def __init__(self, world: World, settings: LeaderSettings | None = None) -> None:
        self.world = world
        self.settings = settings or LeaderSettings(lease_ttl_ms=TTL_MS)
        self.duties = Duties(world.state, self.settings, world.random, world.new_job_id)
        self._loop = asyncio.new_event_loop()  # futures want one; it never runs
        self._loop.close()
        self.held: deque[Order] | None = None
        """Orders on their way, while the log is held back."""
        self.duties.start(world.now)
        world.on_changes = lambda changes: self.duties.on_changes(changes, world.now)
        world.on_records = self.duties.on_records

    def step(self) -> None:
        """Do all that is due at this moment."""
        while orders := self.duties.step(self.world.now):
            for order in orders:
                if self.held is None or isinstance(order.operation, MarkWorkers):
                    self.settle(order)
                else:
                    self.held.append(order)

    def hold(self, *, for_ms: int = 0) -> deque[Order]:
        """Hold the log back, and let `for_ms` pass: return where orders of upkeep pile up from now on, marks left out."""
        self.held = deque()
        if for_ms:
            self.run(for_ms)
        return self.held

    def settle(self, order: Order) -> None:
        (result,) = self.world.apply(order.operation)
        self.duties.on_result(order, result, self.world.now)

    def settle_all(self, orders: Iterable[Order]) -> None:
        """Apply orders that were held back, and hold no more."""
        self.held = None
        for order in orders:
            self.settle(order)

    def run(self, ms: int) -> None:
        """Let time pass as the shell does: sleep until the next call, step, and so on."""
        until_ms = self.world.now.monotonic_ms + ms
        while (next_ms := max(self.duties.next_call_ms(self.world.now), self.world.now.monotonic_ms + 1)) <= until_ms:
            self.world.clock.advance(next_ms - self.world.now.monotonic_ms)
            self.step()
        self.world.clock.advance(until_ms - self.world.now.monotonic_ms)
        self.step()

    def lease(
        self,
        *queues: str,
        worker: str = "w1",
        capacity: int = 1,
        region: str = "",
        names: Sequence[str] | None = None,
        age_ms: int = 0,
    ) -> list[Job]:
        """Lease what is ready now, as a worker that does not wait."""
        job_ids = self.take(*queues, worker=worker, capacity=capacity, region=region, names=names)
        return self.lease_ids(job_ids, worker, region, age_ms=age_ms) if job_ids else []

    def take(self, *queues: str, **request: Any) -> list[JobId]:
        """Take what is ready now without leasing it yet; see `wait`."""
        return self.wait(*queues, wait_ms=0, **request).jobs.result()

    def lease_ids(self, job_ids: list[JobId], worker: str = "w1", region: str = "", *, age_ms: int = 0) -> list[Job]:
        ttl_ms = self.settings.lease_ttl_ms
        (result,) = self.world.apply(LeaseJobs(worker, ttl_ms, tuple(job_ids), region=region), age_ms=age_ms)
        jobs = [grant.job for grant in self.duties.on_lease_result(job_ids, result, self.world.now)]
        self._prove(worker, [(job.id, job.run_number, token_of(job)) for job in jobs])
        return jobs

    def _prove(self, worker: str, runs: list[tuple[JobId, int, FencingToken]]) -> bool:
        """Commit the worker's mark if that is needed; return whether it was."""
        mark = self.duties.unproven(worker, runs, self.world.now)
        if mark is None:
            return False
        self.world.apply(mark)
        self.duties.time_is_known()
        assert self.duties.unproven(worker, runs, self.world.now) is None
        return True

    def wait(
        self,
        *queues: str,
        worker: str = "w1",
        capacity: int = 1,
        wait_ms: int = 30_000,
        region: str = "",
        names: Sequence[str] | None = None,
        tenant: str | None = None,
    ) -> Waiter:
        """Ask for jobs, as a worker that waits for `wait_ms` where there are none."""
        future: asyncio.Future[list[JobId]] = asyncio.Future(loop=self._loop)
        waiter = Waiter(worker, queues or ("mail",), capacity, future, region, names=names, tenant=tenant)
        now = self.world.now
        self.duties.ask(waiter, now.monotonic_ms + wait_ms, now)
        return waiter

    def heartbeat(self, *jobs: Job, worker: str = "w1", alive: Sequence[Job] = ()) -> list[HeartbeatAnswer]:
        runs = [(job.id, job.run_number, token_of(job)) for job in jobs]
        known_alive = {job.id for job in alive}
        answers = self.duties.heartbeat(worker, runs, self.world.now, alive=known_alive)
        if not self._prove(worker, runs):
            return answers
        return self.duties.heartbeat(worker, runs, self.world.now, alive=known_alive)

    @property
    def expiries(self) -> list[ExpireLeases]:
        return [operation for operation in self.world.log if isinstance(operation, ExpireLeases)]


def token_of(job: Job) -> FencingToken:
    assert job.lease is not None
    return job.lease.token
