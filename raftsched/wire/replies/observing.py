"""What the API tells people who watch: the audit trail, and events."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from raftsched.wire.replies.common import Reply, Time


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
