"""What the engine needs of its neighbours: the log, its timing, and the machine (`raftsched.consensus.machine`)."""

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
"""What pysyncobj writes as the first entry of a term."""
CONFIGURATION: Final = b"\x02"
"""Carries an encoded `Membership`."""
KINDS: Final = (COMMAND, NO_OP, CONFIGURATION)


@dataclass(frozen=True, slots=True)
class Timing:
    """How long nodes wait for one another. Heartbeat times three must stay under the least election timeout.

    A follower that hears nothing for a random time between `election_min_seconds` and `election_max_seconds` stands
    for election; within the least of it it votes for nobody else. Shorter means a faster failover and more needless
    elections on machines that stall.
    """

    heartbeat_seconds: float = 0.1
    election_min_seconds: float = 0.6
    election_max_seconds: float = 1.1
    proposal_seconds: float = 10.0
    """A proposal that is not applied by then is answered with "outcome unknown"."""
    lost_proposal_seconds: float = 1.0
    """The same, counted from when this node stopped leading: the next leader usually decides it sooner."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is kept, and sent at once; the reasons stand in `limits.py`."""

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
        """Whether something of it, term and vote included, is not durable."""

    def __len__(self) -> int: ...
    def __getitem__(self, position: Any) -> Any: ...
    def term_at(self, index: int) -> int: ...
    def entries(self, start_index: int, max_bytes: int) -> Sequence[Entry]:
        """The entries from `start_index` on, at least one if there is one, and then no more than `max_bytes`."""

    def add(self, command: bytes, index: int, term: int) -> None: ...
    def deleteEntriesFrom(self, position: int) -> None:  # noqa: N802  # pysyncobj's name
        """Drop the entries from a position, counted from the first entry, on."""

    def reset(self, index: int, term: int) -> None:
        """Make the log one base entry (index, term); the current term and vote stay."""

    def compact_to(self, index: int) -> None:
        """Drop the entries below `index`."""

    def index_before_bytes(self, byte_count: int) -> int:
        """The lowest index such that the log from it on is at most `byte_count` bytes."""
