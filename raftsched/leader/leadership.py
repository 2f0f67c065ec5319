"""Run the duties of one term in a node: the thin asyncio shell around `Duties`.

Theory of operation. One task owns all that runs here. It steps the duties, starts a task for each operation to propose,
and sleeps exactly until the next deadline; applied entries and new waits only move that one timer forward. A worker's
request runs in its caller's own task: take ids or wait for them, propose their lease, return the grants.

Failures. A proposal that fails because the lead is lost, or whose outcome is unknown, is logged once and retried later;
it does not stop the node. Any other exception is a bug: it ends the owner, and `wait` raises it, so that the node
stops. `on_changes` raises to its caller, for the same reason.

Left out: whether this node still leads. The node makes a `Leadership` when it begins to lead, throws it away when it
no longer does, and checks its contact with a quorum before it passes on a heartbeat.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence

import structlog

from raftsched import limits
from raftsched.core.explain import LeaseLiveness, ServingWorker
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import LeaseJobs
from raftsched.core.records.ids import FencingToken, JobId, TimeMs
from raftsched.core.state.results import Grant, Leased, Result
from raftsched.core.state.writes import Write
from raftsched.errors import NotLeader, OutcomeUnknown, RaftschedError, Unavailable
from raftsched.leader.dispatch.depths import QueueDepth, QueueScale, queue_depths
from raftsched.leader.dispatch.dispatcher import Waiter
from raftsched.leader.duties import Change, Duties, Order, WorkerFacts, hand_back
from raftsched.leader.leases.keeper import HeartbeatAnswer
from raftsched.leader.now import NEVER_MS, Now
from raftsched.leader.settings import LeaderSettings
from raftsched.leader.view import LeaderView
from raftsched.ports import Clock, Randomness

__all__ = ["HeartbeatAnswer", "LeaderSettings", "Leadership", "QueueDepth", "QueueScale"]

log = structlog.get_logger()

Propose = Callable[[Operation], Awaitable[Result]]
"""Put an operation into the log and wait for its result.

Raises `NotLeader` or `Unavailable` if it is not in the log, and `OutcomeUnknown` if that is unknown.
"""


class Leadership:
    """Perform the leader's work of a node for one term, from the first entry that it applied itself.

    Workers' calls raise `NotLeader` before `start` and after `stop`.
    """

    def __init__(
        self,
        *,
        state: LeaderView,
        propose: Propose,
        clock: Clock,
        randomness: Randomness,
        settings: LeaderSettings,
        new_job_id: Callable[[], JobId],
    ) -> None:
        self._state = state
        self._put_in_log = propose
        self._clock = clock
        self._settings = settings
        self._duties = Duties(state, settings, randomness, new_job_id)
        self._serving = False
        self._retired = False
        self._owner: asyncio.Task[None] | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._wake = asyncio.Event()
        self._wake_timer: asyncio.TimerHandle | None = None
        self._wake_at_ms = NEVER_MS

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take over: read the running leases and the nearest timers, and serve from now on.

        Does nothing after `stop`. It does not wait, so that no caller meets a leader that does not serve yet.
        """
        if self._retired:
            return
        self._duties.start(self._now())
        self._serving = True
        self._owner = asyncio.create_task(self._run(), name="leadership")
        log.info("leadership_started", running_leases=self._duties.lease_count)

    @property
    def preface(self) -> Operation | None:
        """Return the operation that must precede everything else that this leader puts into the log; None = nothing."""
        return self._duties.preface

    def note_silence(self, since_ms: TimeMs, now_ms: TimeMs) -> Operation | None:
        """Return the operation that must precede an entry stamped `now_ms` after one of `since_ms`; None = nothing."""
        return self._duties.note_silence(since_ms, now_ms)

    async def stop(self) -> None:
        """End all waits with `NotLeader` and all tasks; a lease that is being proposed still gets its outcome.

        Does nothing the second time, and never raises: `wait` raises the error of the duties.
        """
        self.retire()
        if self._owner is not None and not self._owner.done():
            self._owner.cancel()
            await asyncio.wait((self._owner,))
            log.info("leadership_stopped")

    async def wait(self) -> None:
        """Return once stopped; raise the error that ended the duties, upon which the node must stop."""
        if self._owner is not None:
            await asyncio.wait((self._owner,))
            if not self._owner.cancelled():
                self._owner.result()

    # -- the log ------------------------------------------------------------------------------------------------------

    def on_records(self, writes: Sequence[Write]) -> None:
        """Take the writes of an applied entry beside jobs, before `on_changes`; ignored while not serving."""
        if self._serving:
            self._duties.on_records(writes)
            self._bring_forward(self._now())

    def on_settings(self) -> None:
        """Take changed settings into account; ignored while not serving."""
        if self._serving:
            self._duties.on_settings()
            self._bring_forward(self._now())

    def on_changes(self, changes: Sequence[Change]) -> None:
        """Take the job writes of an applied entry, right after it was applied; ignored while not serving."""
        if self._serving:
            now = self._now()
            self._duties.on_changes(changes, now)
            self._bring_forward(now)

    # -- workers ------------------------------------------------------------------------------------------------------

    async def lease(
        self,
        worker: str,
        queues: Sequence[str],
        capacity: int,
        wait_seconds: float,
        request_id: str = "",
        *,
        region: str = "",
        names: Sequence[str] | None = None,
        tenant: str | None = None,
        check: Callable[[], None] | None = None,
        version: str = "",
    ) -> list[Grant]:
        """Lease up to `capacity` due jobs of `queues`; wait up to `wait_seconds` for the first, else return [].

        `queues` are names and patterns (`core.wanted`). Jobs of a region go only to workers of the same `region`; "" =
        the worker has none. `names` are the job names that it has handlers for; None = any. A worker of `tenant` is
        given only jobs of that tenant; None = of all tenants, which share it by their weights.
        `check` is called once jobs are found for it, which may be long after the call: if it raises, none is leased.
        The worker's latest request, repeated under its `request_id` because the reply was lost, gets the same grants.
        A drained worker waits as others do, and gets no jobs.

        Raises `NotLeader`, `Unavailable`, or `OutcomeUnknown`: then leases may exist that the worker does not know;
        they end with their term. If the call is cancelled, jobs that were already leased for it are handed back.
        """
        queues = tuple(dict.fromkeys(queues))
        capacity = min(capacity, limits.LEASE_CAPACITY_MAX)
        until_ms = self._now().monotonic_ms + int(min(wait_seconds, limits.LEASE_WAIT_SECONDS_MAX) * 1000)
        self._check_serving()
        if repeated := self._duties.repeated(worker, request_id, tenant):
            return repeated
        while True:
            future = asyncio.get_running_loop().create_future()
            served = () if self._duties.is_drained(worker) else queues
            waiter = Waiter(worker, served, capacity, future, region, names=names, tenant=tenant, version=version)
            job_ids = await self._job_ids(waiter, until_ms)
            if not job_ids:
                return []
            if self._duties.is_drained(worker):
                self._duties.leave(waiter, self._now())
                return []
            if check is not None:
                try:
                    check()
                except RaftschedError:
                    self._duties.leave(waiter, self._now())
                    raise
            if grants := await self._grants(waiter, job_ids, request_id):
                return grants

    async def heartbeat(
        self, worker: str, runs: Sequence[tuple[JobId, int, FencingToken]], *, alive: Container[JobId] = ()
    ) -> list[HeartbeatAnswer]:
        """Renew the leases named by (job, run number, token) for a full term; return an answer for each, in order.

        `alive` are the jobs whose handlers reported a sign of life; only that resets their `heartbeat_timeout_ms`.
        If a later leader could not know of the renewal, waits until the worker's mark is committed. Raises `NotLeader`,
        `Unavailable` or `OutcomeUnknown` if that fails: then nothing is promised.
        """
        self._check_serving()
        answers = self._duties.heartbeat(worker, runs, self._now(), alive=alive)
        if not await self._has_proven(worker, runs):
            return answers
        answers = self._duties.heartbeat(worker, runs, self._now(), alive=alive)
        if self._duties.unproven(worker, runs, self._now()) is not None:
            raise Unavailable("the renewal of the leases is not in the log yet; retry the heartbeat in a moment")
        return answers

    async def _has_proven(self, worker: str, runs: Sequence[tuple[JobId, int, FencingToken]]) -> bool:
        """Commit the worker's mark if a later leader could not know that `runs` are alive; return whether it was
        needed.
        """
        mark = self._duties.unproven(worker, runs, self._now())
        if mark is None:
            return False
        await self._propose(mark)
        self._duties.time_is_known()
        self._check_serving()
        return True

    def queue_depths(self, queues: Iterable[str], tenant: str | None = None) -> list[QueueDepth]:
        """Return the depth of each of these queues, of one tenant's jobs or of all; see `QueueDepth`."""
        now_ms = self._now().cluster_ms
        return queue_depths(
            self._state,
            queues,
            now_ms,
            waiting_workers=lambda queue: self._duties.waiting_workers(queue, tenant),
            tenant=tenant,
        )

    def queue_scale(self, queue: str, tenant: str | None = None) -> QueueScale:
        """Return the queue's numbers for autoscalers, of one tenant's jobs or of all; see `QueueScale`."""
        self._check_serving()
        return self._duties.scale(queue, self._now(), tenant)

    def worker_count(self) -> int:
        """Return the number of living workers."""
        self._check_serving()
        return self._duties.worker_count(self._now())

    def worker_facts(self) -> Mapping[str, WorkerFacts]:
        """Return what this leader knows of each worker beside its mark, by name."""
        self._check_serving()
        return self._duties.worker_facts()

    def workers_for(self, queue: str) -> list[ServingWorker]:
        """Return the living workers that take jobs of `queue`, in any region; used by `core.explain`."""
        self._check_serving()
        return self._duties.workers_for(queue, self._now())

    def lease_liveness(self, job_id: JobId) -> LeaseLiveness | None:
        """Return the signs of life of a job's lease, None if it has none; used by `core.explain`."""
        self._check_serving()
        return self._duties.lease_liveness(job_id, self._now())

    async def _job_ids(self, waiter: Waiter, until_ms: int) -> list[JobId]:
        self._check_serving()
        now = self._now()
        self._duties.ask(waiter, until_ms, now)
        if until_ms < self._wake_at_ms:
            self._bring_forward(now)
        try:
            return await waiter.jobs
        except asyncio.CancelledError:
            self._duties.leave(waiter, self._now())
            raise

    async def _grants(self, waiter: Waiter, job_ids: list[JobId], request_id: str) -> list[Grant]:
        """Propose the lease of `job_ids`; return [] if none was granted."""
        region, _, tenant = waiter.line
        operation = LeaseJobs(
            waiter.worker, self._settings.lease_ttl_ms, tuple(job_ids), request_id, region, tenant or ""
        )
        proposal = asyncio.ensure_future(self._propose(operation))
        result: Result | None = None
        try:
            # Shielded: a proposed lease is applied even if its worker has gone.
            result = await asyncio.shield(proposal)
        except asyncio.CancelledError:
            self._give_back(proposal)
            raise
        finally:
            grants = self._duties.on_lease_result(job_ids, result, self._now())
        self._duties.granted(waiter.worker, request_id, grants)
        runs = [(grant.job.id, grant.job.run_number, grant.job.lease.token) for grant in grants if grant.job.lease]
        try:
            await self._has_proven(waiter.worker, runs)
        except asyncio.CancelledError:
            self._give_back(proposal)
            raise
        except Unavailable as error:
            raise OutcomeUnknown("the leases are granted, but may end before their term; repeat the request") from error
        return grants

    def _give_back(self, proposal: asyncio.Future[Result]) -> None:
        if self._serving and self._tasks is not None:
            self._tasks.create_task(self._hand_back(proposal))

    async def _hand_back(self, proposal: asyncio.Future[Result]) -> None:
        """End the leases of a worker that is gone, so that their jobs need not wait for the end of the term."""
        await asyncio.wait((proposal,))
        if proposal.cancelled():
            return
        with contextlib.suppress(Unavailable):  # they end with their term
            result = await proposal
            if isinstance(result, Leased):
                await asyncio.gather(*(self._propose(hand_back(grant)) for grant in result.grants))

    def _propose(self, operation: Operation) -> Awaitable[Result]:
        """Propose what this term has decided; raises `NotLeader` once it is over, as the next term may know better."""
        if self._retired:
            raise NotLeader
        return self._put_in_log(operation)

    def _check_serving(self) -> None:
        if not self._serving:
            raise NotLeader

    # -- the owner ----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                while True:
                    self._wake.clear()
                    now = self._now()
                    for order in self._duties.step(now):
                        tasks.create_task(self._carry_out(order))
                    self._set_wake_timer(self._duties.next_call_ms(now), now)
                    await self._wake.wait()
            finally:
                self.retire()

    async def _carry_out(self, order: Order) -> None:
        result: Result | None = None
        try:
            result = await self._propose(order.operation)
        except Unavailable as error:
            if not order.post.failing:
                log.warning(
                    "leader_proposal_failed", service=order.post.service.name, code=error.code, error=str(error)
                )
        self._duties.on_result(order, result, self._now())
        self._wake.set()

    def retire(self) -> None:
        """Refuse all calls and propose nothing more, from this moment on; `stop` must follow."""
        self._serving = False
        self._retired = True
        self._duties.close(NotLeader())
        if self._wake_timer is not None:
            self._wake_timer.cancel()

    # -- time ---------------------------------------------------------------------------------------------------------

    def _now(self) -> Now:
        return Now.of(self._clock, self._state.cluster_time_ms)

    def _bring_forward(self, now: Now) -> None:
        """Move the next step forward if something that was added is due before it."""
        next_ms = self._duties.next_call_ms(now)
        if next_ms < self._wake_at_ms:
            self._set_wake_timer(next_ms, now)

    def _set_wake_timer(self, at_ms: int, now: Now) -> None:
        if self._wake_timer is not None:
            self._wake_timer.cancel()
        self._wake_at_ms = at_ms
        # Never immediately, so that a service that makes no progress costs at most one step per millisecond.
        delay_ms = max(1, at_ms - now.monotonic_ms)
        self._wake_timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._wake.set)
