"""List workflows with their progress, and show one as a graph and as a table, page by page."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from raftsched.client.records import WorkflowInfo
from raftsched.dashboard.form_values import form_values
from raftsched.dashboard.graph_layout import NODES_MAX, drawing_of
from raftsched.dashboard.page import Answer, Page, Redirect, Rendered
from raftsched.dashboard.rendering import url
from raftsched.dashboard.view import View

_PAGE_WORKFLOWS: Final = 50
_FILTERS: Final = ("name", "status", "tenant")
STATUSES: Final = ("submitting", "running", "cancelling", "completed", "failed", "cancelled")
KINDS: Final = {
    "submitting": "busy",
    "running": "busy",
    "cancelling": "warn",
    "completed": "good",
    "failed": "bad",
    "cancelled": "warn",
}
"""The colour of each status of a workflow."""


async def show(view: View) -> Answer:
    """Return a page of the workflows that match the filter in the URL, the latest first."""
    kept = {name: view.query[name] for name in _FILTERS if name in view.query}
    query: dict[str, Any] = {**kept, "limit": _PAGE_WORKFLOWS, "cursor": view.query.get("cursor")}
    workflows, cursor = await view.client.page(WorkflowInfo, "/workflows", "workflows", query)
    return Rendered(
        "workflows/list.html",
        {
            "workflows": workflows,
            "kept": form_values(kept),
            "statuses": STATUSES,
            "kinds": KINDS,
            "next_url": url("/workflows", kept, cursor=cursor) if cursor else None,
            "is_first": "cursor" not in view.query,
        },
    )


async def show_workflow(view: View) -> Answer:
    """Return the page of a workflow: a page of its graph, drawn and listed."""
    run = view.client.workflows.run(view.match["id"])
    graph = await run.graph_page(limit=NODES_MAX, cursor=view.query.get("cursor"))
    path = f"/workflows/{graph.id}"
    return Rendered(
        "workflows/workflow.html",
        {
            "workflow": graph,
            "kind": KINDS.get(graph.status, "other"),
            "drawing": drawing_of(graph.nodes, graph.edges),
            "statuses": Counter(node.status for node in graph.nodes).most_common(),
            "parents": Counter(edge.child for edge in graph.edges),
            "is_first": "cursor" not in view.query,
            "next_url": url(path, cursor=graph.next_cursor) if graph.next_cursor else None,
        },
    )


async def confirm_cancel(view: View) -> Answer:
    """Say what a cancel would do, and ask."""
    return Rendered("workflows/cancel.html", {"workflow": await view.client.workflows.run(view.match["id"]).get()})


async def cancel(view: View) -> Answer:
    """Cancel all jobs of a workflow that are not finished."""
    workflow = await view.client.workflows.run(view.match["id"]).cancel()
    return Redirect(url(f"/workflows/{workflow.id}"), f"{workflow.name} is being cancelled.")


PAGES: Final = (
    Page(path="/workflows", nav="Workflows", show=show),
    Page(path="/workflows/{id}", show=show_workflow),
    Page(path="/workflows/{id}/cancel", access="submit", show=confirm_cancel, act=cancel),
)
