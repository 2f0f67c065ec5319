"""Define the ports of the engine: the log, its timing and sizes. The machine is in `raftsched.consensus.machine`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from raftsched import limits

NodeId = str
Entry = tuple[bytes, int, int]
"""(command, index, term), as pysyncobj has it; the command's first byte is its kind."""

COMMAND: Final = b"\x00"
NO_OP: Final = b"\x01"
"""The first entry of a term, as pysyncobj writes it."""
CONFIGURATION: Final = b"\x02"
"""Carries an encoded `Membership`."""
KINDS: Final = (COMMAND, NO_OP, CONFIGURATION)


@dataclass(frozen=True, slots=True)
class Timing:
    """The timeouts of the cluster. Three heartbeats must be shorter than `election_min_seconds`.

    A follower without a message from a leader for a random time between `election_min_seconds` and
    `election_max_seconds` starts an election; within `election_min_seconds` it votes for no other node. Shorter times
    mean a faster failover, and more needless elections on machines that stall.
    """

    heartbeat_seconds: float = 0.1
    election_min_seconds: float = 0.6
    election_max_seconds: float = 1.1
    proposal_seconds: float = 10.0
    """Time after which a proposal that is not applied is answered with "outcome unknown"."""
    lost_proposal_seconds: float = 1.0
    """The same, from the time when this node stopped leading: the next leader usually decides sooner."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the kept log and of single messages; `limits.py` has the reasons."""

    tail_bytes: int = limits.JOURNAL_TAIL_BYTES
    hold_bytes: int = limits.SNAPSHOT_HOLD_BYTES
    append_bytes: int = limits.APPEND_BATCH_BYTES
    appends_in_flight: int = limits.APPENDS_IN_FLIGHT_MAX
    chunk_bytes: int = limits.SNAPSHOT_CHUNK_BYTES
    window_chunks: int = limits.SNAPSHOT_WINDOW_CHUNKS


class Log(Protocol):
    """The journal as the engine uses it; `raftsched.consensus.journal.journal.Journal` keeps it on disk."""

    @property
    def first_index(self) -> int: ...
    @property
    def last_index(self) -> int: ...
    @property
    def dirty(self) -> bool:
        """Return whether any part of it, term and vote included, is not durable."""

    def __len__(self) -> int: ...
    def __getitem__(self, position: Any) -> Any: ...
    def term_at(self, index: int) -> int: ...
    def entries(self, start_index: int, max_bytes: int) -> Sequence[Entry]:
        """Return the entries from `start_index` on: at most `max_bytes`, but at least one if there is one."""

    def add(self, command: bytes, index: int, term: int) -> None: ...
    def deleteEntriesFrom(self, position: int) -> None:  # noqa: N802  # pysyncobj's name
        """Drop the entries from a position, counted from the first entry, on."""

    def reset(self, index: int, term: int) -> None:
        """Replace the log by one base entry (index, term); the current term and vote stay."""

    def compact_to(self, index: int) -> None:
        """Drop the entries below `index`."""

    def index_before_bytes(self, byte_count: int) -> int:
        """Return the lowest index such that the log from it on has at most `byte_count` bytes."""
