"""Keep the log's table in memory: term, size and place of every entry, and the most recent entries themselves.

Indexes are consecutive, so the tables are plain arrays of integers, 32 bytes per entry. The recent entries are a list
that always covers the end of the log; `evict` cuts its front to the limit. This module does no I/O: the journal reads
older entries back, from their places in this table.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from raftsched.consensus.journal.segments import RECORD_BYTES
from raftsched.errors import InvariantBroken

Entry = tuple[bytes, int, int]
"""(command, index, term), as pysyncobj keeps entries."""


class LogTable:
    """Entries `first` to `last`; positions count from 0 at `first`.

    `cache_bytes` limits the recent entries by the bytes of their records on disk (RECORD_BYTES + the stored command); Python
    adds some 150 bytes to each. The last entry is always kept.
    """

    __slots__ = ("_before", "_cache_bytes", "_ends", "_offsets", "_segments", "_terms", "first", "recent")

    def __init__(self, cache_bytes: int) -> None:
        self._cache_bytes = cache_bytes
        self._terms = array("Q")
        self._ends = array("Q")  # bytes of all records so far, up to and with this one
        self._before = 0  # the same, in front of the first entry
        self._segments = array("Q")
        self._offsets = array("Q")
        self.recent: list[Entry] = []
        self.first = 0
        """Index of the first entry, 0 while the log is empty."""

    def __len__(self) -> int:
        return len(self._terms)

    @property
    def last(self) -> int:
        """Return the index of the last entry, 0 while the log is empty."""
        return self.first + len(self._terms) - 1 if self._terms else 0

    @property
    def recent_position(self) -> int:
        """Return the position of the oldest entry in memory."""
        return len(self._terms) - len(self.recent)

    def append(self, entry: Entry, body_bytes: int) -> None:
        """Add the entry after the last, or any entry to an empty log; its place is not known yet.

        `body_bytes` is the length of the command as it is stored.

        Raises InvariantBroken, and changes nothing, for another index.
        """
        terms = self._terms
        index = entry[1]
        if not terms:
            self.first = index
        elif index != self.first + len(terms):
            raise InvariantBroken(f"entry {index} can't follow entry {self.last} in the log")
        terms.append(entry[2])
        ends = self._ends
        ends.append((ends[-1] if ends else self._before) + RECORD_BYTES + body_bytes)
        self._segments.append(0)
        self._offsets.append(0)
        self.recent.append(entry)

    def place(self, index: int, segment: int, offset: int) -> None:
        """Set the place of the record of `index`; ignored if there is no such entry any more."""
        position = index - self.first
        if 0 <= position < len(self._terms):
            self._segments[position] = segment
            self._offsets[position] = offset

    def clear(self) -> None:
        self.truncate(self.first)

    def truncate(self, index: int) -> None:
        """Drop the entries from `index` on."""
        position = max(0, index - self.first)
        recent_position = self.recent_position
        for table in (self._terms, self._ends, self._segments, self._offsets):
            del table[position:]
        del self.recent[max(0, position - recent_position) :]
        if not self._terms:
            self.first = self._before = 0

    def drop_before(self, index: int) -> None:
        """Drop the entries below `index`, which is in the log."""
        count = index - self.first
        if count <= 0:
            return
        recent_position = self.recent_position
        self._before = self._ends[count - 1]
        for table in (self._terms, self._ends, self._segments, self._offsets):
            del table[:count]
        del self.recent[: max(0, count - recent_position)]
        self.first = index

    def evict(self) -> None:
        """Drop the oldest recent entries from memory if they exceed the limit. Every entry's place must be known.

        It cuts a little more than needed, so that many entries share the cost.
        """
        if self._ends and self._ends[-1] - self._start(self.recent_position) > self._cache_bytes:
            keep_from = self.position_before_bytes(self._cache_bytes - self._cache_bytes // 8)
            keep_from = min(keep_from, len(self._terms) - 1)
            del self.recent[: keep_from - self.recent_position]

    def term(self, position: int) -> int:
        return self._terms[position]

    def segment(self, position: int) -> int:
        """Return the segment that holds the entry, 0 while it is not written."""
        return self._segments[position]

    def extent(self, position: int) -> tuple[int, int]:
        """Return the start and the end of the entry's record in its segment."""
        offset = self._offsets[position]
        return offset, offset + self._ends[position] - self._start(position)

    def same_segment_stop(self, position: int, stop: int) -> int:
        """Return the first position after `position`, at most `stop`, whose entry is in a later segment."""
        return bisect_right(self._segments, self._segments[position], position, stop)

    def stop_within(self, position: int, byte_count: int) -> int:
        """Return the position up to which the records from `position` on fit in `byte_count` bytes; at least one fits."""
        return max(position + 1, bisect_right(self._ends, self._start(position) + byte_count))

    def position_before_bytes(self, byte_count: int) -> int:
        """Return the lowest position from which the records up to the end have at most `byte_count` bytes."""
        if not self._ends or self._ends[-1] - self._before <= byte_count:
            return 0
        return bisect_left(self._ends, self._ends[-1] - byte_count) + 1

    def _start(self, position: int) -> int:
        return self._ends[position - 1] if position else self._before
