"""Define the documents of bulk actions and of the dead-letter queue."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from raftsched import limits
from raftsched.wire.common import (
    STATUS_NAMES,
    Cursor,
    DeadLetterReasonName,
    DelaySeconds,
    IdText,
    Moment,
    Name,
    PageLimit,
    Priority,
    ReadQuery,
    Reply,
    Request,
    SpanSeconds,
    StatusName,
    Tag,
)
from raftsched.wire.control import PauseReason
from raftsched.wire.verbs import Action

BULK_JOBS_MAX: Final = limits.BULK_JOBS_MAX
Ids = Annotated[list[IdText], Meta(min_length=1, max_length=BULK_JOBS_MAX)]


class JobFilter(Request, frozen=True):
    """A filter of jobs; all given conditions must hold. An empty filter is rejected."""

    status: StatusName | Annotated[list[StatusName], Meta(min_length=1, max_length=len(STATUS_NAMES))] | None = None
    """Default: the statuses in which the action is legal."""
    queue: Name | None = None
    name: Name | None = None
    tag: Tag | None = None
    tenant: Name | None = None
    schedule: IdText | None = None
    workflow: IdText | None = None
    reason: DeadLetterReasonName | None = None
    created_after: Moment | None = None
    created_before: Moment | None = None


class BulkRequest(Request, frozen=True):
    """An action and its jobs: exactly one of `ids`, `filter` and `all`."""

    action: Action
    ids: Ids | None = None
    filter: JobFilter | None = None
    all: bool = False
    dry_run: bool = False
    """Only count the jobs, and return a sample of them."""
    force: bool | None = None
    """Of `cancel`: end running attempts at once."""
    run_at: Moment | None = None
    """Of `reschedule`, `retry` and `replay`."""
    delay_seconds: DelaySeconds | None = None
    """Of `reschedule`, `retry` and `replay`."""
    priority: Priority | None = None
    """Of `reprioritise`."""
    until: Moment | None = None
    """Of `pause`."""
    for_seconds: SpanSeconds | None = None
    """Of `pause`."""
    reason: PauseReason | None = None
    """Of `pause`."""
    limit: Annotated[int, Meta(ge=1, le=BULK_JOBS_MAX)] = BULK_JOBS_MAX
    """Maximum number of jobs for this request; `next_cursor` leads to the others."""
    cursor: Cursor | None = None
    """`next_cursor` of the previous reply; the rest of the request must be the same."""


class DeadLetterFilter(Request, frozen=True):
    """A filter of jobs in the dead-letter queue; all given conditions must hold."""

    reason: DeadLetterReasonName | None = None
    queue: Name | None = None
    name: Name | None = None
    tag: Tag | None = None
    tenant: Name | None = None
    created_after: Moment | None = None
    created_before: Moment | None = None


class DeadLettersRequest(Request, frozen=True):
    """Jobs of the dead-letter queue: exactly one of `ids`, `filter` and `all`, or a `reason` alone."""

    ids: Ids | None = None
    filter: DeadLetterFilter | None = None
    all: bool = False
    reason: DeadLetterReasonName | None = None
    """Only jobs that were given up for this reason."""
    dry_run: bool = False
    limit: Annotated[int, Meta(ge=1, le=BULK_JOBS_MAX)] = BULK_JOBS_MAX
    cursor: Cursor | None = None


class DeadLettersQuery(ReadQuery, frozen=True):
    """A filter of jobs in the dead-letter queue, and a page of them."""

    reason: DeadLetterReasonName | None = None
    queue: Name | None = None
    name: Name | None = None
    tag: Tag | None = None
    tenant: Name | None = None
    limit: PageLimit = 100
    order: Literal["asc", "desc"] = "desc"
    """By the time at which they were given up; with `queue`, `name` or `tag` by submission. The latest first."""
    cursor: Cursor | None = None


class DeadLetterReasonsReply(Reply, frozen=True):
    """The number of dead letters by the reason why they were given up; reasons without any are left out."""

    reasons: dict[str, int] = {}


class BulkFailure(Reply, frozen=True):
    """A job that was not changed, and the reason."""

    id: str
    code: str = ""
    detail: str = ""
    retryable: bool = False


class BulkReply(Reply, frozen=True):
    """The result of a bulk action; `matched` = `done` + `failed_count`, or `done` = 0 for a dry run."""

    action: str = ""
    dry_run: bool = False
    matched: int = 0
    """Jobs that were found. If a request was repeated, jobs that it had already changed may not count."""
    done: int = 0
    """Jobs of these that now are as requested."""
    failed_count: int = 0
    failed: list[BulkFailure] = []
    """The first 100 of those that failed."""
    sample: list[str] = []
    """Ids of the first 100 jobs that were found."""
    next_cursor: str | None = None
    """Cursor to continue with, in the same request; null: every job was examined."""
