"""Execute on the replicated state what `apply` decided.

Theory of operation. `execute` (in `writer`) writes records, and the index entries and counts that follow from them.
`advance` closes an entry of the log. `checkpoint` adds the position and the changed counters to the same transaction and
commits it. So after a crash the state is that of one applied index, and the journal replays the later entries.

`InvariantBroken` is raised for an entry that is not the next one, and for writes that contradict the state. The state
must not be used after that.

Left out: locks (one thread owns a state; only `copy_to` may be called from another) and undo (an operation that is
refused writes nothing).
"""

from __future__ import annotations

from raftsched import limits
from raftsched.core.records.ids import TimeMs
from raftsched.errors import InvariantBroken
from raftsched.storage.job_cache import JobCache
from raftsched.storage.reader import StateReader
from raftsched.storage.store.port import Place, Store
from raftsched.storage.store.row_codec import FIRST_PLACE
from raftsched.storage.tables.leased_counts import RunningCounts
from raftsched.storage.tables.position import (
    Configuration,
    Position,
    write_configuration,
    write_position,
)
from raftsched.storage.writer import WRITTEN_BEHIND, WriteBehind


class State(WriteBehind, StateReader):
    """Extend `StateReader` by writes, one log entry after another.

    The constructor raises `UnknownFormat` for data of another format, which stays unchanged.
    """

    _store: Store

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._cache = JobCache(limits.CACHED_JOBS_MAX)
        store.write_behind(WRITTEN_BEHIND, self._write_behind)
        self._running = RunningCounts(self.leased_jobs())  # before the first write
        self._has_reencrypted = False
        """Rows were re-encrypted since the last checkpoint."""
        self.durable_index: int = self.applied_index
        """Index of the last checkpoint: up to here the state survives a power loss without the journal."""

    def configure(self, content: bytes) -> None:
        """Store the configuration that the entry after `applied_index` carries; `advance` must follow."""
        self._entry_is_open = True
        self.configuration = Configuration(self.applied_index + 1, content)
        write_configuration(self._store, self.configuration)

    def advance(self, *, index: int, term: int, now_ms: int, version: int = 0) -> None:
        """Record that the entry at `index` is applied. Its time and version are taken if they are later.

        Raises `InvariantBroken` unless it is the next entry, of the same or a later term.
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

    def jump_to(self, index: int, term: int) -> None:
        """Continue as if the log was applied up to `index`, which is later: another log begins there.

        Raises `InvariantBroken` unless both are later than before.
        """
        if self._entry_is_open or index <= self.applied_index or term <= self.applied_term:
            raise InvariantBroken(f"a log can't begin at ({index}, term {term}) behind {self.applied_index}")
        self.applied_index, self.applied_term = index, term

    def checkpoint(self) -> int:
        """Sync all that is applied to disk, and return its index. Blocks; after a failure the state is unusable."""
        if self._entry_is_open:
            raise InvariantBroken(f"checkpoint inside the entry after {self.applied_index}")
        if self.applied_index != self.durable_index or self._has_reencrypted:
            self._counters.save(self._store)
            self._dead_letters.save(self._store)
            write_position(self._store, self._position())
            self._store.commit()
            self.durable_index = self.applied_index
            self._has_reencrypted = False
        return self.durable_index

    def reencrypt(self, place: Place = FIRST_PLACE, *, rows_max: int) -> Place | None:
        """Encrypt rows from `place` on under the present key, if they are not; return the next place, None at the end.

        It examines `rows_max` rows. The next checkpoint makes it durable.
        """
        self._has_reencrypted = True
        return self._store.reencrypt(place, rows_max=rows_max)

    def _position(self) -> Position:
        return Position(
            self.applied_index,
            self.applied_term,
            self.cluster_time_ms,
            self.fence,
            self.operation_version,
            self.outage_ended_at_ms,
            self.zone_rules,
            self.cluster_key,
            self.last_backup,
        )
