"""Execute writes on the state, or on a fork that shows what they would do.

Theory of operation. A write has the record before and after. Its index entries, its idempotency key and the counters are
derived from both records by pure functions (`indexes`, `counters`), and only the difference is written. Records of jobs
are written behind (`job_cache`), and so are the entries of their lists, which only lists read. A *fork* executes writes
in the same way, over rows of its own (`ForkedRows`). So the changes of one operation see each other exactly as later
operations will. If the state executes the same writes, it takes the rows of the fork, and nothing is done twice.

What `apply` decided is not checked again. An impossible write (removing a missing entry, a counter below zero) raises
`InvariantBroken`; the state must not be used after that.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

from raftsched.core.records.backup import LastBackup
from raftsched.core.records.encryption import ClusterKey
from raftsched.core.records.ids import FencingToken, JobId, TimeMs
from raftsched.core.records.job import Job, encode_job
from raftsched.core.state.writes import (
    PutBackup,
    PutClusterKey,
    PutFence,
    PutJob,
    PutOutage,
    PutZoneRules,
    RemoveJob,
    Write,
)
from raftsched.errors import InvariantBroken
from raftsched.storage.job_cache import JobCache
from raftsched.storage.store.forked_rows import ForkedRows
from raftsched.storage.store.port import Rows, Store, Table
from raftsched.storage.tables import edges, keys, logs
from raftsched.storage.tables.catalog import Catalog
from raftsched.storage.tables.counters import Counters
from raftsched.storage.tables.dead_letter_counts import DeadLetterCounts
from raftsched.storage.tables.indexes import (
    Entries,
    difference,
    facet_groups,
    has_unique_entry,
    have_same_relations,
    index_entries,
    status_entries,
)
from raftsched.storage.tables.jobs import JobReads
from raftsched.storage.tables.leased_counts import RunningCounts
from raftsched.storage.tables.other_writes import OtherWrites
from raftsched.storage.tables.unfinished_counts import UnfinishedCounts

_JOBS, _PAYLOADS, _FACETS = Table.JOBS, Table.PAYLOADS, Table.FACETS
"""A member of an enumeration costs a look-up each time; these are needed with every job written."""
WRITTEN_BEHIND = frozenset({_JOBS, _FACETS})
"""The tables whose rows the store gets late."""


class StateWriter(OtherWrites, JobReads, Catalog):
    """Implement the reads of `raftsched.core.state.view.View`, and `execute`, for `State` and `StateFork`."""

    fence: FencingToken
    outage_ended_at_ms: TimeMs
    zone_rules: str
    cluster_key: ClusterKey | None
    last_backup: LastBackup | None
    _entry_is_open = False
    _fork: StateFork | None = None
    """The latest fork made since the last write."""

    @abstractmethod
    def _move(self, old: Job | None, new: Job | None) -> None:
        """Keep `new` in place of `old`, and count it so."""

    def fork(self) -> StateFork:
        """Return a view on which writes can be executed without changing this state.

        It costs a few microseconds, and is valid until the next write to this state.
        """
        self._fork = fork = StateFork(self, self._store, self._running, self._unfinished)
        fork.copy_fields(self)
        return fork

    def execute(self, writes: Iterable[Write]) -> None:
        """Execute the writes of one operation, in order."""
        self._entry_is_open = True
        fork, self._fork = self._fork, None
        if fork is not None and fork.writes is writes:
            self._take_over(fork)
            return
        for write in writes:
            if isinstance(write, PutJob):
                self._put_job(write)
            elif isinstance(write, PutFence):
                self.fence = write.token
            elif isinstance(write, RemoveJob):
                self._remove_job(write.old)
            elif isinstance(write, PutOutage):
                self.outage_ended_at_ms = write.ended_at_ms
            elif isinstance(write, PutZoneRules):
                self.zone_rules = write.version
            elif isinstance(write, PutClusterKey):
                self.cluster_key = write.key
            elif isinstance(write, PutBackup):
                self.last_backup = write.backup
            else:
                self._execute_other(write)

    def copy_fields(self, source: StateWriter) -> None:
        """Copy from `source` the fields in memory other than counts and records of jobs."""
        self.applied_index = source.applied_index
        self.fence = source.fence
        self.outage_ended_at_ms = source.outage_ended_at_ms
        self.zone_rules = source.zone_rules
        self.cluster_key = source.cluster_key
        self.last_backup = source.last_backup
        self._audit_count = source._audit_count
        self._queues = source._queues
        self._tenants = source._tenants
        self._tokens = source._tokens
        self._schedule_counts = source._schedule_counts

    def _take_over(self, fork: StateFork) -> None:
        """Take the rows of `fork`, which has the same effect as executing its writes."""
        fork.rows.merge()
        for old, new in fork.moves:
            self._move(old, new)
        self.copy_fields(fork)

    def _put_job(self, write: PutJob) -> None:
        old, new, payload, result = write.old, write.new, write.payload, write.result
        if old is None:
            if payload:
                self._store.insert(_PAYLOADS, new.id, payload)
        elif payload is not None:
            self._put_text(_PAYLOADS, new.id, payload)
        if new.idempotency_key != ("" if old is None else old.idempotency_key):
            self._move_key(old, new)
        if new.spec.options is not None and new.spec.options.unique_key:
            self._check_unique_key(new, new.spec.options.unique_key)
        if result is not None:
            self._put_text(Table.RESULTS, new.id, result)
        if new.spec.options is not None and old is not None and have_same_relations(old, new):
            self._move_entries(status_entries(old), status_entries(new))
        else:
            self._move_entries(index_entries(old), index_entries(new))
        self._move(old, new)

    def _move_key(self, old: Job | None, new: Job) -> None:
        if old is not None and old.idempotency_key:
            self._store.remove(Table.KEYS, keys.dedup_key(old.tenant, old.idempotency_key))
        if new.idempotency_key:
            self._store.insert(Table.KEYS, keys.dedup_key(new.tenant, new.idempotency_key), new.id)

    def _check_unique_key(self, job: Job, unique_key: bytes) -> None:
        """Raise `InvariantBroken` if another job has the key: it must lose it first."""
        holder = self.job_id_for_unique(job.tenant, unique_key)
        if holder not in (None, job.id) and has_unique_entry(job):
            raise InvariantBroken(f"jobs {holder.hex()} and {job.id.hex()} claim the same unique key")

    def _remove_job(self, old: Job) -> None:
        self._store.delete(_PAYLOADS, old.id)
        self._store.delete(Table.RESULTS, old.id)
        if old.idempotency_key:
            self._store.remove(Table.KEYS, keys.dedup_key(old.tenant, old.idempotency_key))
        if old.dependency_count:
            edges.remove(self._store, old.id)
        logs.remove(self._store, old.id)
        self._move_entries(index_entries(old), ())
        self._move(old, None)

    def _move_entries(self, before: Entries, after: Entries) -> None:
        removed, inserted = difference(before, after)
        for table, key, _ in removed:
            self._store.remove(table, key)
        for table, key, value in inserted:
            self._store.insert(table, key, value)

    def _put_text(self, table: Table, record_id: bytes, text: bytes) -> None:
        if text:
            self._store.put(table, record_id, text)
        else:
            self._store.delete(table, record_id)


class WriteBehind(StateWriter):
    """Write to a store, but keep the records of jobs until the store asks for them."""

    _store: Store
    _cache: JobCache
    _counters: Counters
    _dead_letters: DeadLetterCounts

    def job(self, job_id: JobId) -> Job | None:
        return self._cache.get(job_id) or super().job(job_id)

    def _move(self, old: Job | None, new: Job | None) -> None:
        self._counters.move(old, new)
        self._dead_letters.move(old, new)
        self._running.move(old, new)
        self._unfinished.move(old, new)
        if new is not None:
            self._cache.put(old, new)
        elif old is not None and (stored := self._cache.remove(old)) is not None:
            self._store.remove(_JOBS, old.id)
            self._move_facets(stored, None, old.id)

    def _write_behind(self) -> None:
        """Give the store what it does not have yet of `WRITTEN_BEHIND`."""
        for stored, job in self._cache.take_unstored():
            write = self._store.insert if stored is None else self._store.put
            write(_JOBS, job.id, encode_job(job))
            self._move_facets(stored, job, job.id)

    def _move_facets(self, old: Job | None, new: Job | None, job_id: JobId) -> None:
        before, after = facet_groups(old), facet_groups(new)
        if before == after:
            return
        for group in before:
            if group not in after:
                self._store.remove(_FACETS, group + job_id)
        for group in after:
            if group not in before:
                self._store.insert(_FACETS, group + job_id, b"")


class StateFork(StateWriter):
    """Show a state as it will be after some writes; implements `raftsched.core.state.view.Fork`."""

    def __init__(self, base: StateWriter, store: Rows, running: RunningCounts, unfinished: UnfinishedCounts) -> None:
        self._base = base
        self._store = self.rows = ForkedRows(store)
        self._jobs: dict[JobId, Job | None] = {}
        """As written here; None = removed."""
        self.moves: list[tuple[Job | None, Job | None]] = []
        """Each job before and after a write, in order."""
        self._running = RunningCounts((), running)
        self._unfinished = UnfinishedCounts({}, unfinished)
        self._executed: list[Write] = []
        self._as_tuple: tuple[Write, ...] = ()

    @property
    def writes(self) -> tuple[Write, ...]:
        """Return all writes executed, in order. It is the same object until another write is executed."""
        if len(self._as_tuple) != len(self._executed):
            self._as_tuple = tuple(self._executed)
        return self._as_tuple

    def job(self, job_id: JobId) -> Job | None:
        return self._jobs[job_id] if job_id in self._jobs else self._base.job(job_id)

    def execute(self, writes: Iterable[Write]) -> None:
        executed = tuple(writes)
        super().execute(executed)
        self._executed += executed

    def _move(self, old: Job | None, new: Job | None) -> None:
        self.moves.append((old, new))
        self._running.move(old, new)
        self._unfinished.move(old, new)
        if new is not None:
            self._jobs[new.id] = new
        elif old is not None:
            self._jobs[old.id] = None
