"""Writes down, coarsely, which workers are alive.

Theory of operation. Workers are heard of by their lease requests and heartbeats; that is kept in memory. Once a third
of a lease term, those heard of since are written to the log in one operation, which is what people see in the list of
workers and what a new leader starts from. A worker that only waits for jobs is alive while it waits. Workers not heard
of for long are forgotten, here and in the log.

Left out: nothing is decided by these marks. Whether a lease lives is the lease keeper's to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from raftsched import limits
from raftsched.core.explain import ServingWorker
from raftsched.core.ids import TimeMs
from raftsched.core.operations import MarkWorkers, Operation, WorkerMark
from raftsched.core.results import Result
from raftsched.leader.now import Now
from raftsched.leader.settings import LeaderSettings
from raftsched.leader.view import LeaderView

MARKS_MAX: Final = 1_000
"""Marks, and names to forget, in one operation: about 100 KiB of log."""
_FORGET_ROUNDS: Final = 10
"""The list of all workers is read this often within the time after which one is forgotten."""


class _Worker:
    __slots__ = ("capacity", "heard_ms", "queues", "region", "slots")

    def __init__(self, queues: tuple[str, ...], capacity: int, region: str, heard_ms: int) -> None:
        self.queues = queues
        self.capacity = capacity
        self.region = region
        self.slots = capacity
        """The most it has asked for: what it runs at the same time."""
        self.heard_ms = heard_ms  # monotonic: setting the wall clock makes nobody old


class WorkerMarks:
    """The workers heard of in this term; `waiting` names those that wait for jobs at this moment."""

    name: Final = "worker_marks"

    def __init__(self, view: LeaderView, settings: LeaderSettings, waiting: Callable[[], Iterable[str]]) -> None:
        self._view: Final = view
        self._period_ms: Final = settings.worker_mark_ms
        self._forget_ms: Final = settings.worker_forget_ms
        self._alive_ms: Final = settings.lease_ttl_ms + settings.worker_mark_ms
        """Workers that live are heard of at least once in a term, and marked some time later."""
        self._waiting: Final = waiting
        self._workers: Final[dict[str, _Worker]] = {}
        self._unmarked: Final[dict[str, None]] = {}
        """Heard of since their last mark."""
        self._mark_at_ms = 0
        self._forget_at_ms = 0
        """Monotonic, as `_mark_at_ms`."""

    def __len__(self) -> int:
        return len(self._workers)

    def asked(self, name: str, queues: Sequence[str], capacity: int, region: str, now: Now) -> None:
        """A worker asked for jobs. Beyond `limits.WAITING_WORKERS_MAX` names, new ones are not written down."""
        worker = self._workers.get(name)
        if worker is None:
            self._meet(name, tuple(queues), capacity, region, now)
        else:
            worker.queues, worker.capacity, worker.heard_ms = tuple(queues), capacity, now.monotonic_ms
            worker.region = region
            worker.slots = max(worker.slots, capacity)
            self._unmarked[name] = None

    def heard(self, name: str, now: Now) -> None:
        """A worker sent a heartbeat; what it works on is taken from its latest request, or its mark."""
        worker = self._workers.get(name)
        if worker is not None:
            worker.heard_ms = now.monotonic_ms
            self._unmarked[name] = None
        else:
            marked = self._view.worker(name)
            if marked is None:
                self._meet(name, (), 0, "", now)
            else:
                self._meet(name, marked.queues, marked.capacity, marked.region, now)

    def serving(self, queue: str, now: Now) -> list[ServingWorker]:
        """The workers that take jobs of `queue` and are alive, as far as their marks and this term tell, by name."""
        since_ms = now.monotonic_ms - self._alive_ms
        alive = {
            name for name, worker in self._workers.items() if queue in worker.queues and worker.heard_ms >= since_ms
        }
        seen_since_ms = now.cluster_ms - self._alive_ms
        marked = (worker for worker in self._view.workers() if worker.name not in self._workers)
        alive.update(w.name for w in marked if queue in w.queues and w.seen_at_ms >= seen_since_ms)
        return [self._serving(name, now) for name in sorted(alive)]

    def slots(self, queue: str) -> int:
        """How many jobs a typical worker of `queue` runs at the same time, by the most that each has asked for."""
        slots = sorted(worker.slots for worker in self._workers.values() if queue in worker.queues)
        return max(slots[len(slots) // 2], 1) if slots else 1

    def _serving(self, name: str, now: Now) -> ServingWorker:
        worker = self._workers.get(name) or self._view.worker(name)
        queues, region = (worker.queues, worker.region) if worker is not None else ((), "")
        return ServingWorker(name, queues, region, self._heard_at_ms(name, now))

    def _heard_at_ms(self, name: str, now: Now) -> int:
        """In cluster time; 0 = never. Of one that waits, at least since its latest mark."""
        worker = self._workers.get(name)
        if worker is not None:
            return now.cluster_ms - (now.monotonic_ms - worker.heard_ms)
        marked = self._view.worker(name)
        return marked.seen_at_ms if marked is not None else 0

    def step(self, now: Now) -> Sequence[Operation]:
        """The marks that are due; () where there is nothing to write down."""
        self._mark_at_ms = now.monotonic_ms + self._period_ms
        for name in self._waiting():
            self.heard(name, now)
        forgotten = self._forgotten(now)
        names = list(self._unmarked)[:MARKS_MAX]
        if not names and not forgotten:
            return ()
        for name in names:
            del self._unmarked[name]
        return (MarkWorkers(tuple(self._mark(name, now) for name in names), forgotten),)

    def settled(self, operation: Operation, result: Result | None, now: Now) -> None:
        """The marks were applied, or nobody knows (None): then they are made again."""
        assert isinstance(operation, MarkWorkers)
        if result is None:
            self._unmarked.update((mark.name, None) for mark in operation.marks if mark.name in self._workers)
            self._forget_at_ms = now.monotonic_ms
        elif len(operation.marks) == MARKS_MAX or len(operation.forget) == MARKS_MAX:
            self._mark_at_ms = now.monotonic_ms  # there may be more

    def next_call_ms(self, now: Now) -> int:  # noqa: ARG002
        return self._mark_at_ms if self._workers else max(self._mark_at_ms, self._forget_at_ms)

    def _meet(self, name: str, queues: tuple[str, ...], capacity: int, region: str, now: Now) -> None:
        if len(self._workers) < limits.WAITING_WORKERS_MAX:
            self._workers[name] = _Worker(queues, capacity, region, now.monotonic_ms)
            self._unmarked[name] = None

    def _mark(self, name: str, now: Now) -> WorkerMark:
        worker = self._workers[name]
        seen_at_ms = TimeMs(now.cluster_ms - (now.monotonic_ms - worker.heard_ms))
        return WorkerMark(name, worker.queues, worker.capacity, seen_at_ms, worker.region)

    def _forgotten(self, now: Now) -> tuple[str, ...]:
        """Forget here who was not heard of for long, and return whom the log should forget, once in a while."""
        if now.monotonic_ms < self._forget_at_ms:
            return ()
        self._forget_at_ms = now.monotonic_ms + max(self._period_ms, self._forget_ms // _FORGET_ROUNDS)
        for name in [n for n, worker in self._workers.items() if worker.heard_ms < now.monotonic_ms - self._forget_ms]:
            del self._workers[name]
            self._unmarked.pop(name, None)
        before_ms = now.cluster_ms - self._forget_ms
        marked = (w.name for w in self._view.workers() if w.seen_at_ms < before_ms and w.name not in self._workers)
        return tuple(marked)[:MARKS_MAX]
