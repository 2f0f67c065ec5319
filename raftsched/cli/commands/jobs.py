"""Define `raftsched get | list | explain | history`: read jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import click
import msgspec
from rich.text import Text

from raftsched.cli.terminal.handlerless import shown_work
from raftsched.cli.terminal.options import filter_fields, filter_options, limit_option, order_option
from raftsched.cli.terminal.output import (
    json_option,
    print_fields,
    print_json,
    print_table,
    say,
    status_text,
    visible,
)
from raftsched.cli.terminal.session import Session, part, with_plain_session
from raftsched.cli.terminal.times import when

_COLUMNS: Final = ("id", "name", "queue", "status", "priority", "attempt", "due", "submitted", "failure")

_OPTIONAL: Final = ("submitted", "priority", "attempt", "queue", "due", "failure")


def job_path(job_id: str, *rest: str) -> str:
    """Return the path of a job, or of a resource below it."""
    return "/".join(("/jobs", part(job_id), *rest))


def print_job(job: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(job)
        return
    error = job.get("error") or {}
    print_fields({**shown_work(job), "error": f"{error['type']}: {error['message']}" if error else None})
    if error.get("trace"):
        say(error["trace"].rstrip())


def job_row(job: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the cells of a job in a table of jobs."""
    return (
        job["id"],
        job["name"],
        job["queue"],
        status_text(job["status"]),
        job["priority"],
        job["attempt_number"],
        when(job["next_run_at"]),
        when(job["created_at"]),
        job["failure_reason"],
    )


def print_jobs(jobs: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json(jobs)
        return
    if_none = "no job matches; without filters, `raftsched list` shows all, and `raftsched submit NAME` makes one"
    print_table(_COLUMNS, map(job_row, jobs), optional=_OPTIONAL, if_none=if_none)


@click.command("get")
@click.argument("job_id")
@with_plain_session
@json_option
def get_command(session: Session, job_id: str, *, as_json: bool) -> None:
    """Show a job."""
    print_job(session.get(job_path(job_id)), as_json=as_json)


@click.command("list")
@filter_options()
@order_option
@limit_option
@with_plain_session
@json_option
def list_command(session: Session, limit: int, order: str | None, *, as_json: bool, **filters: Any) -> None:
    """List jobs, the latest first."""
    found = session.items("/jobs", "jobs", limit=limit, order=order or "desc", **filter_fields(filters))
    print_jobs(list(found), as_json=as_json)


@click.command("explain")
@click.argument("job_id")
@with_plain_session
@json_option
def explain_command(session: Session, job_id: str, *, as_json: bool) -> None:
    """Explain why a job is not running, most immediate reason first."""
    answer = session.get(job_path(job_id, "explain"))
    if as_json:
        print_json(answer)
        return
    say(status_text(answer["status"]))
    for reason in answer["reasons"]:
        say(Text.assemble("\n", (reason["code"], "bold"), f": {visible(reason['text'])}"))
        for line in _details(reason.get("details") or {}):
            say(Text(f"  {visible(line)}", style="dim"))


@click.command("history")
@click.argument("job_id")
@with_plain_session
@json_option
def history_command(session: Session, job_id: str, *, as_json: bool) -> None:
    """Show the history of a job: attempts, and who did what."""
    answer = session.get(job_path(job_id, "history"))
    if as_json:
        print_json(answer)
        return
    columns = ("at", "event", "run", "attempt", "worker", "who", "detail")
    fields = ("event", "run_number", "attempt_number", "worker", "actor", "detail")
    rows = [(event["at"], *(event.get(field) for field in fields)) for event in answer["events"]]
    print_table(columns, rows, optional=("run", "worker"), folded=("detail",), title=f"{job_id} is {answer['status']}")
    if answer["truncated"]:
        say("Earlier history is no longer kept.")


def _details(details: Mapping[str, Any]) -> Iterator[str]:
    """Yield the details of a reason; each of several items has its own line."""
    for name, value in details.items():
        if isinstance(value, list):
            yield f"{name}:"
            yield from (f"  {_shown(each)}" for each in value)
        else:
            yield f"{name}: {_shown(value)}"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "  ".join(f"{name} {_shown(each)}" for name, each in value.items())
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
