"""The replicated state machine: log entries in, state and results out.

Every node applies the same entries in the same order to the same state, so the only inputs are the entry and the
state. Cluster time is the largest stamp applied so far: whoever leads, it never runs backward.

A fault while applying is never skipped: the exception leaves `apply`, and the node stops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from raftsched.core.apply import apply
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import CODEC_VERSION, OLDEST_READ, UnknownVersion, decode_batch, require_readable
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.job import Job
from raftsched.core.state.results import Applied, Context, Result
from raftsched.core.state.writes import PutFence, PutJob, RemoveJob, Write
from raftsched.storage import directory as storage

Change = tuple[Job | None, Job | None]
"""A job before and after an operation; None where there was or is none."""
OnChanges = Callable[[Sequence[Change]], None]
OnRecords = Callable[[Sequence[Write]], None]


class StateMachine(Protocol):
    """What the engine needs of the state it replicates."""

    @property
    def applied_index(self) -> int: ...
    @property
    def applied_term(self) -> int: ...
    @property
    def durable_index(self) -> int:
        """Last index that survives a power loss without the journal."""

    @property
    def digest(self) -> int:
        """A number below 2^63 that two machines share if they have applied the same entries to the same state."""

    @property
    def operations_read(self) -> int:
        """The latest version of entries that it can apply (`core.operations`)."""

    @property
    def operation_version(self) -> int:
        """The version in force: the latest of any entry applied, as part of the state."""

    def apply(self, index: int, term: int, command: bytes | None) -> object:
        """Apply the entry at `index`; `None` is a no-op. Whatever it raises must stop the process."""

    @property
    def configuration(self) -> tuple[int, bytes] | None:
        """(index, content) of the last configuration applied, as part of the state; None while there was none."""

    def configure(self, index: int, term: int, content: bytes) -> None:
        """Apply the entry at `index`, which carries the cluster's configuration; kept in copies too."""

    def checkpoint(self) -> int:
        """Make all that is applied durable; return the durable index."""

    def copy_to(self, path: Path) -> None:
        """Write a copy of the last checkpoint; may be called in another thread."""

    def inspect_copy(self, path: Path) -> tuple[int, int]:
        """(index, term) of a copy; raises where the file is not a whole copy."""

    def install(self, path: Path) -> None:
        """Replace the state by the copy at `path`, durably; the file is consumed."""


class ReplicatedState:
    """The scheduler's state in `directory`, driven by log entries.

    `on_changes` hears of every job written, once for each entry, right after it is applied; `on_records`, just before,
    of what else was written. Neither is called for an entry that wrote nothing of the kind. Raises `UnknownVersion`
    where the state was made by entries of a version that this node does not read (it reads up to `operations_read`).
    """

    def __init__(self, directory: Path, *, map_bytes: int, operations_read: int = CODEC_VERSION) -> None:
        self._directory = directory
        self._map_bytes = map_bytes
        self.operations_read = operations_read
        self.on_changes: OnChanges | None = None
        self.on_records: OnRecords | None = None
        self.state = storage.open_state(directory, map_bytes=map_bytes)
        self._require_readable()

    def _require_readable(self) -> None:
        """Refuse to go on from a state that a later release has made: what follows in the log could not be read."""
        version = self.state.operation_version
        try:
            require_readable(version or OLDEST_READ, reads=self.operations_read)
        except UnknownVersion:
            self.state.close()
            raise

    @property
    def applied_index(self) -> int:
        return self.state.applied_index

    @property
    def applied_term(self) -> int:
        return self.state.applied_term

    @property
    def durable_index(self) -> int:
        return self.state.durable_index

    @property
    def digest(self) -> int:
        return self.state.digest()

    @property
    def operation_version(self) -> int:
        return max(self.state.operation_version, OLDEST_READ)

    def apply(self, index: int, term: int, command: bytes | None) -> list[Result]:
        """Apply one entry and return a result for each of its operations."""
        state = self.state
        if command is None:
            state.advance(index=index, term=term, now_ms=state.cluster_time_ms)
            return []
        batch = decode_batch(command, reads=self.operations_read)
        version = max(state.operation_version, batch.version)
        context = Context(TimeMs(max(state.cluster_time_ms, batch.stamp_ms)), index, version)
        results: list[Result] = []
        changes: list[Change] = []
        records: list[Write] = []
        written_count = 0
        for operation in batch.operations:
            result, writes = self._decide(operation, context)
            if writes:
                state.execute(writes)
                _collect(writes, changes, records)
                written_count += len(writes)
                context = context.after(written_count)
            results.append(result)
        state.advance(index=index, term=term, now_ms=context.now_ms, version=version)
        if records and self.on_records is not None:
            self.on_records(records)
        if changes and self.on_changes is not None:
            self.on_changes(changes)
        return results

    def _decide(self, operation: Operation, context: Context) -> Applied:
        """What one operation comes to; nothing of it is written yet."""
        return apply(self.state, operation, context)

    @property
    def configuration(self) -> tuple[int, bytes] | None:
        found = self.state.configuration
        return None if found is None else (found.index, found.content)

    def configure(self, index: int, term: int, content: bytes) -> None:
        self.state.configure(content)
        self.state.advance(index=index, term=term, now_ms=self.state.cluster_time_ms)

    def checkpoint(self) -> int:
        return self.state.checkpoint()

    def copy_to(self, path: Path) -> None:
        self.state.copy_to(path)

    def inspect_copy(self, path: Path) -> tuple[int, int]:
        return storage.inspect_copy(path)

    def install(self, path: Path) -> None:
        """Replace the state; every reference to the old `state` is dead afterwards."""
        self.state.close()
        storage.replace_state_file(self._directory, path)
        self.state = storage.open_state(self._directory, map_bytes=self._map_bytes, is_verified=True)
        self._require_readable()

    def close(self) -> None:
        """Checkpoint and close."""
        self.state.checkpoint()
        self.state.close()


def _collect(writes: Sequence[Write], changes: list[Change], records: list[Write]) -> None:
    for write in writes:
        if isinstance(write, PutJob):
            changes.append((write.old, write.new))
        elif isinstance(write, RemoveJob):
            changes.append((write.old, None))
        elif not isinstance(write, PutFence):
            records.append(write)
