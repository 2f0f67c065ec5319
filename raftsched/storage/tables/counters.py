"""Count the jobs of each tenant, queue and status.

Theory of operation. The counts are in memory and change with each job written. Changed counts are written at the
checkpoint, in the transaction of the jobs they count; so no scan is needed to answer for them. There is one for each
tenant, queue and status in use. The names of the queues are kept sorted, so a page of a list costs only its own size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from typing import NamedTuple

from sortedcontainers import SortedDict

from raftsched.core.records.job import WAITING, Job, Status
from raftsched.core.state.entries import CounterKey
from raftsched.errors import InvariantBroken
from raftsched.storage.store.port import Rows, Table, all_rows
from raftsched.storage.tables import keys

_COUNT_BYTES = 8


class QueueTally(NamedTuple):
    """The counts of all queues in short, by stored status."""

    totals: Counter[Status]
    queued: dict[str, int]
    """Queues with queued jobs."""
    running: dict[str, int]
    """Queues with running jobs."""
    queues: set[str]
    """Queues that have jobs."""


class Counters:
    """Keep the counts as of the last write; the constructor reads them from `store`."""

    def __init__(self, store: Rows) -> None:
        self._counts: dict[tuple[str, str, Status], int] = {
            keys.read_counter_key(key): int.from_bytes(value, "big")
            for key, value in all_rows(store, Table.COUNTERS)
            if not keys.is_reason_key(key)
        }
        self._changed: set[tuple[str, str, Status]] = set()
        self._tenants: dict[str, set[str]] = {}
        """Tenants of each queue that may have waiting jobs: all that have some, and some that had some."""
        self._queues: SortedDict[str, set[str]] = SortedDict()
        """Every queue with a count, which may be zero, by name, with the tenants of its counts."""
        for tenant, queue, status in self._counts:
            self._queues.setdefault(queue, set()).add(tenant)
            if status in WAITING:
                self._tenants.setdefault(queue, set()).add(tenant)

    def move(self, old: Job | None, new: Job | None) -> None:
        """Replace `old` by `new` in the counts; raises `InvariantBroken` if a count would fall below zero."""
        before = None if old is None else (old.tenant, old.spec.queue, old.status)
        after = None if new is None else (new.tenant, new.spec.queue, new.status)
        if before == after:
            return
        if before is not None:
            self._take_away(before)
        if after is not None:
            count = self._counts.get(after, 0)
            if not count and after[2] in WAITING:
                self._tenants.setdefault(after[1], set()).add(after[0])
            if after not in self._counts:
                self._queues.setdefault(after[1], set()).add(after[0])
            self._counts[after] = count + 1
            self._changed.add(after)

    def _take_away(self, key: tuple[str, str, Status]) -> None:
        count = self._counts.get(key, 0)
        if count <= 0:
            raise InvariantBroken(f"the counter of {CounterKey(*key)} would fall below zero")
        self._counts[key] = count - 1
        self._changed.add(key)

    def save(self, store: Rows) -> None:
        """Write the counts changed since the last save; zeros are dropped."""
        # Sorted: the order of a set differs between processes, and the file's pages would differ, too (seed 430049).
        for key in sorted(self._changed):
            count = self._counts[key]
            if count:
                store.put(Table.COUNTERS, keys.counter_key(*key), count.to_bytes(_COUNT_BYTES, "big"))
            else:
                store.delete(Table.COUNTERS, keys.counter_key(*key))
                del self._counts[key]
                self._forget(key[0], key[1])
        self._changed.clear()

    def waiting_tenants(self, queue: str) -> list[str]:
        """Return the tenants that have waiting jobs in the queue, by name."""
        return sorted(tenant for tenant in self._tenants.get(queue, ()) if self._has_waiting(tenant, queue))

    def _has_waiting(self, tenant: str, queue: str) -> bool:
        return any(self._counts.get((tenant, queue, status)) for status in WAITING)

    def queues(self, tenant: str | None = None, *, after: str = "") -> Iterator[str]:
        """Yield the queues that have jobs, of one tenant or of all, by name, behind `after`."""
        for queue in self._queues.irange(after, inclusive=(False, True)):
            if self.of_queue(queue, tenant):
                yield queue

    def queues_with(self, statuses: Container[Status]) -> Iterator[str]:
        """Yield the queues that have jobs of these statuses, as they are stored, in any order."""
        return (queue for (_, queue, status), count in self._counts.items() if count and status in statuses)

    def tenants(self) -> set[str]:
        """Return the tenants that have jobs."""
        return set().union(*self._queues.values())

    def of_queue(self, queue: str, tenant: str | None = None) -> dict[Status, int]:
        """Return the counts above zero of a queue, of one tenant or of all."""
        found: dict[Status, int] = {}
        tenants = self._queues.get(queue, ())
        for each in tenants if tenant is None else [tenant] if tenant in tenants else []:
            for status in Status:
                if count := self._counts.get((each, queue, status)):
                    found[status] = found.get(status, 0) + count
        return found

    def of_statuses(self) -> Counter[Status]:
        """Return the counts of all jobs; costs a tenth of a microsecond for each count."""
        found: Counter[Status] = Counter()
        for (_, _, status), count in self._counts.items():
            found[status] += count
        return found

    def tally(self, tenant: str | None = None) -> QueueTally:
        """Return the counts of one tenant or of all in short; costs two tenths of a microsecond for each count."""
        found = QueueTally(Counter(), {}, {}, set())
        by_status = {Status.QUEUED: found.queued, Status.RUNNING: found.running}
        for (owner, queue, status), count in self._counts.items():
            if not count or tenant not in (None, owner):
                continue
            found.totals[status] += count
            found.queues.add(queue)
            of_queues = by_status.get(status)
            if of_queues is not None:
                of_queues[queue] = of_queues.get(queue, 0) + count
        return found

    def _forget(self, tenant: str, queue: str) -> None:
        of_queue = self._queues[queue]
        if not any((tenant, queue, status) in self._counts for status in Status):
            of_queue.discard(tenant)
            if not of_queue:
                del self._queues[queue]
        tenants = self._tenants.get(queue)
        if tenants is not None and not self._has_waiting(tenant, queue):
            tenants.discard(tenant)
            if not tenants:
                del self._tenants[queue]

    def all(self) -> dict[CounterKey, int]:
        """Return every count above zero."""
        return {CounterKey(*key): count for key, count in self._counts.items() if count}
