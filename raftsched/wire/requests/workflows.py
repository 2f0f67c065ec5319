"""Workflows: jobs that are submitted together, and depend on each other."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from raftsched import limits
from raftsched.wire.requests.common import Cursor, IdempotencyKey, IdText, Name, Request
from raftsched.wire.requests.jobs import ConditionName, TimedJobBody
from raftsched.wire.requests.queries import PageLimit, ReadQuery


class TaskDependencyRequest(Request, frozen=True):
    """What must end first: a job of the workflow by its task name, or any other by its id."""

    task: Name | None = None
    job: IdText | None = None
    condition: ConditionName = "success"


class TaskRequest(TimedJobBody, frozen=True):
    """A job of a workflow."""

    depends_on: Annotated[list[Name | TaskDependencyRequest], Meta(max_length=limits.DEPENDENCIES_MAX)] | None = None
    """Task names of the jobs that must end first; a name alone means that it must succeed."""


class WorkflowRequest(Request, frozen=True):
    """Jobs by their task names, stored whole or not at all."""

    name: Name
    jobs: Annotated[
        dict[str, Annotated[msgspec.Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/TaskRequest"})]],
        Meta(min_length=1, max_length=limits.WORKFLOW_JOBS_MAX),
    ]
    tenant: Name | None = None
    idempotency_key: IdempotencyKey | None = None
    """The same key and workflow a second time finds the first; the Idempotency-Key header does the same."""


class WorkflowsQuery(ReadQuery, frozen=True):
    """Which workflows, and which page of them."""

    name: Name | None = None
    tenant: Name | None = None
    status: Literal["submitting", "running", "cancelling", "completed", "failed", "cancelled"] | None = None
    limit: PageLimit = 100
    order: Literal["asc", "desc"] = "desc"
    """By submission, the latest first."""
    cursor: Cursor | None = None


class GraphQuery(ReadQuery, frozen=True):
    """Which page of the graph."""

    limit: PageLimit = limits.PAGE_JOBS_MAX
    cursor: Cursor | None = None
