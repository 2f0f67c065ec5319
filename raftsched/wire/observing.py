"""The audit trail and events."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from raftsched import limits
from raftsched.wire.common import Cursor, IdText, Name, PageLimit, ReadQuery, Reply, Request, Time


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


class AuditLine(Reply, frozen=True):
    """Who did what to what."""

    at: Time
    actor: str
    action: str
    subject: str
    tenant: str | None
    detail: str | None
    revision: int


class AuditPage(Reply, frozen=True):
    """Lines of the audit trail."""

    entries: list[AuditLine]
    next_cursor: str | None


class ChangeEvent(Reply, frozen=True):
    """Something that was committed; fields that do not belong to its type are left out."""

    type: str
    revision: int
    at: Time
    tenant: str | UnsetType = UNSET
    job_id: str | UnsetType = UNSET
    schedule_id: str | UnsetType = UNSET
    workflow_id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    queue: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    previous: str | UnsetType = UNSET
    """The status before."""
    worker: str | UnsetType = UNSET
    attempt_number: int | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    """Why it failed, or was skipped."""
    instant: Time | UnsetType = UNSET
    kind: str | UnsetType = UNSET
    """`planned`, `manual` or `backfill`: what a schedule fired for, or was skipped for."""
