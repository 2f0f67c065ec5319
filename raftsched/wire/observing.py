"""The audit trail and events."""

from __future__ import annotations

from typing import Annotated, Generic, Literal

from msgspec import Meta

from raftsched import limits
from raftsched.wire.common import ABSENT, Cursor, IdText, Name, PageLimit, ReadQuery, Reply, Request, T, Time


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


class AuditDocument(Reply, Generic[T], frozen=True):
    """Who did what to what."""

    at: T
    actor: str = ""
    action: str = ""
    """A noun and a verb, such as `schedule.pause`."""
    subject: str = ""
    """A noun and a name, such as `schedule:report`."""
    tenant: str | None = None
    detail: str | None = None
    revision: int = 0


class AuditLine(AuditDocument[Time], frozen=True):
    """Who did what to what."""


class AuditPage(Reply, frozen=True):
    """Lines of the audit trail."""

    entries: list[AuditLine]
    next_cursor: str | None


class ChangeEventDocument(Reply, Generic[T], frozen=True, omit_defaults=True):
    """Something that was committed; fields that do not belong to its type are left out."""

    type: str
    """Such as `job.completed`; `reset` where events are missing."""
    revision: int
    at: T = ABSENT
    """Every type has it but `reset`."""
    tenant: str | None = None
    job_id: str | None = None
    schedule_id: str | None = None
    workflow_id: str | None = None
    name: str | None = None
    queue: str | None = None
    status: str | None = None
    previous: str | None = None
    """The status before."""
    worker: str | None = None
    attempt_number: int | None = None
    reason: str | None = None
    """Why it failed, or was skipped."""
    instant: T | None = None
    kind: str | None = None
    """`planned`, `manual` or `backfill`: what a schedule fired for, or was skipped for."""


class ChangeEvent(ChangeEventDocument[Time], frozen=True):
    """Something that was committed; fields that do not belong to its type are left out."""
