"""What a client reads about workflows."""

from __future__ import annotations

from datetime import datetime

import msgspec


class WorkflowInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow as it stood when it was read."""

    id: str
    name: str = ""
    tenant: str = ""
    status: str = ""
    """`submitting`, `running`, `cancelling`, `completed`, `failed` or `cancelled`."""
    job_count: int = 0
    unfinished_count: int = 0
    completed_count: int = 0
    failed_count: int = 0
    """Jobs that ended in the dead letters."""
    cancelled_count: int = 0
    skipped_count: int = 0
    idempotency_key: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    completed_at: datetime | None = None
    revision: int = 0

    @property
    def is_finished(self) -> bool:
        """Every job has ended."""
        return self.completed_at is not None


class SubmittedWorkflow(WorkflowInfo, frozen=True, kw_only=True):
    """A workflow with the ids of its jobs by task name."""

    jobs: dict[str, str] = {}
    duplicate: bool = False


class TaskInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a workflow."""

    id: str
    task: str = ""
    name: str = ""
    queue: str = ""
    status: str = ""
    pending_dependencies: int = 0
    started_at: datetime | None = None
    completed_at: datetime | None = None
    failure_reason: str | None = None


class Edge(msgspec.Struct, frozen=True):
    """A job that waits for another, and for which end of it; `parent` need not belong to the workflow."""

    parent: str
    child: str
    condition: str = "success"


class Graph(msgspec.Struct, frozen=True):
    """The jobs of a workflow, parents before their children, and what these depend on."""

    nodes: list[TaskInfo] = []
    edges: list[Edge] = []


class GraphPage(Graph, frozen=True):
    """A part of it, as it comes."""

    next_cursor: str | None = None
