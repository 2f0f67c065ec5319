"""What the API answers about workflows."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from raftsched.wire.replies.common import Reply, Time


class WorkflowReply(Reply, frozen=True):
    """A workflow as it stands."""

    id: str
    name: str
    tenant: str
    status: str
    """`submitting`, `running`, `cancelling`, `completed`, `failed` or `cancelled`."""
    job_count: int
    unfinished_count: int
    completed_count: int
    failed_count: int
    """Jobs that ended in the dead letters."""
    cancelled_count: int
    skipped_count: int
    idempotency_key: str | None
    created_at: Time
    updated_at: Time
    cancel_requested_at: Time | None
    completed_at: Time | None
    """When its last job ended, however it did."""
    revision: int


class SubmittedWorkflowReply(WorkflowReply, frozen=True):
    """A workflow with the ids of its jobs."""

    jobs: dict[str, str]
    """Job ids by task name; of a workflow that was known before, those that are still kept."""
    duplicate: Literal[True] | UnsetType = UNSET
    """Present where its idempotency key was used before."""


class WorkflowsPage(Reply, frozen=True):
    """Workflows in a stable order; a page may hold few, or none, although `next_cursor` leads to more."""

    workflows: list[WorkflowReply]
    next_cursor: str | None


class NodeReply(Reply, frozen=True):
    """A job of a workflow."""

    id: str
    task: str
    name: str
    queue: str
    status: str
    pending_dependencies: int
    started_at: Time | None
    completed_at: Time | None
    failure_reason: str | None


class EdgeReply(Reply, frozen=True):
    """A job that waits for another, and for which end of it; `parent` need not belong to the workflow."""

    parent: str
    child: str
    condition: str


class GraphReply(WorkflowReply, frozen=True):
    """A workflow with a page of its jobs, parents before their children, and what these depend on."""

    nodes: list[NodeReply]
    edges: list[EdgeReply]
    """All that lead to the nodes of this page."""
    next_cursor: str | None
