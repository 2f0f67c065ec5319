"""Define `raftsched dead-letter …`: the dead-letter queue, by reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from raftsched.cli.commands.bulk import ActionWords, all_options, bulk_options, run_bulk
from raftsched.cli.terminal.options import (
    dry_run_option,
    limit_option,
    options,
    order_option,
    tenant_option,
)
from raftsched.cli.terminal.output import json_option, print_json, print_table
from raftsched.cli.terminal.session import Session, with_plain_session, with_session
from raftsched.cli.terminal.times import MOMENT, when

_REASONS: Final = (
    "attempts_exhausted",
    "timeout",
    "worker_lost",
    "rejected",
    "expired",
    "dependency_failed",
    "target_refused",
)
_COLUMNS: Final = ("id", "name", "queue", "attempt", "ended", "reason", "error")
Command = TypeVar("Command", bound=Callable[..., Any])

filters = options(
    click.option(
        "--reason",
        type=click.Choice(_REASONS),
        metavar="REASON",
        help=f"Reason: {', '.join(_REASONS)}.",
    ),
    click.option("--queue", help="Jobs of this queue."),
    click.option("--name", help="Jobs of this name."),
    click.option("--tag", help="Jobs with this tag."),
    tenant_option,
)
targets = options(
    click.argument("job_ids", nargs=-1, metavar="[ID]..."),
    filters,
    click.option("--since", "created_after", type=MOMENT, help="Submitted then or later, as -2h or 2027-03-14."),
    click.option("--before", "created_before", type=MOMENT, help="Submitted before then."),
    all_options("Every dead letter."),
    dry_run_option,
)


@click.group("dead-letter")
def dead_letter_command() -> None:
    """List, requeue or purge the dead-letter queue."""


@dead_letter_command.command("list")
@filters
@order_option
@limit_option
@with_plain_session
@json_option
def list_dead_letters(session: Session, limit: int, order: str | None, *, as_json: bool, **chosen: Any) -> None:
    """List the jobs of the dead-letter queue, the latest first."""
    found = list(session.items("/dead-letters", "jobs", limit=limit, order=order or "desc", **chosen))
    if as_json:
        print_json(found)
        return
    if_none = "no dead letter matches; without filters, `raftsched dead-letter list` shows all"
    print_table(_COLUMNS, map(_row, found), optional=("attempt", "queue", "name", "ended"), if_none=if_none)


@dead_letter_command.command("requeue")
@targets
@with_session
@json_option
def requeue(session: Session, **chosen: Any) -> None:
    """Run jobs of the dead-letter queue again. Jobs that wait for them continue."""
    _change(session, ActionWords("requeue", "requeued", "dead letter"), chosen)


@dead_letter_command.command("purge")
@targets
@with_session
@json_option
def purge(session: Session, **chosen: Any) -> None:
    """Delete jobs of the dead-letter queue."""
    _change(session, ActionWords("purge", "purged", "dead letter"), chosen)


def _row(job: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        job["id"],
        job["name"],
        job["queue"],
        job["attempt_number"],
        when(job["completed_at"]),
        job["failure_reason"],
        (job.get("error") or {}).get("type"),
    )


def _change(session: Session, words: ActionWords, chosen: Mapping[str, Any]) -> None:
    run_bulk(session, f"/dead-letters/{words.plain}", {}, bulk_options(chosen), words=words)
