"""Record the journal's newest segment outside of the journal, so that a lost journal is not taken for a new one.

The journal can't tell that its own newest files are gone. A node without them has forgotten votes and acknowledgements
that others have counted. So a register, in production the data directory's `node.json`, names the newest segment:

  * It is written once the segment is durable, and before any message that depends on the segment leaves the node.
  * A start finds that very segment, or refuses. A later segment may be there as well, if the node stopped in between.

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

WAY_OUT = (
    "This node may have voted and acknowledged what it no longer knows, so it must not come back under its old id. While "
    "the others have a majority nothing is lost: `raftsched cluster remove` this node, and `raftsched cluster add` it "
    "under a NEW id with an empty data directory"
)


class SegmentId(msgspec.Struct, frozen=True):
    """Names one segment: its header says where the segment before it ends, and in which record."""

    number: int
    checksum: int
    """Of the segment's header."""


class SegmentRegister(Protocol):
    """Remembers the newest segment of the journal."""

    @property
    def newest(self) -> SegmentId | None:
        """The segment recorded last; None if no journal was ever begun."""

    def record(self, segment: SegmentId) -> None:
        """Remember a newer segment; durable when this returns. Raises OSError; called in any one thread at a time."""


class VolatileRegister:
    """Remembers the newest segment for as long as the process lives: for journals that nobody else depends on."""

    def __init__(self) -> None:
        self.newest: SegmentId | None = None

    def record(self, segment: SegmentId) -> None:
        self.newest = segment


class JournalLost(InvariantBroken):
    """The data directory says that the journal has begun, and it is not there any more. Nothing was changed."""

    code = "journal_lost"

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}. {WAY_OUT}.")


def require_newest(disk: Disk, newest: SegmentId | None) -> None:
    """Check that the journal on `disk` still has the segment that the register names; changes nothing.

    Raises `JournalLost` if it is not there or belongs to another journal, and `JournalCorrupt` if its header is damaged.
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
