"""All services of the leader wired together: one plain object that is stepped.

Theory of operation. Events enter by `on_changes` (every job write of an applied entry), by the calls of workers, and by
`step` (time). Operations to propose leave: `step` returns those of the maintenance services (outage, lease keeper,
worker marks, deadlines, firing, background steps, blocked jobs, retention, trimming, zone rules), and workers' leases
are proposed by the holder of the `Waiter` that was handed the ids. Each service has at most one operation in flight; a
failed proposal is retried after a pause, while this node leads.

Nothing here awaits, sleeps or reads a clock, so the simulator steps the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from raftsched.core.cron import zones
from raftsched.core.explain import LeaseLiveness, ServingWorker
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import RecordOutcome
from raftsched.core.records.ids import FencingToken, JobId, TimeMs, name_tag
from raftsched.core.records.job import LEASED, WAITING, AttemptEnd, Job, Status, Worker
from raftsched.core.state.results import Grant, Leased, Result
from raftsched.core.state.writes import (
    PutBackgroundWork,
    PutFiring,
    PutQueue,
    PutSchedule,
    PutWorker,
    PutWorkflow,
    Write,
)
from raftsched.errors import RaftschedError
from raftsched.leader.dispatch.blocked import BlockedJobs
from raftsched.leader.dispatch.depths import QueueScale, queue_scale
from raftsched.leader.dispatch.dispatcher import Dispatcher, Waiter
from raftsched.leader.dispatch.due_jobs import TimerHorizon
from raftsched.leader.dispatch.latest_requests import LatestRequests
from raftsched.leader.dispatch.ready import ReadyJobs
from raftsched.leader.leases.evidence import Evidence
from raftsched.leader.leases.keeper import HeartbeatAnswer, LeaseKeeper
from raftsched.leader.leases.outage import Outage
from raftsched.leader.leases.worker_marks import WorkerMarks
from raftsched.leader.maintenance.background_steps import BackgroundSteps
from raftsched.leader.maintenance.encryption import KeyAdoption
from raftsched.leader.maintenance.retention import Retention
from raftsched.leader.maintenance.trim import Trimming
from raftsched.leader.now import NEVER_MS, Now
from raftsched.leader.schedules.firer import Firing
from raftsched.leader.schedules.plan import RandomSource
from raftsched.leader.schedules.zone_rules import ZoneRules
from raftsched.leader.settings import LeaderSettings
from raftsched.leader.timers.deadlines import Deadlines
from raftsched.leader.view import LeaderView
from raftsched.ports import Randomness

Change = tuple[Job | None, Job | None]
"""A job before and after a write; None if there was or is none."""
PAUSE_MS: Final = 500
"""Pause after a failed proposal; mostly the lead is being lost, and a new leader takes over."""


class Service(Protocol):
    """A duty that keeps the cluster in order by proposing operations."""

    @property
    def name(self) -> str: ...
    def step(self, now: Now) -> Sequence[Operation]:
        """Return operations to propose now. Called at `next_call_ms`, and not again until all of them are settled."""

    def on_result(self, operation: Operation, result: Result | None, now: Now) -> None:
        """Note that `operation` was applied with `result`; None: it failed, or its outcome is unknown."""

    def next_call_ms(self, now: Now) -> int:
        """Return when `step` must be called next, in monotonic milliseconds."""


class Post:
    """A service, and the number of its operations in flight."""

    __slots__ = ("failing", "open_count", "paused_until_ms", "service")

    def __init__(self, service: Service) -> None:
        self.service: Final = service
        self.open_count = 0
        self.failing = False
        """Its latest proposal failed."""
        self.paused_until_ms = 0

    def next_call_ms(self, now: Now) -> int:
        return NEVER_MS if self.open_count else max(self.paused_until_ms, self.service.next_call_ms(now))


class Order(NamedTuple):
    """An operation to propose for a post; `Duties.settled` must follow."""

    post: Post
    operation: Operation


class WorkerFacts(NamedTuple):
    """Facts of a worker that a leader knows beside its mark."""

    running_count: int
    slots: int | None
    """The largest capacity of its requests; None = it has not asked in this term."""
    names: tuple[str, ...] | None
    """Job names that it has handlers for; None = any, or it has not asked in this term."""


class Duties:
    """Perform the leader's duties over `view`. Call `start` first, then `on_changes` after every applied entry."""

    def __init__(
        self, view: LeaderView, settings: LeaderSettings, randomness: Randomness, new_job_id: Callable[[], JobId]
    ) -> None:
        random_source = RandomSource(new_job_id, lambda ms: randomness.randint(0, ms))
        self._view: Final = view
        self._settings: Final = settings
        self._ready: Final = ReadyJobs(view, ageing_ms=settings.ageing_ms)
        self._timers: Final = TimerHorizon(view, self._ready)
        self._dispatcher: Final = Dispatcher(self._ready)
        self._keeper: Final = LeaseKeeper(settings, randomness)
        self._outage: Final = Outage(view, settings, self._on_outage_recorded)
        self._marks: Final = WorkerMarks(view, settings, self._dispatcher.waiting_workers, self._keeper)
        self._drained: Final[set[str]] = set()
        """Workers that get no further jobs."""
        self._knows_time = False
        self._requests: Final = LatestRequests()
        self._deadlines: Final = Deadlines(view)
        self._firing: Final = Firing(view, random_source)
        self._background_steps: Final = BackgroundSteps(view)
        self._retention: Final = Retention(view, settings)
        self._trimming: Final = Trimming(view, lambda count: randomness.randint(0, count - 1))
        self._key_adoption: Final = KeyAdoption(view, settings, randomness.randbytes)
        services: tuple[Service, ...] = (
            self._outage,
            self._keeper,
            self._marks,
            self._deadlines,
            self._firing,
            self._background_steps,
            BlockedJobs(self._ready, self._offer),
            self._retention,
            self._trimming,
            ZoneRules(view, zones.RULES_VERSION),
            self._key_adoption,
        )
        self._posts: Final = tuple(Post(service) for service in services)
        self._keeper_post: Final = next(post for post in self._posts if post.service is self._keeper)

    @property
    def preface(self) -> Operation | None:
        """Return the operation that must precede everything else that this leader puts into the log; None = nothing."""
        return self._outage.note

    def note_silence(self, since_ms: TimeMs, now_ms: TimeMs) -> Operation | None:
        """Return the operation that must precede an entry stamped `now_ms` after one of `since_ms`; None = nothing."""
        return self._outage.note_silence(since_ms, now_ms) if len(self._keeper) else None

    @property
    def lease_count(self) -> int:
        return len(self._keeper)

    def waiting_workers(self, queue: str, tenant: str | None = None) -> int:
        """Return the number of workers that wait for jobs of `queue`, of one tenant or of any."""
        return self._dispatcher.waiting_count(queue, tenant)

    def scale(self, queue: str, now: Now, tenant: str | None = None) -> QueueScale:
        """Return the queue's numbers for autoscalers, of one tenant's jobs or of all."""
        serving = (worker.tenant for worker in self._marks.serving(queue, now))
        return queue_scale(
            self._view,
            queue,
            now.cluster_ms,
            waiting_workers=self.waiting_workers(queue, tenant),
            worker_count=sum(tenant is None or of_worker in ("", tenant) for of_worker in serving),
            worker_slots=self._marks.slots(queue, tenant),
            tenant=tenant,
        )

    def worker_count(self, now: Now) -> int:
        """Return the number of living workers."""
        return self._marks.alive_count(now)

    def workers_for(self, queue: str, now: Now) -> list[ServingWorker]:
        """Return the living workers that take jobs of `queue`, by name."""
        return self._marks.serving(queue, now)

    def lease_liveness(self, job_id: JobId, now: Now) -> LeaseLiveness | None:
        """Return the signs of life of a job's lease; None if it has none."""
        return self._keeper.liveness(job_id, now)

    # -- time and the log ---------------------------------------------------------------------------------------------

    def start(self, now: Now) -> None:
        """Read what is needed from the first moment: the running leases and the nearest timers."""
        leased = self._view.leased_jobs()
        self._keeper.start(leased, Evidence(self._view, self._settings, now), now)
        if leased:
            self._keeper_post.paused_until_ms = NEVER_MS
            self._outage.start()
        self._requests.start(leased)
        self._drained.update(worker.name for worker in self._view.workers() if worker.drained_at_ms)
        self._timers.start(now)

    def on_records(self, writes: Sequence[Write]) -> None:
        """Take the writes of an applied entry beside jobs; `on_changes` follows if it wrote jobs, too."""
        for write in writes:
            if isinstance(write, PutSchedule):
                self._firing.notify(write.new.next_deadline_ms)
            elif isinstance(write, PutFiring):
                self._trimming.line_written(write.schedule_id, write.firing)
            elif isinstance(write, PutQueue):
                self._on_queue(write)
            elif isinstance(write, PutWorker):
                self._on_worker(write.worker)
            elif isinstance(write, PutWorkflow):
                self._deadlines.notify(write.new.next_deadline_ms)
            elif isinstance(write, PutBackgroundWork):
                self._background_steps.notify()

    def on_changes(self, changes: Sequence[Change], now: Now) -> None:
        """Take the writes of an applied entry, and hand jobs that became ready to the workers that wait for them."""
        ready, timers, keeper, cluster_ms = self._ready, self._timers, self._keeper, now.cluster_ms
        for old, new in changes:
            if old is not None and old.status in WAITING:
                ready.leave(old.id)
                timers.moved(old)
            if new is None:
                continue
            if new.spec.options is not None or new.pause is not None or new.kept_until_ms:
                self._on_options(new)
            if new.status in LEASED:
                keeper.leased(new, now)
                continue
            if old is not None and old.status in LEASED:
                keeper.ended(new.id)
                if ready.has_limits:
                    ready.freed(new.spec.queue)
            if new.status in WAITING and not new.blocked:
                if new.due_at_ms <= cluster_ms:
                    spec, tag = new.spec, name_tag(new.spec.handler)
                    ready.add(spec.queue, new.tenant, spec.priority, new.due_at_ms, new.id, tag=tag, region=spec.region)
                else:
                    timers.add(new)
        self._wake_jobs(now)

    def step(self, now: Now) -> list[Order]:
        """Do the work that is due; return operations to propose."""
        self._wake_jobs(now)
        self._dispatcher.step(now)
        orders: list[Order] = []
        for post in self._posts:
            if post.next_call_ms(now) <= now.monotonic_ms:
                operations = post.service.step(now)
                post.open_count += len(operations)
                orders.extend(Order(post, operation) for operation in operations)
        return orders

    def _on_outage_recorded(self, was_outage: bool) -> None:
        """Allow leases to end: the log says whether this leader ended an outage, so each ends by the right cause."""
        if was_outage:
            self._keeper.outage_noted()
        self._keeper_post.paused_until_ms = 0

    def on_result(self, order: Order, result: Result | None, now: Now) -> None:
        """Note that an order's operation was applied with `result`; None: it failed, or its outcome is unknown."""
        post = order.post
        post.open_count -= 1
        post.failing = result is None
        post.paused_until_ms = now.monotonic_ms + PAUSE_MS if post.failing else 0
        post.service.on_result(order.operation, result, now)

    def next_call_ms(self, now: Now) -> int:
        """Return when `step` must be called next, in monotonic milliseconds."""
        next_ms = min(self._timers.next_call_ms(now), self._ready.next_call_ms(now), self._dispatcher.next_call_ms())
        for post in self._posts:  # as `Post.next_call_ms`, in place: this runs after every entry of the log
            if not post.open_count and post.paused_until_ms < next_ms:
                at_ms = post.service.next_call_ms(now)
                if at_ms < next_ms:
                    next_ms = max(at_ms, post.paused_until_ms)
        return next_ms

    def is_drained(self, worker: str) -> bool:
        """Return whether a worker gets no further jobs."""
        return worker in self._drained

    def worker_facts(self) -> Mapping[str, WorkerFacts]:
        """Return what this leader knows of each worker beside its mark, by name; it reads no table."""
        running = self._keeper.running_counts()
        known = self._marks.facts()
        return {
            name: WorkerFacts(running.get(name, 0), *known.get(name, (None, None)))
            for name in known.keys() | running.keys()
        }

    # -- workers ------------------------------------------------------------------------------------------------------

    def ask(self, waiter: Waiter, until_ms: int, now: Now) -> None:
        """Hand ready jobs to `waiter`, or let it wait until `until_ms`; raises `Unavailable` if too many do.

        For the ids that it gets, `on_lease_result` or `leave` must follow.
        """
        region, _, tenant = waiter.line
        self._marks.asked(
            waiter.worker,
            waiter.queues,
            waiter.capacity,
            region,
            now,
            names=waiter.names,
            tenant=tenant or "",
            version=waiter.version,
        )
        self._wake_jobs(now)
        self._dispatcher.ask(waiter, until_ms, now)

    def leave(self, waiter: Waiter, now: Now) -> None:
        """Remove the waiter, whose caller is gone; the jobs that it was handed go to others."""
        self._dispatcher.leave(waiter)
        if waiter.jobs.done() and not waiter.jobs.cancelled() and waiter.jobs.exception() is None:
            self._give_back(waiter.jobs.result(), now)

    def repeated(self, worker: str, request_id: str, tenant: str | None = None) -> list[Grant]:
        """Return the grants of this very request if its reply was lost; [] if it is new.

        A worker of `tenant` gets none of other tenants, whatever the worker of another tenant calls itself.
        """
        grants = []
        for job_id in self._requests.find(worker, request_id):
            job = self._view.job(job_id)
            if job is None or tenant not in (None, job.tenant):
                continue
            if job.status is not Status.CANCELLING and job.lease and job.lease.request_id == request_id:
                grants.append(Grant(job, self._view.payload(job_id)))
        return grants

    def granted(self, worker: str, request_id: str, grants: Sequence[Grant]) -> None:
        """Note that the reply to this request carries `grants`."""
        self._requests.note(worker, request_id, [grant.job.id for grant in grants])

    def on_lease_result(self, job_ids: Sequence[JobId], result: Result | None, now: Now) -> list[Grant]:
        """Return the grants of the lease of `job_ids`, which was applied with `result`, None if its outcome is unknown.

        Jobs that were not granted and still wait are offered again after a moment: the refusal may be temporary.
        Jobs whose concurrency key is at its limit are blocked.
        """
        self._ready.release(job_ids)
        grants, missed = ([*result.grants], result.missed) if isinstance(result, Leased) else ([], job_ids)
        for job_id in missed:
            job = self._view.job(job_id)
            if job is None or job.status not in WAITING or job.blocked:
                continue
            if self._ready.key_has_room(job):
                self._timers.offer_again(job, now)
            else:
                self._ready.hold(job)
        return grants

    def heartbeat(
        self, worker: str, runs: Sequence[tuple[JobId, int, FencingToken]], now: Now, *, alive: Container[JobId] = ()
    ) -> list[HeartbeatAnswer]:
        """Renew leases; see `LeaseKeeper.heartbeat`."""
        answers = self._keeper.heartbeat(worker, runs, now, alive=alive)
        self._marks.on_request(worker, now, has_lease=any(answer.valid for answer in answers))
        return answers

    def unproven(self, worker: str, runs: Sequence[tuple[JobId, int, FencingToken]], now: Now) -> Operation | None:
        """Return the mark to commit before heartbeats of `runs` are answered; None if the log proves enough already.

        Call it after `heartbeat`, which notes the renewals that the mark proves.
        """
        suspects = self._keeper.unproven(worker, runs, now)
        if not suspects:
            return None
        if not self._knows_time:
            return self._marks.mark_of(worker, now)
        evidence = Evidence(self._view, self._settings, now)
        for job_id in suspects:
            job = self._view.job(job_id)
            if job is not None and job.lease is not None:
                self._keeper.proven(job_id, evidence.of(job).proven_at_ms, now)
        return self._marks.mark_of(worker, now) if self._keeper.unproven(worker, runs, now) else None

    def time_is_known(self) -> None:
        """Mark cluster time as known: an entry of this leader is committed.

        Before that it may be a guess, since the clocks of a majority are not known, and proves nothing about renewals.
        """
        self._knows_time = True

    def close(self, error: RaftschedError) -> None:
        """End all waits with `error`."""
        self._dispatcher.close(error)

    def _give_back(self, job_ids: Sequence[JobId], now: Now) -> None:
        """Offer jobs whose lease was never proposed to others at once."""
        self._offer(job_ids, now)
        self._wake_jobs(now)

    def _offer(self, job_ids: Sequence[JobId], now: Now) -> None:
        """Offer jobs again that were not leased: at once, unless jobs in flight take their place."""
        self._ready.release(job_ids)
        for job_id in job_ids:
            job = self._view.job(job_id)
            if job is None or job.status not in WAITING or job.blocked:
                continue
            if job.due_at_ms <= now.cluster_ms and self._ready.key_has_room(job):
                spec, tag = job.spec, name_tag(job.spec.handler)
                self._ready.add(
                    spec.queue, job.tenant, spec.priority, job.due_at_ms, job.id, tag=tag, region=spec.region
                )
            else:
                self._timers.offer_again(job, now)

    def on_settings(self) -> None:
        """Repeat what was computed with former settings."""
        self._retention.restart()
        self._key_adoption.restart()

    def _on_queue(self, write: PutQueue) -> None:
        old, new = write
        self._deadlines.notify(new.next_deadline_ms)
        self._ready.configured(new)
        if new.retention_ms != (old.retention_ms if old is not None else 0):
            self._retention.restart()

    def _on_worker(self, worker: Worker) -> None:
        """Let the requests of a worker end that was drained, or gets jobs again: its next one is served accordingly."""
        if bool(worker.drained_at_ms) is self.is_drained(worker.name):
            return
        if worker.drained_at_ms:
            self._drained.add(worker.name)
        else:
            self._drained.discard(worker.name)
        self._dispatcher.dismiss(worker.name)

    def _on_options(self, job: Job) -> None:
        self._deadlines.notify(job.next_deadline_ms)
        if job.status in WAITING:
            self._ready.look_at_each(job.spec.queue)

    def _wake_jobs(self, now: Now) -> None:
        """Hand out due jobs; jobs are read by a time only after the timers have reached it."""
        self._timers.step(now)
        self._dispatcher.match(now)


def hand_back(grant: Grant) -> Operation:
    """Return the end of a lease that its worker does not know; it counts neither as a failure nor as a lost worker."""
    job = grant.job
    assert job.lease is not None
    return RecordOutcome(job.id, job.run_number, job.lease.token, AttemptEnd.SNOOZED, delay_ms=0)
