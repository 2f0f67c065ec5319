"""Define the documents of the audit trail and of events."""

from __future__ import annotations

from typing import Annotated, Generic, Literal

from msgspec import Meta

from raftsched import limits
from raftsched.wire.common import ABSENT, Cursor, IdText, Name, PageLimit, ReadQuery, Reply, Request, T, Time


class AuditQuery(ReadQuery, frozen=True):
    """A filter of audit entries, and a page of them."""

    actor: Annotated[str, Meta(max_length=limits.ACTOR_CHARS_MAX)] | None = None
    action: Annotated[str, Meta(max_length=64)] | None = None
    """A whole action (`schedule.pause`), or its noun alone (`schedule`)."""
    subject: Annotated[str, Meta(max_length=300)] | None = None
    """A whole subject (`schedule:report`), or its noun alone."""
    tenant: Name | None = None
    limit: PageLimit = 100
    order: Literal["asc", "desc"] = "desc"
    cursor: Cursor | None = None


class EventsQuery(Request, frozen=True):
    """A filter of events."""

    types: Annotated[list[Annotated[str, Meta(min_length=1, max_length=64)]], Meta(max_length=50)] | None = None
    """Whole types (`job.completed`) or nouns (`job`), separated by commas; all by default."""
    queue: Name | None = None
    """Events of this queue and of its jobs."""
    job: IdText | None = None
    tenant: Name | None = None


class AuditDocument(Reply, Generic[T], frozen=True):
    """An audit entry: an actor, an action and its subject."""

    at: T
    actor: str = ""
    action: str = ""
    """A noun and a verb, such as `schedule.pause`."""
    subject: str = ""
    """A noun and a name, such as `schedule:report`."""
    tenant: str | None = None
    detail: str | None = None
    revision: int = 0
    origin: str | None = None
    """The address from which the request came, as the node saw it that took it; null for what the cluster did by itself, and
    for a caller of all tenants or of another one, unless you see all tenants."""


class AuditLine(AuditDocument[Time], frozen=True):
    """An audit entry: an actor, an action and its subject."""


class AuditPage(Reply, frozen=True):
    """A page of the audit trail."""

    entries: list[AuditLine]
    next_cursor: str | None


class ChangeEventDocument(Reply, Generic[T], frozen=True, omit_defaults=True):
    """A committed change; fields that do not belong to its type are omitted."""

    type: str
    """For example `job.completed`; `reset` if events are missing."""
    revision: int
    at: T = ABSENT
    """Present in every type but `reset`."""
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
    """Reason of a failure or a skip."""
    instant: T | None = None
    kind: str | None = None
    """Cause of a schedule's run or skip: `planned`, `manual` or `backfill`."""


class ChangeEvent(ChangeEventDocument[Time], frozen=True):
    """A committed change; fields that do not belong to its type are omitted."""
