"""Define the documents of workflows: jobs that are submitted together and depend on each other."""

from __future__ import annotations

from typing import Annotated, Generic, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from raftsched import limits
from raftsched.wire.common import (
    ABSENT,
    Cursor,
    IdempotencyKey,
    IdText,
    Name,
    PageLimit,
    ReadQuery,
    Reply,
    Request,
    T,
    Time,
)
from raftsched.wire.jobs import ConditionName, TimedJobBody


class TaskDependencyRequest(Request, frozen=True):
    """A job that must end first: one of the workflow by its task name, or any other by its id."""

    task: Name | None = None
    job: IdText | None = None
    condition: ConditionName = "success"


class TaskRequest(TimedJobBody, frozen=True):
    """A job of a workflow."""

    depends_on: Annotated[list[Name | TaskDependencyRequest], Meta(max_length=limits.DEPENDENCIES_MAX)] | None = None
    """Task names of the jobs that must end first; a name alone means that it must succeed."""


class WorkflowRequest(Request, frozen=True):
    """Jobs by task name; all of them are stored, or none."""

    name: Name
    jobs: Annotated[
        dict[str, Annotated[msgspec.Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/TaskRequest"})]],
        Meta(min_length=1, max_length=limits.WORKFLOW_JOBS_MAX),
    ]
    tenant: Name | None = None
    idempotency_key: IdempotencyKey | None = None
    """A second submission with the same key and workflow finds the first. The Idempotency-Key header does the same."""


class WorkflowsQuery(ReadQuery, frozen=True):
    """A filter of workflows, and a page of them."""

    name: Name | None = None
    tenant: Name | None = None
    status: Literal["submitting", "running", "cancelling", "completed", "failed", "cancelled"] | None = None
    limit: PageLimit = 100
    order: Literal["asc", "desc"] = "desc"
    """By submission, the latest first."""
    cursor: Cursor | None = None


class GraphQuery(ReadQuery, frozen=True):
    """A page of the graph."""

    limit: PageLimit = limits.PAGE_JOBS_MAX
    cursor: Cursor | None = None


class WorkflowDocument(Reply, Generic[T], frozen=True):
    """A workflow as it was when it was read."""

    id: str = ""
    name: str = ""
    tenant: str = ""
    status: str = ""
    """`submitting`, `running`, `cancelling`, `completed`, `failed` or `cancelled`."""
    job_count: int = 0
    unfinished_count: int = 0
    completed_count: int = 0
    failed_count: int = 0
    """Jobs in the dead-letter queue."""
    cancelled_count: int = 0
    skipped_count: int = 0
    idempotency_key: str | None = None
    created_at: T = ABSENT
    updated_at: T = ABSENT
    cancel_requested_at: T | None = None
    completed_at: T | None = None
    """The time at which its last job ended, in any status."""
    revision: int = 0


class WorkflowReply(WorkflowDocument[Time], frozen=True):
    """A workflow as it was when it was read."""


class SubmittedWorkflowReply(WorkflowReply, frozen=True):
    """A workflow with the ids of its jobs."""

    jobs: dict[str, str] = {}
    """Job ids by task name; for a workflow that was known before, only the jobs that are still kept."""
    duplicate: Literal[True] | UnsetType = UNSET
    """Present if its idempotency key was used before."""


class WorkflowsPage(Reply, frozen=True):
    """Workflows in a stable order; a page may hold few, or none, although `next_cursor` leads to more."""

    workflows: list[WorkflowReply]
    next_cursor: str | None


class NodeDocument(Reply, Generic[T], frozen=True):
    """A job of a workflow."""

    id: str
    task: str = ""
    name: str = ""
    queue: str = ""
    status: str = ""
    pending_dependencies: int = 0
    started_at: T | None = None
    completed_at: T | None = None
    failure_reason: str | None = None


class EdgeReply(Reply, frozen=True):
    """A dependency between two jobs, and its condition; `parent` may be outside the workflow."""

    parent: str
    child: str
    condition: str = "success"


class GraphDocument(WorkflowDocument[T], Generic[T], frozen=True):
    """A workflow with a page of its jobs, parents before their children, and their dependencies."""

    nodes: list[NodeDocument[T]] = []
    edges: list[EdgeReply] = []
    """All edges that end at nodes of this page."""
    next_cursor: str | None = None


class GraphReply(GraphDocument[Time], frozen=True):
    """A workflow with a page of its jobs, parents before their children, and their dependencies."""
