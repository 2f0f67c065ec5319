"""The log applied again, outside of any node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from chaos.sim.record.log_changes import Deed
from raftsched.core.apply import apply
from raftsched.core.operations.codec import CODEC_VERSION, decode_batch
from raftsched.core.records.ids import TimeMs
from raftsched.core.state.results import Context, Result
from raftsched.storage.state import State

NEWEST: Final = CODEC_VERSION + 1
"""The version of entries that upgraded hosts read."""


class LoggedEntry(msgspec.Struct, frozen=True, array_like=True):
    """An entry as it was first applied: a command, a configuration, or neither."""

    index: int
    term: int
    command: bytes | None
    configuration: bytes | None


@dataclass(slots=True)
class LogReplay:
    """Applies entries to a state of its own, as `ReplicatedState.apply`, written again."""

    state: State

    def apply(self, entry: LoggedEntry) -> list[Result]:
        """Apply the next entry; return a result for each of its operations."""
        return [deed.applied.result for deed in self.deeds(entry)]

    def deeds(self, entry: LoggedEntry) -> list[Deed]:
        """Apply the next entry; return its operations, each with its result and what it wrote."""
        state = self.state
        now_ms, version = state.cluster_time_ms, state.operation_version
        deeds: list[Deed] = []
        if entry.command is not None:
            batch = decode_batch(entry.command, reads=NEWEST)
            now_ms, version = TimeMs(max(now_ms, batch.stamp_ms)), max(version, batch.version)
            context, written_count = Context(now_ms, entry.index, version), 0
            for operation, origin in batch.each():
                context = context.of(origin)
                applied = apply(state, operation, context)
                state.execute(applied.writes)
                written_count += len(applied.writes)
                context = context.after(written_count)
                deeds.append(Deed(operation, applied))
        elif entry.configuration is not None:
            state.configure(entry.configuration)
        state.advance(index=entry.index, term=entry.term, now_ms=now_ms, version=version)
        return deeds
