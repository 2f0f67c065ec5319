"""Build the replies of workflows: counts, lists, and the graph page by page."""

from __future__ import annotations

from typing import Any

import msgspec

from raftsched import limits
from raftsched.api.http.json_reply import time_or_none, time_text
from raftsched.api.json.cursors import decode_cursor, encode_cursor, raise_foreign, raise_other_list
from raftsched.core.records.ids import JobId, job_id_text
from raftsched.core.records.job import Job
from raftsched.core.records.workflow import Workflow, WorkflowId
from raftsched.errors import Malformed
from raftsched.storage.reader import StateReader
from raftsched.storage.tables.facets import ID_BYTES
from raftsched.wire.workflows import (
    EdgeReply,
    GraphQuery,
    GraphReply,
    NodeDocument,
    WorkflowReply,
    WorkflowsPage,
    WorkflowsQuery,
)


class GraphCursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The position at which the graph of a workflow continues."""

    workflow_id: bytes
    after: bytes
    """Id of the last job shown."""


class WorkflowsCursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The position at which a list of workflows continues."""

    filters: tuple[str, ...]
    after: bytes


def workflow_fields(workflow: Workflow) -> dict[str, Any]:
    """Return the fields of a workflow's reply, for all structs that extend it."""
    ended_otherwise = workflow.failed_count + workflow.cancelled_count + workflow.skipped_count
    return {
        "id": job_id_text(JobId(workflow.id)),
        "name": workflow.name,
        "tenant": workflow.tenant,
        "status": workflow.label,
        "job_count": workflow.job_count,
        "unfinished_count": workflow.unfinished_count,
        "completed_count": workflow.stored_count - workflow.unfinished_count - ended_otherwise,
        "failed_count": workflow.failed_count,
        "cancelled_count": workflow.cancelled_count,
        "skipped_count": workflow.skipped_count,
        "idempotency_key": workflow.idempotency_key or None,
        "created_at": time_text(workflow.created_at_ms),
        "updated_at": time_text(workflow.updated_at_ms),
        "cancel_requested_at": time_or_none(workflow.cancel_requested_at_ms),
        "completed_at": time_or_none(workflow.finished_at_ms),
        "revision": workflow.revision,
    }


def graph_page(state: StateReader, workflow: Workflow, query: GraphQuery, now_ms: int) -> GraphReply:
    """Return the jobs of a page, parents first, and their dependencies.

    The page ends early at `limits.DEPENDENCIES_MAX` edges. Raises `Malformed` for an invalid cursor.
    """
    after = JobId(_graph_cursor(workflow, query.cursor).after) if query.cursor else None
    ids = state.workflow_jobs(WorkflowId(workflow.id), after=after, limit=query.limit)
    nodes: list[NodeDocument[str]] = []
    edges: list[EdgeReply] = []
    last = ids[-1] if len(ids) == query.limit else None
    for job_id in ids:
        job = state.job(job_id)
        if job is None:
            continue
        nodes.append(_node_reply(job, now_ms))
        if job.dependency_count:
            edges += [
                EdgeReply(parent=job_id_text(each.parent), child=nodes[-1].id, condition=each.condition.label)
                for each in state.dependencies(job_id)
            ]
        if len(edges) >= limits.DEPENDENCIES_MAX:
            last = job_id if job_id != ids[-1] else last
            break
    following = None if last is None else encode_cursor(GraphCursor(workflow.id, last))
    return GraphReply(**workflow_fields(workflow), nodes=nodes, edges=edges, next_cursor=following)


def workflows_page(state: StateReader, query: WorkflowsQuery) -> WorkflowsPage:
    """Return the workflows of a page; raises `Malformed` for a cursor of another list."""
    filters = (query.name or "", query.tenant or "", query.status or "", query.order)
    after = b""
    if query.cursor is not None:
        cursor = decode_cursor(query.cursor, WorkflowsCursor)
        if cursor.filters != filters:
            raise_other_list()
        after = cursor.after
        if len(after) != ID_BYTES:
            raise_foreign()
    page = state.list_workflows(after=after, limit=limits.SCAN_ROWS_MAX, descending=query.order == "desc")
    workflows: list[WorkflowReply] = []
    next_key = page.next_cursor
    for position, (key, workflow) in enumerate(page.items):
        if not _matches(workflow, query):
            continue
        workflows.append(WorkflowReply(**workflow_fields(workflow)))
        if len(workflows) == query.limit:
            next_key = key if position + 1 < len(page.items) else next_key
            break
    following = encode_cursor(WorkflowsCursor(filters, next_key)) if next_key else None
    return WorkflowsPage(workflows=workflows, next_cursor=following)


def _matches(workflow: Workflow, query: WorkflowsQuery) -> bool:
    return (
        query.name in (None, workflow.name)
        and query.tenant in (None, workflow.tenant)
        and query.status in (None, workflow.label)
    )


def _graph_cursor(workflow: Workflow, text: str) -> GraphCursor:
    cursor = decode_cursor(text, GraphCursor)
    if cursor.workflow_id != workflow.id:
        raise Malformed("cursor: it belongs to another workflow", field="cursor")
    if len(cursor.after) != ID_BYTES:
        raise_foreign()
    return cursor


def _node_reply(job: Job, now_ms: int) -> NodeDocument[str]:
    return NodeDocument(
        id=job_id_text(job.id),
        task=job.spec.options.task if job.spec.options is not None else "",
        name=job.spec.name,
        queue=job.spec.queue,
        status=job.status_at(now_ms).label,
        pending_dependencies=job.pending_count,
        started_at=time_or_none(job.started_at_ms),
        completed_at=time_or_none(job.finished_at_ms),
        failure_reason=job.failure_reason or None,
    )
