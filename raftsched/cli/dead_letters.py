"""`raftsched dead-letter …`: the jobs that were given up, by the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from raftsched.cli.bulk import Verb, asked_of, run_bulk
from raftsched.cli.jobs import print_jobs
from raftsched.cli.options import dry_run_option, limit_option, options, order_option, tenant_option
from raftsched.cli.output import json_option
from raftsched.cli.session import Session, with_session
from raftsched.cli.times import MOMENT

_REASONS: Final = ("attempts_exhausted", "timeout", "worker_lost", "rejected", "expired", "dependency_failed")
Command = TypeVar("Command", bound=Callable[..., Any])

filters = options(
    click.option("--reason", type=click.Choice(_REASONS), help="Why they were given up."),
    click.option("--queue"),
    click.option("--name"),
    click.option("--tag"),
    tenant_option,
)
targets = options(
    click.argument("job_ids", nargs=-1, metavar="[ID]..."),
    filters,
    click.option("--since", "created_after", type=MOMENT, help="Submitted then or later, as -2h or 2027-03-14."),
    click.option("--before", "created_before", type=MOMENT, help="Submitted before then."),
    click.option("--all", "everything", is_flag=True, help="Every dead letter."),
    dry_run_option,
)


@click.group("dead-letter")
def dead_letter_command() -> None:
    """Look at jobs that were given up; requeue or purge them."""


@dead_letter_command.command("list")
@filters
@order_option
@limit_option
@with_session
@json_option
def list_dead_letters(session: Session, limit: int, order: str | None, *, as_json: bool, **chosen: Any) -> None:
    """List the jobs that were given up, the latest first."""
    found = session.items("/dead-letters", "jobs", limit=limit, order=order or "desc", **chosen)
    print_jobs(list(found), as_json=as_json)


@dead_letter_command.command("requeue")
@targets
@with_session
@json_option
def requeue(session: Session, **chosen: Any) -> None:
    """Run dead letters again. What waits for them goes on, too."""
    _change(session, Verb("requeue", "requeued", "dead letter"), chosen)


@dead_letter_command.command("purge")
@targets
@with_session
@json_option
def purge(session: Session, **chosen: Any) -> None:
    """Remove dead letters for good."""
    _change(session, Verb("purge", "purged", "dead letter"), chosen)


def _change(session: Session, verb: Verb, chosen: Mapping[str, Any]) -> None:
    run_bulk(session, f"/dead-letters/{verb.plain}", {}, asked_of(chosen), verb=verb)
