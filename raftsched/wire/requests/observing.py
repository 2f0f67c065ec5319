"""What people who watch ask for: the audit trail, and events."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from raftsched import limits
from raftsched.wire.requests.common import Cursor, IdText, Name, Request
from raftsched.wire.requests.queries import PageLimit, ReadQuery


class AuditQuery(ReadQuery, frozen=True):
    """Which lines of the audit trail."""

    actor: Annotated[str, Meta(max_length=limits.ACTOR_CHARS_MAX)] | None = None
    action: Annotated[str, Meta(max_length=64)] | None = None
    """As a whole (`schedule.pause`), or the noun alone (`schedule`)."""
    subject: Annotated[str, Meta(max_length=300)] | None = None
    """As it stands in the lines (`schedule:report`), or the noun alone."""
    tenant: Name | None = None
    limit: PageLimit = 100
    order: Literal["asc", "desc"] = "desc"
    cursor: Cursor | None = None


class EventsQuery(Request, frozen=True):
    """Which events."""

    types: Annotated[list[Annotated[str, Meta(min_length=1, max_length=64)]], Meta(max_length=50)] | None = None
    """Whole types (`job.completed`) or nouns (`job`), with commas between; all by default."""
    queue: Name | None = None
    """Of jobs, or the queue itself."""
    job: IdText | None = None
    tenant: Name | None = None
