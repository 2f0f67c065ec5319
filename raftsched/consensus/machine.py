"""Apply log entries to the replicated state, and return their results.

Every node applies the same entries in the same order to the same state, so the entry and the state are the only inputs.
Cluster time is the largest stamp applied so far; it never runs backward, even if the leader changes.

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
from raftsched.encryption.cipher import NO_KEYS, Cipher
from raftsched.storage import directory as storage

Change = tuple[Job | None, Job | None]
"""A job before and after an operation; None if it did not exist then."""
OnChanges = Callable[[Sequence[Change]], None]
OnRecords = Callable[[Sequence[Write]], None]


class StateMachine(Protocol):
    """The engine's port to the state that it replicates."""

    @property
    def applied_index(self) -> int: ...
    @property
    def applied_term(self) -> int: ...
    @property
    def durable_index(self) -> int:
        """Return the last index that survives a power loss without the journal."""

    @property
    def digest(self) -> int:
        """Return a number below 2^63, equal on machines that applied the same entries to the same state."""

    @property
    def operations_read(self) -> int:
        """Return the latest version of entries that it can apply (`core.operations`)."""

    @property
    def operation_version(self) -> int:
        """Return the version in use, which is part of the state: the latest of all applied entries."""

    def apply(self, index: int, term: int, command: bytes | None) -> object:
        """Apply the entry at `index`; `None` is a no-op. Any exception must stop the process."""

    @property
    def configuration(self) -> tuple[int, bytes] | None:
        """Return (index, content) of the last applied configuration, which is part of the state; None if there is
        none.
        """

    def configure(self, index: int, term: int, content: bytes) -> None:
        """Apply the entry at `index`, which carries the cluster's configuration; copies contain it, too."""

    def checkpoint(self) -> int:
        """Make all applied entries durable; return the durable index."""

    def copy_to(self, path: Path) -> None:
        """Write a copy of the last checkpoint; may be called in another thread."""

    def inspect_copy(self, path: Path) -> tuple[int, int]:
        """Return (index, term) of a copy; raises if the file is not a complete copy."""

    def install(self, path: Path) -> None:
        """Replace the state by the copy at `path`, durably; the file is consumed."""


class ReplicatedState:
    """The scheduler's state in `directory`, driven by log entries.

    After each applied entry `on_records` is called with the written records other than jobs, then `on_changes` with the
    changes of jobs; each only if there are any. Raises `UnknownVersion` if the state has entries of a version that this
    node cannot read (it reads up to `operations_read`). Rows are encrypted by `cipher`.
    """

    def __init__(
        self, directory: Path, *, map_bytes: int, operations_read: int = CODEC_VERSION, cipher: Cipher = NO_KEYS
    ) -> None:
        self._directory = directory
        self._map_bytes = map_bytes
        self._cipher = cipher
        self.operations_read = operations_read
        self.on_changes: OnChanges | None = None
        self.on_records: OnRecords | None = None
        self.state = storage.open_state(directory, map_bytes=map_bytes, cipher=cipher)
        self._require_readable()

    def _require_readable(self) -> None:
        """Reject a state that a later release has written: the following log entries could not be read."""
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
        for operation, origin in batch.each():
            context = context.of(origin)
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
        """Return the result of one operation, and its writes, which are not executed yet."""
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
        return storage.inspect_copy(path, self._cipher)

    def install(self, path: Path) -> None:
        """Replace the state; references to the old `state` are invalid afterwards."""
        self.state.close()
        storage.replace_state_file(self._directory, path)
        self.state = storage.open_state(
            self._directory, map_bytes=self._map_bytes, is_verified=True, cipher=self._cipher
        )
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
