"""The replicated state: what `apply` decided is executed here, with all that follows from it.

Theory of operation. `execute` (in `writer`) writes records and what follows from them. `advance` closes an entry of the
log. `checkpoint` puts position and changed counters into the same transaction and commits it, so after a crash the state
is that of some applied index, whole, and the journal replays the entries behind it.

An entry of the log out of turn raises `InvariantBroken`, as what `execute` finds wrong does; the state is then not to be
used any more.

Left out: locks (one thread owns a state; only `copy_to` may be called from another) and undo (an operation that is
refused writes nothing).
"""

from __future__ import annotations

from raftsched import limits
from raftsched.core.records.ids import TimeMs
from raftsched.errors import InvariantBroken
from raftsched.storage.reader import StateReader
from raftsched.storage.recent import RecentJobs
from raftsched.storage.store.port import Store
from raftsched.storage.tables.counters import Counters
from raftsched.storage.tables.leased_counts import RunningCounts
from raftsched.storage.tables.position import (
    Configuration,
    Position,
    write_configuration,
    write_position,
)
from raftsched.storage.writer import StateWriter


class State(StateWriter, StateReader):
    """The state over a `Store`: all reads of `StateReader`, and writes by log entry.

    Raises `UnknownFormat` when made over data of another format, which stays untouched.
    """

    _store: Store
    _counters: Counters

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._recent = RecentJobs(limits.RECENT_JOBS_MAX)
        self._running = RunningCounts(self.leased_jobs())  # before the first write
        self.durable_index: int = self.applied_index
        """Index of the last checkpoint: what survives a power loss without the journal."""
        self.uncommitted_bytes: int = 0
        """About how much was written since the last checkpoint."""

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
        self._fork = None
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
