"""Encode and decode the journal's segments, and detect wrong bytes in them.

A segment is a file `<number>.segment`, numbered without gaps, to which records are only appended:

    header   magic, format version, number, end of the previous segment and its last checksum, checksum
    record   checksum, body length, kind, two numbers, body

    kind      numbers          body       meaning
    ENTRY     index, term      command    the log grows by one entry
    RESET     index, term      command    the log becomes this one entry (a snapshot was installed)
    TRUNCATE  index, -         -          the entries from `index` on are gone (a leader overruled them)
    STATE     term, first      vote       the current term, the vote in it, and the index at which the log begins
    MARK      -, magic         -          every byte before this record is synced

ENTRY and RESET also exist with an encrypted command, as kinds of their own (`record_cipher`).

Records of one group commit are written by one `write` and follow one MARK, except that a segment may begin without one.
The segment of a start ends with a MARK: it is synced as a whole before it gets its name. A checksum covers all of its
record and the record's place (segment number and offset). So a record that the disk returned stale, copied or misplaced
is detected like one with a flipped bit. A header names the end and the last checksum of the previous segment. So a
segment that is lost, cut or replaced by an older copy is detected as well, and bytes after that end are never read
again.

`raftsched.consensus.journal.replay` defines the consequences of a bad record.

To change the format: raise FORMAT_VERSION, keep a decoder for the version before, and let the journal's start, which
always begins a new segment, write the new one; compaction removes the old ones in time.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple
from zlib import crc32

from raftsched.errors import InvariantBroken

FORMAT_VERSION: Final = 1

ENTRY: Final = 1
RESET: Final = 2
TRUNCATE: Final = 3
STATE: Final = 4
MARK: Final = 5
ENCRYPTED: Final = 0x10
"""Added to the kind of a record whose body is encrypted."""
_KINDS: Final = frozenset({ENTRY, RESET, TRUNCATE, STATE, MARK, ENTRY | ENCRYPTED, RESET | ENCRYPTED})

_MAGIC: Final = b"raftlog\n"
_MARK_MAGIC: Final = 0x8F1DA52EC6B3790D
_MARK_BYTES: Final = _MARK_MAGIC.to_bytes(8, "little")

Record = tuple[int, int, int, bytes]
"""(kind, number, number, body), see the table above. A plain tuple, since one is created for every entry."""
MARK_RECORD: Final[Record] = (MARK, 0, _MARK_MAGIC, b"")

_HEADER: Final = struct.Struct("<8sIQQI")
_CHECKSUM: Final = struct.Struct("<I")
_FIELDS: Final = struct.Struct("<IBQQ")
_WHOLE: Final = struct.Struct("<IIBQQ")
HEADER_BYTES: Final = _HEADER.size + _CHECKSUM.size
RECORD_BYTES: Final = _WHOLE.size
"""Bytes of a record without its body."""
_MARK_MAGIC_AT: Final = RECORD_BYTES - 8
_OFFSET_MASK: Final = 0xFFFF_FFFF

_NAME: Final = re.compile(r"(\d{16})\.segment")


class JournalCorrupt(InvariantBroken):
    """The journal has lost or changed synced bytes: this node cannot keep its promises, so it must not start.

    Others have counted its votes and acknowledgements; a node that forgets them can elect a second leader or lose a
    committed entry. Nothing was changed on the disk, so that it can be examined.
    """

    code = "journal_corrupt"

    def __init__(self, file: str, offset: int, reason: str) -> None:
        super().__init__(
            f"journal file {file}, byte {offset}: {reason}. This node's log can't be trusted any more; while the others "
            "have a majority nothing is lost. Remove this node from the cluster, and add it again under a NEW id with "
            "an empty data directory; never start it under the old id with an empty or older one."
        )
        self.file = file
        self.offset = offset
        self.reason = reason


class JournalTooNew(InvariantBroken):
    """The journal was written by a newer version of this program; nothing was changed."""

    code = "journal_too_new"


class Link(NamedTuple):
    """A place in a segment between two records: its offset, and the checksum of the record (or header) before it."""

    end: int
    checksum: int


class Header(NamedTuple):
    """A segment's header; `previous` is the end of the previous segment."""

    number: int
    previous: Link


class Encoded(NamedTuple):
    """Records as bytes; `offsets` has the start of each in the segment, `checksum` is the last one's."""

    data: bytes
    offsets: list[int]
    checksum: int


class Found(NamedTuple):
    """A valid record and the offset after it."""

    record: Record
    checksum: int
    end: int


def segment_name(number: int) -> str:
    return f"{number:016d}.segment"


def segment_number(name: str) -> int | None:
    """Return the number in a segment's file name, None for any other file."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def encode_header(header: Header) -> Encoded:
    fields = _HEADER.pack(_MAGIC, FORMAT_VERSION, header.number, *header.previous)
    checksum = crc32(fields)
    return Encoded(fields + _CHECKSUM.pack(checksum), [0], checksum)


def decode_header(data: bytes, number: int) -> Header | None:
    """Return the header of segment `number`; None if these bytes are not a valid one.

    Raises JournalTooNew for a valid header of a later format.
    """
    if len(data) < HEADER_BYTES:
        return None
    magic, version, found, end, checksum = _HEADER.unpack_from(data)
    is_intact = _CHECKSUM.unpack_from(data, _HEADER.size) == (crc32(data[: _HEADER.size]),)
    if magic != _MAGIC or found != number or not is_intact:
        return None
    if version != FORMAT_VERSION:
        raise JournalTooNew(f"{segment_name(number)} has format {version}; this version reads {FORMAT_VERSION}")
    return Header(number, Link(end, checksum))


def encode(records: Iterable[Record], *, segment: int, offset: int) -> Encoded:
    """Encode `records` for their place in `segment` from `offset` on. Raises struct.error for a body over 4 GiB."""
    place = _place(segment)
    parts: list[bytes] = []
    offsets: list[int] = []
    checksum = 0
    for kind, first, second, body in records:
        fields = _FIELDS.pack(len(body), kind, first, second)
        checksum = crc32(body, crc32(fields, place ^ (offset & _OFFSET_MASK)))
        parts += (_CHECKSUM.pack(checksum), fields, body)
        offsets.append(offset)
        offset += RECORD_BYTES + len(body)
    return Encoded(b"".join(parts), offsets, checksum)


def decode(data: bytes, *, segment: int, offset: int, base: int = 0) -> Found | None:
    """Return the record that begins at `offset` of `segment`; None if the bytes there are not exactly one.

    `data` holds the segment's bytes from offset `base` on.
    """
    start = offset - base
    if start + RECORD_BYTES > len(data):
        return None
    checksum, length, kind, first, second = _WHOLE.unpack_from(data, start)
    stop = start + RECORD_BYTES + length
    if stop > len(data) or kind not in _KINDS:
        return None
    body = data[start + RECORD_BYTES : stop]
    fields = data[start + _CHECKSUM.size : start + RECORD_BYTES]
    if crc32(body, crc32(fields, _place(segment) ^ (offset & _OFFSET_MASK))) != checksum:
        return None
    return Found((kind, first, second, body), checksum, base + stop)


def last_mark(data: bytes, *, segment: int) -> int:
    """Return the offset of the last valid MARK in a segment's bytes; 0 if there is none.

    It is found by its magic, not through the records before it, so that it is found after damage, too.
    """
    at = data.rfind(_MARK_BYTES)
    while at >= 0:
        offset = at - _MARK_MAGIC_AT
        found = decode(data, segment=segment, offset=offset) if offset >= HEADER_BYTES else None
        if found and found.record[0] == MARK:
            return offset
        at = data.rfind(_MARK_BYTES, 0, at + len(_MARK_BYTES) - 1)
    return 0


def _place(segment: int) -> int:
    """Return the starting value of a segment's checksums, before the offset is mixed in.

    CRC-32 maps different starting values to different results, so the same bytes at another offset never match.
    """
    return crc32(segment.to_bytes(8, "little"))
