"""Define the documents of tenants: quotas, share and usage."""

from __future__ import annotations

from typing import Annotated, Generic

from msgspec import UNSET, Meta, UnsetType

from raftsched import limits
from raftsched.wire.common import Cursor, ReadQuery, Reply, Request, T, Time

Quota = Annotated[int, Meta(ge=1, le=limits.QUOTA_MAX)]
SubmitRate = Annotated[int, Meta(ge=1, le=limits.QUEUE_LIMIT_MAX)]


class TenantPatch(Request, frozen=True):
    """Changes of a tenant's settings. Omitted settings stay, `null` removes a setting."""

    unfinished_jobs: Quota | UnsetType | None = UNSET
    """Most jobs that are not finished, in all queues together."""
    schedules: Quota | UnsetType | None = UNSET
    """Most schedules."""
    submits_per_second: SubmitRate | UnsetType | None = UNSET
    """Most jobs submitted in a second, evenly spread; each job of a batch or a workflow counts."""
    submit_burst: SubmitRate | UnsetType | None = UNSET
    """Jobs that may be submitted at once after an idle time; as many as in a second by default."""
    weight: Annotated[int, Meta(ge=1, le=1_000)] | UnsetType | None = UNSET
    """Its share of the workers in queues whose `weights` do not name it; 1 by default."""


class TenantsQuery(ReadQuery, frozen=True):
    """A page of the tenants."""

    limit: Annotated[int, Meta(ge=1, le=limits.PAGE_JOBS_MAX)] = 100
    cursor: Cursor | None = None
    """`next_cursor` of the previous page."""


class TenantUsageReply(Reply, frozen=True):
    """The number of things that a tenant has now."""

    unfinished_jobs: int = 0
    schedules: int = 0


class TenantDocument(Reply, Generic[T], frozen=True):
    """A tenant: its quotas, its share and its usage; null for a quota that nobody has set."""

    name: str = ""
    unfinished_jobs: int | None = None
    """Most jobs that are not finished, in all queues together."""
    schedules: int | None = None
    """Most schedules."""
    submits_per_second: int | None = None
    """Most jobs submitted in a second, evenly spread; each job of a batch or a workflow counts."""
    submit_burst: int | None = None
    """Jobs that may be submitted at once after an idle time."""
    weight: int = 1
    """Its share of the workers in queues whose `weights` do not name it."""
    usage: TenantUsageReply = TenantUsageReply()
    revision: int | None = None
    """Log index of the latest change; null: it has no settings."""
    updated_at: T | None = None


class TenantReply(TenantDocument[Time], frozen=True):
    """A tenant: its quotas, its share and its usage; null for a quota that nobody has set."""


class TenantsReply(Reply, frozen=True):
    """The tenants that have settings, jobs or schedules, by name."""

    tenants: list[TenantReply]
    next_cursor: str | None
