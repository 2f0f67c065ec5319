"""Who did what to what."""

from __future__ import annotations

from datetime import datetime

import msgspec


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the audit trail."""

    at: datetime
    actor: str = ""
    action: str = ""
    """A noun and a verb, such as `schedule.pause`."""
    subject: str = ""
    """A noun and a name, such as `schedule:report`."""
    tenant: str | None = None
    detail: str | None = None
    revision: int = 0
