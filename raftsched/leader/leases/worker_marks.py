"""Record in the log, coarsely, which workers are alive.

Theory of operation. Workers make themselves known by lease requests and heartbeats; that is kept in memory. Once in a
third of a lease term, a *round* writes those seen since to the log. People see this in the list of workers, and a new
leader starts from it. A worker that only waits for jobs is alive while it waits. Workers that have been silent for long
are forgotten, here and in the log.

A round is fixed when it begins, and continues at once with the workers that did not fit its operations. So its cost is
bounded by the number of workers and by the period. Workers that this leader has not marked yet do not wait for it: a
round for them alone comes sooner. So the log soon has the living workers even if leaders change often.

A mark lists which of the worker's leases are silent (`evidence` says how a new leader uses that). While leases run
something is written in each period, if need be without a mark: a silence of the log is an outage (`outage`).

Left out: the lease keeper decides whether a lease lives.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from raftsched import limits
from raftsched.core.explain import ServingWorker
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import MarkWorkers, WorkerMark
from raftsched.core.records.job import SilentLease
from raftsched.core.records.queue_patterns import accepts
from raftsched.core.state.results import Result
from raftsched.leader.now import Now
from raftsched.leader.settings import LeaderSettings
from raftsched.leader.view import LeaderView

MARKS_MAX: Final = 1_000
"""Marks, and names to forget, in one operation: about 100 KiB of log."""
_FORGET_ROUNDS: Final = 10
"""The list of all workers is read this often within the time after which one is forgotten."""
_NEW_ROUNDS: Final = 8
"""Rounds for workers that were not marked yet, within a period at most."""
_LEASE_BYTES: Final = 20
"""About what a silent lease takes in a mark."""


class Leases(Protocol):
    """The running leases, as the marks need them."""

    def __len__(self) -> int: ...
    def silent_leases(self, now: Now) -> Mapping[str, tuple[SilentLease, ...]]:
        """Return the leases that were not renewed for a while, by worker."""


class _Worker:
    __slots__ = ("capacity", "is_marked", "names", "queues", "region", "seen_ms", "slots", "tenant", "version")

    def __init__(
        self,
        queues: tuple[str, ...],
        capacity: int,
        seen_ms: int,
        *,
        region: str,
        tenant: str,
        names: Collection[str] | None,
        version: str,
    ) -> None:
        self.version = version
        self.queues = queues
        self.capacity = capacity
        self.region = region
        self.tenant = tenant
        """The tenant whose jobs it is given; "" = all."""
        self.names = names
        """Job names that it has handlers for; None = any, or it has not asked in this term."""
        self.slots = capacity
        """The largest capacity of its requests: the jobs that it runs at the same time."""
        self.seen_ms = seen_ms  # monotonic, so that setting the wall clock ages no worker
        self.is_marked = False
        """This leader has marked it."""


class WorkerMarks:
    """Keep the workers seen in this term; `waiting` names those that wait for jobs at this moment."""

    name: Final = "worker_marks"

    def __init__(
        self, view: LeaderView, settings: LeaderSettings, waiting: Callable[[], Iterable[str]], leases: Leases
    ) -> None:
        self._view: Final = view
        self._period_ms: Final = settings.worker_mark_ms
        self._forget_ms: Final = settings.worker_forget_ms
        self._alive_ms: Final = settings.lease_ttl_ms + settings.worker_mark_ms
        """Living workers are seen at least once in a term, and marked some time later."""
        self._waiting: Final = waiting
        self._leases: Final = leases
        self._workers: Final[dict[str, _Worker]] = {}
        self._new: Final[dict[str, None]] = {}
        """Seen, and not marked by this leader yet."""
        self._unmarked: Final[dict[str, None]] = {}
        """Seen since their last mark."""
        self._round: list[str] = []
        """Workers that the current round has yet to mark, the last one first."""
        self._forgotten: list[str] = []
        """Workers that the log has yet to forget, the last one first."""
        self._mark_at_ms = 0
        self._new_at_ms = 0
        self._forget_at_ms = 0
        """Monotonic, as the other two."""

    def __len__(self) -> int:
        return len(self._workers)

    def asked(
        self,
        name: str,
        queues: Sequence[str],
        capacity: int,
        region: str,
        now: Now,
        *,
        names: Collection[str] | None = None,
        tenant: str = "",
        version: str = "",
    ) -> None:
        """Note a worker's request for jobs. Beyond `limits.WAITING_WORKERS_MAX` names, new ones are not recorded."""
        worker = self._workers.get(name)
        if worker is None:
            self._meet(name, tuple(queues), capacity, region, now, names=names, tenant=tenant, version=version)
        else:
            worker.names = names
            worker.queues, worker.capacity, worker.seen_ms = tuple(queues), capacity, now.monotonic_ms
            worker.region, worker.tenant, worker.version = region, tenant, version
            worker.slots = max(worker.slots, capacity)
            self._note(name, worker)

    def on_request(self, name: str, now: Now, *, has_lease: bool = False) -> None:
        """Note a worker's heartbeat; its queues are taken from its latest request, or its mark.

        A worker that has a lease is recorded beyond that limit, too: its lease depends on it.
        """
        worker = self._workers.get(name)
        if worker is not None:
            worker.seen_ms = now.monotonic_ms
            self._note(name, worker)
        else:
            marked = self._view.worker(name)
            if marked is None:
                self._meet(name, (), 0, "", now, must=has_lease)
            else:
                self._meet(
                    name,
                    marked.queues,
                    marked.capacity,
                    marked.region,
                    now,
                    tenant=marked.tenant,
                    version=marked.version,
                    must=has_lease,
                )

    def serving(self, queue: str, now: Now) -> list[ServingWorker]:
        """Return the living workers that take jobs of `queue`, as far as their marks and this term tell, by name."""
        alive = (name for name, queues in self._alive(now) if accepts(queues, queue))
        return [self._serving(name, now) for name in sorted(alive)]

    def facts(self) -> dict[str, tuple[int, tuple[str, ...] | None]]:
        """Return the slots and the names of handlers of each worker that was seen in this term."""
        return {
            name: (worker.slots, None if worker.names is None else tuple(worker.names))
            for name, worker in self._workers.items()
        }

    def alive_count(self, now: Now) -> int:
        """Return how many workers live, as far as their marks and this term tell."""
        return sum(1 for _ in self._alive(now))

    def _alive(self, now: Now) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the name and the queues of each living worker."""
        since_ms = now.monotonic_ms - self._alive_ms
        for name, worker in self._workers.items():
            if worker.seen_ms >= since_ms:
                yield name, worker.queues
        seen_since_ms = now.cluster_ms - self._alive_ms
        for marked in self._view.workers():
            if marked.seen_at_ms >= seen_since_ms and marked.name not in self._workers:
                yield marked.name, () if marked.drained_at_ms else marked.queues

    def slots(self, queue: str, tenant: str | None = None) -> int:
        """Return the jobs that a typical worker of `queue` runs at the same time, by each one's largest request.

        Only workers that are given jobs of `tenant` count; None = all.
        """
        slots = sorted(
            worker.slots
            for worker in self._workers.values()
            if accepts(worker.queues, queue) and (tenant is None or worker.tenant in ("", tenant))
        )
        return max(slots[len(slots) // 2], 1) if slots else 1

    def _serving(self, name: str, now: Now) -> ServingWorker:
        heartbeat_at_ms = self._heartbeat_at_ms(name, now)
        worker = self._workers.get(name)
        if worker is not None:
            return ServingWorker(name, worker.queues, worker.region, heartbeat_at_ms, worker.names, worker.tenant)
        marked = self._view.worker(name)
        if marked is None:
            return ServingWorker(name, (), heartbeat_at_ms=heartbeat_at_ms)
        return ServingWorker(name, marked.queues, marked.region, heartbeat_at_ms, tenant=marked.tenant)

    def _heartbeat_at_ms(self, name: str, now: Now) -> int:
        """Return when it was seen last, in cluster time; 0 = never. For one that waits, at least its latest mark."""
        worker = self._workers.get(name)
        if worker is not None:
            return now.cluster_ms - (now.monotonic_ms - worker.seen_ms)
        marked = self._view.worker(name)
        return marked.seen_at_ms if marked is not None else 0

    def step(self, now: Now) -> Sequence[Operation]:
        """Return the next operation of the round; () if there is nothing to record."""
        if not self._round and not self._forgotten:
            self._begin_round(now)
        marks = self._next_marks(now)
        forget = tuple(self._forgotten.pop() for _ in range(min(MARKS_MAX, len(self._forgotten))))
        if marks or forget or self._is_overdue(now):
            return (MarkWorkers(marks, forget),)
        return ()

    def mark_of(self, name: str, now: Now) -> MarkWorkers | None:
        """Return the mark of one worker as of now, outside of the rounds; None if it was not seen."""
        worker = self._workers.get(name)
        if worker is None:
            return None
        return MarkWorkers((self._mark_of(name, worker, self._leases.silent_leases(now), now),), ())

    def on_result(self, operation: Operation, result: Result | None, now: Now) -> None:
        """Note the result; if it is unknown (None), the marks are made again in the next round."""
        assert isinstance(operation, MarkWorkers)
        if result is None:
            self._unmarked.update((mark.name, None) for mark in operation.marks if mark.name in self._workers)
            self._forget_at_ms = now.monotonic_ms

    def next_call_ms(self, now: Now) -> int:  # noqa: ARG002
        if self._round or self._forgotten:
            return 0
        if self._new:
            return min(self._new_at_ms, self._mark_at_ms)
        return self._mark_at_ms if self._workers or len(self._leases) else max(self._mark_at_ms, self._forget_at_ms)

    def _meet(
        self,
        name: str,
        queues: tuple[str, ...],
        capacity: int,
        region: str,
        now: Now,
        *,
        names: Collection[str] | None = None,
        tenant: str = "",
        version: str = "",
        must: bool = False,
    ) -> None:
        if must or len(self._workers) < limits.WAITING_WORKERS_MAX:
            self._workers[name] = _Worker(
                queues, capacity, now.monotonic_ms, region=region, tenant=tenant, names=names, version=version
            )
            self._new[name] = None

    def _note(self, name: str, worker: _Worker) -> None:
        """Mark it in the next round."""
        (self._unmarked if worker.is_marked else self._new)[name] = None

    def _begin_round(self, now: Now) -> None:
        """Collect the workers to mark: all once in a period, in between only the new ones."""
        self._new_at_ms = now.monotonic_ms + self._period_ms // _NEW_ROUNDS
        names = self._new
        if self._mark_at_ms <= now.monotonic_ms:
            self._mark_at_ms = now.monotonic_ms + self._period_ms
            for name in self._waiting():
                self.on_request(name, now)
            names = self._new | self._unmarked
            self._unmarked.clear()
        self._round = [*names]
        self._round.reverse()
        self._new.clear()
        self._forget(now)

    def _next_marks(self, now: Now) -> tuple[WorkerMark, ...]:
        """Return the marks of the next operation: at least one if any is left, and bounded in number and bytes."""
        if not self._round:
            return ()
        silent = self._leases.silent_leases(now)
        marks: list[WorkerMark] = []
        byte_count = 0
        while self._round and len(marks) < MARKS_MAX and byte_count < limits.MARK_BYTES_MAX:
            name = self._round.pop()
            worker = self._workers.get(name)
            if worker is None:
                continue
            worker.is_marked = True
            mark = self._mark_of(name, worker, silent, now)
            byte_count += sum(map(len, mark.queues)) + _LEASE_BYTES * len(mark.silent)
            marks.append(mark)
        return tuple(marks)

    @staticmethod
    def _mark_of(name: str, worker: _Worker, silent: Mapping[str, tuple[SilentLease, ...]], now: Now) -> WorkerMark:
        seen_at_ms = now.cluster_before(worker.seen_ms)
        return WorkerMark(
            name,
            worker.queues,
            worker.capacity,
            seen_at_ms,
            worker.region,
            silent.get(name, ()),
            worker.tenant,
            worker.version,
        )

    def _is_overdue(self, now: Now) -> bool:
        """Return whether leases run and the log was silent for most of a period."""
        return len(self._leases) > 0 and now.cluster_ms - self._view.cluster_time_ms >= self._period_ms // 2

    def _forget(self, now: Now) -> None:
        """Forget workers here that have been silent for long, and note which the log should forget, once in a while."""
        if now.monotonic_ms < self._forget_at_ms:
            return
        self._forget_at_ms = now.monotonic_ms + max(self._period_ms, self._forget_ms // _FORGET_ROUNDS)
        for name in [n for n, worker in self._workers.items() if worker.seen_ms < now.monotonic_ms - self._forget_ms]:
            del self._workers[name]
            self._unmarked.pop(name, None)
            self._new.pop(name, None)
        before_ms = now.cluster_ms - self._forget_ms
        marked = (w.name for w in self._view.workers() if w.seen_at_ms < before_ms and w.name not in self._workers)
        self._forgotten = [*marked]
        self._forgotten.reverse()
