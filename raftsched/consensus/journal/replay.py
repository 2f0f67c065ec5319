"""Replay a journal's files after a stop, and decide which of their records are valid.

All segments are replayed in order, one in memory at a time. A bad record is one of two things:

*Corruption*, if it is within the bytes that are proven to have been synced. Proven is
  - a segment up to the end that the header of the next one names;
  - the last segment up to its last valid MARK, at any place;
  - the whole segment before a last one whose header is not valid: a segment is only begun when the one before is synced.
  Corruption raises JournalCorrupt: the node once acknowledged these bytes, so it must not continue without them.

*A torn tail* otherwise: the one group that was being written, or synced, when the machine stopped. None of it was
  acknowledged, unless the group was synced and no later MARK was written yet. So it is cut: the next segment's header
  names the last good record before the cut as the end of this one.

Limits: corruption in the very last group, after its sync and before the next MARK, looks like a torn tail. The journal
writes a MARK with every group, with the first idle second, and when it closes, so this window is at most about a second
before a crash. The files cannot show either that the *newest* of them were removed or replaced by older copies;
`register` detects that.

Records that were read but are not proven synced (`Recovered.unproven`) are written again by the journal's start. They
may exist only in the page cache. If a sync failed before the last process ended, the kernel may have dropped them
without writing them, and report the next sync as successful.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from raftsched.consensus.journal.log_table import LogTable
from raftsched.consensus.journal.record_cipher import decrypted_record
from raftsched.consensus.journal.segments import (
    HEADER_BYTES,
    MARK,
    RESET,
    STATE,
    TRUNCATE,
    Header,
    JournalCorrupt,
    Link,
    Record,
    decode,
    decode_header,
    encode_header,
    last_mark,
    segment_name,
    segment_number,
)
from raftsched.encryption.cipher import NO_KEYS, Cipher
from raftsched.ports import Disk


@dataclass(frozen=True, slots=True)
class JournalSummary:
    """The content of a sound journal. The next start cuts `torn_bytes`, which were written but never acknowledged."""

    entries: int
    first_index: int
    last_index: int
    term: int
    voted: str | None
    segments: int
    torn_bytes: int


@dataclass(frozen=True, slots=True)
class Recovered:
    """The replayed log, and the next segment: `number` begins after `previous`, in place of all later files.

    `unproven` are the records to write into it first. Segments `oldest` to `number` form the journal; the files in
    `leftovers` are not part of it.
    """

    table: LogTable
    term: int
    voted: str | None
    number: int
    previous: Link
    unproven: list[Record]
    oldest: int
    leftovers: list[str]
    torn_bytes: int


def verify(disk: Disk, cipher: Cipher = NO_KEYS) -> JournalSummary:
    """Check every record of a stopped node's journal and change nothing.

    Raises as `recover` if the journal would not start. One segment is in memory at a time.
    """
    return summary_of(disk, recover(disk, cache_bytes=0, cipher=cipher))


def summary_of(disk: Disk, recovered: Recovered) -> JournalSummary:
    """Return a summary of the journal on `disk`, which was just replayed."""
    table = recovered.table
    return JournalSummary(
        entries=len(table),
        first_index=table.first,
        last_index=table.last,
        term=recovered.term,
        voted=recovered.voted,
        segments=sum(segment_number(name) is not None for name in disk.names()) - len(recovered.leftovers),
        torn_bytes=recovered.torn_bytes,
    )


def recover(disk: Disk, *, cache_bytes: int, cipher: Cipher = NO_KEYS) -> Recovered:
    """Replay the journal; read only.

    Raises JournalCorrupt, JournalTooNew, KeyMissing, or OSError as the disk does.
    """
    numbers, leftovers = _segments(disk.names())
    replay = _Replay(disk, cache_bytes, cipher)
    if not numbers:
        return replay.result(number=1, previous=Link(0, 0), oldest=1, leftovers=[])
    headers = _headers(disk, numbers)
    for header, follower in pairwise(headers):
        replay.sealed_segment(header, follower.previous)
    last = headers[-1]
    replay.last_segment(last, begun=numbers[len(headers) :])
    replay.check(segment_name(numbers[0]))
    return replay.result(number=last.number, previous=last.previous, oldest=numbers[0], leftovers=leftovers)


def state_record(term: int, first_index: int, voted: str | None) -> Record:
    """Return the STATE record: term, vote and the index at which the log begins (0: it is empty)."""
    return (STATE, term, first_index, (voted or "").encode())


def _segments(names: list[str]) -> tuple[list[int], list[str]]:
    """Return the consecutive segment numbers up to the highest, and the segment files before a gap.

    Compaction removes the oldest segments without a sync for each, so some may reappear after a crash, with gaps. A
    check at the end, of the index at which the log begins, detects a missing segment that is still needed.
    """
    numbers = [number for name in names if (number := segment_number(name)) is not None]
    start = max(0, len(numbers) - 1)
    while start > 0 and numbers[start - 1] == numbers[start] - 1:
        start -= 1
    return numbers[start:], [segment_name(number) for number in numbers[:start]]


def _headers(disk: Disk, numbers: list[int]) -> list[Header]:
    """Return the headers of all segments; without the last one's if that segment was begun and never synced."""
    headers: list[Header] = []
    for number in numbers:
        name = segment_name(number)
        header = decode_header(disk.read(name, 0, HEADER_BYTES), number)
        if header is not None:
            headers.append(header)
        elif number != numbers[-1] or not headers or last_mark(disk.read(name), segment=number):
            raise JournalCorrupt(name, 0, "the segment's header is not what was written and synced")
    return headers


class _Replay:
    """The log of the replayed records, and the newest place in it up to which all are proven to be on disk."""

    def __init__(self, disk: Disk, cache_bytes: int, cipher: Cipher) -> None:
        self._disk = disk
        self._cipher = cipher
        self._table = LogTable(cache_bytes)
        self._term = 0
        self._voted: str | None = None
        self._begin = 0  # the index at which the log begins, even if that entry's segment was removed
        self._has_state = False
        self._proven: Link | None = None  # in the current segment
        self._state_then = state_record(0, 0, None)
        self._records_since: list[Record] = []
        self._torn_bytes = 0

    def sealed_segment(self, header: Header, end: Link) -> None:
        """Replay a segment that was synced up to `end`, as the next one's header says."""
        name = segment_name(header.number)
        reached = self._records(header, self._disk.read(name, 0, end.end))
        if reached != end:
            raise JournalCorrupt(name, reached.end, f"a record up to byte {end.end} is not what was written and synced")

    def last_segment(self, header: Header, *, begun: list[int]) -> None:
        """Replay the last segment with a header; if one was `begun` after it, all of it was synced."""
        name = segment_name(header.number)
        data = self._disk.read(name)
        reached = self._records(header, data)
        synced = len(data) if begun else last_mark(data, segment=header.number)
        if reached.end < synced:
            raise JournalCorrupt(name, reached.end, f"a record up to byte {synced} is not what was written and synced")
        if begun:
            self._prove(reached)
        self._torn_bytes = len(data) - reached.end + sum(len(self._disk.read(segment_name(number))) for number in begun)

    def check(self, oldest: str) -> None:
        """Raise JournalCorrupt if the start is missing: compaction removes files, and people may, too.

        The journal removes files only once a later one, which begins with a STATE, has been synced.
        """
        if not self._has_state:
            raise JournalCorrupt(oldest, HEADER_BYTES, "the segment's first record is not what was written and synced")
        if self._table.first != self._begin:
            raise JournalCorrupt(oldest, 0, f"the entries from {self._begin} on are missing: an older file was removed")

    def result(self, *, number: int, previous: Link, oldest: int, leftovers: list[str]) -> Recovered:
        """Return the next segment: after the proven part of the last one, or in its place if nothing is proven."""
        return Recovered(
            table=self._table,
            term=self._term,
            voted=self._voted,
            number=number + 1 if self._proven else number,
            previous=self._proven or previous,
            unproven=[self._state_then, *self._records_since],
            oldest=oldest,
            leftovers=leftovers,
            torn_bytes=self._torn_bytes,
        )

    def _records(self, header: Header, data: bytes) -> Link:
        """Apply the valid records at the start of a segment's bytes; return the place that they reach."""
        number = header.number
        self._prove(None)
        reached = Link(HEADER_BYTES, encode_header(header).checksum)
        while found := decode(data, segment=number, offset=reached.end):
            if found.record[0] == MARK:
                self._prove(reached)
            else:
                self._apply(found.record, number, reached.end)
            reached = Link(found.end, found.checksum)
        return reached

    def _prove(self, place: Link | None) -> None:
        self._proven = place
        self._state_then = state_record(self._term, self._begin, self._voted)
        self._records_since = []
        self._table.evict()

    def _apply(self, stored: Record, segment: int, offset: int) -> None:
        record = decrypted_record(stored, self._cipher, segment=segment, offset=offset)
        kind, first, second, body = record
        self._records_since.append(record)
        if kind == STATE:
            self._apply_state(record, segment, offset)
        elif kind == TRUNCATE:
            self._table.truncate(first)
            self._begin = 0 if first <= self._begin else self._begin
        else:
            if kind == RESET:
                self._table.clear()
                self._begin = first
            elif len(self._table) and first != self._table.last + 1:
                raise JournalCorrupt(segment_name(segment), offset, f"entry {first} follows {self._table.last}")
            self._begin = self._begin or first
            self._table.append((body, first, second), len(stored[3]))
            self._table.place(first, segment, offset)

    def _apply_state(self, record: Record, segment: int, offset: int) -> None:
        """Apply a STATE. The table may still be empty, if the log's entries were in segments that compaction removed."""
        _, term, begin, voted = record
        self._term, self._voted, self._begin = term, voted.decode() or None, begin
        self._has_state = True
        if not len(self._table):
            return
        if not 0 < begin <= self._table.last:
            reason = f"a log that ends at {self._table.last} can't begin at {begin}"
            raise JournalCorrupt(segment_name(segment), offset, reason)
        self._table.drop_before(begin)
