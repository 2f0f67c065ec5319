"""Define the record of the latest backup of the cluster."""

from __future__ import annotations

import msgspec

from raftsched.core.records.ids import TimeMs


class LastBackup(msgspec.Struct, frozen=True, array_like=True):
    """Record the latest backup that somebody has verified and stored."""

    taken_at_ms: TimeMs
    applied_index: int
    """Index of the last log entry that it holds."""
    node: str
    """The node whose state it is."""
    byte_count: int
    sha256: str
    """Digest of its content, in hexadecimal: by it the file is recognized."""
