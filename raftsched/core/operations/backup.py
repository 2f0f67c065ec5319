"""Define operations on backups. Rules of the codec: see `codec`."""

from __future__ import annotations

from raftsched.core.operations.base import Operation
from raftsched.core.records.backup import LastBackup


class RecordBackup(Operation, frozen=True, tag=37):
    """Record a backup that was verified and stored; an older one than the latest is not recorded.

    Result: `Counted` (1: it is the latest).
    """

    backup: LastBackup
    actor: str = ""
