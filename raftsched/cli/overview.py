"""`raftsched queues` and `raftsched workers`: what waits, and who works."""

from __future__ import annotations

from collections.abc import Sequence

import click

from raftsched.cli.output import json_option, print_json, print_table, reports_errors, url_option
from raftsched.client import BlockingClient


@click.command("queues")
@url_option
@json_option
@reports_errors
def queues_command(urls: Sequence[str], *, as_json: bool) -> None:
    """Show how many jobs each queue holds, by status."""
    with BlockingClient(*urls) as client:
        queues = client.queues()
    if as_json:
        print_json(queues)
        return
    statuses = ("scheduled", "queued", "running", "retrying", "completed", "dead_letter", "cancelled")
    print_table(("queue", *statuses), [[q["name"], *(q.get(status, 0) for status in statuses)] for q in queues])


@click.command("workers")
@url_option
@json_option
@reports_errors
def workers_command(urls: Sequence[str], *, as_json: bool) -> None:
    """Show the workers that were heard of lately."""
    with BlockingClient(*urls) as client:
        workers = client.workers()
    if as_json:
        print_json(workers)
        return
    columns = ("name", "queues", "capacity", "seen_at")
    print_table(columns, [[w["name"], ", ".join(w["queues"]), w["capacity"], w["seen_at"]] for w in workers])
