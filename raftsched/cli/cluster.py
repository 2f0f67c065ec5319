"""`raftsched cluster …`: who leads, how far each node is, and handing the lead over."""

from __future__ import annotations

from collections.abc import Sequence

import click

from raftsched.cli.output import console, json_option, print_json, print_table, reports_errors, url_option
from raftsched.client import BlockingClient


@click.group("cluster")
def cluster_command() -> None:
    """Look at the cluster, and hand its lead over."""


@cluster_command.command("status")
@url_option
@json_option
@reports_errors
def status(urls: Sequence[str], *, as_json: bool) -> None:
    """Show the leader, the term, and each node's state."""
    with BlockingClient(*urls) as client:
        answer = client.cluster()
    if as_json:
        print_json(answer)
        return
    columns = ("id", "state", "applied", "clock_offset_ms", "api")
    rows = [[node.get(column) for column in columns] for node in answer["nodes"]]
    print_table(columns, rows, title=f"leader {answer['leader'] or 'none'}, term {answer['term']}")


@cluster_command.command("transfer")
@url_option
@reports_errors
def transfer(urls: Sequence[str]) -> None:
    """Hand the lead to the follower that is furthest; use it before stopping a leader for maintenance."""
    with BlockingClient(*urls) as client:
        client.transfer_leadership()
    console.print("handed over")
