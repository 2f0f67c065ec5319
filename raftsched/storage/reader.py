"""Read the state: records by their keys, and jobs by their indexes. Each read is bounded by `limit`.

Reads see all writes executed so far, committed or not. The reads of jobs are in `tables.jobs`, those of other records in
`tables.catalog`, and full scans for checks and tests in `tables.walks`. This module has the counts of jobs and the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from raftsched import limits
from raftsched.core.records.backup import LastBackup
from raftsched.core.records.encryption import ClusterKey
from raftsched.core.records.ids import FencingToken, TimeMs
from raftsched.core.records.job import Status
from raftsched.core.state.entries import CounterKey
from raftsched.storage.store.port import Store, StoreFigures
from raftsched.storage.tables.catalog import Catalog
from raftsched.storage.tables.counters import Counters, QueueTally
from raftsched.storage.tables.dead_letter_counts import DeadLetterCounts
from raftsched.storage.tables.jobs import JobReads
from raftsched.storage.tables.leased_counts import RunningKey
from raftsched.storage.tables.position import Configuration, read_configuration, read_position
from raftsched.storage.tables.unfinished_counts import UnfinishedCounts
from raftsched.storage.tables.walks import Walks


class StateReader(JobReads, Catalog, Walks):
    """Implement `raftsched.core.state.view.AuditableView`, and the reads of leader and API, over a `Store`.

    The constructor raises `UnknownFormat` for data of another format. Single-threaded, as its store is.
    """

    _store: Store

    def __init__(self, store: Store) -> None:
        self._store = store
        position = read_position(store)
        self._counters = Counters(store)
        self._dead_letters = DeadLetterCounts(store)
        self._unfinished = UnfinishedCounts(self._counters.all())
        self.applied_index: int = position.applied_index
        """Log index of the last applied entry; 0 before the first."""
        self.applied_term: int = position.applied_term
        self.cluster_time_ms: TimeMs = position.cluster_time_ms
        self.fence: FencingToken = position.fence
        self.outage_ended_at_ms: TimeMs = position.outage_ended_at_ms
        self.zone_rules: str = position.zone_rules
        """The version of the time zone rules by which next fire times were computed; "" = not known."""
        self.cluster_key: ClusterKey | None = position.cluster_key
        self.last_backup: LastBackup | None = position.last_backup
        """The latest backup that was recorded; None if there is none."""
        self.operation_version: int = position.operation_version
        """The highest version of the entries applied (`core.operations`); 0 before the first."""
        self.configuration: Configuration | None = read_configuration(store)
        """The cluster's configuration that was applied last; None before the first."""

    def digest(self) -> int:
        """Return one number over all records and index entries, updated by each write (`raftsched.storage.store.seals`)."""
        return self._store.sums.digest()

    def sums(self) -> dict[str, int]:
        """Return each table's part of the digest, to find the tables in which two states differ."""
        return {table.name: self._store.sums.of(table) for table in self._store.sums.compared}

    # -- counts -------------------------------------------------------------------------------------------------------

    def counters(self) -> dict[CounterKey, int]:
        """Return the counts of jobs by tenant, queue and stored status, without zeros."""
        return self._counters.all()

    def used_queues(self, tenant: str | None = None, *, after: str = "") -> Iterator[str]:
        """Yield the queues that have jobs, of one tenant or of all, by name, behind `after`; reads no table."""
        return self._counters.queues(tenant, after=after)

    def due_queues(self, now_ms: int) -> list[str] | None:
        """Return the queues that may have jobs that are due and wait, by name; reads up to `limits.SCAN_ROWS_MAX` rows.

        None if it is not known: so many are due by time alone. Jobs without a timer are queued, or retried at once.
        """
        due = self.timers(until_ms=now_ms, limit=limits.SCAN_ROWS_MAX)
        if len(due) == limits.SCAN_ROWS_MAX:
            return None
        return sorted({*self._counters.queues_with((Status.QUEUED, Status.RETRYING)), *(entry.queue for entry in due)})

    def queue_counts(self, queue: str, tenant: str | None = None) -> dict[Status, int]:
        """Return the counts of a queue's jobs by stored status, of one tenant or of all; reads no table."""
        return self._counters.of_queue(queue, tenant)

    def status_counts(self) -> Counter[Status]:
        """Return the counts of all jobs by stored status; reads no table."""
        return self._counters.of_statuses()

    def queue_tally(self, tenant: str | None = None) -> QueueTally:
        """Return the counts of all queues in short, of one tenant or of all; reads no table."""
        return self._counters.tally(tenant)

    def dead_letter_counts(self) -> dict[tuple[str, str], int]:
        """Return the counts of dead letters by tenant and reason, without zeros; reads no table."""
        return self._dead_letters.all()

    def running_counts(self) -> dict[RunningKey, int]:
        """Return the counts of leased jobs by queue (key "") and by concurrency key, without zeros."""
        return self._running.all()

    def unfinished_counts(self) -> dict[str, int]:
        """Return the counts of unfinished jobs by tenant, without zeros."""
        return self._unfinished.all()

    def used_tenants(self) -> set[str]:
        """Return the tenants that have jobs, finished or not, or schedules; reads no table."""
        return self._counters.tenants() | self._schedule_counts.keys()

    def waiting_tenants(self, queue: str) -> list[str]:
        """Return the tenants with waiting jobs in the queue, due or not, blocked or not, by name; reads no table."""
        return self._counters.waiting_tenants(queue)

    # -- the store ----------------------------------------------------------------------------------------------------

    def rows_by_key(self) -> dict[str, int]:
        """Return the counts of encrypted rows by the id of their key; "" = rows that would be encrypted if written now."""
        return self._store.rows_by_key()

    def figures(self) -> StoreFigures:
        """Return how full the state's file and its disk are."""
        return self._store.figures()

    def copy_to(self, path: Path) -> None:
        """Write the last commit to a new file, synced; may run in another thread. Raises `CopyFailed`."""
        self._store.copy_to(path)

    def check_readers(self) -> int:
        """Release the pages held for readers of dead processes, so that they are used again (case R20)."""
        return self._store.check_readers()

    def close(self) -> None:
        """Close the file and drop what is not checkpointed; the journal has it."""
        self._store.close()
