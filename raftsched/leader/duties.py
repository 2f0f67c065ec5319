"""All services of the leader wired together: one plain object that is stepped.

Theory of operation. What happens enters by `on_changes` (every job write of an applied entry), by the calls of workers,
and by `step` (time). What shall happen leaves as operations to propose: `step` returns those of the upkeep services
(lease keeper, worker marks, retention), and workers' leases are proposed by whoever holds the `Waiter` that was handed
the ids. Each service has at most one operation on its way; a proposal that came to nothing is tried again
after a pause, for as long as this node leads.

Nothing here awaits, sleeps or reads a clock, so the simulator steps the same code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from raftsched.core.ids import FencingToken, JobId
from raftsched.core.job import LEASED, WAITING, AttemptEnd, Job, Status
from raftsched.core.operations import Operation, RecordOutcome
from raftsched.core.view import Grant, Leased, Result
from raftsched.errors import RaftschedError
from raftsched.leader.dispatcher import Dispatcher, Waiter
from raftsched.leader.latest_requests import LatestRequests
from raftsched.leader.lease_keeper import HeartbeatAnswer, LeaseKeeper
from raftsched.leader.now import NEVER_MS, Now
from raftsched.leader.ready import ReadyJobs
from raftsched.leader.retention import Retention
from raftsched.leader.settings import LeaderSettings
from raftsched.leader.timers import TimerHorizon
from raftsched.leader.view import LeaderView
from raftsched.leader.worker_marks import WorkerMarks
from raftsched.ports import Randomness

Change = tuple[Job | None, Job | None]
"""A job before and after a write; None where there was or is none."""
PAUSE_MS: Final = 500
"""After a proposal that came to nothing; mostly the lead is being lost, and a new leader takes over."""


class Service(Protocol):
    """A duty that keeps the cluster in order by proposing operations, one at a time."""

    @property
    def name(self) -> str: ...
    def step(self, now: Now) -> Operation | None:
        """What to propose now. Called when `next_call_ms` is reached, and not again until that is settled."""

    def settled(self, operation: Operation, result: Result | None, now: Now) -> None:
        """`operation` was applied with `result`; None: it failed, or nobody knows."""

    def next_call_ms(self) -> int:
        """When `step` wants to be called next, in monotonic milliseconds."""


class Post:
    """A service, and whether its operation is on its way."""

    __slots__ = ("busy", "failing", "paused_until_ms", "service")

    def __init__(self, service: Service) -> None:
        self.service: Final = service
        self.busy = False
        self.failing = False
        """Its latest proposal came to nothing."""
        self.paused_until_ms = 0

    def next_call_ms(self) -> int:
        return NEVER_MS if self.busy else max(self.paused_until_ms, self.service.next_call_ms())


class Order(NamedTuple):
    """An operation to propose for a post; `Duties.settled` must follow."""

    post: Post
    operation: Operation


class Duties:
    """The leader's duties over `view`. Call `start` first, then `on_changes` after every applied entry."""

    def __init__(self, view: LeaderView, settings: LeaderSettings, randomness: Randomness) -> None:
        self._view: Final = view
        self._ready: Final = ReadyJobs(view)
        self._timers: Final = TimerHorizon(view, self._ready)
        self._dispatcher: Final = Dispatcher(self._ready)
        self._keeper: Final = LeaseKeeper(settings, randomness)
        self._marks: Final = WorkerMarks(view, settings, self._dispatcher.waiting_workers)
        self._requests: Final = LatestRequests()
        self._posts: Final = tuple(Post(service) for service in (self._keeper, self._marks, Retention(view, settings)))

    @property
    def lease_count(self) -> int:
        return len(self._keeper)

    def waiting_workers(self, queue: str) -> int:
        """Workers that wait for jobs of `queue`."""
        return self._dispatcher.waiting_count(queue)

    # -- time and the log ---------------------------------------------------------------------------------------------

    def start(self, now: Now) -> None:
        """Read what must be known from the first moment: the running leases and the nearest timers."""
        leased = self._view.leased_jobs()
        self._keeper.start(leased, now)
        self._requests.start(leased)
        self._timers.start(now)

    def on_changes(self, changes: Sequence[Change], now: Now) -> None:
        """Hear what an applied entry wrote, and hand what became ready to the workers that wait for it."""
        ready, timers, keeper, cluster_ms = self._ready, self._timers, self._keeper, now.cluster_ms
        for old, new in changes:
            if old is not None and old.status in WAITING:
                ready.leave(old.id)
            if new is None:
                continue
            if new.status in LEASED:
                keeper.leased(new, now)
                continue
            keeper.ended(new.id)
            if new.status in WAITING:
                if new.due_at_ms <= cluster_ms:
                    ready.add(new.queue, new.priority, new.due_at_ms, new.id)
                else:
                    timers.add(new)
        self._wake_jobs(now)

    def step(self, now: Now) -> list[Order]:
        """Do what is due by time; return what to propose."""
        self._wake_jobs(now)
        self._dispatcher.step(now)
        orders = []
        for post in self._posts:
            if post.next_call_ms() <= now.monotonic_ms and (operation := post.service.step(now)) is not None:
                post.busy = True
                orders.append(Order(post, operation))
        return orders

    def settled(self, order: Order, result: Result | None, now: Now) -> None:
        """An order's operation was applied with `result`; None: it failed, or nobody knows."""
        post = order.post
        post.busy = False
        post.failing = result is None
        post.paused_until_ms = now.monotonic_ms + PAUSE_MS if post.failing else 0
        post.service.settled(order.operation, result, now)

    def next_call_ms(self, now: Now) -> int:
        """When `step` wants to be called next, in monotonic milliseconds."""
        posts = min(post.next_call_ms() for post in self._posts)
        return min(posts, self._timers.next_call_ms(now), self._dispatcher.next_call_ms())

    # -- workers ------------------------------------------------------------------------------------------------------

    def ask(self, waiter: Waiter, until_ms: int, now: Now) -> None:
        """Hand what is ready to `waiter`, or let it wait until `until_ms`; raises `Unavailable` where too many do.

        For the ids it gets, `lease_settled` must follow, or `leave`.
        """
        self._marks.asked(waiter.worker, waiter.queues, waiter.capacity, now)
        self._wake_jobs(now)
        self._dispatcher.ask(waiter, until_ms, now)

    def leave(self, waiter: Waiter, now: Now) -> None:
        """The waiter's caller is gone: it waits no more, and what it was handed goes to others."""
        self._dispatcher.leave(waiter)
        if waiter.jobs.done() and not waiter.jobs.cancelled() and waiter.jobs.exception() is None:
            self._give_back(waiter.jobs.result(), now)

    def repeated(self, worker: str, request_id: str) -> list[Grant]:
        """What this very request was granted before, where its reply was lost; [] where it is new."""
        grants = []
        for job_id in self._requests.find(worker, request_id):
            job = self._view.job(job_id)
            if job and job.status is Status.RUNNING and job.lease and job.lease.request_id == request_id:
                grants.append(Grant(job, self._view.payload(job_id)))
        return grants

    def granted(self, worker: str, request_id: str, grants: Sequence[Grant]) -> None:
        """The reply to this request carries `grants`."""
        self._requests.note(worker, request_id, [grant.job.id for grant in grants])

    def lease_settled(self, job_ids: Sequence[JobId], result: Result | None, now: Now) -> list[Grant]:
        """The lease of `job_ids` was applied with `result`, or nobody knows (None); return what was granted.

        Jobs that were not granted and still wait are offered again after a moment: the log may say no, or not yet.
        """
        self._ready.release(job_ids)
        grants, missed = ([*result.grants], result.missed) if isinstance(result, Leased) else ([], job_ids)
        for job_id in missed:
            job = self._view.job(job_id)
            if job is not None and job.status in WAITING:
                self._timers.offer_again(job, now)
        return grants

    def heartbeat(
        self, worker: str, runs: Sequence[tuple[JobId, int, FencingToken]], now: Now
    ) -> list[HeartbeatAnswer]:
        """Renew leases; see `LeaseKeeper.heartbeat`."""
        self._marks.heard(worker, now)
        return self._keeper.heartbeat(worker, runs, now)

    def close(self, error: RaftschedError) -> None:
        """End all waits with `error`."""
        self._dispatcher.close(error)

    def _give_back(self, job_ids: Sequence[JobId], now: Now) -> None:
        """Their lease was never proposed: offer them to others at once."""
        self._ready.release(job_ids)
        for job_id in job_ids:
            job = self._view.job(job_id)
            if job is not None and job.status in WAITING:
                self._ready.add(job.queue, job.priority, job.due_at_ms, job.id)
        self._dispatcher.match(now)

    def _wake_jobs(self, now: Now) -> None:
        self._timers.step(now)
        self._dispatcher.match(now)


def hand_back(grant: Grant) -> Operation:
    """The end of a lease whose worker never heard of it; it counts neither as a failure nor as a lost worker."""
    job = grant.job
    assert job.lease is not None
    return RecordOutcome(job.id, job.run_number, job.lease.token, AttemptEnd.SNOOZED, delay_ms=0)
