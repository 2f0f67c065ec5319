"""Define `raftsched workers`: list living workers."""

from __future__ import annotations

import click

from raftsched.cli.terminal.output import json_option, print_json, print_table
from raftsched.cli.terminal.session import Session, with_plain_session
from raftsched.cli.terminal.times import when


@click.command("workers")
@with_plain_session
@json_option
def workers_command(session: Session, *, as_json: bool) -> None:
    """Show the workers that reported lately."""
    workers = session.get("/workers")["workers"]
    if as_json:
        print_json(workers)
        return
    columns = ("name", "queues", "capacity", "seen")
    print_table(columns, [[w["name"], ", ".join(w["queues"]), w["capacity"], when(w["seen_at"])] for w in workers])
