"""Define `raftsched workflow …`: jobs that are submitted together, and depend on each other."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from raftsched.cli.terminal.files import read_document
from raftsched.cli.terminal.options import FILE, limit_option, order_option, tenant_option
from raftsched.cli.terminal.output import (
    json_option,
    print_json,
    print_table,
    progress_console,
    say,
    status_text,
    tell,
)
from raftsched.cli.terminal.session import Session, part, with_plain_session, with_session
from raftsched.cli.terminal.times import when
from raftsched.errors import Invalid, Malformed, Rejected

_ENDED: Final = frozenset({"completed", "failed", "cancelled"})
_EXIT_CODES: Final = {"completed": 0, "failed": 3, "cancelled": 4}
_PARENTS_SHOWN_MAX: Final = 5
_PAUSE_SECONDS_MIN: Final = 0.1
_PAUSE_SECONDS_MAX: Final = 2.0
_COUNTS: Final = (
    "job_count",
    "unfinished_count",
    "completed_count",
    "failed_count",
    "cancelled_count",
    "skipped_count",
)


@click.group("workflow")
def workflow_command() -> None:
    """Submit, show and cancel jobs that depend on each other."""


@workflow_command.command("submit", epilog="With --wait: exit code 0 completed, 3 failed, 4 cancelled.")
@click.option("-f", "--file", "path", type=FILE, required=True, help="YAML, or JSON; - = standard input.")
@click.option("--idempotency-key", help="A repeated submit with the same key finds the first workflow.")
@click.option("--wait", is_flag=True, help="Wait until the workflow has ended.")
@with_session
@json_option
def submit(session: Session, path: Path, idempotency_key: str | None, *, wait: bool, as_json: bool) -> None:
    """Submit a workflow from a file, whole or not at all.

    It has the fields of POST /workflows.
    """
    document = read_document(path)
    if not isinstance(document.value, dict):
        raise Malformed(f"{document.name}: a workflow has the fields `name` and `jobs`")
    key = idempotency_key or document.value.get("idempotency_key")
    try:
        workflow = session.post("/workflows", document.value, headers=session.key_header(key))
    except (Invalid, Rejected) as error:
        raise document.fault(error, error.field, str(error)) from None
    if wait:
        workflow = {**_waited(session, workflow), "jobs": workflow["jobs"]}
    if as_json:
        print_json(workflow)
    elif wait:
        _print_graph(_graph(session, workflow["id"]))
    else:
        say(f"{workflow['id']}  {workflow['name']}  {workflow['status']}")
        print_table(("task", "job"), list(workflow["jobs"].items()))
    if wait and (code := _EXIT_CODES[workflow["status"]]):
        raise SystemExit(code)


@workflow_command.command("list")
@click.option("--name", help="Workflows of this name.")
@click.option(
    "--status",
    type=click.Choice(["submitting", "running", "cancelling", "completed", "failed", "cancelled"]),
    metavar="STATUS",
    help="As running, completed, failed.",
)
@tenant_option
@order_option
@limit_option
@with_plain_session
@json_option
def list_workflows(session: Session, limit: int, order: str | None, *, as_json: bool, **filters: Any) -> None:
    """List workflows, the latest first."""
    found = list(session.items("/workflows", "workflows", limit=limit, order=order or "desc", **filters))
    if as_json:
        print_json(found)
        return
    columns = ("id", "name", "status", "jobs", "unfinished", "completed", "failed", "cancelled", "skipped", "submitted")
    rows = [
        (
            each["id"],
            each["name"],
            status_text(each["status"]),
            *(each[count] for count in _COUNTS),
            when(each["created_at"]),
        )
        for each in found
    ]
    optional = ("skipped", "cancelled", "submitted", "unfinished", "failed", "completed")
    if_none = "no workflow matches; `raftsched workflow submit -f FILE` makes one"
    print_table(columns, rows, optional=optional, if_none=if_none)


@workflow_command.command("get")
@click.argument("workflow_id", metavar="ID")
@with_plain_session
@json_option
def get(session: Session, workflow_id: str, *, as_json: bool) -> None:
    """Show a workflow: its jobs and their parents."""
    graph = _graph(session, workflow_id)
    if as_json:
        print_json(graph)
        return
    _print_graph(graph)


def _print_graph(graph: Mapping[str, Any]) -> None:
    """Print a workflow: each task with its status, and its parents."""
    tasks = {node["id"]: node["task"] for node in graph["nodes"]}
    parents: defaultdict[str, list[str]] = defaultdict(list)
    for edge in graph["edges"]:
        condition = "" if edge["condition"] == "success" else f" ({edge['condition']})"
        parents[edge["child"]].append(tasks.get(edge["parent"], edge["parent"]) + condition)
    rows = [
        (
            node["task"],
            status_text(node["status"]),
            node["name"],
            _listed(parents[node["id"]]),
            node["id"],
            node["failure_reason"],
        )
        for node in graph["nodes"]
    ]
    print_table(
        ("task", "status", "job", "after", "id", "failure"),
        rows,
        title=_title(graph),
        optional=("failure", "job", "after"),
    )


@workflow_command.command("cancel")
@click.argument("workflow_id", metavar="ID")
@with_session
@json_option
def cancel(session: Session, workflow_id: str, *, as_json: bool) -> None:
    """Cancel all jobs of a workflow that have not ended."""
    workflow = session.send("DELETE", _path(workflow_id))
    if as_json:
        print_json(workflow)
    else:
        say(_title(workflow))


def _path(workflow_id: str) -> str:
    return f"/workflows/{part(workflow_id)}"


def _graph(session: Session, workflow_id: str) -> dict[str, Any]:
    """Return the whole graph, all of its pages together."""
    first: dict[str, Any] | None = None
    for page in session.pages(_path(workflow_id)):
        if first is None:
            first = page
        else:
            first["nodes"] += page["nodes"]
            first["edges"] += page["edges"]
    assert first is not None
    return {**first, "next_cursor": None}


def _waited(session: Session, workflow: Mapping[str, Any]) -> dict[str, Any]:
    """Return the workflow once it has ended, with a bar on a terminal meanwhile."""
    tell(f"waiting for {workflow['id']}")
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    quiet = not progress_console.is_terminal
    pause = _PAUSE_SECONDS_MIN
    with Progress(*columns, console=progress_console, transient=True, disable=quiet) as progress:
        task = progress.add_task(workflow["name"], total=workflow["job_count"])
        while True:
            now = session.get(_path(workflow["id"]), limit=1)
            progress.update(task, completed=now["job_count"] - now["unfinished_count"], description=now["status"])
            if now["status"] in _ENDED:
                return {name: value for name, value in now.items() if name not in ("nodes", "edges", "next_cursor")}
            time.sleep(pause)
            pause = min(pause * 1.5, _PAUSE_SECONDS_MAX)


def _title(workflow: Mapping[str, Any]) -> str:
    ended = workflow["job_count"] - workflow["unfinished_count"]
    return f"{workflow['name']} is {workflow['status']}: {ended:,} of {workflow['job_count']:,} jobs ended"


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_PARENTS_SHOWN_MAX])
    return shown if len(names) <= _PARENTS_SHOWN_MAX else f"{shown} and {len(names) - _PARENTS_SHOWN_MAX} more"
