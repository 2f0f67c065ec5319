"""Record the journal's newest segment outside of the journal, so that a lost journal is not mistaken for a new one.

The journal cannot detect that its own newest files are lost. A node without them has forgotten votes and
acknowledgements that others have counted. So a register, in production the data directory's `node.json`, names the
newest segment:

  * It is written once the segment is durable, and before the node sends any message that depends on the segment.
  * A start without exactly that segment fails. A later segment may exist as well, if the node stopped in between.

Left out: entries that are cut from the end of the newest segment itself (see `replay`).
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from raftsched.consensus.journal.segments import (
    HEADER_BYTES,
    JournalCorrupt,
    decode_header,
    encode_header,
    segment_name,
)
from raftsched.errors import InvariantBroken
from raftsched.ports import Disk

REPAIR_ADVICE = (
    "This node may have voted and acknowledged what it no longer knows, so it must not come back under its old id. While "
    "the others have a majority nothing is lost: `raftsched cluster remove` this node, and `raftsched cluster add` it "
    "under a NEW id with an empty data directory"
)


class SegmentId(msgspec.Struct, frozen=True):
    """The identity of a segment; its header names the end of the previous segment, and its last record."""

    number: int
    checksum: int
    """Checksum of the segment's header."""


class SegmentRegister(Protocol):
    """The register of the journal's newest segment."""

    @property
    def newest(self) -> SegmentId | None:
        """Return the segment recorded last; None if no journal was ever begun."""

    def record(self, segment: SegmentId) -> None:
        """Store a newer segment, durably. Raises OSError; called in one thread at a time."""


class VolatileRegister:
    """A register in memory, for journals on which no other node depends."""

    def __init__(self) -> None:
        self.newest: SegmentId | None = None

    def record(self, segment: SegmentId) -> None:
        self.newest = segment


class JournalLost(InvariantBroken):
    """The data directory names a journal that does not exist any more. Nothing was changed."""

    code = "journal_lost"

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}. {REPAIR_ADVICE}.")


def require_newest(disk: Disk, newest: SegmentId | None) -> None:
    """Check that the journal on `disk` still has the segment that the register names; changes nothing.

    Raises `JournalLost` if it is missing or belongs to another journal, and `JournalCorrupt` if its header is damaged.
    """
    if newest is None:
        return
    name = segment_name(newest.number)
    try:
        names = disk.names()
    except FileNotFoundError:
        raise JournalLost(f"node.json says that the journal has begun, but its directory is missing ({name})") from None
    if name not in names:
        raise JournalLost(f"node.json says that the journal has begun, but its file {name} is missing")
    header = decode_header(disk.read(name, 0, HEADER_BYTES), newest.number)
    if header is None:
        raise JournalCorrupt(name, 0, "the segment's header is not what was written and synced")
    if encode_header(header).checksum != newest.checksum:
        raise JournalLost(f"the journal's file {name} is not the one that node.json names: it is of another journal")
