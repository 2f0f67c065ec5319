"""Define `raftsched workers`: list living workers, and take one out of service or back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import click

from raftsched.cli.terminal.output import json_option, print_json, print_table, say
from raftsched.cli.terminal.session import Session, with_plain_session
from raftsched.cli.terminal.times import when
from raftsched.cli.terminal.verb_command import verb_command
from raftsched.wire.verbs import WORKER


@click.group("workers", invoke_without_command=True)
@click.pass_context
@with_plain_session
@json_option
def workers_command(context: click.Context, session: Session, *, as_json: bool) -> None:
    """Show the workers that reported lately, or drain one of them."""
    if context.invoked_subcommand is not None:
        return
    workers = session.get("/workers")["workers"]
    if as_json:
        print_json(workers)
        return
    columns = ("name", "queues", "capacity", "state", "running", "seen")
    print_table(columns, map(_row, workers))


def _row(worker: Mapping[str, Any]) -> list[Any]:
    running = worker.get("running")
    return [
        worker["name"],
        ", ".join(worker["queues"]),
        worker["capacity"],
        worker.get("state", "active"),
        "" if running is None else running,
        when(worker["seen_at"]),
    ]


def _print_worker(worker: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(worker)
        return
    running = f", {worker['running']} running" if worker["running"] else ""
    say(f"{worker['name']}  {worker['state']}{running}")


def _path(name: str) -> str:
    return f"/workers/{quote(name, safe='')}"


for _verb in WORKER.values():
    workers_command.add_command(verb_command(_verb, _path, _print_worker))
