"""Keep the durable Raft log, with term and vote, in place of pysyncobj's FileJournal.

The engine adds entries, truncates, and sets its term and vote as it handles messages; that only grows a list of records
in memory. Then one group commit makes it durable, before any message that depends on it is sent:

    journal.write()        event loop: the whole group in one write, after a MARK of what was synced before
    journal.datasync()     any one thread: one fdatasync; uses only the file
    journal.synced()       event loop: the group is durable; compaction's files are removed

The three alternate strictly. Records added between `write` and `synced` wait for the next group. Term and vote are in
the same files as the entries, so one sync covers all. A full segment is followed by a new one, whose header and STATE
are the first bytes of the next group; a start always begins a new segment. `raftsched.consensus.journal.segments`
defines the bytes, `raftsched.consensus.journal.replay` the rules of a start.

The first failed write or sync is final. It is unknown then what reached the disk, and a retry could report a false
success. So the journal rejects every later call, and the process ends.

Memory: the recent entries, up to `cache_bytes`, and 32 bytes for each older one, which is read back and checked.
pysyncobj asks for entries by position, so position 0 is index `first_index`.

Left out: the commit index (the state machine has the applied index, which is sufficient), preallocated files, and
compression.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import overload

import structlog
from pysyncobj.journal import Journal as PysyncobjJournal

from raftsched import limits
from raftsched.consensus.journal.log_table import Entry
from raftsched.consensus.journal.register import SegmentRegister, VolatileRegister, require_newest
from raftsched.consensus.journal.replay import recover, state_record
from raftsched.consensus.journal.segment_files import SegmentWriter, read_entries
from raftsched.consensus.journal.segments import ENTRY, RESET, TRUNCATE, Record, segment_name
from raftsched.disk import DiskFailed
from raftsched.encryption.cipher import NO_KEYS, Cipher
from raftsched.errors import InvariantBroken
from raftsched.ports import Disk

log = structlog.get_logger()

BASE_COMMAND = b"\x01"
"""pysyncobj's no-op, the command of the base entry of `reset`."""


class Journal(PysyncobjJournal):  # type: ignore[misc]  # pysyncobj has no types
    """The log, term and vote of one node, on `disk`, which must belong to this process alone.

    Raises JournalCorrupt, JournalLost, JournalTooNew or KeyMissing at start, with nothing changed, and DiskFailed from
    every method once the disk has failed. An entry is (command, index, term); indexes are consecutive. `register` is
    stored apart from the disk's files: it distinguishes a lost journal from a new one. `cipher` encrypts commands.
    """

    def __init__(
        self,
        disk: Disk,
        *,
        segment_bytes: int = limits.JOURNAL_SEGMENT_BYTES,
        cache_bytes: int = limits.JOURNAL_CACHE_BYTES_MAX,
        register: SegmentRegister | None = None,
        cipher: Cipher = NO_KEYS,
    ) -> None:
        self._disk = disk
        self._cipher = cipher
        self._segment_bytes = segment_bytes
        self._failure: DiskFailed | None = None
        self._pending: list[Record] = []  # added and not written
        self._in_flight = False  # written and not synced
        self._is_unmarked = False  # written, and no MARK behind it
        self._mark_due = False
        self._oldest_entry: Entry | None = None
        self._changes: list[Callable[[], None]] = []
        """They wait for the end of the next `write`; see `change_files`."""
        self._begins_file = False
        register = VolatileRegister() if register is None else register
        with self._failing_for_good("start"):
            require_newest(disk, register.newest)
            recovered = recover(disk, cache_bytes=cache_bytes, cipher=cipher)
            self._writer = SegmentWriter(disk, recovered, register, cipher)
            for name in recovered.leftovers:
                disk.remove(name)
        self._table = recovered.table
        self._term, self._voted = recovered.term, recovered.voted
        self._place(recovered.unproven, self._writer.initial_offsets)
        self._written_state = self._state()
        self._oldest_segment = recovered.oldest
        self._own_segment = self._writer.number
        """The first segment that this object has written since its start, and since the latest `change_files`."""
        self._sweep_due = True
        log.info(
            "journal_opened",
            entries=len(self),
            first_index=self.first_index,
            last_index=self.last_index,
            term=self._term,
            torn_bytes=recovered.torn_bytes,
        )

    # -- the log in memory ---------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._table)

    @property
    def first_index(self) -> int:
        """Return the index of the first entry; 0 while the log is empty: before the first `add`, and after a `clear`."""
        return self._table.first

    @property
    def last_index(self) -> int:
        """Return the index of the last entry; 0 while the log is empty."""
        return self._table.last

    def term_at(self, index: int) -> int:
        """Return the term of the entry at `index`, without reading the entry. Raises IndexError outside the log."""
        return self._table.term(self._position(index))

    @overload
    def __getitem__(self, item: int) -> Entry: ...
    @overload
    def __getitem__(self, item: slice) -> list[Entry]: ...
    def __getitem__(self, item: int | slice) -> Entry | list[Entry]:
        """Return entries by position, as a list does. Recent ones are in memory, others are read: see `entries`."""
        if isinstance(item, slice):
            start, stop, step = item.indices(len(self._table))
            if step == 1:
                return self._range(start, stop)
            return [self[position] for position in range(start, stop, step)]
        if -len(self._table.recent) <= item < 0:
            return self._table.recent[item]
        position = item if item >= 0 else item + len(self._table)
        if not 0 <= position < len(self._table):
            raise IndexError(f"position {item} in a log of {len(self._table)} entries")
        return self._range(position, position + 1)[0] if position else self._first_entry()

    def entries(self, start_index: int, max_bytes: int) -> list[Entry]:
        """Return entries from `start_index` on: at most `max_bytes` of the journal, but at least one.

        Empty after the end; raises IndexError before the start. It never reads or holds more than it returns.
        """
        if start_index > self._table.last:
            return []
        start = self._position(start_index)
        return self._range(start, self._table.stop_within(start, max_bytes))

    def index_before_bytes(self, byte_count: int) -> int:
        """Return the lowest index from which the log has at most `byte_count` bytes; at most the last index."""
        return min(self._table.first + self._table.position_before_bytes(byte_count), self._table.last)

    # -- changes, durable with the next group --------------------------------------------------------------------------

    def add(self, command: bytes, index: int, term: int) -> None:
        """Append an entry. Raises InvariantBroken, and changes nothing, if it isn't the next one."""
        self._require_usable()
        command = bytes(command)
        self._table.append((command, index, term), len(command) + self._cipher.overhead)
        self._pending.append((ENTRY, index, term, command))

    def clear(self) -> None:
        """Drop all entries; the next `add` may have any index. Prefer `reset`, after which the log is not empty."""
        self._require_usable()
        self._pending.append((TRUNCATE, 0, 0, b""))
        self._table.clear()
        self._oldest_entry = None

    def deleteEntriesFrom(self, position: int) -> None:  # noqa: N802  # pysyncobj's name
        """Drop the entries from this position on."""
        self._require_usable()
        if position < len(self._table):
            index = self._table.first + position
            self._pending.append((TRUNCATE, index, 0, b""))
            self._table.truncate(index)
            self._oldest_entry = None

    def deleteEntriesTo(self, position: int) -> None:  # noqa: N802  # pysyncobj's name
        """Drop the entries before this position: `compact_to` by position."""
        self.compact_to(self._table.first + position)

    def compact_to(self, index: int) -> None:
        """Drop the entries below `index`, but not the last one. The state machine must hold their effects durably.

        The log begins at `index` at once, and after a restart too, once the next group is synced. Then whole segments
        without any entry of the log are removed.
        """
        self._require_usable()
        index = min(index, self._table.last)
        if index > self._table.first:
            self._table.drop_before(index)
            self._oldest_entry = None
            self._pending.append(self._state())
            self._sweep_due = True

    def reset(self, index: int, term: int) -> None:
        """Replace the log by one no-op entry, the base after an installed snapshot; a crash leaves this or the old
        log.
        """
        self._replace_by((BASE_COMMAND, index, term))

    def _replace_by(self, entry: Entry) -> None:
        """Replace the log by one entry; a crash leaves this or the old log."""
        self._require_usable()
        command, index, term = entry
        self._pending.append((RESET, index, term, command))
        self._table.clear()
        self._table.append(entry, len(command) + self._cipher.overhead)
        self._oldest_entry = None
        self._sweep_due = True

    @property
    def has_older_files(self) -> bool:
        """Return whether there are files that were written before the start, or before the latest `change_files`: perhaps
        under another key.
        """
        return self._oldest_segment < self._own_segment

    def drop_older_files(self, durable_index: int) -> None:
        """Drop entries, so that older files are removed, as far as that is possible.

        The state machine must hold the effects of the entries up to `durable_index` durably. The log then begins there.
        If its last entry is in an older file, that entry is written again. Call it until there are no older files.
        """
        if not self.has_older_files or not self._table.first <= durable_index <= self._table.last:
            return
        self.compact_to(durable_index)
        if durable_index == self._table.last and 0 < self._table.segment(0) < self._own_segment:
            self._replace_by(self._first_entry())

    def change_files(self, change: Callable[[], None]) -> None:
        """Call `change` between two groups, such as to encrypt under another key; later groups go to new files.

        It is called at once, or at the end of the next `write` if records wait for that: the table has the sizes that they
        will have on the disk.
        """
        self._require_usable()
        self._changes.append(change)
        if not self._pending:
            self._change_files()

    def _change_files(self) -> None:
        changes, self._changes = self._changes, []
        self._own_segment = self._writer.number + 1
        self._begins_file = True
        for change in changes:
            change()

    def setCurrentTerm(self, term: int, voted: str | None) -> None:  # noqa: N802  # pysyncobj's name
        """Store the term, and this node's vote in it."""
        self._require_usable()
        if (term, voted) != (self._term, self._voted):
            self._term, self._voted = term, voted
            self._pending.append(self._state())

    def getCurrentTerm(self) -> int:  # noqa: N802  # pysyncobj's name
        return self._term

    def getVotedForNodeId(self) -> str | None:  # noqa: N802  # pysyncobj's name
        return self._voted

    def setRaftCommitIndex(self, index: int) -> None:  # noqa: N802  # pysyncobj's name
        """Do nothing: a stored commit index that is too large after a crash would commit false entries (PYSYNCOBJ 3)."""

    def getRaftCommitIndex(self) -> int:  # noqa: N802  # pysyncobj's name
        """Return 1 always: the engine starts from the applied index of the state machine."""
        return 1

    def onOneSecondTimer(self) -> None:  # noqa: N802  # pysyncobj's name
        """Mark the synced end on disk after a second without a write, to distinguish corruption from a torn tail."""
        self._mark_due = self._is_unmarked

    # -- durability ----------------------------------------------------------------------------------------------------

    @property
    def dirty(self) -> bool:
        """Return whether records were added, or written, that are not durable yet."""
        return bool(self._pending) or self._in_flight or self._mark_due

    def write(self) -> None:
        """Write all added records, as one group; the previous group must be `synced`."""
        self._require_usable()
        if self._in_flight:
            raise InvariantBroken("a group of the journal was written while the one before was not synced")
        if not self.dirty:
            return
        records = self._pending
        with self._failing_for_good("write"):
            if records and (self._begins_file or self._writer.size >= self._segment_bytes):
                offsets = self._writer.append_to_new(self._written_state, records)
                self._begins_file = False
            else:
                offsets = self._writer.append(records)
        self._pending = []
        self._in_flight = True
        self._mark_due = False
        self._is_unmarked = bool(records)
        self._written_state = self._state()
        self._place(records, offsets)
        self._table.evict()
        if self._changes:
            self._change_files()

    def datasync(self) -> None:
        """Make the written group durable. Blocks; the only method that another thread may call."""
        self._require_usable()
        with self._failing_for_good("sync"):
            self._writer.datasync()

    def synced(self) -> None:
        """Note that the `datasync` after the last `write` has returned: that group is durable."""
        self._require_usable()
        self._in_flight = False
        if self._sweep_due and not self._pending:
            self._sweep()

    def sync(self) -> None:
        """Make all added records durable, and block until then."""
        while self.dirty:
            if not self._in_flight:
                self.write()
            self.datasync()
            self.synced()

    def _destroy(self) -> None:
        """Sync, mark the end on disk, and close; after a failure only close. No `datasync` may be running."""
        try:
            if self._failure is None:
                self.sync()
                self.onOneSecondTimer()
                self.sync()
        finally:
            self._writer.close()

    # -- within --------------------------------------------------------------------------------------------------------

    def _place(self, records: list[Record], offsets: list[int]) -> None:
        """Store the places of the records in the table; it overwrites or ignores those that a later record undoes."""
        for (kind, index, _, _), offset in zip(records, offsets, strict=True):
            if kind in (ENTRY, RESET):
                self._table.place(index, self._writer.number, offset)

    def _sweep(self) -> None:
        """Remove the oldest segments without any entry of the log, once the records of that are durable.

        Removals are not synced: a file that reappears after a crash is replayed without effect, or removed at the
        start.
        """
        needed = self._table.segment(0) if len(self._table) else self._writer.number
        with self._failing_for_good("remove old segments"):
            for number in range(self._oldest_segment, needed):
                self._disk.remove(segment_name(number))
        self._oldest_segment = needed
        self._sweep_due = False

    def _range(self, start: int, stop: int) -> list[Entry]:
        """Return the entries of these positions: recent ones from memory, the others from their segments."""
        recent_position = self._table.recent_position
        if start >= recent_position:
            return self._table.recent[start - recent_position : max(0, stop - recent_position)]
        with self._failing_for_good("read"):
            older = read_entries(self._disk, self._table, start, min(stop, recent_position), self._cipher)
        return older + self._table.recent[: max(0, stop - recent_position)]

    def _first_entry(self) -> Entry:
        """Return the first entry, which is cached: pysyncobj reads it often, to learn the first index."""
        if self._oldest_entry is None:
            self._oldest_entry = self._range(0, 1)[0]
        return self._oldest_entry

    def _position(self, index: int) -> int:
        position = index - self._table.first
        if not 0 <= position < len(self._table):
            raise IndexError(f"index {index} is not in the log of {self._table.first} to {self._table.last}")
        return position

    def _state(self) -> Record:
        return state_record(self._term, self._table.first, self._voted)

    def _require_usable(self) -> None:
        if self._failure is not None:
            raise self._failure

    @contextmanager
    def _failing_for_good(self, action: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._failure = DiskFailed(f"the journal could not {action}: {error}; the process must end")
            raise self._failure from error
