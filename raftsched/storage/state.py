"""The replicated state: what `apply` decided is executed here, with all that follows from it.

Theory of operation. A write carries the record before and after. The record is stored; its index entries, its
idempotency key and the counters follow from the two by pure functions (`indexes`, `counters`), and only the difference
touches the store. `advance` closes an entry of the log. `checkpoint` puts position and changed counters into the same
transaction and commits it, so after a crash the state is that of some applied index, whole, and the journal replays
the entries behind it.

Nothing is checked here that `apply` has decided. What can't be (an entry to remove that isn't there, a counter below
zero, an entry of the log out of turn) raises `InvariantBroken`; the state is then not to be used any more.

Left out: locks (one thread owns a state; only `copy_to` may be called from another) and undo (an operation that is
refused writes nothing).
"""

from __future__ import annotations

from collections.abc import Iterable

from raftsched import limits
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.job import Job, encode_job
from raftsched.core.state.writes import PutFence, PutJob, PutOutage, PutZoneRules, RemoveJob, Write
from raftsched.errors import InvariantBroken
from raftsched.storage.reader import StateReader
from raftsched.storage.recent import RecentJobs
from raftsched.storage.store.port import Store, Table
from raftsched.storage.tables import edges, keys, logs
from raftsched.storage.tables.indexes import (
    Entries,
    difference,
    facet_groups,
    holds_claim,
    index_entries,
)
from raftsched.storage.tables.leased_counts import RunningCounts
from raftsched.storage.tables.other_writes import OtherWrites
from raftsched.storage.tables.position import (
    Configuration,
    Position,
    write_configuration,
    write_position,
)

_ENTRIES_BYTES = 200
"""What a transition's index entries come to, roughly."""
_JOBS, _PAYLOADS, _FACETS = Table.JOBS, Table.PAYLOADS, Table.FACETS
"""A member of an enumeration costs a look-up each time; these are needed with every job written."""


class State(OtherWrites, StateReader):
    """The state over a `Store`: all reads of `StateReader`, and writes by log entry.

    Raises `UnknownFormat` when made over data of another format, which stays untouched.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._recent = RecentJobs(limits.RECENT_JOBS_MAX)
        self._running = RunningCounts(self.leased_jobs())  # before the first write
        self._entry_is_open = False
        self.durable_index: int = self.applied_index
        """Index of the last checkpoint: what survives a power loss without the journal."""
        self.uncommitted_bytes: int = 0
        """About how much was written since the last checkpoint."""

    def job(self, job_id: JobId) -> Job | None:
        return self._recent.get(job_id) or super().job(job_id)

    def execute(self, writes: Iterable[Write]) -> None:
        """Execute the writes of one operation, in order; `advance` must follow before the next checkpoint."""
        self._entry_is_open = True
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
            else:
                self._execute_other(write)

    def configure(self, content: bytes) -> None:
        """Keep the configuration that the entry after `applied_index` carries; `advance` must follow."""
        self._entry_is_open = True
        self.configuration = Configuration(self.applied_index + 1, content)
        write_configuration(self._store, self.configuration)

    def advance(self, *, index: int, term: int, now_ms: int, version: int = 0) -> None:
        """The entry at `index` is applied: take over its position, and its time and version where they are later.

        Raises `InvariantBroken` unless it is the next one, of the same or a later term.
        """
        if index != self.applied_index + 1 or term < self.applied_term:
            at = f"({self.applied_index}, term {self.applied_term})"
            raise InvariantBroken(f"entry ({index}, term {term}) does not follow {at}")
        self.applied_index = index
        self.applied_term = term
        self.cluster_time_ms = TimeMs(max(self.cluster_time_ms, now_ms))
        self.operation_version = max(self.operation_version, version)
        self._entry_is_open = False
        self._audit_count = 0

    def checkpoint(self) -> int:
        """Make all that is applied durable, synced; return its index. Blocks for the disk; a failure is final."""
        if self._entry_is_open:
            raise InvariantBroken(f"checkpoint inside the entry after {self.applied_index}")
        if self.applied_index != self.durable_index:
            self._counters.save(self._store)
            write_position(self._store, self._position())
            self._store.commit()
            self.durable_index = self.applied_index
            self.uncommitted_bytes = 0
        return self.durable_index

    def _position(self) -> Position:
        return Position(
            self.applied_index,
            self.applied_term,
            self.cluster_time_ms,
            self.fence,
            self.operation_version,
            self.outage_ended_at_ms,
            self.zone_rules,
        )

    def _put_job(self, write: PutJob) -> None:
        old, new, payload, result = write.old, write.new, write.payload, write.result
        record = encode_job(new)
        if old is None:
            self._store.insert(_JOBS, new.id, record)
            if payload:
                self._store.insert(_PAYLOADS, new.id, payload)
                self.uncommitted_bytes += len(payload)
        else:
            self._store.put(_JOBS, new.id, record)
            if payload is not None:
                self._put_text(_PAYLOADS, new.id, payload)
        self._recent.put(new)
        if new.idempotency_key != ("" if old is None else old.idempotency_key):
            self._move_key(old, new)
        if new.spec.options is not None and new.spec.options.unique_key:
            self._check_claim(new, new.spec.options.unique_key)
        if result is not None:
            self._put_text(Table.RESULTS, new.id, result)
        self._follow(old, new, new.id)
        self.uncommitted_bytes += len(record) + _ENTRIES_BYTES

    def _move_key(self, old: Job | None, new: Job) -> None:
        if old is not None and old.idempotency_key:
            self._take_away(Table.KEYS, keys.dedup_key(old.tenant, old.idempotency_key))
        if new.idempotency_key:
            self._store.insert(Table.KEYS, keys.dedup_key(new.tenant, new.idempotency_key), new.id)

    def _check_claim(self, job: Job, unique_key: bytes) -> None:
        """Raise `InvariantBroken` where another job has the claim: it must lose it first."""
        holder = self.job_id_for_unique(job.tenant, unique_key)
        if holder not in (None, job.id) and holds_claim(job):
            raise InvariantBroken(f"jobs {holder.hex()} and {job.id.hex()} claim the same unique key")

    def _remove_job(self, old: Job) -> None:
        self._recent.drop(old.id)
        self._take_away(Table.JOBS, old.id)
        self._store.delete(Table.PAYLOADS, old.id)
        self._store.delete(Table.RESULTS, old.id)
        if old.idempotency_key:
            self._take_away(Table.KEYS, keys.dedup_key(old.tenant, old.idempotency_key))
        if old.dependency_count:
            self.uncommitted_bytes += edges.remove(self._store, old.id)
        logs.remove(self._store, old.id)
        self._follow(old, None, old.id)
        self.uncommitted_bytes += _ENTRIES_BYTES

    def _follow(self, old: Job | None, new: Job | None, job_id: JobId) -> None:
        """Bring indexes and counts from `old` to `new`."""
        self._move_entries(index_entries(old), index_entries(new))
        self._move_facets(facet_groups(old), facet_groups(new), job_id)
        self._counters.move(old, new)
        self._running.move(old, new)

    def _move_entries(self, before: Entries, after: Entries) -> None:
        removed, inserted = difference(before, after)
        for table, key, _ in removed:
            self._take_away(table, key)
        for table, key, value in inserted:
            self._store.insert(table, key, value)

    def _move_facets(self, before: tuple[bytes, ...], after: tuple[bytes, ...], job_id: JobId) -> None:
        if before == after:
            return
        for group in before:
            if group not in after:
                self._take_away(_FACETS, group + job_id)
        for group in after:
            if group not in before:
                self._store.insert(_FACETS, group + job_id, b"")
                self.uncommitted_bytes += len(group)

    def _put_text(self, table: Table, record_id: bytes, text: bytes) -> None:
        if text:
            self._store.put(table, record_id, text)
            self.uncommitted_bytes += len(text)
        else:
            self._store.delete(table, record_id)

    def _take_away(self, table: Table, key: bytes) -> None:
        if not self._store.delete(table, key):
            raise InvariantBroken(f"{table.name.lower()} has no entry {key.hex()} to remove")
