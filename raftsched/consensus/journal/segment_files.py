"""Write the newest segment on a disk, and read entries back from any segment.

Errors of the disk are OSError here; the journal treats them as final.
"""

from __future__ import annotations

from raftsched.consensus.journal.log_table import Entry, LogTable
from raftsched.consensus.journal.record_cipher import decrypted_record, encrypted_records
from raftsched.consensus.journal.register import SegmentId, SegmentRegister
from raftsched.consensus.journal.replay import Recovered
from raftsched.consensus.journal.segments import (
    HEADER_BYTES,
    MARK_RECORD,
    Encoded,
    Header,
    JournalCorrupt,
    Link,
    Record,
    decode,
    encode,
    encode_header,
    segment_name,
)
from raftsched.encryption.cipher import NO_KEYS, OVERHEAD_BYTES_MAX, Cipher
from raftsched.ports import AppendFile, Disk

START_NAME = "start.tmp"
"""The segment that a start is writing, before it gets its number; useless after a crash."""


class SegmentWriter:
    """The newest segment. `append` and `append_to_new` append records, and return the offset of each."""

    def __init__(self, disk: Disk, recovered: Recovered, register: SegmentRegister, cipher: Cipher = NO_KEYS) -> None:
        """Begin the segment that `recovered` names, with its unproven records.

        It is complete and synced before it gets its name, so a crash leaves the old journal or the new one. The found
        names are made durable first: after a kill of the previous process, the last of them may not be. Each new
        segment is recorded in `register` once it is durable.
        """
        disk.sync_directory()
        self.number = recovered.number
        self._disk = disk
        self._cipher = cipher
        self._register = register
        self._name_is_new = False
        if START_NAME in disk.names():
            disk.remove(START_NAME)
        self._file: AppendFile = disk.create(START_NAME)
        header = encode_header(Header(self.number, recovered.previous))
        unproven = encrypted_records(recovered.unproven, cipher)
        group = encode([*unproven, MARK_RECORD], segment=self.number, offset=HEADER_BYTES)
        self.initial_offsets = group.offsets[:-1]
        self._id = SegmentId(self.number, header.checksum)
        self._write(group, header.data)
        self._file.datasync()
        disk.replace(START_NAME, segment_name(self.number))
        disk.sync_directory()
        register.record(self._id)

    @property
    def size(self) -> int:
        return self._file.size

    def append(self, records: list[Record]) -> list[int]:
        """Write a group after the synced records; a MARK before it states that these are synced."""
        records = encrypted_records(records, self._cipher)
        group = encode([MARK_RECORD, *records], segment=self.number, offset=self._file.size)
        self._write(group)
        return group.offsets[1:]

    def append_to_new(self, state: Record, records: list[Record]) -> list[int]:
        """Write a group to a new segment, which begins with the STATE; the previous segment must be synced.

        The header, the group and the file's name become durable together, with the next `datasync`.
        """
        number = self.number + 1
        header = encode_header(Header(number, Link(self._file.size, self._checksum)))
        records = encrypted_records(records, self._cipher)
        group = encode([state, *records], segment=number, offset=HEADER_BYTES)
        self._file.close()
        self._file = self._disk.create(segment_name(number))
        self.number = number
        self._id = SegmentId(number, header.checksum)
        self._name_is_new = True
        self._write(group, header.data)
        return group.offsets[1:]

    def datasync(self) -> None:
        """Block until all appended records are durable; may run in another thread while nothing is appended."""
        self._file.datasync()
        if self._name_is_new:
            self._disk.sync_directory()
            self._register.record(self._id)
            self._name_is_new = False

    def close(self) -> None:
        self._file.close()

    def _write(self, group: Encoded, header: bytes = b"") -> None:
        self._checksum = group.checksum
        self._file.write(header + group.data)


def read_entries(disk: Disk, table: LogTable, start: int, stop: int, cipher: Cipher = NO_KEYS) -> list[Entry]:
    """Read the entries of these positions, all written: one read for each segment, and every record is checked.

    Raises JournalCorrupt if an entry differs from what was written, and KeyMissing.
    """
    entries: list[Entry] = []
    while start < stop:
        segment_stop = table.same_segment_stop(start, stop)
        entries += _read_from_one(disk, table, start, segment_stop, cipher)
        start = segment_stop
    return entries


def _read_from_one(disk: Disk, table: LogTable, start: int, stop: int, cipher: Cipher) -> list[Entry]:
    number = table.segment(start)
    base, end = table.extent(start)[0], table.extent(stop - 1)[1]
    # An entry that a start wrote again, under another key than before, may be longer than the table says.
    data = disk.read(segment_name(number), base, end - base + OVERHEAD_BYTES_MAX)
    entries = []
    for position in range(start, stop):
        offset = table.extent(position)[0]
        found = decode(data, segment=number, offset=offset, base=base)
        if found is None or found.record[1:3] != (table.first + position, table.term(position)):
            raise JournalCorrupt(segment_name(number), offset, "an entry is not what was written and synced")
        _, index, term, command = decrypted_record(found.record, cipher, segment=number, offset=offset)
        entries.append((command, index, term))
    return entries
